/*
 * Records: who allocated and freed each block, live ones and the last that were freed.
 *
 * Owns: the records. Invariants:
 *  1. a record is in exactly one list: live (the program has the block), kept (freed, in quarantine) or freed; or,
 *     for as long as a call works on it, in none;
 *  2. live ones are found by the address that the program knows, live and kept ones by that of the pool's block;
 *  3. at most RECORDS_FREED_MOST are in the list of freed ones: the oldest serve again.
 * May be called by: guard. Locks: records.lock, a leaf, guards lists and tables, and what changes in a record that is in
 * one; who has taken a record out of its list has it for itself.
 */
#ifndef VMM_GUARD_RECORD_H
#define VMM_GUARD_RECORD_H

#include "base/lock.h"
#include "guard/stack.h"
#include "vmmcache/vmmcache.h"

#include <stdbool.h>

enum { RECORDS_FREED_MOST = 65536 };

/* An allocation or a free. */
struct deed {
    uint64_t operation; /* its number; 0: has not happened */
    long thread;
    struct stack stack;
};

struct record {
    uint64_t address; /* that the program knows */
    uint64_t bytes;   /* as asked for */
    uint64_t inner;   /* the pool's block, and */
    uint64_t inner_bytes;
    vmm_stream stream;
    uint64_t
        epoch; /* of the pool, when canaries were submitted: they are there once it has passed */
    bool is_watched;  /* the bytes around it hold canaries */
    bool is_alone;    /* on granules of its own */
    bool is_used;     /* by other streams too */
    bool is_kept;     /* in quarantine */
    bool is_poison;   /* and its bytes hold poison */
    bool is_doubtful; /* a look at it on the guard's stream has failed, which may go on there */
    bool is_left;     /* its stream has ended, and the host has seen the end of its work */
    struct deed allocated;
    struct deed freed;
    struct record *next_by_address; /* in the same bucket */
    struct record *next_by_inner;
    struct record *older;
    struct record *newer;
};

struct record_list {
    struct record *oldest;
    struct record *newest;
    uint64_t count;
    uint64_t bytes; /* of the pools' blocks */
};

struct records {
    struct lock lock;
    struct record **by_address; /* buckets */
    struct record **by_inner;
    struct record_list live;
    struct record_list kept;
    struct record_list freed;
    uint64_t operations;
};

/* ERR_HOST_OOM. */
vmm_status vmm__records_init(struct records *records);
void vmm__records_fini(struct records *records);

/* A blank record; NULL without host memory. */
struct record *vmm__record_take(struct records *records);

/* For a record that came to nothing. */
void vmm__record_drop(struct record *record);

/* Notes what the calling thread does now. */
void vmm__records_deed(struct records *records, struct deed *deed, const void *caller);

/* Puts a record where it belongs. */
void vmm__records_add_live(struct records *records, struct record *record);
void vmm__records_add_kept(struct records *records, struct record *record);
void vmm__records_add_freed(struct records *records, struct record *record);

/* Takes the live record of an address out; NULL if there is none. */
struct record *vmm__records_claim(struct records *records, uint64_t address);

/* Takes the oldest kept record out, if there are more of them than `count` or `bytes`; NULL if not. */
struct record *vmm__records_evict(struct records *records, uint64_t count, uint64_t bytes);

struct record *vmm__records_find_locked(const struct records *records, uint64_t address);
struct record *vmm__records_find_inner_locked(const struct records *records, uint64_t inner);

/* Whose memory an address may be: freed at that very address, else live around it, else freed around it. Copies
 * the record; false if nobody's. */
bool vmm__records_suspect(struct records *records, uint64_t address, struct record *out);

#endif
