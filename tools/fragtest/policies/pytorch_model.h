/*
 * The common part of PyTorch's two policies: blocks cut from segments, and each stream's free blocks.
 *
 * Written from the published constants and rules: sizes are rounded to 512 bytes; requests of up to
 * 1 MiB and larger ones live in separate pools; a request takes the smallest free block that holds
 * it, of its own stream and pool only, the lowest address among equals; freed blocks merge with
 * free neighbours of the same segment. What differs (segments, growth, splitting, giving back) is
 * in block_splitting.c and expandable.c.
 *
 * Owns: blocks and pools; segments are the policies'.
 * Invariants:
 *  C1. the blocks of a segment, linked in order of address, cover it without gaps;
 *  C2. a free block is in its pool's `free` when mapped, in `unmapped` when not;
 *  C3. no two neighbours are both free and both mapped, or both unmapped.
 * May be called by: the two policies. Locks: none (one thread).
 */
#ifndef FRAGTEST_PYTORCH_MODEL_H
#define FRAGTEST_PYTORCH_MODEL_H

#include "fragtest/policies/ordered.h"
#include "fragtest/policies/policy.h"

#include <stdbool.h>

#define MIB                 (1ULL << 20)
#define BLOCK_UNIT_BYTES    512ULL
#define SMALL_MAX_BYTES     MIB           /* larger requests go to the large pool */
#define SMALL_SEGMENT_BYTES (2ULL * MIB)  /* also the page of a small expandable segment */
#define LARGE_SEGMENT_BYTES (20ULL * MIB) /* also the page of a large expandable segment */
#define OWN_SEGMENT_BYTES   (10ULL * MIB) /* requests from here on get a segment of their own size */
#define OWN_SEGMENT_UNIT    (2ULL * MIB)

struct segment; /* each policy's own */

struct pool {
    struct ordered free;     /* by (bytes, address) */
    struct ordered unmapped; /* by (address, 0): expandable only */
    uint32_t stream;
    bool small;
};

struct block {
    struct ordered_node node; /* first: sets hold blocks by it */
    struct block *previous;   /* neighbours in the segment */
    struct block *next;
    struct pool *pool;
    struct segment *segment;
    uint64_t address;
    uint64_t bytes;
    bool allocated;
    bool mapped;
};

struct pytorch_model {
    struct policy policy; /* first: the replayer calls with it */
    struct policy_setup setup;
    struct pool *pools; /* two for each stream: large, small */
    uint64_t reserved_bytes;
};

/*
 * policy_ops.open for both: a policy of so many bytes, zeros behind the model it begins with. ERR_HOST_OOM.
 * pytorch_model_close() frees it; its segments are gone.
 */
vmm_status pytorch_model_open(const struct policy_setup *setup, const struct policy_ops *ops,
                              size_t bytes, struct policy **out);
void pytorch_model_close(struct pytorch_model *model);

/* The pool for a rounded request, and what a segment for it would take. */
uint64_t pytorch_model_round(uint64_t bytes);
struct pool *pytorch_model_pool(struct pytorch_model *model, uint64_t bytes, uint32_t stream);
uint64_t pytorch_model_segment_bytes(uint64_t bytes);

/* Whether `bytes` more may be reserved. */
bool pytorch_model_may_reserve(const struct pytorch_model *model, uint64_t bytes);

/* The block that a node of `free` or `unmapped` belongs to; NULL for NULL. */
struct block *block_of(struct ordered_node *node);

/* A block that covers a whole segment, free and in its pool. NULL: no host memory. */
struct block *block_create(struct pool *pool, struct segment *segment, uint64_t address,
                           uint64_t bytes, bool mapped);

/* Takes a free block out of its pool's set, or puts it in. */
void block_leave(struct block *block);
void block_join(struct block *block);

/*
 * Cuts a block that is in no set: it keeps the first `bytes`, and the rest becomes a free block in
 * the pool, mapped alike. False: no host memory, nothing changed.
 */
bool block_split(struct block *block, uint64_t bytes);

/* Merges a free block that is in no set with its free neighbours that are mapped alike, puts the
 * whole into its pool and returns it. */
struct block *block_settle(struct block *block);

/* Takes a block that is in no set out of its segment's list and frees the record. */
void block_destroy(struct block *block);

/* policy_ops.free for both. */
vmm_status pytorch_model_free(struct policy *policy, struct policy_place place);

/* policy_ops.explain for both. */
void pytorch_model_explain(const struct pytorch_model *model, uint64_t bytes, uint32_t stream,
                           char *text, size_t capacity);

#endif
