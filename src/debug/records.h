/*
 * Records: which call allocated and freed each block, for all live blocks and the blocks that were freed last.
 *
 * Owns: the records. Invariants:
 *  1. a record is in exactly one list: live (the program has the block), kept (freed, in quarantine) or freed; while a
 *     call works on it, it may be in none;
 *  2. the map by_address finds live records by the program's address; the map by_inner finds live and kept records
 *     by the address of the lane's block;
 *  3. the list of freed records has at most RECORDS_FREED_MOST: new blocks reuse the oldest.
 * May be called by: debug. Locks: records.lock, a leaf, guards the lists, the maps, and changes of a record in a list.
 * A call that has removed a record from its list may change it without the lock.
 */
#ifndef VMM_DEBUG_RECORDS_H
#define VMM_DEBUG_RECORDS_H

#include "base/map.h"
#include "base/mutex.h"
#include "base/stack.h"
#include "lane/counters.h"
#include "vmmcache/vmmcache.h"

#include <stdbool.h>

enum { RECORDS_FREED_MOST = 65536 };

/* An allocation or a free. */
struct call_site {
    uint64_t operation; /* its number in the cache; 0: it has not happened */
    long thread;
    struct stack stack;
};

struct record {
    uint64_t address; /* the program's block */
    uint64_t bytes;   /* as requested */
    uint64_t inner;   /* the lane's block */
    uint64_t inner_bytes;
    struct hidden hidden; /* what the lane's counters leave out of its block */
    vmm_stream stream;
    uint64_t epoch;   /* of the lane's clock: once it has passed, the canaries are written */
    bool is_watched;  /* the bytes around it hold canaries */
    bool is_alone;    /* alone on its granules, before a guard page */
    bool is_used;     /* by other streams, too */
    bool is_kept;     /* in quarantine */
    bool is_poison;   /* and its bytes hold poison */
    bool is_doubtful; /* its last check on debug mode's stream failed and may still run there */
    bool is_left;     /* its stream is closed, and the host has seen the end of its work */
    struct call_site allocated;
    struct call_site freed;
    struct map_node by_address; /* its key is `address` */
    struct map_node by_inner;   /* its key is `inner` */
    struct record *older;
    struct record *newer;
};

struct record_list {
    struct record *oldest;
    struct record *newest;
    uint64_t count;
    uint64_t bytes; /* sum of inner_bytes */
};

struct records {
    struct mutex lock;
    struct map by_address;
    struct map by_inner;
    struct record_list live;
    struct record_list kept;
    struct record_list freed;
    uint64_t operations;
};

void vmm__records_init(struct records *records);
void vmm__records_fini(struct records *records);

/* Returns a zeroed record in no list; NULL without host memory. */
struct record *vmm__record_take(struct records *records);

/* Frees a record that is in no list. */
void vmm__record_drop(struct record *record);

/* Fills in the calling thread, its stack and the number of this operation. */
void vmm__records_call_site(struct records *records, struct call_site *call_site,
                            const void *caller);

/* Adds a record to a list, and to the maps of invariant 2. */
void vmm__records_add_live(struct records *records, struct record *record);
void vmm__records_add_kept(struct records *records, struct record *record);
void vmm__records_add_freed(struct records *records, struct record *record);

/* Removes and returns the live record of an address; NULL if there is none. */
struct record *vmm__records_claim(struct records *records, uint64_t address);

/* Removes and returns the oldest kept record if there are more than `count` or `bytes`; otherwise NULL. */
struct record *vmm__records_evict(struct records *records, uint64_t count, uint64_t bytes);

/* Return the record of an address, or NULL. */
struct record *vmm__records_find_locked(const struct records *records, uint64_t address);
struct record *vmm__records_find_inner_locked(const struct records *records, uint64_t inner);

/* Finds the block to which a wrong pointer most likely belongs: one freed at exactly that address, else a live one that
 * contains it, else a freed one that contains it. Copies its record; false if there is none. */
bool vmm__records_suspect(struct records *records, uint64_t address, struct record *out);

#endif
