/*
 * The recording of history, and all that PyTorch has called when memory changes or runs out.
 *
 * Owns: contexts, what PyTorch gathered of a thread that allocated or freed. The library stores their numbers with
 * events and blocks, and says when it drops one. Owns the annotations and the observers too.
 * Locks: `settings_lock` guards the settings of the recording, and is held while the library starts and stops it.
 * `contexts_lock`, `annotations_lock`, `observers_lock` and `metadata_lock` are leaves. Observers are called without
 * locks.
 */
#include "torch/shim/allocator.h"

#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>
#include <unordered_map>

namespace vmm_shim
{

/* ---- Contexts ------------------------------------------------------------------------------- */

struct kept_context {
    context what;
    int64_t copies; /* that the library has */
};

static std::mutex contexts_lock;
static auto &contexts = *new std::unordered_map<uint64_t, kept_context>;
static uint64_t contexts_count;
static std::atomic<caching::CreateContextFn> gather_fn{ nullptr };

static std::mutex metadata_lock;
static auto &metadata = *new std::string;
static thread_local std::vector<std::string> compile_contexts;

void allocator::pushCompileContext(std::string &context)
{
    compile_contexts.push_back(context);
}

void allocator::popCompileContext()
{
    if (!compile_contexts.empty())
        compile_contexts.pop_back();
}

void allocator::setUserMetadata(const std::string &value)
{
    std::lock_guard<std::mutex> guard(metadata_lock);
    metadata = value;
}

std::string allocator::getUserMetadata()
{
    std::lock_guard<std::mutex> guard(metadata_lock);
    return metadata;
}

static std::atomic<bool> traces_frames{ false }; /* events have frames, not only live blocks */

/* gather: makes the frames; nullptr: none. */
static context context_make(caching::CreateContextFn gather)
{
    context made;
    made.is_traced = traces_frames.load();
    if (gather != nullptr)
        made.frames = gather();
    if (!compile_contexts.empty())
        made.compile_context = compile_contexts.back();
    std::lock_guard<std::mutex> guard(metadata_lock);
    made.user_metadata = metadata;
    return made;
}

static uint64_t context_keep(caching::CreateContextFn gather)
{
    try {
        context made = context_make(gather);
        if (!made.frames && made.compile_context.empty() && made.user_metadata.empty())
            return 0;
        std::lock_guard<std::mutex> guard(contexts_lock);
        contexts.emplace(contexts_count + 1, kept_context{ std::move(made), 1 });
        return ++contexts_count;
    } catch (...) {
        return 0;
    }
}

/* The library calls the first one without locks, the other one also with the cache's locks held. */
static uint64_t context_gather()
{
    return context_keep(gather_fn.load());
}

static uint64_t texts_gather()
{
    return context_keep(nullptr);
}

static void context_count(uint64_t stack, int change)
{
    context dropped; /* destroyed after the lock is released */
    std::lock_guard<std::mutex> guard(contexts_lock);
    auto found = contexts.find(stack);
    if (found == contexts.end())
        return;
    found->second.copies += change;
    if (found->second.copies > 0)
        return;
    dropped = std::move(found->second.what);
    contexts.erase(found);
}

context context_of(uint64_t stack)
{
    std::lock_guard<std::mutex> guard(contexts_lock);
    auto found = contexts.find(stack);
    return found == contexts.end() ? context{} : found->second.what;
}

/* ---- Recording ------------------------------------------------------------------------------ */

struct settings {
    caching::CreateContextFn gather;
    size_t entries;
    caching::RecordContext contexts;
    strings skipped;
};

using annotation_entry = decltype(caching::SnapshotInfo::external_annotations)::value_type;

static std::mutex settings_lock;
static size_t recorded_entries;
static std::atomic<bool> is_recording{ false };
static std::atomic<uint64_t> hidden_actions{ 0 }; /* bit n: snapshots do not have action n */

static std::mutex annotations_lock;
static auto &annotations = *new std::deque<annotation_entry>;
static size_t annotations_most;

static void annotations_clear(size_t most)
{
    std::lock_guard<std::mutex> guard(annotations_lock);
    annotations.clear();
    annotations_most = most;
}

static uint64_t actions_mask(const strings &skipped)
{
    uint64_t mask = 0;
    for (const std::string &word : skipped) {
#define ACTION_SKIP(name, value, text)                                                             \
    if (word == (text))                                                                            \
        mask |= UINT64_C(1) << (value);
        VMM_TORCH_ACTION_MAP(ACTION_SKIP)
#undef ACTION_SKIP
    }
    return mask;
}

bool action_is_shown(int action)
{
    return (hidden_actions.load() >> action & 1) == 0;
}

static void recording_stop_locked()
{
    check("recordHistory", library->history_stop());
    is_recording.store(false);
    gather_fn.store(nullptr);
    annotations_clear(0);
}

/* Begins a recording, or changes the settings of one that goes on. */
static void recording_start_locked(const settings &wanted, bool goes_on)
{
    vmm_torch_recording recording = {};
    recording.keeps = goes_on ? 1 : 0;
    recording.struct_size = sizeof recording;
    recording.entries = wanted.entries > 0 ? wanted.entries : 1;
    bool has_frames = wanted.contexts != caching::RecordContext::NEVER;
    bool has_free_frames = wanted.contexts == caching::RecordContext::ALL;
    recording.stack = has_frames ? context_gather : texts_gather;
    recording.free_stack = has_free_frames ? context_gather : texts_gather;
    recording.use = context_count;
    recording.texts = texts_gather;
    gather_fn.store(wanted.gather);
    traces_frames.store(wanted.contexts >= caching::RecordContext::ALLOC);
    hidden_actions.store(actions_mask(wanted.skipped));
    if (!goes_on)
        annotations_clear(wanted.entries);
    vmm_status status = library->history_start(&recording);
    if (status != VMM_OK) {
        gather_fn.store(nullptr);
        failure_throw("recordHistory", status);
    }
    recorded_entries = wanted.entries;
    is_recording.store(true);
}

void allocator::recordHistory(bool is_enabled, caching::CreateContextFn gather, size_t entries,
                              caching::RecordContext contexts_wanted, bool clears,
                              const strings &skipped)
{
    TORCH_CHECK(contexts_wanted == caching::RecordContext::NEVER || gather != nullptr,
                "vmmcache: recordHistory: there is no function that records contexts");
    settings wanted{ gather, entries, contexts_wanted, skipped };
    std::lock_guard<std::mutex> guard(settings_lock);
    bool goes_on = is_enabled && !clears && is_recording.load() && entries == recorded_entries;
    if (!goes_on)
        recording_stop_locked();
    if (is_enabled)
        recording_start_locked(wanted, goes_on);
}

void allocator::recordHistory(bool is_enabled, caching::CreateContextFn gather, size_t entries,
                              caching::RecordContext contexts_wanted, bool clears)
{
    recordHistory(is_enabled, gather, entries, contexts_wanted, clears, {});
}

bool allocator::isHistoryEnabled()
{
    return is_recording.load();
}

std::shared_ptr<c10::GatheredContext> allocator::getContextForPointer(const void *ptr)
{
    return context_of(library->stack_find(ptr)).frames;
}

/* ---- Annotations ---------------------------------------------------------------------------- */

time_t time_now_us()
{
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

void allocator::recordAnnotation(const string_pairs &pairs)
{
    if (!is_recording.load())
        return;
    annotation_entry entry(c10::cuda::current_device(), 0);
    entry.time_.t_ = time_now_us();
    for (const auto &[key, value] : pairs)
        entry.recordUserMetadata(key, value);
    std::lock_guard<std::mutex> guard(annotations_lock);
    if (annotations.size() >= annotations_most && !annotations.empty())
        annotations.pop_front();
    if (annotations_most > 0)
        annotations.push_back(std::move(entry));
}

void annotations_add(caching::SnapshotInfo *snapshot)
{
    std::lock_guard<std::mutex> guard(annotations_lock);
    snapshot->external_annotations.insert(snapshot->external_annotations.end(), annotations.begin(),
                                          annotations.end());
}

/* ---- Trace entries -------------------------------------------------------------------------- */

using action = caching::TraceEntry::Action;

static action action_of(int number)
{
    switch (number) {
#define ACTION_CASE(name, value, word)                                                             \
    case value:                                                                                    \
        return action::name;
        VMM_TORCH_ACTION_MAP(ACTION_CASE)
#undef ACTION_CASE
    }
    return action::SNAPSHOT;
}

static cudaStream_t stream_of(uint64_t stream)
{
    return reinterpret_cast<cudaStream_t>(static_cast<uintptr_t>(stream));
}

caching::TraceEntry trace_entry(const vmm_torch_event &event)
{
    context known = context_of(event.stack);
    caching::TraceEntry entry(action_of(event.action), static_cast<DeviceIndex>(event.device),
                              static_cast<size_t>(event.address), static_cast<size_t>(event.bytes),
                              stream_of(event.stream),
                              MempoolId_t{ event.pool.first, event.pool.second }, 0,
                              known.is_traced ? known.frames : nullptr);
    entry.time_.t_ = static_cast<time_t>(event.time_us);
    set_if_there(entry, [&](auto &in) -> decltype(void(in.compile_context_)) {
        in.compile_context_ = known.compile_context.empty() ? "N/A" : known.compile_context;
    }); /* viewers show N/A */
    set_if_there(entry, [&](auto &in) -> decltype(void(in.user_metadata_)) {
        in.user_metadata_ = known.user_metadata;
    });
    return entry;
}

/* ---- Running out of memory ------------------------------------------------------------------ */

static std::mutex observers_lock;
static auto &observers = *new std::vector<caching::OutOfMemoryObserver>;

static void oom_trace(int device, uint64_t bytes, uint64_t free_bytes)
{
    vmm_torch_event event = {};
    event.action = VMM_TORCH_OOM;
    event.address = free_bytes;
    event.bytes = bytes;
    event.device = device;
    event_trace(event);
}

/* The library calls it without locks. An observer's exception must not cross C, nor keep others from hearing: the
 * request fails anyway. */
static void oom_tell(int device, uint64_t bytes, uint64_t most_bytes, uint64_t free_bytes)
{
    oom_trace(device, bytes, free_bytes);
    for (size_t i = 0;; i++) {
        try {
            caching::OutOfMemoryObserver observer;
            {
                std::lock_guard<std::mutex> guard(observers_lock);
                if (i >= observers.size())
                    return;
                observer = observers[i];
            }
            observer(device, bytes, most_bytes, free_bytes);
        } catch (...) {
            library->log_failure("out-of-memory observer", VMM_ERR_DEVICE_OOM);
        }
    }
}

void allocator::attachOutOfMemoryObserver(caching::OutOfMemoryObserver observer)
{
    std::lock_guard<std::mutex> guard(observers_lock);
    observers.push_back(std::move(observer));
}

/* The library rejects no request before it has tried everything, so there is nothing to observe. */
void allocator::attachOomRejectionObserver(caching::vmm_lookup::oom_rejection_observer)
{
}

void history_install()
{
    library->oom_watch(oom_tell);
}

} // namespace vmm_shim
