/*
 * The inside of the sim driver: what its files share.
 *
 *   sim.c         the table, numbered faults, violations, census
 *   sim_slots.c   ids of handles and events that are never confused after their end
 *   sim_space.c   addresses: reservations and the granules in them
 *   sim_memory.c  physical memory: handles, mappings, access
 *   sim_order.c   streams, events, and what is ordered after what
 *   sim_queue.c   work that may not have finished, and in which order it does
 *   sim_capture.c streams that are being captured
 *   sim_users.c   small sets of pieces of work
 *   sim_shadow.c  what the memory of one handle would hold
 *   sim_work.c    fill, check, copy, delay
 *   sim_cost.h    the clock
 *
 * Invariants:
 *  I1. sim->mutex guards everything but the clock, which is atomic. Every function declared here
 *      runs with the mutex held; only sim.c takes and gives it.
 *  I2. A granule's entry names the mapping that covers it, or is NULL. Mappings never overlap.
 *  I3. A handle lives until it is released and its last mapping is gone; so long it counts in
 *      physical_bytes. Its id dies at release.
 *  I4. Work is an epoch: (stream, sequence on that stream). clock[T] of a stream is the sequence of
 *      the last work of T that the stream's next work is ordered after; observed[T] the same for
 *      the host, which all threads share; finished[T] <= submitted of T.
 *  I5. By lag, work finishes in the order of submission, but for what the host waited for: behind a delay
 *      that is not over, nothing does. As whatever a piece of work waits for was submitted before
 *      it, it never finishes before that. Where a test chooses, each stream's work finishes in its own
 *      order, and not before what the stream was made to wait for.
 *  I6. Whether work may still touch memory is judged by what the host has observed: what it has not seen
 *      the end of may be held up, in an order that looks the same to it so far.
 */
#ifndef VMM_DRIVER_SIM_INTERNAL_H
#define VMM_DRIVER_SIM_INTERNAL_H

#include "driver/driver.h"
#include "driver/sim.h"
#include "driver/sim_cost.h"
#include "driver/stream_names.h"

#include <inttypes.h>
#include <pthread.h>

enum {
    SIM_STREAMS = 256, /* known at once; an epoch gives the stream 8 bits */
    SIM_TEXT_BYTES = 320
};

struct sim;

/* ---- Ids ------------------------------------------------------------------------------------- */

struct sim_slot {
    void *object;        /* NULL: free */
    uint32_t generation; /* goes up at each end, so an old id never finds a new object */
    uint32_t next_free;  /* index + 1; 0 ends the list */
};

struct sim_slots {
    struct sim_slot *slots;
    uint32_t count; /* slots that were ever used */
    uint32_t capacity;
    uint32_t first_free; /* index + 1 */
};

uint64_t vmm__sim_slot_take(struct sim_slots *slots, void *object); /* 0: no host memory */
void *vmm__sim_slot_find(const struct sim_slots *slots, uint64_t id);
void vmm__sim_slot_drop(struct sim_slots *slots, uint64_t id);
void vmm__sim_slots_free(struct sim_slots *slots);

/* ---- Sets of work ---------------------------------------------------------------------------- */

/* An epoch is one piece of work: sequence << 8 | index of its stream. 0 is none. */
static inline uint64_t sim_epoch(unsigned stream, uint64_t sequence)
{
    return sequence << 8 | stream;
}

static inline unsigned sim_epoch_stream(uint64_t epoch)
{
    return (unsigned)(epoch & 0xff);
}

static inline uint64_t sim_epoch_sequence(uint64_t epoch)
{
    return epoch >> 8;
}

static inline bool sim_epoch_covered(uint64_t epoch, const uint64_t *clock)
{
    return sim_epoch_sequence(epoch) <= clock[sim_epoch_stream(epoch)];
}

struct sim_user_set {
    uint32_t references; /* parts of a split interval share it */
    uint32_t count;
    uint64_t epochs[];
};

/* Mostly one epoch; `many` replaces it when several unrelated ones must be kept. */
struct sim_users {
    uint64_t one;
    struct sim_user_set *many;
};

/* Adds the epoch and forgets those that the clock covers or that came before it on its stream. */
bool vmm__sim_users_add(struct sim_users *users, const uint64_t *clock, uint64_t epoch);
/* One epoch that the clock does not cover, or 0. */
uint64_t vmm__sim_users_uncovered(const struct sim_users *users, const uint64_t *clock);
bool vmm__sim_users_contain(const struct sim_users *users, uint64_t epoch);
struct sim_users vmm__sim_users_share(const struct sim_users *users);
void vmm__sim_users_clear(struct sim_users *users);

/* ---- Contents -------------------------------------------------------------------------------- */

struct sim_content {
    uint64_t place; /* within the block that was filled */
    uint32_t word;
    bool known;  /* false: undefined, but for */
    bool is_set; /* every byte is `word` */
};

struct sim_interval {
    uint64_t offset; /* within the handle */
    uint64_t bytes;
    struct sim_content content; /* place is that of the first byte */
    uint64_t writer;            /* epoch */
    struct sim_users readers;   /* since it was written */
};

/* Sorted by offset, without overlaps. Bytes in no interval were never touched. */
struct sim_shadow {
    struct sim_interval *items;
    uint32_t count;
    uint32_t capacity;
};

struct sim_work;

/*
 * Both stamp the range with the work. *conflict, where it was 0, gets the epoch of earlier work
 * that this one is not ordered after, or this work's own when it overwrites what it touched itself.
 * False: no host memory, contents incomplete.
 */
bool vmm__sim_shadow_write(struct sim_shadow *shadow, const struct sim_work *work, uint64_t offset,
                           uint64_t bytes, struct sim_content content, uint64_t *conflict);
/* Leaves in [*first, *last) the items that cover exactly the range. */
bool vmm__sim_shadow_read(struct sim_shadow *shadow, const struct sim_work *work, uint64_t offset,
                          uint64_t bytes, uint32_t *first, uint32_t *last, uint64_t *conflict);
void vmm__sim_shadow_free(struct sim_shadow *shadow);

/* ---- Memory and addresses -------------------------------------------------------------------- */

struct sim_handle {
    uint64_t id;
    uint64_t bytes;
    uint64_t mappings;
    struct sim_mapping *youngest; /* of those; then by `elder` */
    bool released;
    bool headless; /* its oldest mapping went while no other had access */
    bool maimed;   /* and the last one was given access then: not to be mapped while that stays */
    struct sim_shadow shadow;
};

struct sim_mapping {
    uint64_t address;
    uint64_t bytes;
    struct sim_handle *handle;
    struct sim_mapping *elder; /* the next older one of the same handle */
    bool accessible;
    struct sim_users users; /* work that touched the memory through these addresses */
    struct sim_mapping *previous;
    struct sim_mapping *next;
};

struct sim_reservation {
    uint64_t address;
    uint64_t bytes;
    uint64_t mappings;
    struct sim_mapping **granules;
};

struct sim_space {
    struct sim_reservation *items; /* sorted by address */
    uint32_t count;
    uint32_t capacity;
    uint32_t last_found;
};

vmm_status vmm__sim_reserve(struct sim *sim, uint64_t bytes, uint64_t *address);
vmm_status vmm__sim_address_free(struct sim *sim, uint64_t address, uint64_t bytes);
/* The reservation that holds the address, or NULL; valid until the next reserve or free. */
struct sim_reservation *vmm__sim_reservation_at(struct sim *sim, uint64_t address);
void vmm__sim_space_free(struct sim *sim);

vmm_status vmm__sim_create(struct sim *sim, uint64_t bytes, uint64_t *handle);
vmm_status vmm__sim_release(struct sim *sim, uint64_t id, uint64_t bytes);
vmm_status vmm__sim_map(struct sim *sim, uint64_t address, uint64_t bytes, uint64_t id);
vmm_status vmm__sim_unmap(struct sim *sim, uint64_t address, uint64_t bytes);
vmm_status vmm__sim_access(struct sim *sim, uint64_t address, uint64_t bytes);
vmm_status vmm__sim_memory_info(struct sim *sim, uint64_t *free_bytes, uint64_t *total_bytes);
void vmm__sim_memory_free(struct sim *sim);

static inline struct sim_mapping **
sim_granule(const struct sim *sim, const struct sim_reservation *reservation, uint64_t address);

/* ---- Order ----------------------------------------------------------------------------------- */

struct sim_stream {
    vmm_stream name;
    unsigned index;
    uint64_t submitted;     /* sequence of its last work; never starts anew */
    uint64_t observation;   /* order.observations that its clock has merged */
    uint64_t busy_until;    /* by sim->clock_ns: the end of its last delay */
    bool is_captured;       /* work on it becomes part of a graph */
    bool is_spoilt;         /* something was done meanwhile that breaks a capture */
    uint64_t first_pending; /* number of its oldest work that may not have finished; 0: none */
    uint64_t last_pending;
    struct sim_users after; /* what it was made to wait for since its last work */
    uint64_t clock[SIM_STREAMS];
};

struct sim_event {
    uint32_t count; /* streams in clock; 0: never recorded */
    uint32_t capacity;
    uint64_t *clock;
    struct sim_stream *captured; /* the stream whose capture it was recorded into; NULL: none */
};

/* Work that was submitted and may not have finished. */
struct sim_pending {
    uint64_t epoch;
    uint64_t due;           /* by sim->clock_ns: not finished before */
    uint64_t next;          /* number of the next piece of its stream; 0: none */
    struct sim_users after; /* what it waits for beyond what the piece before it waited for */
};

struct sim_order {
    struct sim_stream *streams[SIM_STREAMS];
    bool named[SIM_STREAMS]; /* false: no such stream, or destroyed */
    uint32_t count;          /* streams that were ever used */
    uint32_t last_found;
    struct stream_names names;

    uint64_t finished[SIM_STREAMS];
    uint64_t observed[SIM_STREAMS]; /* by the host */
    uint64_t observations;

    uint64_t lag;
    sim_order_fn choose; /* NULL: by lag */
    void *choose_context;
    struct sim_pending *ring; /* the latest work, oldest first; see sim_queue.c */
    uint64_t ring_capacity;   /* a power of two */
    uint64_t ring_first;
    uint64_t ring_count;
};

/* One piece of work, from its submission to the end of the call. */
struct sim_work {
    const char *verb;
    const struct sim_stream *stream;
    uint64_t epoch;
    uint64_t address; /* the block it names in stories */
    uint64_t bytes;
    uint64_t delay_ns; /* that it takes at least */
    bool violated;     /* told once */
};

vmm_status vmm__sim_work_submit(struct sim *sim, vmm_stream name, struct sim_work *work);
void vmm__sim_order_finish(struct sim *sim); /* all work; the host has seen it */
void vmm__sim_order_settle(struct sim *sim); /* notes what is finished by now */
void vmm__sim_order_step(struct sim *sim);   /* lets finish what a test chooses */

/* Makes room for one more piece of work; false: no host memory. */
bool vmm__sim_queue_room(struct sim_order *order);
/* Queues the work that a stream has submitted last. There is room. */
void vmm__sim_queue_add(struct sim_order *order, struct sim_stream *stream, uint64_t due);
void vmm__sim_queue_free(struct sim_order *order);

vmm_status vmm__sim_event_create(struct sim *sim, void **event);
vmm_status vmm__sim_event_destroy(struct sim *sim, void *event);
vmm_status vmm__sim_event_record(struct sim *sim, void *event, vmm_stream stream);
vmm_status vmm__sim_event_query(struct sim *sim, void *event);
vmm_status vmm__sim_event_wait(struct sim *sim, void *event);
vmm_status vmm__sim_stream_wait(struct sim *sim, vmm_stream stream, void *event);
vmm_status vmm__sim_device_wait(struct sim *sim);
vmm_status vmm__sim_stream_create(struct sim *sim, vmm_stream *stream);
vmm_status vmm__sim_stream_destroy(struct sim *sim, vmm_stream stream);
/* NULL if there is no stream of that name. */
struct sim_stream *vmm__sim_stream_find(struct sim_order *order, vmm_stream name);
/* The stream of that name; it is made known if it is not. ERR_INVALID_ARGUMENT: it was destroyed. */
vmm_status vmm__sim_stream_get(struct sim *sim, const char *verb, vmm_stream name,
                               struct sim_stream **out);

/* Called for what would wait for a stream or mix it with others: CUDA refuses it if the stream is
 * being captured, and the capture is lost. */
vmm_status vmm__sim_capture_spoil(struct sim *sim, struct sim_stream *stream, const char *verb);
/* Called for what asks or waits for an event: one that was captured tells nothing, and the capture is lost. */
vmm_status vmm__sim_capture_spoil_event(struct sim *sim, const struct sim_event *event,
                                        const char *verb);
vmm_status vmm__sim_capturing(struct sim *sim, vmm_stream stream, bool *is_capturing);
vmm_status vmm__sim_capture_begin(struct sim *sim, vmm_stream stream);
vmm_status vmm__sim_capture_end(struct sim *sim, vmm_stream stream);
void vmm__sim_order_free(struct sim *sim);

/* ---- Work ------------------------------------------------------------------------------------ */

/* Part of what a copy carries. */
struct sim_run {
    uint64_t bytes;
    struct sim_content content;
};

struct sim_runs {
    struct sim_run *items;
    uint32_t count;
    uint32_t capacity;
};

vmm_status vmm__sim_fill(struct sim *sim, uint64_t address, uint64_t bytes, uint32_t word,
                         vmm_stream stream);
vmm_status vmm__sim_check(struct sim *sim, uint64_t address, uint64_t bytes, uint32_t word,
                          vmm_stream stream);
vmm_status vmm__sim_copy(struct sim *sim, uint64_t to, uint64_t from, uint64_t bytes,
                         vmm_stream stream);
vmm_status vmm__sim_clear(struct sim *sim, uint64_t address, uint64_t bytes, uint8_t value,
                          vmm_stream stream);
/* waits: false if the host's wait for it is to be refused. */
vmm_status vmm__sim_read(struct sim *sim, const struct driver_piece *pieces, unsigned count,
                         vmm_stream stream, bool waits);
vmm_status vmm__sim_delay(struct sim *sim, uint64_t ns, vmm_stream stream);

/* ---- The driver ------------------------------------------------------------------------------ */

struct sim_faults {
    uint64_t number; /* 0: none */
    vmm_status status;
    bool for_ever;
    uint64_t calls;
    uint64_t fired;
};

struct sim_story {
    uint64_t count;
    char first[SIM_TEXT_BYTES];
};

struct sim {
    struct driver driver; /* first: a struct driver * is a struct sim * */
    pthread_mutex_t mutex;
    _Atomic uint64_t clock_ns;
    struct sim_faults faults;
    struct sim_story violations;
    struct sim_story mismatches;
    struct sim_space space;
    struct sim_slots handles;
    struct sim_slots events;
    struct sim_mapping *first_mapping;
    struct sim_census census;
    struct sim_order order;
    struct sim_runs runs; /* scratch of copy */
};

/* Adds to a story; the first line is kept. */
void vmm__sim_tell(struct sim_story *story, uint64_t count, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Makes room for one more item in an array; false: no host memory and nothing changed. */
bool vmm__sim_array_grow(void **items, uint32_t *capacity, uint32_t count, size_t item_bytes);

static inline void sim_charge(struct sim *sim, enum sim_cost cost, uint64_t bytes)
{
    atomic_fetch_add_explicit(&sim->clock_ns, sim_cost_ns(cost, bytes), memory_order_relaxed);
}

static inline struct sim_mapping **
sim_granule(const struct sim *sim, const struct sim_reservation *reservation, uint64_t address)
{
    return &reservation->granules[(address - reservation->address) / sim->driver.granule_bytes];
}

#endif
