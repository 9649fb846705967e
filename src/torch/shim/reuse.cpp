/*
 * Reuse of memory during a capture: PYTORCH_ALLOC_CONF=graph_capture_record_stream_reuse:True.
 *
 * A freed block that other streams use (Tensor.record_stream()) waits until their work has ended. Captured work does
 * not run, so the block would wait until the capture has ended. But the graph has an order: once all that those streams
 * had captured at the free comes before whatever the block's own stream captures next, the block may serve that stream.
 *
 * Owns: the blocks that wait so, and for each captured stream the nodes that are known to come before its next one.
 * Invariants:
 *  1. a block is listed while it waits in the library, at most;
 *  2. the nodes of a stream belong to one capture, and once a node comes before the stream's next one, it always does.
 * Locks: `waits_lock`, a leaf, guards all of it; CUDA is asked about graphs with it.
 */
#include "torch/shim/allocator.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <unordered_set>

namespace vmm_shim
{

namespace
{

using nodes = std::vector<cudaGraphNode_t>;

constexpr unsigned users_most = 32; /* a block with more waits for the end of the capture */

/* Where a stream is in its capture: the nodes that its next one depends on. */
struct position {
    unsigned long long capture;
    nodes last;
};

struct waiting_block {
    int device;
    cudaStream_t stream;
    position ends; /* the last nodes of the streams that use it */
};

struct captured_stream {
    unsigned long long capture;
    std::unordered_set<cudaGraphNode_t> before;
};

std::atomic<int> captures{ 0 };
std::atomic<size_t> waiting_count{ 0 };
std::mutex waits_lock;
auto &waiting = *new std::map<const void *, waiting_block>;
auto &captured_streams = *new std::map<cudaStream_t, captured_stream>;

/* ---- Graphs --------------------------------------------------------------------------------- */

cudaError_t capture_info(cudaStream_t stream, cudaStreamCaptureStatus *status,
                         unsigned long long *capture, const cudaGraphNode_t **last, size_t *count)
{
#if CUDART_VERSION >= 13000
    return cudaStreamGetCaptureInfo(stream, status, capture, nullptr, last, nullptr, count);
#else
    return cudaStreamGetCaptureInfo_v2(stream, status, capture, nullptr, last, count);
#endif
}

/* False: the stream is not being captured, or CUDA does not say where it is. */
bool position_read(cudaStream_t stream, position *out)
{
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaGraphNode_t *last = nullptr;
    size_t count = 0;
    if (stream == nullptr ||
        capture_info(stream, &status, &out->capture, &last, &count) != cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    if (status == cudaStreamCaptureStatusActive)
        out->last.assign(last, last + count);
    return status == cudaStreamCaptureStatusActive;
}

cudaError_t dependencies_get(cudaGraphNode_t node, cudaGraphNode_t *out, size_t *count)
{
#if CUDART_VERSION >= 13000
    return cudaGraphNodeGetDependencies(node, out, nullptr, count);
#else
    return cudaGraphNodeGetDependencies(node, out, count);
#endif
}

/* The nodes that a node depends on; none if CUDA does not say. */
nodes dependencies_of(cudaGraphNode_t node)
{
    size_t count = 0;
    if (dependencies_get(node, nullptr, &count) != cudaSuccess)
        count = 0;
    nodes found(count);
    if (count > 0 && dependencies_get(node, found.data(), &count) != cudaSuccess)
        found.clear();
    (void)cudaGetLastError();
    return found;
}

/* Adds what a node depends on, as far as it is new. */
void before_add(captured_stream *stream, nodes pending)
{
    while (!pending.empty()) {
        cudaGraphNode_t node = pending.back();
        pending.pop_back();
        if (!stream->before.insert(node).second)
            continue;
        nodes more = dependencies_of(node);
        pending.insert(pending.end(), more.begin(), more.end());
    }
}

/* The nodes that come before what a stream captures next. */
const captured_stream &before_locked(cudaStream_t stream, const position &now)
{
    captured_stream &known = captured_streams[stream];
    if (known.capture != now.capture)
        known = { now.capture, {} };
    before_add(&known, now.last);
    return known;
}

/* ---- Blocks --------------------------------------------------------------------------------- */

/* The last nodes of all streams but the first, which are in the same capture as that one. */
bool ends_read(const vmm_stream *streams, unsigned count, position *ends)
{
    position own;
    if (!position_read(streams[0], &own))
        return false;
    ends->capture = own.capture;
    for (unsigned i = 1; i < count; i++) {
        position now;
        if (!position_read(streams[i], &now) || now.capture != own.capture)
            return false;
        ends->last.insert(ends->last.end(), now.last.begin(), now.last.end());
    }
    return true;
}

void wait_note(int device, const void *ptr)
{
    vmm_stream streams[users_most + 1];
    unsigned count = library->wait_streams(device, ptr, streams, users_most + 1);
    position ends = {};
    if (count == 0 || count > users_most + 1 || !ends_read(streams, count, &ends))
        return;
    std::lock_guard<std::mutex> guard(waits_lock);
    waiting[ptr] = { device, streams[0], std::move(ends) };
    waiting_count.store(waiting.size());
}

/* Takes the blocks of a stream that may serve it from now on. */
std::vector<const void *> ended_take(int device, cudaStream_t stream, const position &now)
{
    std::vector<const void *> ended;
    std::lock_guard<std::mutex> guard(waits_lock);
    const captured_stream &known = before_locked(stream, now);
    for (auto block = waiting.begin(); block != waiting.end();) {
        const waiting_block &each = block->second;
        bool has_ended =
            each.device == device && each.stream == stream && each.ends.capture == now.capture &&
            std::all_of(each.ends.last.begin(), each.ends.last.end(),
                        [&known](cudaGraphNode_t node) { return known.before.count(node) != 0; });
        if (has_ended)
            ended.push_back(block->first);
        block = has_ended ? waiting.erase(block) : std::next(block);
    }
    waiting_count.store(waiting.size());
    return ended;
}

} // namespace

void captures_count(int change)
{
    if (captures.fetch_add(change) + change > 0)
        return;
    std::lock_guard<std::mutex> guard(waits_lock);
    captured_streams.clear();
}

void captured_wait_note(int device, const void *ptr)
{
    if (captures.load(std::memory_order_relaxed) == 0 || !capture_reuse_setting())
        return;
    try {
        wait_note(device, ptr);
    } catch (...) { /* no host memory: the block waits for the end of the capture */
    }
}

void captured_wait_forget(const void *ptr)
{
    if (waiting_count.load(std::memory_order_relaxed) == 0)
        return;
    std::lock_guard<std::mutex> guard(waits_lock);
    waiting.erase(ptr);
    waiting_count.store(waiting.size());
}

void captured_waits_end(int device, cudaStream_t stream)
{
    if (waiting_count.load(std::memory_order_relaxed) == 0)
        return;
    position now;
    if (!position_read(stream, &now))
        return;
    for (const void *ptr : ended_take(device, stream, now))
        library->wait_end(device, ptr);
}

} // namespace vmm_shim
