/* The map from addresses to heaps and blocks: see directory.h. */
#include "lane/directory.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "lane/heap.h"
#include "lane/live_table.h"

static uint64_t slot_count(const struct directory *directory)
{
    return directory->arena->granule_bytes / SMALL_SLOT_BYTES;
}

static struct heap *entry_heap(const struct directory_entry *entry)
{
    return atomic_load_explicit(&entry->heap, memory_order_relaxed);
}

static void tables_free(struct directory *directory)
{
    vmm__host_table_free(directory->live, sizeof *directory->live);
    vmm__host_table_free(directory->entries,
                         directory->arena->granules * sizeof *directory->entries);
}

vmm_status vmm__directory_init(struct directory *directory, const struct arena *arena,
                               struct clock *clock)
{
    *directory = (struct directory){ .arena = arena,
                                     .clock = clock,
                                     .address = arena->address,
                                     .granule_mask = arena->granule_bytes - 1,
                                     .granule_shift = arena->granule_shift };
    directory->entries = vmm__host_table_alloc(arena->granules * sizeof *directory->entries);
    directory->live = vmm__host_table_alloc(sizeof *directory->live);
    if (directory->entries != NULL && directory->live != NULL)
        return VMM_OK;
    tables_free(directory);
    return vmm__error(VMM_ERR_HOST_OOM, "directory: no host memory for the tables");
}

void vmm__directory_fini(struct directory *directory)
{
    const struct arena *arena = directory->arena;
    for (uint64_t granule = vmm__arena_next_taken(arena, 0); granule < arena->granules;
         granule = vmm__arena_next_taken(arena, granule + 1)) {
        if (entry_heap(&directory->entries[granule]) != NULL)
            vmm__directory_take_back(directory, granule, 1);
    }
    tables_free(directory);
}

vmm_status vmm__directory_give(struct directory *directory, struct heap *heap, uint64_t granule,
                               uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        struct directory_entry *entry = &directory->entries[granule + i];
        if (heap->is_small) {
            entry->slots = vmm__host_alloc(slot_count(directory), sizeof *entry->slots);
            if (entry->slots == NULL) {
                vmm__directory_take_back(directory, granule, i);
                return vmm__error(VMM_ERR_HOST_OOM, "directory: no host memory for slots");
            }
        }
        atomic_store_explicit(&entry->heap, heap, memory_order_release);
    }
    return VMM_OK;
}

void vmm__directory_take_back(struct directory *directory, uint64_t granule, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        struct directory_entry *entry = &directory->entries[granule + i];
        struct heap *heap = entry_heap(entry);
        atomic_store_explicit(&entry->heap, NULL, memory_order_release);
        if (heap->is_small)
            vmm__host_free(entry->slots, slot_count(directory) * sizeof *entry->slots);
        entry->first = NULL;
    }
}

struct block **vmm__directory_slot(const struct directory *directory, uint64_t address)
{
    return vmm__heap_slot(vmm__directory_heap(directory, address), address);
}

/* Return the first block of the nearest slot below an address that has one. An extent begins with a block, so the walks
 * end before they leave the heap. */
static struct block *small_before(const struct directory *directory, uint64_t address)
{
    uint64_t at = address - SMALL_SLOT_BYTES;
    while (*vmm__directory_slot(directory, at) == NULL)
        at -= SMALL_SLOT_BYTES;
    return *vmm__directory_slot(directory, at);
}

/* A large free block spans many granules, so this walk is the longest of the library: few instructions a granule. */
static struct block *large_before(const struct directory *directory, uint64_t address)
{
    const struct directory_entry *entry = vmm__directory_entry(directory, address - 1);
    while (entry->first == NULL)
        entry--;
    return entry->first;
}

struct block *vmm__directory_before(const struct directory *directory, uint64_t address)
{
    uint64_t base = directory->arena->address;
    struct heap *heap = address > base ? vmm__directory_heap(directory, address - 1) : NULL;
    if (heap == NULL)
        return NULL;
    struct block *block =
        heap->is_small ? small_before(directory, address) : large_before(directory, address);
    while (vmm__block_end(block) < address)
        block = block->next;
    return block;
}
