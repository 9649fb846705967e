/* Transfers idle chunks between heaps in place: see transfer.h. */
#include "cache/idle/transfer.h"
#include "base/arith.h"

#include <stdlib.h>

/* Addresses without a gap: free blocks of the receiving heap, and runs of others that it may have. */
struct interval {
    uint64_t start;
    uint64_t end;
    uint64_t first; /* index of the first run */
    uint64_t count; /* of runs */
};

static int by_address(const void *a, const void *b)
{
    const struct idle_run *left = a;
    const struct idle_run *right = b;
    return left->address < right->address ? -1 : left->address > right->address;
}

/* Where the free block of the heap starts that ends at an address; the address, if there is none. */
static uint64_t free_before(const struct heap *heap, uint64_t address)
{
    if (!vmm__heap_has_extent(heap, address - 1))
        return address;
    const struct block *block = vmm__directory_before(heap->directory, address);
    return block->state == BLOCK_FREE ? block->address : address;
}

/* Where the free block of the heap ends that starts at an address, which lies where another heap's chunk ends. */
static uint64_t free_behind(const struct heap *heap, uint64_t address)
{
    if (!vmm__heap_has_extent(heap, address))
        return address;
    const struct block *block = *vmm__heap_slot(heap, address);
    return block->state == BLOCK_FREE ? vmm__block_end(block) : address;
}

/* The interval that begins with a run, or with the heap's free block before it. */
static struct interval interval_at(const struct heap *heap, const struct idle_runs *runs,
                                   uint64_t first)
{
    const struct idle_run *run = &runs->items[first];
    struct interval interval = { .start = free_before(heap, run->address),
                                 .end = run->address,
                                 .first = first };
    for (; first < runs->count && runs->items[first].address == interval.end; first++) {
        interval.end = free_behind(heap, interval.end + runs->items[first].bytes);
        interval.count++;
    }
    return interval;
}

/* The shortest interval of at least `bytes`. False if there is none. */
static bool interval_find(const struct heap *heap, const struct idle_runs *runs, uint64_t bytes,
                          struct interval *best)
{
    uint64_t best_bytes = UINT64_MAX;
    for (uint64_t first = 0; first < runs->count;) {
        struct interval interval = interval_at(heap, runs, first);
        uint64_t interval_bytes = interval.end - interval.start;
        first += interval.count;
        if (interval_bytes < bytes || interval_bytes >= best_bytes)
            continue;
        *best = interval;
        best_bytes = interval_bytes;
    }
    return best_bytes != UINT64_MAX;
}

/* Shortens a run to the chunks that begin before an address. */
static void run_shorten(const struct vm *vm, uint64_t end, struct idle_run *run)
{
    uint64_t at = run->address;
    while (at < end && at < run->address + run->bytes)
        at += vmm__chunk_bytes(vm, vmm__vm_chunk(vm, vmm__arena_granule(&vm->arena, at)));
    run->bytes = at - run->address;
}

/* Transfers the runs that lie in the first `bytes` of an interval. VMM__NO_FIT if the heap's own free block is long
 * enough: the lane was searched before, so something else keeps the request from using it. */
static vmm_status interval_take(struct vmm_cache *cache, const struct interval *interval,
                                const struct idle_runs *runs, struct heap *heap, uint64_t bytes,
                                enum idle_when when)
{
    uint64_t end = interval->start + bytes;
    vmm_status status = runs->items[interval->first].address < end ? VMM_OK : VMM__NO_FIT;
    for (uint64_t i = interval->first; i < interval->first + interval->count; i++) {
        struct idle_run run = runs->items[i];
        if (run.address >= end || status != VMM_OK)
            break;
        run_shorten(&cache->vm, end, &run);
        status = vmm__idle_take(cache, &run, heap, when);
    }
    return status;
}

static vmm_status transfer_locked(struct vmm_cache *cache, const struct request *request,
                                  enum idle_when when)
{
    struct heap *heap = request->heap;
    bool leaves_room = vmm__request_leaves_room(request);
    struct idle_runs runs = { .items = NULL };
    struct interval interval = { .count = 0 };
    vmm_status status = VMM__NO_FIT;
    bool is_ok = vmm__idle_visit(cache, heap, when, leaves_room, vmm__idle_runs_add, &runs);
    if (runs.count > 1)
        qsort(runs.items, runs.count, sizeof *runs.items, by_address);
    if (is_ok && interval_find(heap, &runs, request->block_bytes, &interval))
        status = interval_take(cache, &interval, &runs, heap, request->block_bytes, when);
    vmm__idle_runs_free(&runs);
    return status;
}

vmm_status vmm__transfer(struct vmm_cache *cache, const struct request *request,
                         enum idle_when when)
{
    if (cache->lanes.stocked.count < 2)
        return VMM__NO_FIT;
    vmm__request_lanes_lock(cache, request);
    vmm_status status = transfer_locked(cache, request, when);
    vmm__request_lanes_unlock(cache, request->heap);
    return status == VMM_OK ? VMM_OK : VMM__NO_FIT;
}
