/*
 * Pools of graphs and of torch.cuda.MemPool, and the states of a pool that graph trees save and restore.
 *
 * Owns: the routes, and the segments that allocators of pools have given. A pool has one route in the library, from its
 * first begin to the end of its last one.
 * Locks: `begins` is held by begin, end and release; `begun_lock`, a leaf, guards the begins that were not ended.
 * `given_lock`, a leaf, guards the segments of sources. The library calls route_accepts() with its locks held, and the
 * functions of a source without any. An allocator of Python may take the GIL, so no lock is held while the library may
 * call one: not for a pool that has memory.
 */
#include "torch/shim/allocator.h"

#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

namespace vmm_shim
{

/* ---- Routes --------------------------------------------------------------------------------- */

/* What the library calls. Of the routes that accept a stream it takes the one with the highest number. */
struct route {
    int device;
    MempoolId_t id;
    uint64_t number;
};
using route_ptr = std::shared_ptr<const route>;

/* One use of a route, from begin to end. */
struct begun_route {
    route_ptr of;
    std::thread::id thread;
    stream_filter filter;
    std::optional<vmm_stream> captured; /* it names a capture of this stream, which is announced */
};

static std::mutex begins;
static std::mutex begun_lock;
static auto &begun = *new std::vector<begun_route>; /* the latest is the last */

/* The route of a pool; nullptr: there is no use of one. */
static route_ptr route_find(int device, const MempoolId_t &id)
{
    std::lock_guard<std::mutex> guard(begun_lock);
    for (const begun_route &each : begun)
        if (each.of->device == device && each.of->id == id)
            return each.of;
    return nullptr;
}

/* A filter that throws accepts nothing. */
static bool filter_accepts(const stream_filter &filter, cudaStream_t stream) noexcept
{
    try {
        return !filter || filter(stream);
    } catch (...) {
        return false;
    }
}

/* The latest begin that accepts the stream counts. If its route has a lower number, because the pool was begun before
 * this one, too, the library gets to it only if this route refuses. */
static int route_accepts(void *context, vmm_stream stream)
{
    const auto *asked = static_cast<const route *>(context);
    std::lock_guard<std::mutex> guard(begun_lock);
    for (auto each = begun.rbegin(); each != begun.rend(); ++each)
        if (each->of->device == asked->device && each->of->number <= asked->number &&
            filter_accepts(each->filter, stream))
            return each->of.get() == asked ? 1 : 0;
    return 0;
}

/*
 * The stream of a capture that is about to begin. PyTorch begins a capture's route first, with a filter that accepts
 * streams of that capture only; so it refuses the thread's current stream, which is the one to be captured. The routes
 * of a MemPool and of a warm-up accept that stream.
 */
static std::optional<vmm_stream> capture_of(int device, const stream_filter &filter)
{
    auto stream = c10::cuda::getCurrentCUDAStream(static_cast<DeviceIndex>(device)).stream();
    if (!filter || filter_accepts(filter, stream))
        return std::nullopt;
    return stream;
}

static void begun_retract(const begun_route &each)
{
    if (!each.captured)
        return;
    library->capture_retract(each.of->device, *each.captured);
    captures_count(-1);
}

static void begun_add(const route_ptr &of, stream_filter filter)
{
    auto captured = capture_of(of->device, filter);
    if (captured)
        check("beginAllocateToPool", library->capture_announce(of->device, *captured));
    captures_count(captured ? 1 : 0);
    const begun_route each{ of, std::this_thread::get_id(), std::move(filter), captured };
    try {
        std::lock_guard<std::mutex> guard(begun_lock);
        begun.push_back(each);
    } catch (...) {
        begun_retract(each);
        throw;
    }
}

/* Drops the begins of a route that the library no longer calls. */
static void begun_purge(const route_ptr &of)
{
    std::vector<begun_route> dropped;
    {
        std::lock_guard<std::mutex> guard(begun_lock);
        auto first = std::stable_partition(
            begun.begin(), begun.end(), [&of](const begun_route &each) { return each.of != of; });
        dropped.assign(std::make_move_iterator(first), std::make_move_iterator(begun.end()));
        begun.erase(first, begun.end());
    }
    for (const begun_route &each : dropped)
        begun_retract(each);
}

/* Drops the last begin of the calling thread, else the last one. Returns whether one is left. */
static bool begun_drop(const route_ptr &of)
{
    auto is_of = [&of](const begun_route &each) { return each.of == of; };
    auto is_own = [is_of](const begun_route &each) {
        return is_of(each) && each.thread == std::this_thread::get_id();
    };
    std::unique_lock<std::mutex> guard(begun_lock);
    auto last = std::find_if(begun.rbegin(), begun.rend(), is_own);
    if (last == begun.rend())
        last = std::find_if(begun.rbegin(), begun.rend(), is_of);
    begun_route dropped = std::move(*last);
    begun.erase(std::next(last).base());
    bool is_left = std::any_of(begun.begin(), begun.end(), is_of);
    guard.unlock();
    begun_retract(dropped);
    return is_left;
}

static void route_begin_locked(int device, const MempoolId_t &id, stream_filter filter)
{
    static uint64_t routes_made = 0;
    route_ptr of = route_find(device, id);
    bool is_first = of == nullptr;
    if (is_first)
        of = std::make_shared<const route>(route{ device, id, ++routes_made });
    begun_add(of, std::move(filter));
    vmm_status status = is_first ? library->pool_route(device, id_of(id), route_accepts,
                                                       const_cast<route *>(of.get()))
                                 : library->pool_cover(device, id_of(id));
    if (status != VMM_OK)
        (void)begun_drop(of);
    check("beginAllocateToPool", status);
}

void allocator::beginAllocateToPool(DeviceIndex device, MempoolId_t id, stream_filter filter)
{
    std::lock_guard<std::mutex> guard(begins);
    check("beginAllocateToPool", library->pool_use(device, id_of(id)));
    try {
        pool_source_hold(device, id);
        route_begin_locked(device, id, std::move(filter));
    } catch (...) {
        (void)library->pool_leave(device, id_of(id));
        throw;
    }
}

void allocator::endAllocateToPool(DeviceIndex device, MempoolId_t id)
{
    std::lock_guard<std::mutex> guard(begins);
    route_ptr of = route_find(device, id); /* until the library no longer calls it */
    TORCH_CHECK(of != nullptr, "vmmcache: endAllocateToPool: nothing allocates to pool (", id.first,
                ", ", id.second, ")");
    if (begun_drop(of))
        library->pool_uncover(device, id_of(id));
    else
        check("endAllocateToPool", library->pool_unroute(device, id_of(id)));
}

/* ---- Sources -------------------------------------------------------------------------------- */

/* PyTorch's allocator from which a pool gets whole segments. */
struct pool_source {
    DeviceIndex device;
    std::shared_ptr<caching::CUDAAllocator> segments;
    vmm_segment_source functions; /* which the library has a pointer to */
};

/* As PyTorch's own allocator does, for blocks below 10 MiB. */
static constexpr size_t segment_bytes = 20 << 20;

static std::mutex given_lock;
static auto &given = *new std::map<char *, size_t>; /* those that sources have given */

void *segment_find(const void *ptr)
{
    std::lock_guard<std::mutex> guard(given_lock);
    auto *address = static_cast<char *>(const_cast<void *>(ptr));
    auto next = given.upper_bound(address);
    bool is_before = next != given.begin();
    auto found = is_before ? std::prev(next) : given.end();
    return is_before && static_cast<size_t>(address - found->first) < found->second ? found->first
                                                                                    : nullptr;
}

static void given_note(void *segment, size_t bytes)
{
    std::lock_guard<std::mutex> guard(given_lock);
    given[static_cast<char *>(segment)] = bytes;
}

static void given_forget(void *segment)
{
    std::lock_guard<std::mutex> guard(given_lock);
    given.erase(static_cast<char *>(segment));
}

/* Segments are made and freed in relaxed mode, as PyTorch's own allocator does: otherwise CUDA refuses cudaMalloc()
 * while a graph is captured. */
static void segment_give(void *context, void *segment, size_t)
{
    const auto *source = static_cast<const pool_source *>(context);
    given_forget(segment);
    try {
        c10::cuda::CUDAGuard guard(source->device);
        c10::cuda::CUDAStreamCaptureModeGuard mode(cudaStreamCaptureModeRelaxed);
        source->segments->raw_delete(segment);
    } catch (...) {
        library->log_failure("raw_delete of a segment", VMM_ERR_INVALID_ARGUMENT);
    }
}

static void *segment_take(void *context, size_t bytes, vmm_stream stream)
{
    const auto *source = static_cast<const pool_source *>(context);
    void *segment = nullptr;
    try {
        c10::cuda::CUDAGuard guard(source->device);
        c10::cuda::CUDAStreamCaptureModeGuard mode(cudaStreamCaptureModeRelaxed);
        segment = source->segments->raw_alloc_with_stream(bytes, stream);
        if (segment != nullptr)
            given_note(segment, bytes);
        return segment;
    } catch (...) {
        if (segment != nullptr)
            segment_give(context, segment, bytes);
        return nullptr;
    }
}

static void source_set(DeviceIndex device, MempoolId_t id,
                       std::shared_ptr<caching::CUDAAllocator> segments)
{
    auto source = std::make_shared<pool_source>(pool_source{ device, std::move(segments), {} });
    source->functions = { segment_take, segment_give, source.get(), segment_bytes };
    pool_source_set(device, id, source->functions, source);
}

/* ---- Uses ----------------------------------------------------------------------------------- */

/* Whether the pool has no use but ours, which the caller then ends. */
static bool hold_take(DeviceIndex device, const MempoolId_t &id)
{
    std::lock_guard<std::mutex> guard(begins);
    return library->pool_uses(device, id_of(id)) == 1 && pool_hold_end(device, id);
}

/* A capture that failed may have left the pool's route, which ends with the pool. */
static void route_purge(DeviceIndex device, const MempoolId_t &id)
{
    std::lock_guard<std::mutex> guard(begins);
    if (library->pool_uses(device, id_of(id)) == 0)
        begun_purge(route_find(device, id));
}

/* PyTorch calls this in destructors, also in a child of fork(): see pool_empty(). */
void allocator::releasePool(DeviceIndex device, MempoolId_t id)
{
    vmm_status status = library->pool_leave(device, id_of(id));
    if (status == VMM_OK && hold_take(device, id))
        status = library->pool_leave(device, id_of(id));
    if (status != VMM_ERR_FORKED) {
        route_purge(device, id);
        pools_purge();
    }
    if (status != VMM_OK)
        library->log_failure("releasePool", status);
}

int allocator::getPoolUseCount(DeviceIndex device, MempoolId_t id)
{
    int uses = static_cast<int>(library->pool_uses(device, id_of(id)));
    return uses > 0 && pool_is_held(device, id) ? uses - 1 : uses;
}

void allocator::createOrIncrefPool(DeviceIndex device, MempoolId_t id,
                                   caching::CUDAAllocator *segments)
{
    createOrIncrefPool(
        device, id,
        std::shared_ptr<caching::CUDAAllocator>(segments, [](caching::CUDAAllocator *) {}));
}

/* A pool has the allocator that it was created with. */
void allocator::createOrIncrefPool(DeviceIndex device, MempoolId_t id,
                                   std::shared_ptr<caching::CUDAAllocator> segments)
{
    TORCH_CHECK_NOT_IMPLEMENTED(segments.get() != this,
                                "vmmcache: a torch.cuda.MemPool cannot have this allocator as an "
                                "allocator of its own");
    bool is_new = library->pool_uses(device, id_of(id)) == 0;
    check("createOrIncrefPool", library->pool_use(device, id_of(id)));
    if (segments == nullptr || !is_new)
        return;
    try {
        source_set(device, id, std::move(segments));
    } catch (...) {
        (void)library->pool_leave(device, id_of(id));
        throw;
    }
}

void allocator::setUseOnOOM(DeviceIndex device, MempoolId_t id)
{
    setUseOnOOM(device, id, true);
}

/* PyTorch ends the option when it destroys a MemPool, in a destructor, which must not fail. A pool that has memory
 * cannot lose it, but is held: graphs that use the pool after its MemPool keep their memory. */
void allocator::setUseOnOOM(DeviceIndex device, MempoolId_t id, bool is_shared)
{
    vmm_status status = library->pool_use_on_oom(device, id_of(id), is_shared ? 1 : 0);
    if (status != VMM_OK && !is_shared) {
        (void)pool_hold(device, id);
        return;
    }
    check("setUseOnOOM", status);
    pool_lends_note(device, id, is_shared);
}

void allocator::setNoSplit(DeviceIndex device, MempoolId_t id)
{
    check("setNoSplit", library->pool_no_split(device, id_of(id)));
}

/* ---- States --------------------------------------------------------------------------------- */

struct pool_block {
    size_t bytes; /* that the library was asked for */
    cudaStream_t stream;
    bool is_waiting; /* freed, but other streams use it */
    rounded_block rounded;

    bool operator==(const pool_block &other) const
    {
        return bytes == other.bytes && stream == other.stream;
    }
};

using pool_blocks = std::map<void *, pool_block>;

struct pool_state : caching::AllocatorState {
    DeviceIndex device;
    MempoolId_t id;
    pool_blocks blocks;
};

static int block_collect(void *context, const vmm_item *item)
{
    if (item->kind != VMM_ITEM_BLOCK || item->state == VMM_ITEM_FREE)
        return 0;
    void *address = reinterpret_cast<void *>(static_cast<uintptr_t>(item->address));
    try {
        (*static_cast<pool_blocks *>(
            context))[address] = { static_cast<size_t>(item->requested_bytes), item->stream,
                                   item->state == VMM_ITEM_WAITING, rounded_of(address) };
    } catch (...) {
        return 1;
    }
    return 0;
}

/* The blocks of a pool. Waiting blocks have no place in a state. */
static pool_blocks blocks_read(const char *what, DeviceIndex device, MempoolId_t id,
                               bool allows_waiting)
{
    pool_blocks blocks;
    check(what, library->pool_walk(device, id_of(id), block_collect, &blocks));
    for (auto block = blocks.begin(); block != blocks.end();) {
        TORCH_CHECK(allows_waiting || !block->second.is_waiting, "vmmcache: ", what,
                    ": other streams still use a freed block of the pool");
        block = block->second.is_waiting ? blocks.erase(block) : std::next(block);
    }
    return blocks;
}

bool allocator::checkPoolLiveAllocations(DeviceIndex device, MempoolId_t id,
                                         const std::unordered_set<void *> &expected)
{
    pool_blocks blocks = blocks_read("checkPoolLiveAllocations", device, id, true);
    if (blocks.size() != expected.size())
        return false;
    return std::all_of(blocks.begin(), blocks.end(),
                       [&expected](const auto &block) { return expected.count(block.first) == 1; });
}

std::shared_ptr<caching::AllocatorState> allocator::getCheckpointState(DeviceIndex device,
                                                                       MempoolId_t id)
{
    auto state = std::make_shared<pool_state>();
    state->device = device;
    state->id = id;
    state->blocks = blocks_read("getCheckpointState", device, id, false);
    return state;
}

/* Whether the pool has a block of this state. */
static bool has_block(const pool_blocks &blocks, const pool_blocks::value_type &wanted)
{
    auto found = blocks.find(wanted.first);
    return found != blocks.end() && found->second == wanted.second;
}

static void blocks_free(const pool_blocks &blocks, const pool_blocks &kept)
{
    vmm_torch_freed freed;
    for (const auto &block : blocks) {
        if (has_block(kept, block))
            continue;
        (void)rounded_take(block.first);
        check("setCheckpointPoolState", library->release(block.first, &freed));
    }
}

static void blocks_place(DeviceIndex device, MempoolId_t id, const pool_blocks &blocks,
                         const pool_blocks &present)
{
    for (const auto &block : blocks) {
        if (has_block(present, block))
            continue;
        check("setCheckpointPoolState",
              library->pool_place(device, id_of(id), reinterpret_cast<uint64_t>(block.first),
                                  block.second.bytes, block.second.stream));
        rounded_note(block.first, block.second.rounded);
    }
}

/* PyTorch expects that every block was freed and that every block of the state was allocated anew. Blocks that are in
 * both stay as they are. */
caching::CheckpointDelta
allocator::setCheckpointPoolState(DeviceIndex device,
                                  std::shared_ptr<caching::AllocatorState> state)
{
    auto wanted = std::dynamic_pointer_cast<pool_state>(state);
    TORCH_CHECK(wanted != nullptr, "vmmcache: setCheckpointPoolState: the state is of another "
                                   "allocator");
    TORCH_CHECK(wanted->device == device,
                "vmmcache: setCheckpointPoolState: the state is of device ",
                static_cast<int>(wanted->device), ", not ", static_cast<int>(device));
    pool_blocks present = blocks_read("setCheckpointPoolState", device, wanted->id, false);
    blocks_free(present, wanted->blocks);
    blocks_place(device, wanted->id, wanted->blocks, present);
    caching::CheckpointDelta delta;
    for (const auto &block : present)
        delta.ptrs_freed.push_back(block.first);
    for (const auto &block : wanted->blocks)
        delta.dataptrs_allocd.emplace_back(block.first, block.first, &block_delete,
                                           c10::Device(c10::DeviceType::CUDA, device));
    return delta;
}

} // namespace vmm_shim
