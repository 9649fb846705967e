/*
 * Notes: what is known of a block or object beyond its memory. Its name (vmm_name()), the other streams that use it
 * (vmm_record_stream()), and, once it is freed, those that it waits for.
 *
 * A use pairs a block with another stream. When the block is freed, an event is recorded on each such stream, and the
 * block waits until all have passed. If a stream has ended, is being captured or refuses the event, the block waits for
 * all work of the device instead: for an epoch of the cache's clock.
 *
 * A block knows that it has a note, so that blocks without one cost nothing. The note of a live block becomes that of
 * the wait, so a free needs no host memory.
 *
 * Owns: the notes, with their uses, events and names. Invariants:
 *  1. a live block, or a freed reserved one of a retained pool, has a note in the map, under its address, exactly if it
 *     is noted; no two have one address;
 *  2. a stream uses a block at most once;
 *  3. a block waits for streams exactly if its note is in the list of waits, and then it has none in the map. An
 *     exported block waits for its shares: see lane.h.
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
    struct use *next; /* of the same block */
    struct user user;
    uint64_t ends;       /* when the use was added */
    struct event *event; /* of the stream; NULL: none, and `epoch` counts */
    uint64_t epoch;      /* of the cache's clock; UINT64_MAX: neither is set yet */
    bool is_borrower;
    bool waits_for_all; /* once freed, its block waits for all work: see vmm__notes_lend() */
};

struct note {
    struct map_node node; /* first member; its key is the block's address */
    struct note *next;    /* in the list of waits */
    struct use *uses;     /* of a wait: those that have not passed yet */
    char *name;           /* VMM_NAME_BYTES; NULL: none */
};

struct notes {
    struct clock *clock; /* the cache's */
    struct map map;      /* of the notes of live blocks */
    struct note *oldest; /* of the waits */
    struct note **newest_next;
};

void vmm__notes_init(struct notes *notes, struct clock *clock);
void vmm__notes_fini(struct notes *notes);

/* ---- Live blocks --------------------------------------------------------------------------- */

/* Names a block; text NULL: takes its name away. ERR_HOST_OOM: nothing has changed. */
vmm_status vmm__notes_name(struct notes *notes, uint64_t address, const char *text);

/* Writes the name of a block, or "". */
void vmm__notes_name_read(const struct notes *notes, uint64_t address, char text[VMM_NAME_BYTES]);

/* Records that a stream uses the block. ERR_HOST_OOM: nothing has changed. */
vmm_status vmm__notes_use(struct notes *notes, uint64_t address, struct user user);

/* Whether a block has a note, and whether other streams use it. */
bool vmm__notes_has(const struct notes *notes, uint64_t address);
bool vmm__notes_has_uses(const struct notes *notes, uint64_t address);

/* Drops the note of a block; moves it to another address. */
void vmm__notes_drop(struct notes *notes, uint64_t address);
void vmm__notes_move(struct notes *notes, uint64_t from, uint64_t to);

/* Marks a use that was added: the block was allocated for this stream, from another stream's memory. waits_for_all:
 * once freed, the block waits for all work of the device, because the other stream gets its memory again. */
void vmm__notes_lend(struct notes *notes, uint64_t address, struct user user, bool waits_for_all);

/* The stream that a live block was allocated for; false: the lane's. *has_ended: it has ended. */
bool vmm__notes_borrower(const struct notes *notes, uint64_t address, vmm_stream *stream,
                         bool *has_ended);

/* Records an event for each use of a live block, of the work that its stream has now. Without host memory, or on
 * another failure, the use waits for the cache's clock. */
void vmm__notes_record(struct notes *notes, uint64_t address);

/* After a record: drops the uses whose recorded work has finished, and returns whether all are dropped. Work that their
 * streams got after the record does not count. */
bool vmm__notes_forget(struct notes *notes, uint64_t address);

/* After a record: makes later work of a stream wait, on the device, for all uses. ERR_INVALID_ARGUMENT: one is not
 * over, and the stream cannot wait for it, because of a capture, or because the clock is blind. */
vmm_status vmm__notes_follow(struct notes *notes, uint64_t address, vmm_stream stream);

/* ---- Freed blocks -------------------------------------------------------------------------- */

/* Ends the life of a block, and its name. Returns whether it waits from now on: other streams use it. On a lost device
 * none does. */
bool vmm__notes_end(struct notes *notes, uint64_t address);

/* Whether any block waits. */
static inline bool vmm__notes_have_waits(const struct notes *notes)
{
    return notes->oldest != NULL;
}

/* Whether the block at an address waits. */
bool vmm__notes_is_waiting(struct notes *notes, uint64_t address);

/* The first `most` streams that the block at an address waits for. Returns the number of all; 0: it does not wait. */
unsigned vmm__notes_streams(struct notes *notes, uint64_t address, vmm_stream *streams,
                            unsigned most);

/* Ends the wait of a block, whose uses have ended. False: it does not wait. */
bool vmm__notes_wait_end(struct notes *notes, uint64_t address);

/* One pass over the waits, oldest first, with what it found pending. */
struct notes_pass {
    struct note **link;
    unsigned left;        /* waits that the pass may still check */
    uint64_t stuck_epoch; /* of the cache's clock */
    unsigned stuck_count;
    vmm_stream stuck[NOTES_STUCK];
};

void vmm__notes_pass_begin(struct notes *notes, unsigned most, struct notes_pass *pass);

/* Finds the next finished wait of a pass and removes it from the list. VMM__NOTHING at the end of
 * the pass. */
vmm_status vmm__notes_pass_next(struct notes *notes, struct notes_pass *pass, uint64_t *address);

/* What the host can wait for so that a block stops waiting, without the lane's lock: the event of the oldest wait whose
 * next use has one, which the caller drops; else an epoch of the cache's clock, which a capture may stop. False if no
 * block waits. */
bool vmm__notes_oldest(const struct notes *notes, struct event **event, uint64_t *epoch);

#endif
