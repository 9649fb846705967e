/* The shim's recording: snapshots, contexts, annotations and trackers. */
#include "torch/shim/shim_support.hpp"

#include "torch/shim/foreign_allocator.hpp"

#include <algorithm>
#include <thread>

using caching::RecordContext;
using action = caching::TraceEntry::Action;

static const caching::BlockInfo *block_at(const caching::SnapshotInfo &snapshot, const void *ptr)
{
    for (const caching::SegmentInfo &segment : snapshot.segments) {
        size_t address = segment.address;
        for (const caching::BlockInfo &block : segment.blocks) {
            if (address == reinterpret_cast<uintptr_t>(ptr))
                return &block;
            address += block.size;
        }
    }
    return nullptr;
}

static std::vector<caching::TraceEntry> trace_of_device_0()
{
    return snapshot_of().device_traces[0];
}

static size_t count_of(const std::vector<caching::TraceEntry> &trace, action wanted)
{
    return static_cast<size_t>(
        std::count_if(trace.begin(), trace.end(), [wanted](const caching::TraceEntry &entry) {
            return entry.action_ == wanted;
        }));
}

TEST(a_snapshot_without_history_has_memory_only)
{
    void *block = shim().raw_alloc(5 * MIB);
    caching::SnapshotInfo snapshot = snapshot_of();
    assert_int_equal(snapshot.device_traces.size(), shim_devices);
    assert_int_equal(snapshot.device_traces[0].size(), 0);
    const caching::BlockInfo *found = block_at(snapshot, block);
    assert_non_null(found);
    assert_int_equal(found->requested_size, 5 * MIB);
    assert_true(found->allocated && found->active);
    assert_null(found->context_when_allocated.get());
    for (const caching::SegmentInfo &segment : snapshot.segments) {
        size_t sum = 0;
        for (const caching::BlockInfo &each : segment.blocks)
            sum += each.size;
        assert_int_equal(sum, segment.total_size);
        assert_true(segment.is_expandable);
    }
    shim().raw_delete(block);
}

TEST(history_has_each_event_with_its_context)
{
    assert_false(shim().isHistoryEnabled());
    history_record(true, RecordContext::ALL);
    assert_true(shim().isHistoryEnabled());
    void *kept = shim().raw_alloc(5 * MIB);
    shim().raw_delete(shim().raw_alloc(MIB));
    caching::SnapshotInfo snapshot = snapshot_of();
    const auto &trace = snapshot.device_traces[0];
    assert_int_equal(count_of(trace, action::ALLOC), 2);
    assert_int_equal(count_of(trace, action::FREE_REQUESTED), 1);
    assert_int_equal(count_of(trace, action::FREE_COMPLETED), 1);
    for (const caching::TraceEntry &entry : trace) {
        assert_non_null(entry.context_.get());
        assert_true(entry.time_.t_ > 0);
    }
    assert_non_null(block_at(snapshot, kept)->context_when_allocated.get());
    history_record(false, RecordContext::NEVER);
    assert_false(shim().isHistoryEnabled());
    assert_int_equal(trace_of_device_0().size(), 0);
    shim().raw_delete(kept);
}

/* How many copies of a context the snapshot and the recording hold. */
TEST(contexts_live_as_long_as_events_and_blocks)
{
    recording records(RecordContext::ALL, 4);
    void *kept = shim().raw_alloc(5 * MIB);
    std::weak_ptr<c10::GatheredContext> of_kept, of_freed;
    {
        void *freed = shim().raw_alloc(MIB);
        caching::SnapshotInfo snapshot = snapshot_of();
        of_kept = block_at(snapshot, kept)->context_when_allocated;
        of_freed = block_at(snapshot, freed)->context_when_allocated;
        shim().raw_delete(freed);
    }
    assert_false(of_freed.expired()); /* its events are in the history */
    for (int i = 0; i < 8; i++)
        shim().raw_delete(shim().raw_alloc(2 * MIB));
    assert_true(of_freed.expired()); /* the ring has overwritten them */
    assert_false(of_kept.expired()); /* the block is live */
    shim().raw_delete(kept);
    for (int i = 0; i < 8; i++)
        shim().raw_delete(shim().raw_alloc(2 * MIB));
    assert_true(of_kept.expired());
}

/* As with PyTorch's allocator: a block has its context until it is freed. */
TEST(contexts_of_live_blocks_outlive_the_recording)
{
    history_record(true, RecordContext::ALL);
    void *kept = shim().raw_alloc(5 * MIB);
    void *freed = shim().raw_alloc(3 * MIB);
    std::weak_ptr<c10::GatheredContext> of_freed =
        block_at(snapshot_of(), freed)->context_when_allocated;
    history_record(false, RecordContext::NEVER);
    assert_non_null(block_at(snapshot_of(), kept)->context_when_allocated.get());
    assert_false(of_freed.expired());
    shim().raw_delete(freed);
    assert_true(of_freed.expired());
    void *again = shim().raw_alloc(3 * MIB);
    assert_ptr_equal(again, freed);
    assert_null(block_at(snapshot_of(), again)->context_when_allocated.get());
    history_record(true, RecordContext::NEVER);
    assert_non_null(block_at(snapshot_of(), kept)->context_when_allocated.get());
    assert_null(block_at(snapshot_of(), again)->context_when_allocated.get());
    shim().raw_delete(kept);
    history_record(false, RecordContext::NEVER);
    kept = shim().raw_alloc(5 * MIB);
    assert_null(block_at(snapshot_of(), kept)->context_when_allocated.get());
    blocks_delete({ kept, again });
}

TEST(contexts_can_be_left_out)
{
    history_record(true, RecordContext::NEVER);
    shim().raw_delete(shim().raw_alloc(MIB));
    for (const caching::TraceEntry &entry : trace_of_device_0())
        assert_null(entry.context_.get());
    history_record(true, RecordContext::ALLOC);
    shim().raw_delete(shim().raw_alloc(MIB));
    for (const caching::TraceEntry &entry : trace_of_device_0())
        assert_true((entry.context_ != nullptr) ==
                    (entry.action_ == action::ALLOC || entry.action_ == action::FREE_REQUESTED ||
                     entry.action_ == action::FREE_COMPLETED ||
                     entry.action_ == action::SEGMENT_MAP));
    history_record(false, RecordContext::NEVER);
}

/* With STATE only live blocks have frames, not events. */
TEST(live_blocks_can_have_contexts_alone)
{
    recording records(RecordContext::STATE);
    void *kept = shim().raw_alloc(5 * MIB);
    shim().raw_delete(shim().raw_alloc(MIB));
    caching::SnapshotInfo snapshot = snapshot_of();
    assert_non_null(block_at(snapshot, kept)->context_when_allocated.get());
    assert_int_equal(count_of(snapshot.device_traces[0], action::ALLOC), 2);
    for (const caching::TraceEntry &entry : snapshot.device_traces[0])
        assert_null(entry.context_.get());
    shim().raw_delete(kept);
}

static size_t free_blocks_with(size_t requested)
{
    size_t count = 0;
    for (const caching::SegmentInfo &segment : snapshot_of().segments)
        for (const caching::BlockInfo &block : segment.blocks)
            count += !block.active && block.requested_size == requested;
    return count;
}

/* As with PyTorch's own allocator. */
TEST(a_free_block_says_what_was_requested_last)
{
    shim().emptyCache();
    recording records(RecordContext::NEVER);
    void *first = shim().raw_alloc(6 * MIB);
    void *second = shim().raw_alloc(6 * MIB - 100);
    blocks_delete({ first, second });
    assert_int_equal(free_blocks_with(6 * MIB - 100), 1);
    void *part = shim().raw_alloc(4 * MIB);
    assert_int_equal(free_blocks_with(4 * MIB) + free_blocks_with(6 * MIB), 0);
    for (const caching::SegmentInfo &segment : snapshot_of().segments)
        for (const caching::BlockInfo &block : segment.blocks)
            assert_true(block.requested_size <= block.size);
    shim().raw_delete(part);
}

/* The event of a snapshot comes after what the snapshot has. */
TEST(the_last_event_is_the_last_change)
{
    shim().emptyCache();
    recording records(RecordContext::NEVER, 1);
    void *block = shim().raw_alloc(5 * MIB);
    assert_int_equal(trace_of_device_0().back().action_, action::ALLOC);
    assert_int_equal(trace_of_device_0().back().action_, action::SNAPSHOT);
    shim().raw_delete(block);
    shim().emptyCache();
    assert_int_equal(trace_of_device_0().back().action_, action::SEGMENT_UNMAP);
}

TEST(the_same_settings_keep_the_history)
{
    history_record(true, RecordContext::ALL);
    shim().raw_delete(shim().raw_alloc(MIB));
    history_record(true, RecordContext::ALL, 1000, false);
    assert_int_equal(count_of(trace_of_device_0(), action::ALLOC), 1);
    history_record(true, RecordContext::ALL, 1000, true);
    assert_int_equal(count_of(trace_of_device_0(), action::ALLOC), 0);
    history_record(false, RecordContext::NEVER);
}

TEST(the_compilers_context_is_kept)
{
    std::string outer = "frame 0", inner = "frame 1";
    recording records(RecordContext::ALL);
    shim().pushCompileContext(outer);
    shim().pushCompileContext(inner);
    shim().popCompileContext();
    void *block = shim().raw_alloc(MIB);
    shim().popCompileContext();
    shim().popCompileContext(); /* one too many does nothing */
    shim().raw_delete(block);
    for (const caching::TraceEntry &entry : trace_of_device_0()) {
        if (entry.action_ == action::ALLOC)
            assert_string_equal(entry.compile_context_.c_str(), "frame 0");
        if (entry.action_ == action::FREE_REQUESTED)
            assert_string_equal(entry.compile_context_.c_str(), "N/A"); /* as PyTorch's own */
    }
}

#if VMM_TEST_TORCH >= 210
TEST(metadata_of_the_user_is_kept)
{
    recording records(RecordContext::ALL);
    shim().setUserMetadata("step 5");
    assert_string_equal(shim().getUserMetadata().c_str(), "step 5");
    shim().raw_delete(shim().raw_alloc(MIB));
    shim().setUserMetadata("");
    assert_string_equal(trace_of_device_0().front().user_metadata_.c_str(), "step 5");
}

TEST(actions_can_be_skipped)
{
    shim().emptyCache(); /* ends the waits of blocks of other tests */
    recording records(RecordContext::ALL, 1000, true, { "alloc", "free_requested" });
    shim().raw_delete(shim().raw_alloc(MIB));
    caching::SnapshotInfo snapshot = snapshot_of();
    assert_int_equal(count_of(snapshot.device_traces[0], action::ALLOC), 0);
    assert_int_equal(count_of(snapshot.device_traces[0], action::FREE_REQUESTED), 0);
    assert_int_equal(count_of(snapshot.device_traces[0], action::FREE_COMPLETED), 1);
}
#endif

#if VMM_TEST_TORCH >= 211
TEST(traces_can_be_left_out)
{
    recording records(RecordContext::NEVER);
    shim().raw_delete(shim().raw_alloc(MIB));
    assert_int_equal(shim().snapshot({ 0, 0 }, false).device_traces[0].size(), 0);
    assert_true(shim().snapshot({ 0, 0 }, true).device_traces[0].size() > 0);
}
#endif

TEST(annotations_are_in_snapshots)
{
    shim().recordAnnotation({ { "name", "ignored" } }); /* nothing is recorded */
    history_record(true, RecordContext::NEVER, 2);
    for (const char *name : { "first", "second", "third" })
        shim().recordAnnotation({ { "name", name }, { "stage", "START" } });
    caching::SnapshotInfo snapshot = snapshot_of();
    assert_int_equal(snapshot.external_annotations.size(), 2); /* the last ones */
    assert_string_equal(snapshot.external_annotations[0].metadata_["name"].c_str(), "second");
    assert_string_equal(snapshot.external_annotations[1].metadata_["stage"].c_str(), "START");
    assert_true(snapshot.external_annotations[1].time_.t_ > 0);
    history_record(false, RecordContext::NEVER);
    assert_int_equal(snapshot_of().external_annotations.size(), 0);
}

/* As those of PyTorch's own allocator, unless the caller wants them cleared. */
TEST(a_change_of_settings_keeps_events)
{
    history_record(true, RecordContext::ALLOC);
    void *kept = shim().raw_alloc(5 * MIB);
    history_record(true, RecordContext::ALL, 1000, false);
    shim().raw_delete(kept);
    auto trace = trace_of_device_0();
    assert_int_equal(count_of(trace, action::ALLOC), 1);
    assert_int_equal(count_of(trace, action::FREE_REQUESTED), 1);
    for (const caching::TraceEntry &entry : trace)
        if (entry.action_ == action::ALLOC || entry.action_ == action::FREE_REQUESTED)
            assert_non_null(entry.context_.get());
    history_record(true, RecordContext::NEVER, 1000, false);
    shim().raw_delete(shim().raw_alloc(5 * MIB));
    assert_int_equal(count_of(trace_of_device_0(), action::ALLOC), 2);
    history_record(true, RecordContext::ALL, 500, false); /* another length begins anew */
    assert_int_equal(count_of(trace_of_device_0(), action::ALLOC), 0);
    history_record(false, RecordContext::NEVER);
}

/* Frees have the frames of the allocation unless they have their own. Also changes of other pools have the text. */
static void events_check(RecordContext when)
{
    shim().emptyCache();
    recording records(when);
    shim().raw_delete(shim().raw_alloc(5 * MIB));
    shim().emptyCache();
    const MempoolId_t pool(0, 9);
    foreign_counts counts;
    auto own = foreign::pool_make(pool, &counts);
    shim().raw_delete(begin_alloc(pool, 5 * MIB));
    shim().releasePool(0, pool);
    shim().releasePool(0, pool);
    int releases = 0;
    for (const caching::TraceEntry &entry : trace_of_device_0()) {
        bool is_release = entry.action_ == action::SEGMENT_UNMAP;
        if (entry.mempool_ == MempoolId_t(0, 0))
            assert_true((entry.context_ != nullptr) ==
                        (when >= (is_release ? RecordContext::ALL : RecordContext::ALLOC)));
#if VMM_TEST_TORCH >= 210
        assert_string_equal(entry.user_metadata_.c_str(), "a note");
#endif
        releases += is_release;
    }
    assert_true(releases >= 2);
}

static void note_set(const char *text)
{
#if VMM_TEST_TORCH >= 210
    shim().setUserMetadata(text);
#else
    (void)text;
#endif
}

TEST(releases_have_frames_with_all_only_and_each_event_has_the_text)
{
    note_set("a note");
    events_check(RecordContext::ALL);
    events_check(RecordContext::ALLOC);
    events_check(RecordContext::STATE);
    events_check(RecordContext::NEVER);
    note_set("");
}

TEST(wrong_recordings_are_refused)
{
    auto record = [] {
#if VMM_TEST_TORCH >= 210
        shim().recordHistory(true, nullptr, 10, RecordContext::ALL, true, {});
#else
        shim().recordHistory(true, nullptr, 10, RecordContext::ALL, true);
#endif
    };
    (void)thrown<c10::Error>(record);
    assert_false(shim().isHistoryEnabled());
}

/* Trackers stay, so this one keeps what it hears in memory that stays too. */
struct tracked {
    int action;
    size_t address, bytes;
    MempoolId_t pool;
};
static std::vector<tracked> &heard()
{
    static auto *entries = new std::vector<tracked>;
    return *entries;
}

static size_t heard_count(action wanted)
{
    return static_cast<size_t>(
        std::count_if(heard().begin(), heard().end(),
                      [wanted](const tracked &entry) { return entry.action == wanted; }));
}

TEST(trackers_hear_of_each_change)
{
    shim().emptyCache();
    shim().attachAllocatorTraceTracker([](const caching::TraceEntry &entry) {
        heard().push_back({ entry.action_, entry.addr_, entry.size_, entry.mempool_ });
    });
    void *block = shim().raw_alloc(5 * MIB);
    assert_int_equal(heard_count(action::ALLOC), 1);
    assert_true(heard_count(action::SEGMENT_MAP) >= 1);
    size_t mapped = 0;
    for (const tracked &entry : heard())
        mapped += entry.action == action::SEGMENT_MAP ? entry.bytes : 0;
    assert_int_equal(mapped, shim().getDeviceStats(0).reserved_bytes[0].current);
    shim().raw_delete(block);
    assert_int_equal(heard_count(action::FREE_REQUESTED), 1);
    assert_int_equal(heard_count(action::FREE_COMPLETED), 1);
    shim().emptyCache();
    size_t unmapped = 0;
    for (const tracked &entry : heard())
        unmapped += entry.action == action::SEGMENT_UNMAP ? entry.bytes : 0;
    assert_int_equal(unmapped, mapped);
    (void)thrown<c10::OutOfMemoryError>([] { (void)shim().raw_alloc(2 * device_bytes); });
    assert_int_equal(heard_count(action::OOM), 1);
}

TEST(trackers_hear_in_which_pool_a_block_is)
{
    static const MempoolId_t captured(0, 7);
    heard().clear();
    void *block = begin_alloc(captured, 5 * MIB);
    shim().raw_delete(block);
    shim().releasePool(0, captured);
    int found = 0;
    for (const tracked &entry : heard())
        if (entry.action == action::ALLOC || entry.action == action::FREE_REQUESTED) {
            assert_true(entry.pool == captured);
            found++;
        }
    assert_int_equal(found, 2);
}

TEST(trackers_hear_one_size_of_a_block_that_waits)
{
    shim().emptyCache();
    heard().clear();
    {
        c10::DataPtr block = shim().allocate(3 * MIB - 100);
        shim().recordStream(block, c10::cuda::CUDAStream(c10::Stream(stream_of(0x60))));
    }
    shim().emptyCache();
    assert_int_equal(heard_count(action::FREE_REQUESTED), 1);
    assert_int_equal(heard_count(action::FREE_COMPLETED), 1);
    for (const tracked &entry : heard())
        if (entry.action == action::FREE_REQUESTED || entry.action == action::FREE_COMPLETED)
            assert_int_equal(entry.bytes, 3 * MIB - 100);
}

TEST(a_tracker_that_throws_does_no_harm)
{
    static bool throws = true;
    shim().attachAllocatorTraceTracker([](const caching::TraceEntry &) {
        if (throws)
            throw std::runtime_error("tracker");
    });
    shim().raw_delete(shim().raw_alloc(5 * MIB));
    throws = false;
}

TEST(sizes_of_segments_are_by_stream)
{
    shim().emptyCache();
    void *one = shim().raw_alloc_with_stream(5 * MIB, stream_of(0x40));
    void *other = shim().raw_alloc_with_stream(100, stream_of(0x50));
    auto sizes = shim().getExpandableSegmentSizes(0);
    size_t sum = 0;
    for (const caching::StreamSegmentSize &size : sizes) {
        assert_true(size.is_small_pool == (size.stream == stream_of(0x50)));
        sum += size.total_size;
    }
    assert_int_equal(sizes.size(), 2);
    assert_int_equal(sum, shim().getDeviceStats(0).reserved_bytes[0].current);
    blocks_delete({ one, other });
}

#if VMM_TEST_TORCH >= 212
TEST(no_request_is_rejected_early)
{
    static bool is_called = false;
    shim().attachOomRejectionObserver([](int64_t, size_t, size_t, size_t) { is_called = true; });
    (void)thrown<c10::OutOfMemoryError>([] { (void)shim().raw_alloc(2 * device_bytes); });
    assert_false(is_called);
}
#endif

#if VMM_TEST_TORCH >= 212
TEST(a_block_has_the_context_of_its_allocation)
{
    char *early = static_cast<char *>(shim().raw_alloc(MIB));
    assert_null(shim().getContextForPointer(early).get());
    history_record(true, RecordContext::ALL);
    assert_null(shim().getContextForPointer(early).get());
    char *block = static_cast<char *>(shim().raw_alloc(5 * MIB));
    auto context = shim().getContextForPointer(block + 3 * MIB);
    assert_non_null(context.get());
    assert_ptr_equal(context.get(), block_at(snapshot_of(), block)->context_when_allocated.get());
    assert_null(shim().getContextForPointer(nullptr).get());
    shim().raw_delete(block);
    assert_null(shim().getContextForPointer(block).get());
    history_record(false, RecordContext::NEVER);
    shim().raw_delete(early);
}
#endif

/* As an allocator of Python, which waits for the thread that has Python's lock. */
static void other_thread_run()
{
    std::thread([] { shim().raw_delete(shim().raw_alloc(MIB)); }).join();
}

TEST(an_allocator_of_a_pool_may_wait_for_a_thread_that_records)
{
    const MempoolId_t pool(0, 9);
    foreign_counts counts;
    shim().emptyCache({ 0, 0 }); /* for the limit below */
    auto own = std::make_shared<foreign::allocator>(&counts);
    counts.on_alloc = other_thread_run;
    counts.on_free = [](void *) { other_thread_run(); };
    recording records(RecordContext::ALL);
    shim().createOrIncrefPool(0, pool, foreign::handle_of(own));
    use_on_oom_set(pool);
    shim().setMemoryFraction(0.5, 0);
    auto of_this_thread = [thread = std::this_thread::get_id()](cudaStream_t) {
        return std::this_thread::get_id() == thread;
    };
    shim().beginAllocateToPool(0, pool, of_this_thread);
    shim().raw_delete(shim().raw_alloc(100 * MIB));
    shim().endAllocateToPool(0, pool);
    shim().releasePool(0, pool);
    shim().raw_delete(shim().raw_alloc(100 * MIB)); /* the pool lends its segment */
    assert_int_equal(counts.allocs, 1);
    assert_int_equal(counts.frees, 0);
    shim().setMemoryFraction(1.0, 0);
    shim().releasePool(0, pool);
    assert_int_equal(counts.frees, 1);
}

TEST(threads_record_while_snapshots_are_taken)
{
    recording records(RecordContext::ALL, 64);
    std::vector<std::thread> threads;
    for (unsigned number = 0; number < 3; number++)
        threads.emplace_back([number] {
            for (unsigned i = 1; i < 500; i++)
                shim().raw_delete(shim().raw_alloc_with_stream(i * 64, stream_of(0x100 + number)));
        });
    for (int i = 0; i < 20; i++)
        assert_int_equal(snapshot_of().device_traces.size(), shim_devices);
    for (std::thread &thread : threads)
        thread.join();
}
