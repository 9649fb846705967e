/*
 * libvmmcache as an allocator class of PyTorch. This folder is compiled against the user's PyTorch (2.9 or later), and
 * uses the library through a table of functions only (vmmcache/torch_provider.h).
 *
 * Invariants:
 *  1. the allocator and all that it keeps are never destroyed: a program may free blocks in any destructor;
 *  2. the context of a block's DataPtr is the block's address, and its deleter is block_delete: PyTorch's graph trees
 *     rely on both;
 *  3. a member function of PyTorch's class whose parameters differ between versions is declared in each form and
 *     without `override`. The compiler takes the one that fits; a new pure virtual function is a compile error.
 * Owns: the allocator. May be called by: PyTorch. Locks: each file says which it has. The library's callbacks take
 * leaves only: locks that no thread holds while it calls the library.
 */
#ifndef VMM_SHIM_ALLOCATOR_H
#define VMM_SHIM_ALLOCATOR_H

#include "vmmcache/torch_provider.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

/* Stands for a type of the namespace below that older versions of PyTorch do not have. */
struct OomRejectionObserver {
};

namespace c10::cuda::CUDACachingAllocator::vmm_lookup
{
using oom_rejection_observer = OomRejectionObserver;
}

namespace vmm_shim
{

namespace caching = c10::cuda::CUDACachingAllocator;

/* The library's functions; set before the allocator is installed. */
extern const vmm_torch_functions *library;

using c10::DeviceIndex;
using c10::MempoolId_t;
using strings = std::vector<std::string>;
using string_pairs = std::vector<std::pair<std::string, std::string>>;
using stream_filter = std::function<bool(cudaStream_t)>;

class allocator final : public caching::CUDAAllocator
{
  public:
    /* Memory: allocator.cpp */
    c10::DataPtr allocate(size_t bytes) override;
    c10::DeleterFnPtr raw_deleter() const override;
    void copy_data(void *to, const void *from, std::size_t bytes) const override;
    void *raw_alloc(size_t bytes) override;
    void *raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override;
    void raw_delete(void *ptr) override;
    using caching::CUDAAllocator::recordStream;
    void recordStream(const c10::DataPtr &ptr, c10::cuda::CUDAStream stream) override;
    void *getBaseAllocation(void *ptr, size_t *bytes) override;
    cudaError_t memcpyAsync(void *to, int to_device, const void *from, int from_device,
                            size_t bytes, cudaStream_t stream, bool has_peer_access) override;
    void enablePeerAccess(DeviceIndex device, DeviceIndex owner) override;
    caching::ShareableHandle shareIpcHandle(void *ptr) override;
    std::shared_ptr<void> getIpcDevPtr(std::string handle) override;

    /* Devices and limits: allocator.cpp */
    void init(int count) override;
    bool initialized() override;
    void emptyCache(MempoolId_t id) override;
    double getMemoryFraction(DeviceIndex device) override;
    void setMemoryFraction(double fraction, DeviceIndex device) override;
    std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device);
    void cacheInfo(DeviceIndex device, size_t *largest_bytes) override;
    void enable(bool value) override;
    bool isEnabled() const override;
    std::string name() override;

    /* Pools: pools.cpp */
    void beginAllocateToPool(DeviceIndex device, MempoolId_t id, stream_filter filter) override;
    void endAllocateToPool(DeviceIndex device, MempoolId_t id) override;
    void releasePool(DeviceIndex device, MempoolId_t id) override;
    int getPoolUseCount(DeviceIndex device, MempoolId_t id);
    void createOrIncrefPool(DeviceIndex device, MempoolId_t id,
                            caching::CUDAAllocator *segments); /* up to 2.10 */
    void createOrIncrefPool(DeviceIndex device, MempoolId_t id,
                            std::shared_ptr<caching::CUDAAllocator> segments);
    void setUseOnOOM(DeviceIndex device, MempoolId_t id); /* up to 2.9 */
    void setUseOnOOM(DeviceIndex device, MempoolId_t id, bool is_shared);
    void setNoSplit(DeviceIndex device, MempoolId_t id);
    bool checkPoolLiveAllocations(DeviceIndex device, MempoolId_t id,
                                  const std::unordered_set<void *> &expected);
    std::shared_ptr<caching::AllocatorState> getCheckpointState(DeviceIndex device,
                                                                MempoolId_t id) override;
    caching::CheckpointDelta
    setCheckpointPoolState(DeviceIndex device,
                           std::shared_ptr<caching::AllocatorState> state) override;

    /* History: history.cpp */
    bool isHistoryEnabled();
    std::shared_ptr<c10::GatheredContext> getContextForPointer(const void *ptr); /* since 2.12 */
    void recordHistory(bool is_enabled, caching::CreateContextFn gather, size_t entries,
                       caching::RecordContext contexts, bool clears); /* up to 2.9 */
    void recordHistory(bool is_enabled, caching::CreateContextFn gather, size_t entries,
                       caching::RecordContext contexts, bool clears, const strings &skipped);
    void recordAnnotation(const string_pairs &metadata);
    void pushCompileContext(std::string &context);
    void popCompileContext();
    void setUserMetadata(const std::string &metadata);
    std::string getUserMetadata();
    void attachOutOfMemoryObserver(caching::OutOfMemoryObserver observer) override;
    void attachOomRejectionObserver(caching::vmm_lookup::oom_rejection_observer observer);

    /* Trackers: trackers.cpp */
    void attachAllocatorTraceTracker(caching::AllocatorTraceTracker tracker) override;

    /* Reports: report.cpp */
    c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override;
    void resetAccumulatedStats(DeviceIndex device) override;
    void resetPeakStats(DeviceIndex device) override;
    caching::SnapshotInfo snapshot(MempoolId_t id); /* up to 2.10 */
    caching::SnapshotInfo snapshot(MempoolId_t id, bool has_traces);
    std::vector<caching::StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) override;
};

/* Number of devices that PyTorch has; 0 before init(). */
int device_count();

/* The segment of an allocator of a pool's own that contains an address; nullptr: none does. */
void *segment_find(const void *ptr);

/* The standard deleter. Never throws: a failure is in the library's log. */
void block_delete(void *ptr);

/* Throws an error that says what failed, and why. */
[[noreturn]] void failure_throw(const char *what, vmm_status status);
inline void check(const char *what, vmm_status status)
{
    if (status != VMM_OK)
        failure_throw(what, status);
}

inline vmm_pool_id id_of(const MempoolId_t &id)
{
    return vmm_pool_id{ id.first, id.second };
}

/* Calls `set` with a structure of PyTorch's, if this version has the field that the result type of `set` names. */
template <class Structure, class Set> void set_if_there(Structure &structure, Set set)
{
    if constexpr (std::is_invocable_v<Set, Structure &>)
        set(structure);
}

/* What recordings and trackers say when. */
time_t time_now_us();

/* Trackers: trackers.cpp. */

/* Mapped memory of one of PyTorch's pools, as trackers know it. */
struct pool_segment {
    uint64_t address;
    uint64_t bytes;
    uint64_t stream;
    int64_t number; /* in order of their beginning */
    int device;
    MempoolId_t pool;
    bool is_whole;  /* one growth of the pool, which stays apart from its neighbours */
    bool is_shown;  /* a communicator may hold it */
    bool is_asleep; /* a sleep has unmapped it, or is about to */
};

/* Whether PyTorch has made the pool, for a graph or as a MemPool. */
bool is_torch_pool(const MempoolId_t &id);

/* The segments of a device's pools that are awake, by address, for a snapshot of one pool, or of all if the id is
 * zeros. From now on trackers may rely on them. */
std::vector<pool_segment> segments_show(int device, const MempoolId_t &id);

/* Where segments of a device's pools begin and end, in ascending order. Trackers may not rely on them. */
std::vector<uint64_t> segment_bounds(int device);

/* Whether there is a tracker, so that snapshots must have its segments. */
bool segments_are_tracked();

/* Gives a pool an allocator of its own: the library calls `functions`, which `source` owns, until the pool is gone. */
void pool_source_set(int device, const MempoolId_t &id, const vmm_segment_source &functions,
                     std::shared_ptr<void> source);

/* Notes whether a pool has use_on_oom. */
void pool_lends_note(int device, MempoolId_t id, bool lends);

/* Ends the segments and the sources of pools that are gone. */
void pools_purge();

/* Whether one of the pool's uses is ours. It ends with the last one of PyTorch. */
bool pool_is_held(int device, const MempoolId_t &id);

/* Adds a use of ours, if there is such a pool and it has none. With another use, a pool with use_on_oom keeps its
 * memory, and lends what is free only to requests that would fail. */
vmm_status pool_hold(int device, const MempoolId_t &id);

/* Holds a pool that lends segments of an allocator of its own: so it keeps them while its MemPool lives. */
void pool_source_hold(int device, const MempoolId_t &id);
bool pool_has_source(int device, const MempoolId_t &id);

/* Whether the pool had a use of ours, which the caller now ends. */
bool pool_hold_end(int device, const MempoolId_t &id);

/* What PYTORCH_ALLOC_CONF says now: settings.cpp. */
double fraction_setting(); /* with which devices begin */
bool capture_reuse_setting();
bool expandable_setting();
size_t rounded_setting(size_t bytes); /* the size that a request gets */

/* Sizes that were rounded up: rounding.cpp. */

/* By how much the request for a block was rounded up. */
struct rounded_block {
    size_t excess; /* 0: not at all */
    int device;
    bool is_small; /* in statistics */
};

/* Notes a block that was allocated, or that is live after all; nothing if it was not rounded up. */
void rounded_note(const void *ptr, const rounded_block &block);
void rounded_put_back(const void *ptr, const rounded_block &block);

/* What was noted. rounded_take() forgets it, before the block is freed. */
rounded_block rounded_of(const void *ptr);
rounded_block rounded_take(const void *ptr);

/* Subtracts what was rounded up from the requested bytes. */
void rounded_subtract(int device, vmm_stats *stats, vmm_torch_stats *kinds);

/* Captures: reuse.cpp. */

/* Counts captures that a pool has begun (1) and ended (-1). */
void captures_count(int change);

/* Notes a freed block, if it waits for other streams of a capture and PyTorch's settings want it reused. */
void captured_wait_note(int device, const void *ptr);

/* Forgets a block, which no longer waits. With the library's locks held. */
void captured_wait_forget(const void *ptr);

/* Frees the blocks whose uses come before all that a captured stream does next, as the graph says. */
void captured_waits_end(int device, cudaStream_t stream);

/* Tells the trackers of an event. */
void event_trace(const vmm_torch_event &event);

/* Tells the trackers that a block was allocated. */
void allocation_trace(const void *ptr);

/* Tells the trackers of one free: the constructor that it was requested, complete() that it has succeeded. */
class free_trace
{
  public:
    explicit free_trace(const void *ptr);
    void complete();

  private:
    vmm_torch_event event = {};
    bool is_told;
};

/* What was recorded of a stack's number; empty if the library has dropped the number meanwhile. */
struct context {
    std::shared_ptr<c10::GatheredContext> frames;
    bool is_traced; /* events have the frames, too */
    std::string compile_context;
    std::string user_metadata;
};
context context_of(uint64_t stack);

/* What snapshots have of the recording. */
bool action_is_shown(int action); /* vmm_torch_action */
void annotations_add(caching::SnapshotInfo *snapshot);
caching::TraceEntry trace_entry(const vmm_torch_event &event);

/* Sets the library's listeners. */
void history_install();
void reclaim_install();
void trackers_install();

} // namespace vmm_shim

#endif
