/*
 * Requests that PyTorch's settings round up (settings.cpp): the library gets the rounded size, statistics and snapshots
 * say what was asked for.
 *
 * Owns: by how much each live block was rounded up, and the sums. Invariant: a block is listed while it is live, at
 * most. Locks: `excess_lock`, a leaf, guards all of it. A child of fork(), in which it may stay locked, knows nothing.
 */
#include "torch/shim/allocator.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <pthread.h>
#include <unordered_map>

namespace vmm_shim
{

/* What was rounded up so far, of one device and kind. */
struct excess_sums {
    uint64_t allocated;
    uint64_t freed;
};

static std::mutex excess_lock;
static auto &excesses = *new std::unordered_map<const void *, rounded_block>;
static auto &sums = *new std::map<std::pair<int, bool>, excess_sums>; /* by device and is_small */
static std::atomic<bool> has_excess{ false };

static void child_forget()
{
    has_excess.store(false);
}

static void block_enter(const void *ptr, const rounded_block &block, bool was_taken)
{
    if (block.excess == 0)
        return;
    static const bool forgets = pthread_atfork(nullptr, nullptr, child_forget) == 0;
    if (!forgets)
        return;
    try {
        std::lock_guard<std::mutex> guard(excess_lock);
        excess_sums &of = sums[{ block.device, block.is_small }];
        excesses[ptr] = block;
        of.allocated += was_taken ? 0 : block.excess;
        of.freed -= was_taken ? block.excess : 0;
        has_excess.store(true);
    } catch (...) { /* no host memory: the rounded size counts as requested */
    }
}

void rounded_note(const void *ptr, const rounded_block &block)
{
    block_enter(ptr, block, false);
}

void rounded_put_back(const void *ptr, const rounded_block &block)
{
    block_enter(ptr, block, true);
}

rounded_block rounded_of(const void *ptr)
{
    if (!has_excess.load(std::memory_order_relaxed))
        return {};
    std::lock_guard<std::mutex> guard(excess_lock);
    auto found = excesses.find(ptr);
    return found == excesses.end() ? rounded_block{} : found->second;
}

rounded_block rounded_take(const void *ptr)
{
    if (!has_excess.load(std::memory_order_relaxed))
        return {};
    std::lock_guard<std::mutex> guard(excess_lock);
    auto found = excesses.find(ptr);
    if (found == excesses.end())
        return {};
    rounded_block block = found->second;
    sums[{ block.device, block.is_small }].freed += block.excess;
    excesses.erase(found);
    return block;
}

/* The peak is one of what the library was asked for, less what is rounded up now. */
static void stat_subtract(vmm_stat *figure, const excess_sums &of)
{
    uint64_t now = of.allocated - of.freed;
    figure->current -= std::min(figure->current, now);
    figure->peak = std::max(figure->current, figure->peak - std::min(figure->peak, now));
    figure->allocated -= std::min(figure->allocated, of.allocated);
    figure->freed -= std::min(figure->freed, of.freed);
}

void rounded_subtract(int device, vmm_stats *stats, vmm_torch_stats *kinds)
{
    if (!has_excess.load(std::memory_order_relaxed))
        return;
    std::lock_guard<std::mutex> guard(excess_lock);
    for (bool is_small : { false, true }) {
        const excess_sums &of = sums[{ device, is_small }];
        stat_subtract(is_small ? &kinds->small.requested_bytes : &kinds->large.requested_bytes, of);
        stat_subtract(&stats->requested_bytes, of);
    }
}

} // namespace vmm_shim
