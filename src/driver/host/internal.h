/*
 * Shared by the files of the host driver only: ordinary memory behind the driver table.
 *
 *   host.c     opens and closes the driver; the table
 *   file.c     physical memory: one memfd, and its free extents; the files of exportable handles
 *   address.c  reservations
 *   handle.c   handles; opens and closes the memory
 *   share.c    exported and imported handles, pinned memory
 *   mapping.c  mappings
 *   work.c     streams, their queues and the worker threads
 *   run.c      kinds of work: fill, check, copy, kernels, delay
 *   event.c    events, and blocking waits of host threads
 *   pattern.c  the memory patterns of fill and check
 *
 * Owns: nothing. May be called by: driver/host. Locks: memory.lock guards everything in host_memory (and its file);
 * work.lock guards everything in host_work, its streams and its events. No thread holds both.
 */
#ifndef VMM_DRIVER_HOST_INTERNAL_H
#define VMM_DRIVER_HOST_INTERNAL_H

#include "base/map.h"
#include "base/mutex.h"
#include "driver/driver.h"
#include "driver/pins.h"
#include "driver/stream_names.h"

#include <pthread.h>
#include <stddef.h>

enum {
    HOST_GRANULE_BYTES = 2 << 20,
    HOST_QUEUE_LIMIT = 4096, /* pending pieces on one stream; a further submission blocks */
    HOST_WORKER_LIMIT = 8
};

/* ---- file.c: physical memory ----------------------------------------------------------------- */

/* A run of granules in the file. */
struct host_extent {
    uint64_t first;
    uint64_t count;
};

struct host_file {
    int descriptor;
    uint64_t granules;
    uint64_t free_granules;
    struct host_extent *free; /* sorted, never adjacent; capacity for the worst case */
    size_t free_count;
};

/* The extents of one handle. */
struct host_extents {
    struct host_extent *items;
    size_t count;
};

vmm_status vmm__host_file_open(struct host_file *file, uint64_t bytes);
void vmm__host_file_close(struct host_file *file);

/* Takes free granules and allocates their memory from the system immediately. */
vmm_status vmm__host_file_allocate(struct host_file *file, uint64_t granules,
                                   struct host_extents *out);

/* Returns the memory to the system and adds the granules to the free list. */
void vmm__host_file_release(struct host_file *file, struct host_extents *extents);

/* The same granules without memory in the file: an exportable handle has a file of its own. */
vmm_status vmm__host_file_take(struct host_file *file, uint64_t granules, struct host_extents *out);
void vmm__host_file_give(struct host_file *file, struct host_extents *extents);

/* The seals of such a file: its size never changes, so no access to its mappings can fail. */
#define HOST_SHARED_SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW)

/* Creates the file of an exportable handle, with its memory. */
vmm_status vmm__host_file_create_shared(uint64_t bytes, int *descriptor);

/* Frees only the list. */
void vmm__host_extents_free(struct host_extents *extents);

/* ---- address.c: reservations ----------------------------------------------------------------- */

struct host_reservation {
    struct host_reservation *next;
    uint64_t address;
    uint64_t bytes;
    uint64_t mappings;
    struct host_mapping **table; /* one entry for each granule */
};

struct host_memory;

/* Returns NULL unless the whole range lies in one reservation. */
struct host_reservation *vmm__host_reservation_find_locked(const struct host_memory *memory,
                                                           uint64_t address, uint64_t bytes);
struct host_mapping **vmm__host_table_slot(const struct host_reservation *reservation,
                                           uint64_t address);

/* Call after vmm__host_mappings_close(). */
void vmm__host_reservations_close(struct host_memory *memory);

/* Makes addresses of a reservation inaccessible; they stay reserved throughout. */
bool vmm__host_range_cover(uint64_t address, uint64_t bytes);

/* Sets the error line of a failed system call on a range, and returns its status. */
vmm_status vmm__host_system_error(const char *call, uint64_t address, uint64_t bytes, int code);

/* ---- handle.c: handles; the memory of the driver --------------------------------------------- */

struct host_handle {
    struct map_node node; /* its key is the id */
    uint64_t bytes;
    uint64_t mappings;
    struct host_extents extents; /* an imported handle has none */
    int descriptor;              /* of its own file, if it is exportable or imported; else -1 */
    vmm_share_reach reach;       /* as created */
    bool imported;
    bool released;
};

struct host_memory {
    struct mutex lock;
    struct host_file file;
    struct map handles;   /* not released, or mapped */
    uint64_t last_handle; /* no id is used twice */
    struct host_reservation *reservations;
    struct pins pins;
};

vmm_status vmm__host_memory_open(struct host_memory *memory, uint64_t bytes);
void vmm__host_memory_close(struct host_memory *memory);

/* Gives the handle an id and lists it. */
uint64_t vmm__host_handle_add_locked(struct host_memory *memory, struct host_handle *handle);

/* Releases the handle. Fails, with a line that names the call, unless there is one of this size that was
 * imported, or created. */
vmm_status vmm__host_handle_drop_locked(struct host_memory *memory, const char *call, uint64_t id,
                                        uint64_t bytes, bool imported);

/* Returns NULL unless the handle was created or imported, and not released. */
struct host_handle *vmm__host_handle_find_locked(const struct host_memory *memory, uint64_t id);

/* Frees the handle's memory if it is released and has no mappings. */
void vmm__host_handle_end_locked(struct host_memory *memory, struct host_handle *handle);

/* ---- share.c: exported and imported handles, pinned memory ----------------------------------- */

void vmm__host_pins_close(struct host_memory *memory);

/* ---- mapping.c: mappings --------------------------------------------------------------------- */

/* True if work can access the whole range now. */
bool vmm__host_memory_is_accessible(struct host_memory *memory, uint64_t address, uint64_t bytes);

/* Deletes all remaining mappings; vmm__host_reservations_close() unmaps their addresses. */
void vmm__host_mappings_close(struct host_memory *memory);

/* ---- work.c: streams, queues, workers -------------------------------------------------------- */

enum host_piece_kind {
    HOST_PIECE_FILL,
    HOST_PIECE_CHECK,
    HOST_PIECE_COPY,
    HOST_PIECE_CLEAR,
    HOST_PIECE_KERNEL,
    HOST_PIECE_DELAY,
    HOST_PIECE_WAIT
};

/* A position in a stream's work: reached when `sequence` of its pieces have finished. */
struct host_position {
    struct host_stream *stream;
    uint64_t sequence;
};

struct host_piece {
    enum host_piece_kind kind;
    uint32_t word;
    uint64_t address;
    uint64_t bytes;
    union {
        uint64_t from;                 /* copy: source */
        uint64_t ns;                   /* delay: duration */
        void (*kernel)(void *);        /* kernel: called with `context` */
        struct host_position position; /* wait: the position to wait for */
    };
    void *context;
};

struct host_work {
    struct mutex lock;
    pthread_cond_t ready;        /* signals a new ready stream, or stopping */
    struct host_stream *streams; /* all that have a name or a reference */
    struct stream_names names;
    struct host_stream *ready_first;
    struct host_stream *ready_last;
    struct host_waiter *waiters; /* host threads that wait for a position */
    struct map events;           /* all that exist */
    uint64_t mismatches;
    bool stopping;
    unsigned worker_count;
    pthread_t workers[HOST_WORKER_LIMIT];
};

/* A stream lives while it has references: from its name (until stream_destroy), its pending work, events recorded on
 * it, and waits for it. */
struct host_stream {
    struct host_stream *next;
    struct host_stream *next_ready;
    struct host_stream *blocked; /* streams whose next piece waits for a position in this one */
    struct host_stream *next_blocked;
    vmm_stream name;
    bool named; /* can be found by its name */
    bool is_captured;
    bool is_broken; /* an operation broke the capture */
    unsigned references;
    uint64_t submitted; /* pieces since the stream was created */
    uint64_t finished;
    struct host_piece *queue; /* ring buffer; piece n is at n % capacity */
    uint64_t capacity;
};

vmm_status vmm__host_work_open(struct host_work *work);
void vmm__host_work_close(struct host_work *work);

/* Called by operations that make a stream wait, wait for it or submit work to it. Fails if the stream is being
 * captured, and marks the capture as broken. */
vmm_status vmm__host_capture_break_locked(struct host_stream *stream, const char *verb);

/* Returns NULL if the name was never used or the stream was destroyed. Adds no reference. */
struct host_stream *vmm__host_stream_find_locked(struct host_work *work, vmm_stream name);
void vmm__host_stream_release_locked(struct host_work *work, struct host_stream *stream);

/* Queues one piece. Blocks while the stream's queue is full, and releases the lock meanwhile. */
vmm_status vmm__host_submit_locked(struct host_work *work, const struct host_piece *piece,
                                   vmm_stream name);

/* ---- run.c: kinds of work -------------------------------------------------------------------- */

/* Runs a piece, other than a wait that is not reached. Returns the number of mismatches. Call without the lock. */
uint64_t vmm__host_piece_run(const struct host_piece *piece);

/* ---- event.c: events, blocking waits --------------------------------------------------------- */

/* Blocks until the position is reached; releases the lock meanwhile. */
void vmm__host_wait_locked(struct host_work *work, struct host_position position);

/* Blocks until the work of all streams so far has finished; releases the lock meanwhile. */
void vmm__host_all_wait_locked(struct host_work *work);

/* Wakes the host threads that wait for a position this stream has reached. */
void vmm__host_wake_locked(struct host_work *work, const struct host_stream *stream);

void vmm__host_events_close(struct host_work *work);

/* ---- pattern.c ------------------------------------------------------------------------------- */

void vmm__host_pattern_fill(uint64_t address, uint64_t bytes, uint32_t word);

/* Returns the number of units that differ. */
uint64_t vmm__host_pattern_check(uint64_t address, uint64_t bytes, uint32_t word);

/* ---- host.c ---------------------------------------------------------------------------------- */

struct host_driver {
    struct driver base;
    struct host_memory memory;
    struct host_work work;
};

/* The operations of the table: those on memory run with memory.lock held, those on events and streams with work.lock,
 * and the others with neither. */
#define HOST_OP_DECLARE(name, parameters, arguments) vmm_status vmm__host_##name parameters;
#define HOST_OP_DECLARE_LOCKED(name, parameters, arguments)                                        \
    vmm_status vmm__host_##name##_locked parameters;
VMM_DRIVER_MEMORY_MAP(HOST_OP_DECLARE_LOCKED, struct host_memory *memory, )
VMM_DRIVER_SHARE_MAP(HOST_OP_DECLARE_LOCKED, struct host_memory *memory, )
VMM_DRIVER_EVENT_MAP(HOST_OP_DECLARE_LOCKED, struct host_work *work, )
VMM_DRIVER_CONTENTS_MAP(HOST_OP_DECLARE, struct driver *driver, )
VMM_DRIVER_WORK_MAP(HOST_OP_DECLARE, struct driver *driver, )
VMM_DRIVER_CAPTURE_MAP(HOST_OP_DECLARE_LOCKED, struct host_work *work, )
#undef HOST_OP_DECLARE
#undef HOST_OP_DECLARE_LOCKED

static inline void *vmm__host_pointer(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

static inline struct host_driver *vmm__host_of(struct driver *driver)
{
    return (struct host_driver *)driver;
}

static inline bool vmm__host_is_reached(struct host_position position)
{
    return position.stream == NULL || position.stream->finished >= position.sequence;
}

#endif
