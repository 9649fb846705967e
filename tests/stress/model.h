/*
 * The reference model: what a cache must look like from outside, kept in the plainest way.
 *
 * It shares no code with the library and knows its public header only. It decides nothing: operations tell it
 * what happened, and asks it what must be so.
 *
 * Invariants: 1. order holds the slots of live blocks, by address; 2. no two live blocks overlap (model_add()
 * refuses what would).
 *
 * May be called by: the operations. Locks: none (one thread).
 */
#ifndef STRESS_MODEL_H
#define STRESS_MODEL_H

#include "operation.h"

#include "vmmcache/vmmcache.h"

/* Streams have a bit each in a mask; the last bit is that of a stream that has ended. */
enum { MODEL_STREAMS = 63, MODEL_POOLS = 7, MODEL_TENANTS = 4 };

struct model_block {
    uint64_t address; /* of the last block of the slot, live or freed; 0: there was none */
    uint64_t requested_bytes;
    uint64_t block_bytes;
    unsigned stream;   /* MODEL_STREAMS: it has ended */
    vmm_stream handle; /* that the stream had */
    uint64_t
        users; /* a bit for each stream that uses it with vmm_record_stream(), and that has not ended */
    uint64_t undeclared; /* and for each whose use the cache was not told: see undeclared.c */
    uint64_t
        writer; /* that of the last of these that wrote it; 0: none did since its own stream looked */
    unsigned pool; /* of a graph pool; MODEL_POOLS: of none */
    vmm_pool_id pool_id;
    unsigned tenant; /* of a general pool: its number + 1; 0: of none */

    unsigned
        graph; /* that fills it in its launches; otherwise no work does. 0: none, else number + 1 */
    uint64_t unit_bytes; /* of a reserved block; 0: it is none */
    uint64_t committed;  /* a bit for each of its units that has memory */
    uint64_t filled;     /* and for each of these that holds `word` */
    uint64_t handles[2]; /* of the chunks at a pinned block's ends */
    uint32_t word;       /* that it is filled with; 0: nothing yet */
    unsigned
        share; /* that it is exported as, or imported from: nothing writes it. 0: none, else number + 1 */
    bool is_imported;
    bool is_shareable; /* of a shareable pool, when it was taken */
    bool has_fabric;   /* of one with fabric handles */
    bool is_live;
    bool may_borrow; /* it may lie in another stream's memory, which both use then */
    bool is_pinned;
    bool is_shared; /* another stream uses it, or did */
    bool
        is_left; /* its stream, or one of its users, has ended: the heir comes after that one's work */
    bool
        is_abandoned; /* its stream has ended without a word: the next one with the handle gets its memory */
    bool is_of_pool_surely; /* the graph pool has been in use since it was handed out */
};

/* A figure as vmm_stat has it, where one thread makes all calls. */
struct model_stat {
    uint64_t current;
    uint64_t peak;
    uint64_t allocated;
    uint64_t freed;
};

struct model_pool {
    vmm_pool_id id;
    unsigned uses;
    unsigned begun;    /* 0: it is not; else when, counting beginnings */
    uint64_t streams;  /* that pass its filter; 0: there is no filter */
    unsigned launched; /* the stream of the last launch of its graphs */
};

/* A general pool. */
struct model_tenant {
    vmm_pool *handle; /* NULL: there is none */
    unsigned uses;    /* see vmm_pool_retain() */
    unsigned pushes;
    unsigned live; /* blocks */
    uint64_t limit_bytes;
    uint64_t least_bytes;   /* that other pools leave to it */
    uint64_t ceiling_bytes; /* as in struct model */
    bool is_shareable;
    bool has_fabric;     /* is_shareable, with fabric handles */
    bool has_own_chunks; /* of each block: it is shareable, or has no_split */
    bool lends;          /* has use_on_oom */
    bool has_source;
};

struct model {
    struct model_block blocks[OPERATION_SLOTS];
    uint8_t order[OPERATION_SLOTS];
    unsigned live;
    struct model_stat requested_bytes;
    struct model_stat allocated_bytes;
    struct model_stat allocations;
    uint64_t unmovable_bytes;
    uint64_t ooms;
    uint64_t pressure_calls;
    uint64_t limit_bytes;
    uint64_t
        ceiling_bytes; /* of reserved memory: the limit, or what was there when it was lowered; 0: none */
    struct model_pool pools[MODEL_POOLS];
    unsigned begins;
    struct model_tenant tenants[MODEL_TENANTS];
    bool was_divided; /* see model_is_divided() */
    bool
        was_retained; /* a general pool, whose addresses stay until the cache has waited for the device */
};

/* Graph pools are named after the worker, so that no two have the same. */
void model_init(struct model *model, uint64_t limit_bytes, unsigned worker);

/* A live block that shares bytes with these; NULL: there is none. */
const struct model_block *model_overlap(const struct model *model, uint64_t address,
                                        uint64_t bytes);

/* The live block that an address lies in; NULL: in none. */
struct model_block *model_find(struct model *model, uint64_t address);

/* The live block that starts at an address. */
struct model_block *model_start(struct model *model, uint64_t address);

/* A block becomes live, which overlaps no other; or stops being it. */
void model_add(struct model *model, unsigned slot, const struct model_block *block);
void model_remove(struct model *model, struct model_block *block);

/* The bits of the first units of a reserved block, at most 64. */
static inline uint64_t model_units(uint64_t count)
{
    return count >= 64 ? UINT64_MAX : (UINT64_C(1) << count) - 1;
}

static inline uint64_t model_committed_bytes(const struct model_block *block)
{
    return (uint64_t)__builtin_popcountll(block->committed) * block->unit_bytes;
}

/* What statistics count of a live block: of a reserved one its memory. */
uint64_t model_requested_bytes(const struct model_block *block);
uint64_t model_allocated_bytes(const struct model_block *block);

/* These units of a reserved block have memory from now on, and no others. */
void model_commit(struct model *model, struct model_block *block, uint64_t units);

/* A live block has another size, and maybe another address. A copy was counted as a block of its own. */
void model_replace(struct model *model, struct model_block *block, const struct model_block *next,
                   bool is_copy);

/* Another live block that shares addresses with one; NULL: there is none. */
const struct model_block *model_overlap_other(const struct model *model,
                                              const struct model_block *block);

void model_pin(struct model *model, struct model_block *block, bool is_pinned);

/* A live block is exported; then, live or not, it no longer is. */
void model_export(struct model *model, struct model_block *block, unsigned share);
void model_export_end(struct model *model, unsigned share, uint64_t block_bytes);
void model_peaks_reset(struct model *model);

/* The graph pool that a request of a stream belongs to; MODEL_POOLS: to none. */
unsigned model_pool_of(const struct model *model, unsigned stream);

/* The last use of a graph pool has ended: from now on its blocks may have lost its name. */
void model_pool_ended(struct model *model, unsigned pool);

/* Whether memory is not for everyone: a general pool has a limit or a promise, is retained, or shares. */
bool model_is_divided(const struct model *model);

/* Notes what is reserved now; false: that is more than may be. */
bool model_reserved(struct model *model, uint64_t bytes);
void model_limit(struct model *model, uint64_t limit_bytes, uint64_t reserved_bytes);

#endif
