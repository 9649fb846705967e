/*
 * Trackers: functions of PyTorch that hear of each change of memory. NCCL registers MemPools by them: ProcessGroupNCCL
 * registers the segments that a snapshot of the pool has, then each one that SEGMENT_ALLOC names, and deregisters one
 * by its address at SEGMENT_FREE.
 *
 * Owns: the trackers, and the segments and sources of PyTorch's pools (graphs, MemPools). Invariants:
 *  1. segments do not overlap. Each covers memory of its pool that is mapped, unless it sleeps;
 *  2. once a snapshot has shown a pool to a program with trackers, its segments keep address and size, and trackers
 *     hear SEGMENT_ALLOC and SEGMENT_FREE of them. Then neighbours are joined in which one block may lie: NCCL uses the
 *     registration of a tensor that lies in one segment. Until then large growths stay apart, as docs/pytorch.md says;
 *  3. trackers hear it before the memory is unmapped or leaves the pool, and only then: collectives may use the rest of
 *     a segment. A block that gets its address in a view changes no segment, for the pool keeps the memory at both
 *     addresses.
 * Of all other memory trackers hear SEGMENT_MAP and SEGMENT_UNMAP, as of PyTorch's expandable segments.
 * Locks: `trackers_lock` guards all of it. Trackers are called with it, and for changes with the library's locks:
 * PyTorch's contract lets them take neither Python's lock nor call the allocator. `holds_lock` is held from a look at a
 * pool's uses until what follows from them is noted; the library is called with it.
 */
#include "torch/shim/allocator.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

namespace vmm_shim
{

static std::mutex holds_lock;
static std::mutex trackers_lock;
static auto &trackers = *new std::vector<caching::AllocatorTraceTracker>;
static std::atomic<bool> has_trackers{ false };

/* ---- Telling -------------------------------------------------------------------------------- */

/* A tracker's exception must not cross C, nor keep others from hearing. */
static void entry_tell_locked(const caching::TraceEntry &entry)
{
    for (const caching::AllocatorTraceTracker &tracker : trackers) {
        try {
            tracker(entry);
        } catch (...) {
            continue;
        }
    }
}

static caching::TraceEntry entry_now(vmm_torch_event event)
{
    event.time_us = static_cast<uint64_t>(time_now_us());
    return trace_entry(event);
}

void event_trace(const vmm_torch_event &event)
{
    if (!has_trackers.load(std::memory_order_relaxed))
        return;
    try {
        caching::TraceEntry entry = entry_now(event);
        std::lock_guard<std::mutex> guard(trackers_lock);
        entry_tell_locked(entry);
    } catch (...) { /* no host memory: nothing may leave this function */
    }
}

/* ---- Segments ------------------------------------------------------------------------------- */

struct pool_traits {
    std::shared_ptr<void> source; /* of segments of the program's, in which blocks lie */
    bool lends = false;           /* it gives idle memory away while it has one use */
    bool is_held = false;         /* one use is ours, so that it keeps its memory */
    bool is_shown = false;        /* a communicator may hold its segments */
};

/* A growth of this size is a segment, unless segments are expandable: PyTorch's own allocator gives blocks of this size
 * segments of their own. */
static constexpr uint64_t whole_bytes_least = 10 << 20;

using pool_key = std::pair<int, MempoolId_t>;

static auto &segments = *new std::map<uint64_t, pool_segment>; /* by address */
static int64_t segments_count;                                 /* so far */
static auto &known_pools = *new std::map<pool_key, pool_traits>;
static const auto &unknown_pool = *new pool_traits;

/* The library's own pools have two equal numbers, and the default pool zeros. */
bool is_torch_pool(const MempoolId_t &id)
{
    return (id.first == 0) != (id.second == 0);
}

void pool_source_set(int device, const MempoolId_t &id, const vmm_segment_source &functions,
                     std::shared_ptr<void> source)
{
    std::lock_guard<std::mutex> holding(holds_lock);
    check("createOrIncrefPool", library->pool_source(device, id_of(id), &functions));
    std::lock_guard<std::mutex> guard(trackers_lock);
    known_pools[{ device, id }].source = std::move(source);
}

void pool_lends_note(int device, MempoolId_t id, bool lends)
{
    std::lock_guard<std::mutex> guard(trackers_lock);
    known_pools[{ device, id }].lends = lends;
}

static const pool_traits &traits_of_locked(int device, const MempoolId_t &id)
{
    auto found = known_pools.find({ device, id });
    return found == known_pools.end() ? unknown_pool : found->second;
}

static pool_traits traits_of(int device, const MempoolId_t &id)
{
    std::lock_guard<std::mutex> guard(trackers_lock);
    return traits_of_locked(device, id);
}

bool pool_is_held(int device, const MempoolId_t &id)
{
    return traits_of(device, id).is_held;
}

bool pool_has_source(int device, const MempoolId_t &id)
{
    return traits_of(device, id).source != nullptr;
}

static void segment_tell_locked(const pool_segment &segment, action what)
{
    if (trackers.empty())
        return;
    vmm_torch_event event = {};
    event.address = segment.address;
    event.bytes = segment.bytes;
    event.stream = segment.stream;
    event.pool = id_of(segment.pool);
    event.device = segment.device;
    caching::TraceEntry entry = entry_now(event);
    entry.action_ = what;
    entry_tell_locked(entry);
}

static bool is_joined(const pool_segment &left, const pool_segment &right)
{
    return left.address + left.bytes == right.address && left.device == right.device &&
           left.stream == right.stream && left.pool == right.pool &&
           left.is_asleep == right.is_asleep && !(left.is_shown || right.is_shown) &&
           !(left.is_whole || right.is_whole);
}

using segment_at = std::map<uint64_t, pool_segment>::iterator;

/* Joins a segment with those behind it. */
static void segment_extend_locked(segment_at at)
{
    for (auto next = std::next(at); next != segments.end() && is_joined(at->second, next->second);
         next = segments.erase(next))
        at->second.bytes += next->second.bytes;
}

/* Adds [address, end) as a segment like another one. */
static void segment_add_locked(pool_segment like, uint64_t address, uint64_t end)
{
    if (address >= end)
        return;
    like.address = address;
    like.bytes = end - address;
    like.number = ++segments_count;
    auto at = segments.emplace(address, like).first;
    if (like.is_shown && !like.is_asleep)
        segment_tell_locked(like, action::SEGMENT_ALLOC);
    segment_extend_locked(at);
    if (at != segments.begin())
        segment_extend_locked(std::prev(at));
}

/* The first segment that ends behind an address. */
static segment_at segment_at_locked(uint64_t address)
{
    auto at = segments.upper_bound(address);
    if (at == segments.begin())
        return at;
    const pool_segment &before = std::prev(at)->second;
    return before.address + before.bytes > address ? std::prev(at) : at;
}

/* Adds what no segment covers of [address, end). */
static void range_enter_locked(const pool_segment &like, uint64_t address, uint64_t end)
{
    while (address < end) {
        auto at = segment_at_locked(address);
        uint64_t stop = at == segments.end() ? end : std::min(end, at->first);
        segment_add_locked(like, address, stop);
        if (stop < end) /* behind the segment that is there */
            stop = at->first + at->second.bytes;
        address = stop;
    }
}

/* Ends the segments that lie in [address, end), and begins new ones for the rest of them. */
static void range_leave_locked(uint64_t address, uint64_t end, const MempoolId_t *but)
{
    for (auto at = segment_at_locked(address); at != segments.end() && at->first < end;) {
        pool_segment gone = at->second;
        if (but != nullptr && gone.pool == *but) {
            ++at;
            continue;
        }
        at = segments.erase(at);
        if (gone.is_shown && !gone.is_asleep)
            segment_tell_locked(gone, action::SEGMENT_FREE);
        segment_add_locked(gone, gone.address, address);
        segment_add_locked(gone, end, gone.address + gone.bytes);
    }
}

static void range_change_locked(pool_segment range, vmm_change_kind kind)
{
    uint64_t end = range.address + range.bytes;
    bool is_mapped = kind == VMM_CHANGE_MAP;
    const pool_traits &traits = traits_of_locked(range.device, range.pool);
    bool has_source = traits.source != nullptr;
    range.is_shown = traits.is_shown;
    range.is_whole = has_source || (range.bytes >= whole_bytes_least && !expandable_setting());
    bool stays = is_mapped || !(has_source || (traits.lends && !traits.is_held));
    range_leave_locked(range.address, end, stays ? &range.pool : nullptr);
    if (is_mapped && is_torch_pool(range.pool))
        range_enter_locked(range, range.address, end);
    if (!traits.is_shown)
        segment_tell_locked(range, is_mapped ? action::SEGMENT_MAP : action::SEGMENT_UNMAP);
}

/* Notes that a communicator may hold the segments of a device's pool from now on; of all its pools, if the id is
 * zeros. */
static void pool_show_locked(int device, const MempoolId_t &id)
{
    auto is_of = [&](const pool_segment &segment) {
        return segment.device == device && (id == MempoolId_t{ 0, 0 } || id == segment.pool);
    };
    if (is_torch_pool(id))
        known_pools[{ device, id }].is_shown = true;
    for (auto &each : segments)
        if (is_of(each.second))
            each.second.is_whole = traits_of_locked(device, each.second.pool).source != nullptr;
    for (auto at = segments.begin(); at != segments.end(); ++at) {
        if (!is_of(at->second))
            continue;
        segment_extend_locked(at);
        at->second.is_shown = true;
        known_pools[{ device, at->second.pool }].is_shown = true;
    }
}

/* Views without a block may be unmapped now, and no change tells it. Returns what was known of the pool. */
static pool_traits pool_forget_locked(const pool_key &key)
{
    auto known = known_pools.extract(key);
    for (auto at = segments.begin(); at != segments.end();) {
        pool_segment gone = at->second;
        bool is_of = pool_key{ gone.device, gone.pool } == key;
        at = is_of ? segments.erase(at) : std::next(at);
        if (is_of && gone.is_shown && !gone.is_asleep)
            segment_tell_locked(gone, action::SEGMENT_FREE);
    }
    return known.empty() ? pool_traits{} : std::move(known.mapped());
}

static std::set<pool_key> pools_noted()
{
    std::set<pool_key> found;
    std::lock_guard<std::mutex> guard(trackers_lock);
    for (const auto &each : known_pools)
        found.insert(each.first);
    for (const auto &each : segments)
        found.insert({ each.second.device, each.second.pool });
    return found;
}

/* An allocator that ends with its source may take the GIL: `gone` outlives the locks. */
void pools_purge()
{
    for (const pool_key &key : pools_noted()) {
        pool_traits gone;
        std::lock_guard<std::mutex> holding(holds_lock);
        if (library->pool_uses(key.first, id_of(key.second)) > 0)
            continue;
        std::lock_guard<std::mutex> guard(trackers_lock);
        gone = pool_forget_locked(key);
    }
}

/* The pools of a device that could give away memory that is about to be shown. */
static std::vector<MempoolId_t> pools_to_hold(int device, const MempoolId_t &id)
{
    std::vector<MempoolId_t> found;
    std::lock_guard<std::mutex> guard(trackers_lock);
    for (const auto &each : known_pools) {
        const pool_traits &traits = each.second;
        if (each.first.first == device && (id == MempoolId_t{ 0, 0 } || id == each.first.second) &&
            traits.lends && traits.source == nullptr && !traits.is_held)
            found.push_back(each.first.second);
    }
    return found;
}

vmm_status pool_hold(int device, const MempoolId_t &id)
{
    std::lock_guard<std::mutex> holding(holds_lock);
    if (pool_is_held(device, id) || library->pool_uses(device, id_of(id)) == 0)
        return VMM_OK;
    vmm_status status = library->pool_use(device, id_of(id));
    std::lock_guard<std::mutex> guard(trackers_lock);
    known_pools[{ device, id }].is_held = status == VMM_OK;
    return status;
}

void pool_source_hold(int device, const MempoolId_t &id)
{
    pool_traits traits = traits_of(device, id);
    if (traits.source != nullptr && traits.lends)
        check("beginAllocateToPool", pool_hold(device, id));
}

bool pool_hold_end(int device, const MempoolId_t &id)
{
    std::lock_guard<std::mutex> guard(trackers_lock);
    auto found = known_pools.find({ device, id });
    return found != known_pools.end() && std::exchange(found->second.is_held, false);
}

static void pools_hold(int device, const MempoolId_t &id)
{
    for (const MempoolId_t &each : pools_to_hold(device, id))
        check("snapshot", pool_hold(device, each));
}

std::vector<pool_segment> segments_show(int device, const MempoolId_t &id)
{
    std::vector<pool_segment> found;
    pools_hold(device, id);
    {
        std::lock_guard<std::mutex> guard(trackers_lock);
        pool_show_locked(device, id);
        for (const auto &each : segments)
            if (each.second.device == device && !each.second.is_asleep)
                found.push_back(each.second);
    }
    auto is_ended = [](const pool_segment &segment) {
        return library->pool_uses(segment.device, id_of(segment.pool)) == 0;
    };
    found.erase(std::remove_if(found.begin(), found.end(), is_ended), found.end());
    return found;
}

std::vector<uint64_t> segment_bounds(int device)
{
    std::vector<uint64_t> found;
    std::lock_guard<std::mutex> guard(trackers_lock);
    for (const auto &each : segments)
        if (each.second.device == device)
            found.insert(found.end(), { each.first, each.first + each.second.bytes });
    return found;
}

bool segments_are_tracked()
{
    return has_trackers.load();
}

/* ---- Changes -------------------------------------------------------------------------------- */

static thread_local uint64_t
    waiting_address; /* the block that the thread freed last, if other streams use it */

static void free_tell(int device, const vmm_change *change)
{
    vmm_torch_event event = {};
    event.action = VMM_TORCH_FREE_COMPLETED;
    event.address = change->address;
    event.bytes = change->requested_bytes;
    event.stream = reinterpret_cast<uintptr_t>(change->stream);
    event.pool = change->pool_id;
    event.device = device;
    event_trace(event);
}

static pool_segment range_of(int device, vmm_pool_id pool, uint64_t address, uint64_t bytes)
{
    pool_segment segment = {};
    segment.address = address;
    segment.bytes = bytes;
    segment.device = device;
    segment.pool = { pool.first, pool.second };
    return segment;
}

/* Called with the library's locks held. */
static void change_tell(int device, const vmm_change *change)
{
    if (change->kind == VMM_CHANGE_WAIT) {
        waiting_address = change->address;
        return;
    }
    if (change->kind == VMM_CHANGE_FREE) {
        captured_wait_forget(reinterpret_cast<const void *>(change->address));
        free_tell(device, change);
        return;
    }
    pool_segment range = range_of(device, change->pool_id, change->address, change->bytes);
    range.stream = reinterpret_cast<uintptr_t>(change->stream);
    try {
        std::lock_guard<std::mutex> guard(trackers_lock);
        range_change_locked(range, change->kind);
    } catch (...) { /* no host memory: nothing may leave this function */
    }
}

/* All segments of a pool go to sleep, or are awake again, with the first of its mappings. They do in the order of their
 * beginning, which is the same in all processes of a program: the registration of windows is a collective. */
static void pool_sleep_locked(const pool_segment &like, bool is_mapped)
{
    std::vector<pool_segment *> changed;
    for (auto &each : segments) {
        pool_segment &segment = each.second;
        if (segment.device == like.device && segment.pool == like.pool &&
            segment.is_asleep == is_mapped)
            changed.push_back(&segment);
    }
    std::sort(changed.begin(), changed.end(),
              [](const pool_segment *a, const pool_segment *b) { return a->number < b->number; });
    for (pool_segment *segment : changed) {
        segment->is_asleep = !is_mapped;
        if (segment->is_shown)
            segment_tell_locked(*segment, is_mapped ? action::SEGMENT_ALLOC : action::SEGMENT_FREE);
    }
}

static void range_sleep_locked(const pool_segment &range, bool is_mapped)
{
    if (is_torch_pool(range.pool))
        pool_sleep_locked(range, is_mapped);
    if (!traits_of_locked(range.device, range.pool).is_shown)
        segment_tell_locked(range, is_mapped ? action::SEGMENT_MAP : action::SEGMENT_UNMAP);
}

/* Called without locks: before a sleep unmaps anything of a pool, and after a wake has mapped all of it. */
static void sleep_tell(int device, vmm_pool_id pool, uint64_t address, uint64_t bytes,
                       int is_mapped)
{
    try {
        std::lock_guard<std::mutex> guard(trackers_lock);
        range_sleep_locked(range_of(device, pool, address, bytes), is_mapped != 0);
    } catch (...) { /* no host memory: nothing may leave this function */
    }
}

/* ---- Blocks --------------------------------------------------------------------------------- */

/* Makes an event of a live block. False: there is no tracker. */
static bool event_make(const void *ptr, vmm_torch_action what, vmm_torch_event *event)
{
    vmm_item item = VMM_ITEM_INIT;
    if (!has_trackers.load(std::memory_order_relaxed) ||
        library->find(ptr, &item, &event->device) != VMM_OK)
        return false;
    event->action = what;
    event->address = item.address;
    event->bytes = item.requested_bytes;
    event->stream = reinterpret_cast<uintptr_t>(item.stream);
    event->pool = item.pool_id;
    return true;
}

void allocation_trace(const void *ptr)
{
    vmm_torch_event event = {};
    if (event_make(ptr, VMM_TORCH_ALLOC, &event))
        event_trace(event);
}

free_trace::free_trace(const void *ptr) : is_told(event_make(ptr, VMM_TORCH_FREE_REQUESTED, &event))
{
    waiting_address = 0;
    if (is_told)
        event_trace(event);
}

/* The change of a block that other streams use says when its free is complete. */
void free_trace::complete()
{
    if (!is_told || waiting_address == event.address)
        return;
    event.action = VMM_TORCH_FREE_COMPLETED;
    event_trace(event);
}

/* ---- Attaching ------------------------------------------------------------------------------ */

/* Whether PyTorch would register all memory, not only that of chosen pools. */
static bool is_all_registered()
{
    for (const char *name : { "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK",
                              "NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK" }) {
        const char *value = std::getenv(name);
        if (value != nullptr && *value != '\0' && std::strchr("1yYtT", *value) != nullptr)
            return true;
    }
    return false;
}

/* All memory cannot be registered: the default pool maps and unmaps parts of what NCCL would hold as one segment. For
 * the same reason PyTorch ignores the variable with expandable segments. */
void allocator::attachAllocatorTraceTracker(caching::AllocatorTraceTracker tracker)
{
    TORCH_CHECK_NOT_IMPLEMENTED(
        !is_all_registered(),
        "vmmcache: TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK does not work, as with expandable "
        "segments: unset it, and register a torch.cuda.MemPool "
        "(ProcessGroupNCCL.register_mem_pool)");
    std::lock_guard<std::mutex> guard(trackers_lock);
    trackers.push_back(std::move(tracker));
    has_trackers.store(true);
}

void trackers_install()
{
    library->change_watch(change_tell);
    library->sleep_watch(sleep_tell);
}

} // namespace vmm_shim
