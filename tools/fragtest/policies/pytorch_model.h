/*
 * The common part of PyTorch's two policies: blocks cut from segments, and each stream's free blocks.
 *
 * Written from the published constants and rules: sizes are rounded to 512 bytes; requests of up to
 * 1 MiB and larger ones live in separate pools; a request takes the smallest free block that holds
 * it, of its own stream and pool only, the lowest address among equals; freed blocks merge with
 * free neighbours of the same segment. What differs (growth, splitting, giving back) are rules
 * in block_splitting.c and expandable.c.
 *
 * Owns: blocks, pools and segments.
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
#include "fragtest/policies/segment.h"

#include <stdbool.h>

#define MIB                 (1ULL << 20)
#define BLOCK_UNIT_BYTES    512ULL
#define SMALL_MAX_BYTES     MIB           /* larger requests go to the large pool */
#define SMALL_SEGMENT_BYTES (2ULL * MIB)  /* also the page of a small expandable segment */
#define LARGE_SEGMENT_BYTES (20ULL * MIB) /* also the page of a large expandable segment */
#define OWN_SEGMENT_BYTES   (10ULL * MIB) /* requests from here on get a segment of their own size */
#define OWN_SEGMENT_UNIT    (2ULL * MIB)

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
    uint64_t lowest_place; /* of all segments so far: block-splitting only */
};

/* What differs between the two policies. Sizes are rounded. */
struct pytorch_rules {
    /* The free block for a request; NULL: there is none. */
    struct block *(*search)(struct pool *pool, uint64_t bytes);

    /* Reserves memory until a free block holds the request, within the limit; it comes back in no set. */
    vmm_status (*grow)(struct pytorch_model *model, struct pool *pool, uint64_t bytes,
                       struct block **out);

    /* Whether the rest of a block becomes a block of its own. */
    bool (*splits)(const struct block *block, uint64_t bytes);

    /* Whether a free block has memory that can go back; gives it back, on an idle device. */
    bool (*is_idle)(const struct block *block);
    vmm_status (*give_back)(struct pytorch_model *model, struct block *block);

    /* What a request that fails has asked for. */
    uint64_t (*needed)(uint64_t bytes);
};

/* policy_ops but name and rules, for both. */
#define PYTORCH_MODEL_OPS                                                                          \
    .open = pytorch_model_open, .alloc = pytorch_model_alloc, .free = pytorch_model_free,          \
    .trim = pytorch_model_trim, .explain = pytorch_model_explain, .close = pytorch_model_close
vmm_status pytorch_model_open(const struct policy_ops *ops, const struct policy_setup *setup,
                              struct policy **out);
vmm_status pytorch_model_alloc(struct policy *policy, uint64_t bytes, uint32_t stream,
                               struct policy_place *out);
vmm_status pytorch_model_free(struct policy *policy, struct policy_place place);
vmm_status pytorch_model_trim(struct policy *policy);
void pytorch_model_explain(struct policy *policy, uint64_t bytes, uint32_t stream, char *text,
                           size_t capacity);
vmm_status pytorch_model_close(struct policy *policy);

/* What a segment for a rounded request would take. */
uint64_t pytorch_model_segment_bytes(uint64_t bytes);

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

/* Gives back the segment whose one block, unmapped and in no set, this is. */
vmm_status block_close(struct pytorch_model *model, struct block *block);

#endif
