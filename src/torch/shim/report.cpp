/*
 * Statistics and snapshots in PyTorch's structures.
 *
 * Owns: where counting was restarted, and peaks that the library does not keep: the highest value that a query has
 * seen.
 * Locks: `counts_lock`, a leaf, guards both.
 */
#include "torch/shim/allocator.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>

namespace vmm_shim
{

namespace
{

using device_stats = c10::CachingDeviceAllocator::DeviceStats;
using stat_array = decltype(device_stats::allocation);
using stat = stat_array::value_type;

constexpr size_t all = 0, small = 1, large = 2; /* c10::CachingAllocator::StatType */
constexpr uint64_t granule = UINT64_C(2) << 20; /* size of a chunk of small blocks */

struct reading {
    vmm_stats stats;
    vmm_torch_stats kinds;
};

struct seen_peaks {
    int64_t active;
    int64_t large_segments;
    int64_t pinned[3];
};

std::mutex counts_lock;
auto &starts = *new std::map<int, reading>; /* at the last resetAccumulatedStats() */
auto &peaks = *new std::map<int, seen_peaks>;

reading reading_get(int device)
{
    reading now = { VMM_STATS_INIT, {} };
    now.kinds.struct_size = sizeof now.kinds;
    check("getDeviceStats", library->stats_get(device, &now.stats, &now.kinds));
    rounded_subtract(device, &now.stats, &now.kinds);
    return now;
}

/* A statistic. Counts what was allocated and freed since `start`. */
stat stat_of(const vmm_stat &now, const vmm_stat &start)
{
    stat out;
    out.current = static_cast<int64_t>(now.current);
    out.peak = static_cast<int64_t>(now.peak);
    out.allocated = static_cast<int64_t>(now.allocated - start.allocated);
    out.freed = static_cast<int64_t>(now.freed - start.freed);
    return out;
}

/* The sum, whose peak is at least `peak`, and at least what the parts imply. */
stat sum_of(const stat &one, const stat &other, int64_t peak)
{
    stat out;
    out.current = one.current + other.current;
    out.peak = std::max({ peak, out.current, one.peak, other.peak });
    out.allocated = one.allocated + other.allocated;
    out.freed = one.freed + other.freed;
    return out;
}

stat_array stats_join(const stat &small_part, const stat &large_part, int64_t peak)
{
    stat_array out;
    out[all] = sum_of(small_part, large_part, peak);
    out[small] = small_part;
    out[large] = large_part;
    return out;
}

struct device_counts {
    reading now;
    reading start;
    seen_peaks *seen;

    stat_array kinds(vmm_stat vmm_torch_kind_stats::*member, int64_t peak) const
    {
        return stats_join(stat_of(now.kinds.small.*member, start.kinds.small.*member),
                          stat_of(now.kinds.large.*member, start.kinds.large.*member), peak);
    }

    stat_array kinds(vmm_stat vmm_torch_kind_stats::*member, vmm_stat vmm_stats::*whole) const
    {
        return kinds(member, static_cast<int64_t>((now.stats.*whole).peak));
    }

    int64_t calls(uint64_t vmm_stats::*member) const
    {
        return static_cast<int64_t>(now.stats.*member - start.stats.*member);
    }
};

int64_t highest(int64_t *seen, int64_t value)
{
    *seen = std::max(*seen, value);
    return *seen;
}

stat_array active_of(const device_counts &counts)
{
    stat_array out = counts.kinds(&vmm_torch_kind_stats::active, &vmm_stats::allocations);
    out[all].peak = std::max(out[all].peak, highest(&counts.seen->active, out[all].current));
    return out;
}

/* Chunks. Those of small blocks have one granule each. */
stat_array segments_of(const device_counts &counts)
{
    vmm_stat bytes = counts.now.kinds.small.reserved_bytes;
    vmm_stat bytes_start = counts.start.kinds.small.reserved_bytes;
    for (vmm_stat *figure : { &bytes, &bytes_start })
        *figure = { figure->current / granule, figure->peak / granule, figure->allocated / granule,
                    figure->freed / granule };
    stat_array out;
    out[all] = stat_of(counts.now.stats.chunks, counts.start.stats.chunks);
    stat part = stat_of(bytes, bytes_start);
    out[small].current = std::min(part.current, out[all].current);
    out[small].peak = std::min(part.peak, out[all].peak);
    out[small].allocated = std::min(part.allocated, out[all].allocated);
    out[small].freed = std::min(part.freed, out[all].freed);
    out[large].current = out[all].current - out[small].current;
    out[large].allocated = out[all].allocated - out[small].allocated;
    out[large].freed = out[all].freed - out[small].freed;
    out[large].peak = highest(&counts.seen->large_segments, out[large].current);
    return out;
}

/* Free memory in chunks that cannot be released because live blocks lie in them. */
stat_array pinned_of(const device_counts &counts)
{
    int64_t whole = static_cast<int64_t>(counts.now.stats.pinned_bytes);
    int64_t free_bytes = static_cast<int64_t>(counts.now.kinds.small.reserved_bytes.current) -
                         static_cast<int64_t>(counts.now.kinds.small.active_bytes.current);
    int64_t part = std::min(whole, std::max<int64_t>(0, free_bytes));
    int64_t values[3] = { whole, part, whole - part };
    stat_array out;
    for (size_t kind : { all, small, large }) {
        out[kind].current = out[kind].allocated = values[kind];
        out[kind].peak = highest(&counts.seen->pinned[kind], values[kind]);
    }
    return out;
}

} // namespace

/* ---- Statistics ----------------------------------------------------------------------------- */

device_stats allocator::getDeviceStats(DeviceIndex device)
{
    device_counts counts = { reading_get(device), {}, nullptr };
    std::lock_guard<std::mutex> guard(counts_lock);
    counts.start = starts[device];
    counts.seen = &peaks[device];
    device_stats out;
    out.allocation = counts.kinds(&vmm_torch_kind_stats::allocations, &vmm_stats::allocations);
    out.active = active_of(counts);
    out.segment = segments_of(counts);
    out.allocated_bytes =
        counts.kinds(&vmm_torch_kind_stats::allocated_bytes, &vmm_stats::allocated_bytes);
    out.reserved_bytes =
        counts.kinds(&vmm_torch_kind_stats::reserved_bytes, &vmm_stats::reserved_bytes);
    out.active_bytes = counts.kinds(&vmm_torch_kind_stats::active_bytes, &vmm_stats::active_bytes);
    out.requested_bytes =
        counts.kinds(&vmm_torch_kind_stats::requested_bytes, &vmm_stats::requested_bytes);
    out.inactive_split_bytes = pinned_of(counts);
    out.num_alloc_retries = counts.calls(&vmm_stats::retries);
    out.num_ooms = counts.calls(&vmm_stats::ooms);
    out.num_sync_all_streams = counts.calls(&vmm_stats::stalls);
    out.num_device_alloc = counts.calls(&vmm_stats::create_calls);
    out.num_device_free = counts.calls(&vmm_stats::release_calls);
    out.max_split_size = -1;
    return out;
}

void allocator::resetAccumulatedStats(DeviceIndex device)
{
    reading now = reading_get(device);
    std::lock_guard<std::mutex> guard(counts_lock);
    starts[device] = now;
}

void allocator::resetPeakStats(DeviceIndex device)
{
    check("resetPeakStats", library->stats_reset_peak(device));
    std::lock_guard<std::mutex> guard(counts_lock);
    peaks.erase(device);
}

/* ---- Snapshots ------------------------------------------------------------------------------ */

namespace
{

struct snapshot_drop {
    void operator()(const vmm_torch_snapshot *snapshot) const
    {
        library->snapshot_drop(snapshot);
    }
};
using snapshot_ptr = std::unique_ptr<const vmm_torch_snapshot, snapshot_drop>;

snapshot_ptr snapshot_get(int device)
{
    const vmm_torch_snapshot *taken = nullptr;
    check("snapshot", library->snapshot_take(device, &taken));
    return snapshot_ptr(taken);
}

void block_add(caching::SegmentInfo *segment, const vmm_torch_block &block)
{
    caching::BlockInfo info;
    uint64_t excess = rounded_of(reinterpret_cast<const void *>(block.address)).excess;
    info.size = block.bytes;
    info.requested_size = block.requested_bytes - std::min(excess, block.requested_bytes);
    info.allocated = block.state == VMM_ITEM_LIVE;
    info.active = block.state != VMM_ITEM_FREE;
    info.context_when_allocated = context_of(block.stack).frames;
    segment->allocated_size += info.allocated ? info.size : 0;
    segment->active_size += info.active ? info.size : 0;
    segment->requested_size += info.active ? info.requested_size : 0;
    segment->blocks.push_back(std::move(info));
}

/* NCCL registers segments in this order. */
void number_set(caching::SegmentInfo *info, int64_t number)
{
    set_if_there(*info, [number](auto &in) -> decltype(void(in.registration_counter)) {
        in.registration_counter = static_cast<decltype(in.registration_counter)>(number);
    });
}

bool is_wanted(const MempoolId_t &of, const MempoolId_t &id)
{
    return id == MempoolId_t{ 0, 0 } || id == of;
}

void free_block_add(caching::SegmentInfo *info, uint64_t bytes)
{
    vmm_torch_block gap = {};
    gap.bytes = bytes;
    gap.state = VMM_ITEM_FREE;
    if (bytes > 0)
        block_add(info, gap);
}

/* Adds the blocks of a taken segment that lie in this one, from *end on. The requested bytes count where a block
 * begins. */
void blocks_add(caching::SegmentInfo *info, const vmm_torch_snapshot &taken,
                const vmm_torch_segment &from, uint64_t *end)
{
    for (uint64_t i = 0; i < from.block_count; i++) {
        vmm_torch_block block = taken.blocks[from.first_block + i];
        uint64_t start = std::max(block.address, *end);
        uint64_t stop = std::min(block.address + block.bytes, info->address + info->total_size);
        if (start >= stop)
            continue;
        block.requested_bytes = start == block.address ? block.requested_bytes : 0;
        block.bytes = stop - start;
        free_block_add(info, start - *end);
        block_add(info, block);
        *end = stop;
    }
}

/* A segment without its blocks. */
caching::SegmentInfo segment_begin(int device, uint64_t address, uint64_t bytes, uint64_t stream,
                                   const MempoolId_t &pool)
{
    caching::SegmentInfo info;
    info.device = static_cast<DeviceIndex>(device);
    info.address = address;
    info.total_size = bytes;
    info.stream = reinterpret_cast<decltype(info.stream)>(static_cast<uintptr_t>(stream));
    info.is_expandable = !pool_has_source(device, pool);
    info.owner_private_pool_id = pool;
    return info;
}

/* A segment as trackers know it, with what the snapshot has in it. Memory whose blocks lie in a view is free at its
 * home. */
caching::SegmentInfo tracked_segment(const vmm_torch_snapshot &taken, const pool_segment &segment)
{
    caching::SegmentInfo info =
        segment_begin(segment.device, segment.address, segment.bytes, segment.stream, segment.pool);
    uint64_t end = segment.address;
    for (uint64_t i = 0; i < taken.segment_count; i++) {
        const vmm_torch_segment &from = taken.segments[i];
        if (from.address + from.bytes <= segment.address ||
            from.address >= segment.address + segment.bytes)
            continue;
        info.is_large = from.is_small == 0;
        blocks_add(&info, taken, from, &end);
    }
    free_block_add(&info, segment.address + segment.bytes - end);
    number_set(&info, segment.number);
    return info;
}

/* Whether an active block reaches across an address of a segment. */
bool is_spanned(const vmm_torch_snapshot &taken, const vmm_torch_segment &segment, uint64_t address)
{
    const vmm_torch_block *first = taken.blocks + segment.first_block;
    const vmm_torch_block *next = std::upper_bound(
        first, first + segment.block_count, address,
        [](uint64_t at, const vmm_torch_block &block) { return at < block.address; });
    return next[-1].address < address && next[-1].state != VMM_ITEM_FREE;
}

/* Adds a segment, in parts if segments of its pool end in it. */
void segment_add(caching::SnapshotInfo *snapshot, const vmm_torch_snapshot &taken,
                 const vmm_torch_segment &segment, const std::vector<uint64_t> &bounds)
{
    uint64_t address = segment.address, end = address + segment.bytes;
    auto bound = std::upper_bound(bounds.begin(), bounds.end(), address);
    while (address < end) {
        while (bound != bounds.end() && *bound < end &&
               (*bound == address || is_spanned(taken, segment, *bound)))
            ++bound;
        uint64_t stop = bound == bounds.end() ? end : std::min(end, *bound);
        caching::SegmentInfo info =
            segment_begin(segment.device, address, stop - address, segment.stream,
                          { segment.pool.first, segment.pool.second });
        info.is_large = segment.is_small == 0;
        blocks_add(&info, taken, segment, &address);
        number_set(&info, static_cast<int64_t>(snapshot->segments.size()));
        snapshot->segments.push_back(std::move(info));
    }
}

/* What was allocated last at an address. */
struct last_block {
    std::shared_ptr<c10::GatheredContext> frames;
    uint64_t bytes = 0;
    uint64_t freed = 0; /* the number of the free, from 1 */
};
using last_blocks = std::map<uint64_t, last_block>;

/* A free that recorded no frames has those of the block's allocation, as with PyTorch's own allocator. */
std::vector<caching::TraceEntry> trace_of(const vmm_torch_snapshot &taken, last_blocks *last)
{
    std::vector<caching::TraceEntry> trace;
    for (uint64_t i = 0; i < taken.event_count; i++) {
        const vmm_torch_event &event = taken.events[i];
        caching::TraceEntry entry = trace_entry(event);
        bool is_free =
            event.action == VMM_TORCH_FREE_REQUESTED || event.action == VMM_TORCH_FREE_COMPLETED;
        if (event.action == VMM_TORCH_ALLOC)
            (*last)[event.address] = { entry.context_, event.bytes, 0 };
        if (is_free) {
            last_block &block = (*last)[event.address];
            block.bytes = event.bytes;
            block.freed = i + 1;
            if (entry.context_ == nullptr)
                entry.context_ = block.frames;
        }
        if (action_is_shown(event.action))
            trace.push_back(std::move(entry));
    }
    return trace;
}

/* The requested bytes of the block that was freed last, among those that lie in [address, end). */
uint64_t freed_last(const last_blocks &last, uint64_t address, uint64_t end)
{
    last_block newest;
    for (auto at = last.lower_bound(address); at != last.end() && at->first < end; ++at)
        if (at->second.freed > newest.freed && at->first + at->second.bytes <= end)
            newest = at->second;
    return newest.bytes;
}

/* As with PyTorch's own allocator, a free block says how much was requested in it last. */
void free_blocks_tell(caching::SegmentInfo *segment, const last_blocks &last)
{
    uint64_t address = segment->address;
    for (caching::BlockInfo &block : segment->blocks) {
        if (!block.active)
            block.requested_size = freed_last(last, address, address + block.size);
        address += block.size;
    }
}

void device_add(caching::SnapshotInfo *snapshot, int device, const MempoolId_t &id, bool has_traces)
{
    bool is_tracked = segments_are_tracked();
    size_t begin = snapshot->segments.size();
    snapshot_ptr taken = snapshot_get(device);
    std::vector<uint64_t> bounds = segment_bounds(device);
    for (uint64_t i = 0; i < taken->segment_count; i++) {
        const vmm_torch_segment &segment = taken->segments[i];
        MempoolId_t pool = { segment.pool.first, segment.pool.second };
        if (is_wanted(pool, id) && !(is_tracked && is_torch_pool(pool)))
            segment_add(snapshot, *taken, segment, bounds);
    }
    if (is_tracked)
        for (const pool_segment &segment : segments_show(device, id))
            if (is_wanted(segment.pool, id))
                snapshot->segments.push_back(tracked_segment(*taken, segment));
    last_blocks last;
    snapshot->device_traces.emplace_back();
    if (has_traces)
        snapshot->device_traces.back() = trace_of(*taken, &last);
    for (size_t i = begin; i < snapshot->segments.size(); i++)
        free_blocks_tell(&snapshot->segments[i], last);
}

} // namespace

caching::SnapshotInfo allocator::snapshot(MempoolId_t id, bool has_traces)
{
    caching::SnapshotInfo out = {};
    for (int device = 0; device < device_count(); device++)
        device_add(&out, device, id, has_traces);
    annotations_add(&out);
    out.config_metadata.max_split_size = std::numeric_limits<size_t>::max();
    out.config_metadata.expandable_segments = expandable_setting();
    return out;
}

caching::SnapshotInfo allocator::snapshot(MempoolId_t id)
{
    return snapshot(id, true);
}

std::vector<caching::StreamSegmentSize> allocator::getExpandableSegmentSizes(DeviceIndex device)
{
    std::map<std::pair<uint64_t, bool>, uint64_t> sizes;
    snapshot_ptr taken = snapshot_get(device);
    for (uint64_t i = 0; i < taken->segment_count; i++) {
        const vmm_torch_segment &segment = taken->segments[i];
        sizes[{ segment.stream, segment.is_small != 0 }] += segment.bytes;
    }
    std::vector<caching::StreamSegmentSize> out;
    for (const auto &[of, bytes] : sizes)
        out.emplace_back(reinterpret_cast<cudaStream_t>(static_cast<uintptr_t>(of.first)),
                         of.second, static_cast<size_t>(bytes));
    return out;
}

} // namespace vmm_shim
