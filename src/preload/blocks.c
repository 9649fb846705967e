/*
 * The live blocks of all caches: see preload.h.
 *
 * Owns: their records, in parts with a lock each, chosen by the address.
 * Invariant: a record is in its part, or with the one thread that took it.
 */
#include "base/hostmem.h"
#include "preload/preload.h"

enum { PARTS = 64, ALIGNMENT_BITS = 9 };

struct part {
    pthread_mutex_t lock;
    struct map blocks;
};

static struct part parts[PARTS] = { [0 ... PARTS - 1] = { .lock = PTHREAD_MUTEX_INITIALIZER } };

/* Addresses are multiples of 512; the multiplication mixes their upper bits into the part's number. */
static struct part *part_of(CUdeviceptr address)
{
    return &parts[((address >> ALIGNMENT_BITS) * UINT64_C(0x9E3779B97F4A7C15)) >> 58];
}

static struct preload_block *block_of(struct map_node *node)
{
    return VMM_MAP_RECORD(node, struct preload_block, node);
}

void vmm__preload_block_put_back(struct preload_block *block)
{
    struct part *part = part_of(block->node.key);
    (void)pthread_mutex_lock(&part->lock);
    vmm__map_add(&part->blocks, &block->node);
    (void)pthread_mutex_unlock(&part->lock);
}

bool vmm__preload_block_add(struct preload_device *device, CUdeviceptr address, size_t bytes)
{
    struct preload_block *block = vmm__host_alloc(1, sizeof *block);
    if (block == NULL)
        return false;
    *block = (struct preload_block){ .node.key = address, .device = device, .bytes = bytes };
    vmm__preload_block_put_back(block);
    return true;
}

struct preload_block *vmm__preload_block_take(CUdeviceptr address)
{
    struct part *part = part_of(address);
    (void)pthread_mutex_lock(&part->lock);
    struct map_node *node = vmm__map_find(&part->blocks, address);
    if (node != NULL)
        vmm__map_remove(&part->blocks, node);
    (void)pthread_mutex_unlock(&part->lock);
    return node == NULL ? NULL : block_of(node);
}

void vmm__preload_block_drop(struct preload_block *block)
{
    vmm__host_free(block, sizeof *block);
}

/* ---- Inside a block -------------------------------------------------------------------------- */

static bool start_find(CUdeviceptr address, struct preload_found *found)
{
    struct part *part = part_of(address);
    (void)pthread_mutex_lock(&part->lock);
    struct map_node *node = vmm__map_find(&part->blocks, address);
    if (node != NULL)
        *found = (struct preload_found){ .address = address,
                                         .bytes = block_of(node)->bytes,
                                         .device = block_of(node)->device };
    (void)pthread_mutex_unlock(&part->lock);
    return node != NULL;
}

/* Caches know the start of the block that contains an address. */
static bool inside_find(CUdeviceptr address, struct preload_found *found)
{
    vmm_item item = VMM_ITEM_INIT;
    for (int i = 0; i < PRELOAD_DEVICES; i++) {
        struct preload_device *device = vmm__preload_device_at(i);
        if (device != NULL &&
            vmm_find(device->cache, (void *)(uintptr_t)address, &item) == VMM_OK &&
            start_find(item.address, found))
            return address - found->address < found->bytes;
    }
    return false;
}

bool vmm__preload_block_find(CUdeviceptr address, struct preload_found *found)
{
    if (start_find(address, found))
        return true;
    vmm__preload_caches_hold();
    bool is_found = inside_find(address, found);
    vmm__preload_caches_release();
    return is_found;
}

/* ---- The end of a device --------------------------------------------------------------------- */

static void part_drop(struct part *part, const struct preload_device *device)
{
    struct map_node *next;
    (void)pthread_mutex_lock(&part->lock);
    for (struct map_node *node = vmm__map_next(&part->blocks, NULL); node != NULL; node = next) {
        next = vmm__map_next(&part->blocks, node);
        if (block_of(node)->device == device) {
            vmm__map_remove(&part->blocks, node);
            vmm__preload_block_drop(block_of(node));
        }
    }
    (void)pthread_mutex_unlock(&part->lock);
}

void vmm__preload_blocks_drop(const struct preload_device *device)
{
    for (unsigned i = 0; i < PARTS; i++)
        part_drop(&parts[i], device);
}
