/* Notes of blocks: see blocks.h. */
#include "torch/blocks.h"
#include "base/hostmem.h"
#include "base/map.h"
#include "base/mutex.h"

enum { PARTS_LOG2 = 6, PARTS = 1 << PARTS_LOG2, BATCH_NOTES = 64, LINE_BYTES = 64 };

struct entry {
    struct map_node node; /* its key is the block's address */
    struct block_note note;
};

/* Entries are allocated in batches that live as long as the process. */
struct part {
    _Alignas(LINE_BYTES) struct mutex lock;
    struct map map;
    struct map_node *spare; /* entries in no use, linked by next */
};

#define PART_INIT                                                                                  \
    {                                                                                              \
        .lock = {.mutex = PTHREAD_MUTEX_INITIALIZER }                                              \
    }
static struct part parts[PARTS] = { [0 ... PARTS - 1] = PART_INIT };

static struct part *part_of(uint64_t address)
{
    return &parts[address * UINT64_C(0x9E3779B97F4A7C15) >> (64 - PARTS_LOG2)];
}

static struct entry *entry_of(struct map_node *node)
{
    return VMM_MAP_RECORD(node, struct entry, node);
}

static void spare_add_locked(struct part *part, struct map_node *node)
{
    VMM_ASSERT_HELD(&part->lock);
    node->next = part->spare;
    part->spare = node;
}

/* Returns NULL without host memory. */
static struct map_node *entry_add_locked(struct part *part, uint64_t address)
{
    VMM_ASSERT_HELD(&part->lock);
    if (part->spare == NULL) {
        struct entry *batch = vmm__host_alloc(BATCH_NOTES, sizeof *batch);
        for (int i = 0; batch != NULL && i < BATCH_NOTES; i++)
            spare_add_locked(part, &batch[i].node);
    }
    struct map_node *node = part->spare;
    if (node == NULL)
        return NULL;
    part->spare = node->next;
    node->key = address;
    vmm__map_add(&part->map, node);
    return node;
}

void vmm__blocks_put(const void *block, const struct block_note *note)
{
    uint64_t address = (uint64_t)(uintptr_t)block;
    struct part *part = part_of(address);
    vmm__mutex_lock(&part->lock);
    struct map_node *node = vmm__map_find(&part->map, address);
    if (node == NULL)
        node = entry_add_locked(part, address);
    if (node != NULL)
        entry_of(node)->note = *note;
    vmm__mutex_unlock(&part->lock);
}

bool vmm__blocks_take(const void *block, struct block_note *out)
{
    uint64_t address = (uint64_t)(uintptr_t)block;
    struct part *part = part_of(address);
    vmm__mutex_lock(&part->lock);
    struct map_node *node = vmm__map_find(&part->map, address);
    if (node != NULL) {
        *out = entry_of(node)->note;
        vmm__map_remove(&part->map, node);
        spare_add_locked(part, node);
    }
    vmm__mutex_unlock(&part->lock);
    return node != NULL;
}
