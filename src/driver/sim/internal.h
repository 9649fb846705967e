/*
 * Shared by the files of the sim driver only.
 *
 *   sim.c      the table, fault injection, reports, census
 *   memory.c   the backing of soft.h: the range of addresses, mappings, costs
 *   share.c    memory that drivers of this process share
 *   order.c    the backing of streams and events: the order between pieces of work
 *   queue.c    work that may not have finished, and the order in which it finishes
 *   users.c    small sets of pieces of work
 *   shadow.c   the contents that a handle's memory would have
 *   work.c     fill, check, copy, save, load, delay
 *   cost.h     the cost of each call
 *
 * Invariants:
 *  I1. sim->mutex guards everything except the clock, which is atomic. Every function declared here
 *      runs with the mutex held; only sim.c locks and unlocks it. A driver that has created or
 *      imported exportable memory also holds the lock of share.c meanwhile.
 *  I2. A piece of work is an epoch: (stream, sequence on that stream). clock[T] of a stream is the
 *      sequence of the last work of T that precedes the stream's next work; observed[T] is the same
 *      for the host, shared by all threads; finished[T] <= submitted of T.
 *  I3. With a lag, work finishes in submission order, except work that the host waited for; a delay
 *      in progress holds back everything submitted after it. Work only waits for work submitted
 *      earlier, so it never finishes before what it waits for. With a test's order, each stream's
 *      work finishes in its own order, and after the work that the stream waits for.
 *  I4. The host's observations decide whether work may still access memory. Work whose completion
 *      the host has not observed could still be running, in another order that the host cannot
 *      distinguish yet.
 * Owns: nothing. May be called by: driver/sim. Locks: see I1.
 */
#ifndef VMM_DRIVER_SIM_INTERNAL_H
#define VMM_DRIVER_SIM_INTERNAL_H

#include "base/map.h"
#include "base/mutex.h"
#include "driver/sim/cost.h"
#include "driver/sim/sim.h"
#include "driver/soft/soft.h"

#include <inttypes.h>

enum {
    SIM_STREAM_BITS = 10, /* the stream's part of an epoch */
    /* Limit on streams with work that the host has not observed to end. */
    SIM_STREAMS = 1 << SIM_STREAM_BITS
};

struct sim;

/* ---- Sets of work ---------------------------------------------------------------------------- */

/* An epoch is one piece of work: sequence << SIM_STREAM_BITS | index of its stream. 0 means none. */
static inline uint64_t sim_epoch(unsigned stream, uint64_t sequence)
{
    return sequence << SIM_STREAM_BITS | stream;
}

static inline unsigned sim_epoch_stream(uint64_t epoch)
{
    return (unsigned)(epoch & (SIM_STREAMS - 1));
}

static inline uint64_t sim_epoch_sequence(uint64_t epoch)
{
    return epoch >> SIM_STREAM_BITS;
}

static inline bool sim_epoch_covered(uint64_t epoch, const uint64_t *clock)
{
    return sim_epoch_sequence(epoch) <= clock[sim_epoch_stream(epoch)];
}

struct sim_user_set {
    uint32_t references; /* the parts of a split interval share the set */
    uint32_t count;
    uint64_t epochs[];
};

/* Usually one epoch; `many` replaces it when several unordered epochs are needed. */
struct sim_users {
    uint64_t one;
    struct sim_user_set *many;
};

/* Adds the epoch, and removes epochs that the clock covers or that precede it on its stream. */
bool vmm__sim_users_add(struct sim_users *users, const uint64_t *clock, uint64_t epoch);
/* Returns one epoch that the clock does not cover, or 0. */
uint64_t vmm__sim_users_uncovered(const struct sim_users *users, const uint64_t *clock);
bool vmm__sim_users_contain(const struct sim_users *users, uint64_t epoch);
struct sim_users vmm__sim_users_share(const struct sim_users *users);
void vmm__sim_users_clear(struct sim_users *users);

/* ---- Contents -------------------------------------------------------------------------------- */

struct sim_content {
    uint64_t place; /* offset within the block that was filled */
    uint32_t word;
    bool known;  /* false: undefined, unless is_set */
    bool is_set; /* every byte is `word` */
};

struct sim_interval {
    uint64_t offset; /* within the handle */
    uint64_t bytes;
    struct sim_content content; /* its place is the place of the first byte */
    uint64_t writer;            /* epoch */
    struct sim_users readers;   /* since the write */
};

/* Sorted by offset, without overlaps. Bytes outside all intervals were never accessed. */
struct sim_shadow {
    struct sim_interval *items;
    uint32_t count;
    uint64_t capacity;
};

struct sim_work;

/* Both record the work as a user of the range. If *conflict is 0, it receives the epoch of earlier work that this work
 * is not ordered after, or this work's own epoch if it overwrites what it accessed itself. False: out of host memory,
 * the contents are incomplete. */
bool vmm__sim_shadow_write(struct sim_shadow *shadow, const struct sim_work *work, uint64_t offset,
                           uint64_t bytes, struct sim_content content, uint64_t *conflict);
/* Sets [*first, *last) to the items that cover exactly the range. */
bool vmm__sim_shadow_read(struct sim_shadow *shadow, const struct sim_work *work, uint64_t offset,
                          uint64_t bytes, uint32_t *first, uint32_t *last, uint64_t *conflict);
/* Returns the epoch of work in the contents that the clock does not cover, or 0. */
uint64_t vmm__sim_shadow_uncovered(const struct sim_shadow *shadow, const uint64_t *clock);
/* Forgets who wrote and read the contents. */
void vmm__sim_shadow_disown(struct sim_shadow *shadow);
void vmm__sim_shadow_free(struct sim_shadow *shadow);

/* ---- Memory and addresses -------------------------------------------------------------------- */

struct sim_handle {
    struct soft_handle soft;      /* first */
    struct sim_share *share;      /* NULL: not exportable */
    struct sim_mapping *youngest; /* head of the list of its mappings, linked by `older` */
    bool lost_oldest;             /* its oldest mapping was unmapped while no other had access */
    bool blocks_maps; /* another mapping then got access: refuses maps until that one is unmapped */
    struct sim_shadow shadow; /* of memory that is not exportable */
};

struct sim_mapping {
    struct soft_mapping soft;  /* first */
    struct sim_mapping *older; /* the next older mapping of the same handle */
    uint64_t peers;            /* that have access, too */
    struct sim_users users;    /* work that accessed the memory through this mapping */
};

/* Pinned memory, with the contents that save put there. */
struct sim_pin {
    struct soft_pin soft; /* first */
    struct sim_shadow shadow;
};

/* The parts of the backing. */
#define SIM_BACKING_DECLARE(type, name, parameters) type vmm__sim_##name parameters;
SOFT_BACKING_MAP(SIM_BACKING_DECLARE)
#undef SIM_BACKING_DECLARE
extern const struct soft_backing vmm__sim_backing;

/* Gives the driver addresses that no other open one has. False: too many are open. */
bool vmm__sim_space_take(struct sim *sim);
void vmm__sim_space_give(const struct sim *sim);

static inline struct sim_handle *sim_handle_of(const struct soft_mapping *mapping)
{
    return (struct sim_handle *)mapping->handle;
}

/* See vmm__sim_peerless(). */
uint64_t vmm__sim_peerless_count(const struct sim *sim);

/* ---- Shared memory --------------------------------------------------------------------------- */

/* Creates the memory of an exportable handle; NULL, with a line: out of host memory. */
struct sim_share *vmm__sim_share_new(struct sim *sim, uint64_t bytes);
/* Ends a handle's use of it; the last one frees it. */
void vmm__sim_share_drop(struct sim_share *share);
/* The contents of shared memory, for work of this driver. */
struct sim_shadow *vmm__sim_share_shadow(const struct sim *sim, struct sim_share *share);

/* Before the driver closes: its epochs end with it. */
void vmm__sim_shares_leave(struct sim *sim);

void vmm__sim_share_lock(void);
void vmm__sim_share_unlock(void);

/* ---- Order ----------------------------------------------------------------------------------- */

struct sim_stream {
    struct soft_stream soft; /* first; its name goes at destroy, or with its slot when idle */
    unsigned index;
    uint64_t submitted;     /* sequence of its last work; never reset */
    uint64_t observation;   /* order.observations at the last merge into its clock */
    uint64_t busy_until;    /* end of its last delay on sim->clock_ns */
    uint64_t first_pending; /* number of its oldest work that may not have finished; 0: none */
    uint64_t last_pending;
    struct sim_users after; /* work it waits for since its last submission */
    uint64_t clock[SIM_STREAMS];
};

/* Submitted work that may not have finished. */
struct sim_pending {
    uint64_t epoch;
    uint64_t due;           /* earliest end on sim->clock_ns */
    uint64_t next;          /* number of the next piece of its stream; 0: none */
    struct sim_users after; /* work it waits for, beyond that of the previous piece */
};

struct sim_order {
    struct sim_stream *streams[SIM_STREAMS];
    uint32_t hand;  /* last slot checked for reuse */
    uint32_t count; /* slots ever used */

    uint64_t finished[SIM_STREAMS];
    uint64_t observed[SIM_STREAMS]; /* by the host */
    uint64_t observations;

    uint64_t lag;
    sim_order_fn choose; /* NULL: finish by lag */
    void *choose_context;
    struct sim_pending *ring; /* most recent work, oldest first; see queue.c */
    uint64_t ring_capacity;   /* 0 or a power of two */
    uint64_t ring_first;
    uint64_t ring_count;
};

/* One piece of work, during the call that submits it. */
struct sim_work {
    const char *verb;
    const struct sim_stream *stream;
    uint64_t epoch;
    uint64_t address; /* the block that messages name */
    uint64_t bytes;
    uint64_t delay_ns; /* minimum duration */
    bool is_reported;  /* a violation was already recorded */
};

vmm_status vmm__sim_work_submit(struct sim *sim, vmm_stream name, struct sim_work *work);
void vmm__sim_order_settle(struct sim *sim); /* updates which work has finished */
void vmm__sim_order_step(struct sim *sim);   /* finishes the work that the test chooses */

/* Makes room for one more piece of work; false: out of host memory. */
bool vmm__sim_queue_room(struct sim_order *order);
/* Queues the stream's last submitted work. The caller has made room. */
void vmm__sim_queue_add(struct sim_order *order, struct sim_stream *stream, uint64_t due);
void vmm__sim_queue_free(struct sim_order *order);

void vmm__sim_order_free(struct sim *sim);

/* ---- Work ------------------------------------------------------------------------------------ */

/* A run of bytes with the same content, which work has read or will write. */
struct sim_run {
    uint64_t bytes;
    struct sim_content content;
    bool is_mapped; /* when it was read */
};

struct sim_runs {
    struct sim_run *items;
    uint32_t count;
    uint64_t capacity;
};

/* ---- The driver ------------------------------------------------------------------------------ */

struct sim_faults {
    uint64_t number; /* 0: none */
    vmm_status status;
    bool for_ever;
    bool is_due; /* for the call in progress */
    uint64_t calls;
    uint64_t fired;
};

struct sim {
    struct soft soft; /* first, so a struct driver * is also a struct sim * */
    struct mutex mutex;
    _Atomic uint64_t clock_ns;
    struct sim_faults faults;
    uint32_t space;  /* the number of its addresses: see memory.c */
    bool is_sharing; /* has had exportable memory */
    struct sim_order order;
    struct sim_runs runs; /* what the work in progress has read */
    /* What the system can give, with what the device has of it. UINT64_MAX: the device has memory of its own. */
    uint64_t system_bytes;
};

/* The operations of the table that work.c has; soft has the others. */
#define SIM_OP_DECLARE(name, parameters, arguments) vmm_status vmm__sim_##name parameters;
VMM_DRIVER_CONTENTS_MAP(SIM_OP_DECLARE, struct sim *sim, )
VMM_DRIVER_WORK_MAP(SIM_OP_DECLARE, struct sim *sim, )
#undef SIM_OP_DECLARE

/* Reports a call that takes memory away during work, whose epoch is given; 0: there is none. */
void vmm__sim_report_work(struct sim *sim, const char *call, uint64_t epoch, uint64_t address,
                          uint64_t bytes);

#endif
