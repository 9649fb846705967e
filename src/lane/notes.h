/*
 * Uses: which live blocks other streams use (vmm_record_stream), and which freed blocks wait for
 * those streams.
 *
 * A use pairs the address of a block with another stream. When the block is freed, an event is recorded on each such
 * stream, and the block waits until all have passed. If a stream has ended, is being captured or refuses the event, the
 * block waits for all work of the device instead: for an epoch of the cache's clock.
 *
 * Owns: the records of uses and waits, and their events. Invariants:
 *  1. each pair (address, stream) is in the map at most once, and a live block starts at
 *     the address;
 *  2. a block waits for streams exactly if its address is in the list of waits, and then it
 *     has no use in the map. An exported block waits for its shares: see lane.h.
 * May be called by: lane, cache, debug, api. Locks: the lane's lock.
 */
#ifndef VMM_LANE_NOTES_H
#define VMM_LANE_NOTES_H

#include "base/map.h"
#include "vm/clock.h"

enum { NOTES_STUCK = 8 };

/* A stream that uses blocks. `ends` changes when it ends, and the handle may name another one. */
struct user {
    vmm_stream stream;
    const _Atomic uint64_t *ends;
};

struct use {
    struct map_node node; /* its key is the block's address */
    struct use *next;     /* in the list of a wait */
    struct user user;
    uint64_t ends;       /* when the use was added */
    struct event *event; /* of the stream; NULL: none, and `epoch` counts */
    uint64_t epoch;      /* of the cache's clock; UINT64_MAX: neither is set yet */
    bool is_borrower;
    bool waits_for_all; /* the block returns to another stream than the one that it served */
};

struct wait {
    struct wait *next;
    uint64_t address;
    struct use *uses; /* those that have not passed yet */
};

struct notes {
    struct clock *clock;    /* the cache's */
    struct map map;         /* of the uses of live blocks */
    _Atomic uint64_t count; /* in the map; may be read without the lock */
    struct wait *oldest;
    struct wait **newest_next;
};

void vmm__notes_init(struct notes *uses, struct clock *clock);
void vmm__notes_fini(struct notes *uses);

static inline uint64_t vmm__notes_count(const struct notes *uses)
{
    return atomic_load_explicit(&uses->count, memory_order_relaxed);
}

/* Whether other streams use a live block. */
bool vmm__notes_has_uses(const struct notes *uses, uint64_t address);

/* Forgets the uses of a live block; moves them to another address. */
void vmm__notes_drop(struct notes *uses, uint64_t address);
void vmm__notes_move(struct notes *uses, uint64_t from, uint64_t to);

/* Whether any block waits. */
static inline bool vmm__notes_have_waits(const struct notes *uses)
{
    return uses->oldest != NULL;
}

/* Records that a stream uses the block. ERR_HOST_OOM. */
vmm_status vmm__notes_use(struct notes *uses, uint64_t address, struct user user);

/* Marks a use that was added: the block was allocated for this stream, from another stream's memory. waits_for_all:
 * once freed it waits for all work of the device. */
void vmm__notes_lend(struct notes *uses, uint64_t address, struct user user, bool waits_for_all);

/* The stream that a live block was allocated for; false: the lane's. *has_ended: it has ended. */
bool vmm__notes_borrower(const struct notes *uses, uint64_t address, vmm_stream *stream,
                         bool *has_ended);

/*
 * Ends the life of a block. VMM_OK: no other stream uses it. VMM__PENDING: it waits from now on.
 * ERR_HOST_OOM changes nothing. On a lost device no block has uses any more.
 */
vmm_status vmm__notes_end(struct notes *uses, uint64_t address);

/* Whether the block at an address waits. */
bool vmm__notes_is_waiting(struct notes *uses, uint64_t address);

/* The first `most` streams that the block at an address waits for. Returns the number of all; 0: it does not wait. */
unsigned vmm__notes_streams(struct notes *uses, uint64_t address, vmm_stream *streams,
                            unsigned most);

/* Ends the wait of a block, whose uses have ended. False: it does not wait. */
bool vmm__notes_wait_end(struct notes *uses, uint64_t address);

/* Records an event for each use of a live block, of the work that its stream has now. Without host memory, or on
 * another failure, the use waits for the cache's clock. */
void vmm__notes_record(struct notes *uses, uint64_t address);

/* After a record: drops the uses that have passed, and returns whether all have. Their streams may run other work since
 * then. */
bool vmm__notes_forget(struct notes *uses, uint64_t address);

/* After a record: makes later work of a stream wait, on the device, for all uses. ERR_INVALID_ARGUMENT: one is not
 * over, and the stream cannot wait for it, because of a capture, or because the clock is blind. */
vmm_status vmm__notes_follow(struct notes *uses, uint64_t address, vmm_stream stream);

/* One pass over the waits, oldest first, with what it found pending. */
struct notes_pass {
    struct wait **link;
    unsigned left;        /* waits that the pass may still check */
    uint64_t stuck_epoch; /* of the cache's clock */
    unsigned stuck_count;
    vmm_stream stuck[NOTES_STUCK];
};

void vmm__notes_pass_begin(struct notes *uses, unsigned most, struct notes_pass *pass);

/* Finds the next finished wait of a pass and removes it from the list. VMM__NOTHING at the end of
 * the pass. */
vmm_status vmm__notes_pass_next(struct notes *uses, struct notes_pass *pass, uint64_t *address);

/* What a wait needs: the event of the first one that has any, which the caller drops, else an epoch of the cache's
 * clock, which a capture may stop. False if there is none. The host may wait for it without the lane's lock. */
bool vmm__notes_oldest(const struct notes *uses, struct event **event, uint64_t *epoch);

#endif
