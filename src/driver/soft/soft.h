/*
 * What the two drivers without a GPU, sim and host, have in common: addresses, handles, mappings, sharing and pinned
 * memory; streams, their captures, and events.
 *
 *   space.c    addresses: reservations and their granules
 *   handle.c   handles: created or imported, exported, released
 *   memory.c   mappings, access
 *   pins.c     pinned memory
 *   streams.c  names and captures of streams
 *   events.c   events, and waits for them and for the device
 *   report.c   violations, and the lines of refused calls
 *
 * Both keep the same records and check the same rules, P2 to P9, so each operation on memory, streams and events is
 * here once. What stands behind them is the backing: a memory file and threads (host), or nothing but costs and CUDA's
 * rules (sim). Each operation checks everything before it changes anything. The use of an invalid handle or event is
 * refused and also recorded as a violation, because it is undefined behaviour in CUDA.
 *
 * As with CUDA's handles, a new stream gets the name of a destroyed one, the most recent first; until then the name is
 * invalid. No graph is built: a stream under capture accepts no work. Operations that would invalidate a capture in
 * CUDA are refused and recorded as violations, and the capture then ends with an error.
 *
 * Invariants:
 *  S1. Reservations are sorted by address and never overlap.
 *  S2. A granule's entry points to the mapping that covers it, or is NULL. Mappings never overlap.
 *  S3. A handle lives until it is released and its last mapping is unmapped; a created one counts in physical_bytes
 *      until then. Its id becomes invalid at release.
 *  S4. Pinned ranges are not empty and do not overlap.
 *  S5. No handle and no event has the id that another one has or had.
 *  S6. Only a stream that is found by its name is under capture.
 * Owns: the records above. May be called by: sim, host. Locks: every function runs with the lock held that guards the
 * driver's memory or, on streams and events, that of its streams.
 */
#ifndef VMM_DRIVER_SOFT_SOFT_H
#define VMM_DRIVER_SOFT_SOFT_H

#include "base/map.h"
#include "driver/driver.h"
#include "driver/soft/violations.h"

#include <stddef.h>

enum { SOFT_GRANULE_BYTES = 2 << 20, SOFT_TEXT_BYTES = 320 };

struct soft;

/* ---- Records: those of a driver begin with these --------------------------------------------- */

struct soft_handle {
    struct map_node node; /* its key is the id */
    uint64_t bytes;
    vmm_share_reach reach; /* as created */
    bool imported;
    bool released;
    uint64_t mappings;
};

struct soft_mapping {
    uint64_t address;
    uint64_t bytes;
    struct soft_handle *handle;
    bool accessible;
};

struct soft_reservation {
    uint64_t address;
    uint64_t bytes;
    uint64_t mappings;
    struct soft_mapping **granules;
};

struct soft_space {
    struct soft_reservation *items;
    uint32_t count;
    uint64_t capacity;
    uint32_t last_found;
};

struct soft_pin {
    struct soft_pin *next;
    uint64_t address;
    uint64_t bytes;
};

struct soft_stream {
    struct map_node node; /* its key is the name */
    bool is_named;        /* is found by its name: not destroyed, nor forgotten */
    bool is_captured;     /* is under capture */
    bool is_broken;       /* an operation broke the capture */
    uint64_t capture;     /* number of its last capture; 0: none */
};

struct soft_streams {
    struct map named;   /* streams by name */
    bool has_forgotten; /* a stream that was not destroyed is no longer among them */
    uint64_t captures;  /* ever begun */
    uint64_t generated;
    struct map stale;            /* names of destroyed streams that no other one has */
    struct stale_name *youngest; /* the most recent of them */
};

struct soft_event {
    struct map_node node; /* its key is the id */
    uint64_t capture;     /* that it was recorded in; 0: none */
    vmm_stream captured;  /* the stream of that capture */
    void *
        positions; /* in the work of streams, in the backing's form; the event is complete once all are reached */
    uint32_t count; /* 0: never recorded, or without any work */
    uint32_t capacity;
};

/* A number of events, and one line about the first, which no longer changes. Any thread may add. */
struct soft_report {
    _Atomic uint64_t count;
    char first[SOFT_TEXT_BYTES];
};

/* ---- The backing ----------------------------------------------------------------------------- */

/*
 * What each backing does: X(type, name, parameters). If a function fails, with a line, its operation fails and changes
 * nothing.
 *
 *   create        gives memory to the handle; the caller has checked that enough is free
 *   handle_end    the memory of the handle, created or imported, goes
 *   access        gives access to a range, which lies in the reservation and consists of whole mappings
 *   others_bytes  the memory of the device that other processes have
 *   stream_new    returns the record of a new stream, or of one that it forgets, with all but its `soft` filled in
 *   stream_wait   the stream's next work waits for the event
 *   event_record  the event stands for the work that the stream has now; NULL: that all streams have
 *   event_wait    the host waits; also called for an event that is complete, so that the host knows
 *   device_wait   the host waits for the work of all streams
 */
#define SOFT_BACKING_MAP(X)                                                                        \
    X(vmm_status, reserve,                                                                         \
      (struct soft * soft, uint64_t bytes, uint64_t hint, uint64_t * address))                     \
    X(vmm_status, address_free, (struct soft * soft, uint64_t address, uint64_t bytes))            \
    X(vmm_status, create, (struct soft * soft, struct soft_handle * handle))                       \
    X(void, handle_end, (struct soft * soft, struct soft_handle * handle))                         \
    X(vmm_status, map, (struct soft * soft, struct soft_mapping * mapping))                        \
    X(vmm_status, access,                                                                          \
      (struct soft * soft, const struct soft_reservation *reservation, uint64_t address,           \
       uint64_t bytes))                                                                            \
    X(uint64_t, others_bytes, (struct soft * soft))                                                \
    X(vmm_status, share_export, (const struct soft_handle *handle, int *descriptor))               \
    X(vmm_status, share_import, (struct soft * soft, int descriptor, struct soft_handle *handle))  \
    X(vmm_status, fabric_export, (const struct soft_handle *handle, struct driver_fabric *fabric)) \
    X(vmm_status, fabric_import,                                                                   \
      (struct soft * soft, const struct driver_fabric *fabric, struct soft_handle *handle))        \
    X(vmm_status, stream_new, (struct soft * soft, vmm_stream name, struct soft_stream * *out))    \
    X(vmm_status, stream_wait,                                                                     \
      (struct soft * soft, struct soft_stream * stream, struct soft_event * event))                \
    X(vmm_status, event_record,                                                                    \
      (struct soft * soft, struct soft_event * event, struct soft_stream * stream))                \
    X(bool, event_is_complete, (struct soft * soft, const struct soft_event *event))               \
    X(void, event_wait, (struct soft * soft, struct soft_event * event))                           \
    X(void, device_wait, (struct soft * soft))

struct soft_backing {
    size_t handle_bytes; /* of the driver's records */
    size_t mapping_bytes;
    size_t pin_bytes;
    size_t position_bytes; /* of events */

#define SOFT_BACKING_MEMBER(type, name, parameters) type(*name) parameters;
    SOFT_BACKING_MAP(SOFT_BACKING_MEMBER)
#undef SOFT_BACKING_MEMBER

    /* NULL: there is nothing to do. */
    vmm_status (*unmap)(struct soft *soft, const struct soft_reservation *reservation,
                        uint64_t address, uint64_t bytes);
    /* The mapping is no longer in the granules, and its handle no longer counts it. */
    void (*mapping_end)(struct soft *soft, struct soft_mapping *mapping);
    void (*pin_end)(struct soft *soft, struct soft_pin *pin);
    /* The call succeeds, on the handle or, if NULL, without one. Unmap and access charge for themselves. */
    void (*charge)(struct soft *soft, enum driver_call call, uint64_t bytes,
                   const struct soft_handle *handle);

    /* Addresses have memory, and the descriptor of an exportable handle stands for it. */
    bool has_memory;
};

/* The beginning of struct sim and of struct host_driver. */
struct soft {
    struct driver driver; /* first, so a struct driver * is also a struct soft * */
    const struct soft_backing *backing;
    struct soft_report violations;
    struct soft_space space;
    struct map handles;       /* not released, by id */
    _Atomic uint64_t last_id; /* 0 is none */
    uint64_t physical_bytes;
    struct soft_pin *pins;

    /* Guarded by the lock of the driver's streams. */
    struct soft_streams streams;
    struct map events;             /* by id */
    struct soft_report mismatches; /* that check() found */
};

/* The operations of the table. */
#define SOFT_OP_DECLARE(name, parameters, arguments) vmm_status vmm__soft_##name parameters;
VMM_DRIVER_MEMORY_MAP(SOFT_OP_DECLARE, struct soft *soft, )
VMM_DRIVER_SHARE_MAP(SOFT_OP_DECLARE, struct soft *soft, )
VMM_DRIVER_EVENT_MAP(SOFT_OP_DECLARE, struct soft *soft, )
VMM_DRIVER_CAPTURE_MAP(SOFT_OP_DECLARE, struct soft *soft, )
#undef SOFT_OP_DECLARE

/* Fills in what both drivers have. */
void vmm__soft_open(struct soft *soft, const struct driver_ops *ops,
                    const struct soft_backing *backing, const struct driver_options *options,
                    uint64_t total_bytes, const char *device_name);
/* Frees all memory that is left, and its records. */
void vmm__soft_close(struct soft *soft);

/* ---- For the backings and the files of soft -------------------------------------------------- */

/* Adds to a report; keeps the first line. */
void vmm__soft_report_add(struct soft_report *report, uint64_t count, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Return the status with a line that names the call. */
vmm_status vmm__soft_refuse(const struct soft *soft, vmm_status status, const char *verb,
                            uint64_t bytes, const char *why);
vmm_status vmm__soft_range_refuse(const struct soft *soft, const char *verb, uint64_t address,
                                  uint64_t bytes, const char *why);

static inline bool soft_is_granules(uint64_t bytes)
{
    return bytes != 0 && bytes % SOFT_GRANULE_BYTES == 0;
}

/* Returns the index of the first reservation that ends above the address. */
uint32_t vmm__soft_space_search(const struct soft_space *space, uint64_t address);
/* Returns the reservation that contains the address, or NULL; valid until the next reserve or free. */
struct soft_reservation *vmm__soft_reservation_at(struct soft_space *space, uint64_t address);
/* Finds the reservation around a range of whole granules. */
vmm_status vmm__soft_range_find(struct soft *soft, const char *verb, uint64_t address,
                                uint64_t bytes, struct soft_reservation **out);
/* Without its mappings. */
void vmm__soft_space_close(struct soft *soft);

static inline struct soft_mapping **soft_granule(const struct soft_reservation *reservation,
                                                 uint64_t address)
{
    return &reservation->granules[(address - reservation->address) / SOFT_GRANULE_BYTES];
}

/* Returns NULL unless the handle was created or imported, and not released. */
static inline struct soft_handle *soft_handle_find(const struct soft *soft, uint64_t id)
{
    return (struct soft_handle *)vmm__map_find(&soft->handles, id);
}

/* Frees the handle and its memory once it is released and has no mappings. */
void vmm__soft_handle_settle(struct soft *soft, struct soft_handle *handle);
/* Without their mappings. */
void vmm__soft_handles_close(struct soft *soft);
/* Records the use of an invalid handle as a violation, and refuses it. */
vmm_status vmm__soft_handle_refuse(struct soft *soft, const char *verb, uint64_t id);

/* Returns the record of the pinned range that contains this one, or NULL. */
struct soft_pin *vmm__soft_pin_find(const struct soft *soft, const void *host, uint64_t bytes);
/* Fails, with a line that names the call, unless every piece lies in one pinned range. */
vmm_status vmm__soft_pins_check(const struct soft *soft, const char *verb,
                                const struct driver_piece *pieces, unsigned count);
void vmm__soft_pins_close(struct soft *soft);

static inline void soft_charge(struct soft *soft, enum driver_call call, uint64_t bytes,
                               const struct soft_handle *handle)
{
    if (soft->backing->charge != NULL)
        soft->backing->charge(soft, call, bytes, handle);
}

/* ---- Streams --------------------------------------------------------------------------------- */

static inline vmm_stream soft_stream_name(const struct soft_stream *stream)
{
    return (vmm_stream)(uintptr_t)stream->node.key;
}

/* Returns NULL if no stream has that name. */
static inline struct soft_stream *soft_stream_find(const struct soft_streams *streams,
                                                   vmm_stream name)
{
    return (struct soft_stream *)vmm__map_find(&streams->named, (uint64_t)(uintptr_t)name);
}

/* Finds the stream, or makes it known. Fails if it was destroyed. */
vmm_status vmm__soft_stream_get(struct soft *soft, const char *verb, vmm_stream name,
                                struct soft_stream **out);
/* The same for an operation that waits for the stream, makes it wait or submits work to it: refuses that if the stream
 * is being captured, and breaks the capture. */
vmm_status vmm__soft_stream_use(struct soft *soft, const char *verb, vmm_stream name,
                                struct soft_stream **out);
vmm_status vmm__soft_capture_break(struct soft *soft, struct soft_stream *stream, const char *verb);

/* The stream still exists, but the driver no longer knows it. */
void vmm__soft_stream_forget(struct soft *soft, struct soft_stream *stream);

/* Forgets the positions of an event, and makes room for so many. */
vmm_status vmm__soft_event_clear(struct soft *soft, struct soft_event *event, uint64_t count);
/* Ends all events. */
void vmm__soft_events_close(struct soft *soft);
/* The same, and forgets all streams, which still exist. */
void vmm__soft_streams_close(struct soft *soft);

#endif
