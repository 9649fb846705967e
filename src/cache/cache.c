/* What all of src/cache shares: see cache.h. */
#define _GNU_SOURCE
#include "cache/cache.h"
#include "base/callback.h"
#include "base/error.h"
#include "cache/registry.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

enum { LOG_LINE_BYTES = ERROR_LINE_BYTES + 32 }; /* the line of an error, and its call */

vmm_status vmm__cache_missing(const char *function, const char *argument)
{
    return vmm__error(VMM_ERR_INVALID_ARGUMENT, "%s: %s is NULL", function, argument);
}

vmm_status vmm__cache_admit(const struct vmm_cache *cache, const char *function)
{
    if (cache == NULL)
        return vmm__cache_missing(function, "cache");
    if (!vmm__registry_has(cache))
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "%s: %p is not a cache, or was destroyed",
                          function, (const void *)cache);
    if (cache->generation != vmm__fork_generation())
        return vmm__fork_refuse(function);
    if (vmm__callback_is_in(cache, true))
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "%s: called from a callback that the cache runs with its locks held",
                          function);
    return VMM_OK;
}

vmm_status vmm__cache_admit_work(const struct vmm_cache *cache, const char *function)
{
    vmm_status status = vmm__cache_admit(cache, function);
    if (status == VMM_OK && vmm__driver_is_lost(cache->driver))
        return vmm__lost_refuse(&cache->driver->lost);
    return status;
}

/* If the program's function fails in a call, the line of the call that logs stays. */
static void log_call(const struct vmm_cache *cache, const char *line)
{
    struct callback callback;
    VMM_QUIET();
    vmm__callback_begin(&callback, cache, true);
    cache->log(cache->log_context, line);
    vmm__callback_end(&callback);
}

/* Threads and processes may write to one file, so it can reach the limit of file sizes between a look and the write.
 * The signal that would end the process goes to the thread, which holds it off and takes it back. Keeps errno. */
static void log_write(FILE *file, const char *line)
{
    const struct timespec at_once = { 0 };
    sigset_t limit;
    sigset_t before;
    sigset_t pending;
    int error = errno;
    (void)sigemptyset(&limit);
    (void)sigaddset(&limit, SIGXFSZ);
    (void)sigpending(&pending);
    (void)pthread_sigmask(SIG_BLOCK, &limit, &before);
    (void)fprintf(file, "vmmcache: %s\n", line);
    if (!sigismember(&pending, SIGXFSZ))
        (void)sigtimedwait(&limit, NULL, &at_once);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
}

void vmm__cache_log(struct vmm_cache *cache, const char *format, ...)
{
    if (cache->log == NULL && cache->log_file == NULL)
        return;
    char line[LOG_LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    vmm__line_make(line);
    if (cache->log != NULL)
        log_call(cache, line);
    if (cache->log_file != NULL)
        log_write(cache->log_file, line);
}

static void unlocked_counters_flush(struct lane *lane)
{
    if (!vmm__biased_lock_fast(&lane->lock))
        vmm__biased_lock_slow(&lane->lock);
    vmm__lane_counters_flush(lane);
    vmm__biased_unlock(&lane->lock);
}

/* Opens the fast path of a lane, unless its clock is due: then the next allocation opens it, after a tick. */
static void lane_open(struct lane *lane)
{
    bool is_open = !vmm__clock_is_due(lane->clock);
    atomic_store_explicit(&lane->is_fast, is_open, memory_order_relaxed);
}

/* From now on the lane's counters are flushed only after a large change. */
static void lane_share(struct lane *lane)
{
    if (atomic_load_explicit(&lane->is_fast, memory_order_relaxed))
        return;
    lane_open(lane);
    unlocked_counters_flush(lane);
}

/* Shares the totals: no lane is active any longer, and each lane flushes its own counters after a large change. */
static void cache_share(struct vmm_cache *cache, struct lane *lane)
{
    atomic_store_explicit(&cache->totals.is_shared, true, memory_order_relaxed);
    struct lane *before = atomic_exchange_explicit(&cache->active_lane, NULL, memory_order_acq_rel);
    if (before != NULL) {
        lane_open(before);
        unlocked_counters_flush(before);
    }
    lane_share(lane);
}

/* Two threads may do this at once: is_multithreaded is read again, so that the one that sets active_lane last sees the
 * other and shares the totals. */
static void lane_activate(struct vmm_cache *cache, struct lane *lane)
{
    vmm__cache_thread_note(cache);
    if (atomic_load_explicit(&cache->is_multithreaded, memory_order_relaxed)) {
        cache_share(cache, lane);
        return;
    }
    struct lane *before = atomic_exchange_explicit(&cache->active_lane, lane, memory_order_acq_rel);
    if (before != NULL && before != lane) {
        atomic_store_explicit(&before->is_fast, false, memory_order_relaxed);
        unlocked_counters_flush(before);
    }
    lane_open(lane);
    if (atomic_load_explicit(&cache->is_multithreaded, memory_order_relaxed))
        cache_share(cache, lane);
}

void vmm__cache_lane_activate(struct vmm_cache *cache, struct lane *lane)
{
    if (!atomic_load_explicit(&lane->is_fast, memory_order_relaxed))
        lane_activate(cache, lane);
}

/* A lane is contended, and gets magazines, once threads have waited for its lock this often. */
enum { CONTENDED_WAITS = 32 };

static void contention_note_locked(const struct vmm_cache *cache, struct lane *lane)
{
    VMM_ASSERT_HELD(&lane->lock);
    bool is_contended =
        lane->lock.waits >= CONTENDED_WAITS && lane->lock.may_bias && !cache->no_caching;
    if (is_contended && atomic_load_explicit(&lane->magazines, memory_order_relaxed) == NULL)
        vmm__magazines_make_locked(lane);
}

void vmm__cache_lane_lock_slow(struct vmm_cache *cache, struct lane *lane)
{
    vmm__cache_lane_activate(cache, lane);
    if (vmm__biased_lock_fast(&lane->lock))
        return;
    vmm__biased_lock_slow(&lane->lock);
    vmm__cache_thread_note(cache);
    contention_note_locked(cache, lane);
}

void vmm__cache_locks_drop(struct vmm_cache *cache, struct lane *held)
{
    vmm__lane_unlock(held);
    vmm__fair_unlock(&cache->grow_lock);
}

void vmm__cache_locks_take(struct vmm_cache *cache, struct lane *held)
{
    vmm__cache_lane_activate(cache, held); /* the function may have made another lane active */
    vmm__fair_lock(&cache->grow_lock);
    vmm__lane_lock(held);
}

uint64_t vmm__cache_device_bytes(const struct vmm_cache *cache)
{
    uint64_t free_bytes;
    uint64_t total_bytes;
    vmm_status status = vmm__driver_memory_info(cache->driver, &free_bytes, &total_bytes);
    return status == VMM_OK ? free_bytes : UINT64_MAX;
}

void vmm__cache_lanes_rotate(struct vmm_cache *cache)
{
    struct lane_list *stocked = &cache->lanes.stocked;
    for (uint64_t i = 0; i < LANES_USUAL && stocked->count > LANES_USUAL; i++)
        (void)vmm__lane_list_rotate(stocked);
}

void vmm__cache_lanes_vacate(struct vmm_cache *cache)
{
    struct heap *heap = vmm__heap_drained(&cache->directory);
    for (; heap != NULL; heap = vmm__heap_drained(&cache->directory)) {
        struct lane *lane = heap->lane;
        if (vmm__lane_has_memory(lane) || lane->list != &cache->lanes.stocked)
            continue;
        vmm__lane_lock(lane);
        vmm__lane_vacate_locked(lane);
        vmm__lane_unlock(lane);
        vmm__lanes_vacate(&cache->lanes, lane);
    }
}

void vmm__cache_lanes_lock(struct vmm_cache *cache, const struct lane *held)
{
    for (struct lane *lane = cache->lanes.stocked.first; lane != NULL; lane = lane->list_next) {
        if (lane == held)
            continue;
        vmm__lane_lock_second(lane);
        vmm__lane_keep(lane);
    }
}

void vmm__cache_lanes_unlock(struct vmm_cache *cache, const struct lane *held)
{
    for (struct lane *lane = cache->lanes.stocked.first; lane != NULL; lane = lane->list_next) {
        if (lane != held)
            vmm__lane_unlock_kept(lane);
    }
}

vmm_status vmm__cache_copies_wait(struct vmm_cache *cache)
{
    vmm_status status = vmm__clock_stream_wait(&cache->clock, NULL);
    if (status == VMM_OK)
        return VMM_OK;
    VMM_QUIET();
    (void)vmm__clock_wait_all(&cache->clock);
    return status;
}

/* Lanes are never freed, so the caller may use one without the lock. */
static struct lane *lane_after(struct vmm_cache *cache, struct lane *lane)
{
    VMM_HOLD_FAIR(&cache->grow_lock);
    return lane == NULL ? cache->lanes.first : lane->next;
}

/* Passes over streams that are being captured, and those that the driver does not know. */
static vmm_status streams_wait(struct vmm_cache *cache)
{
    vmm_status first = VMM_OK;
    struct error_line line;
    vmm__error_save(&line);
    for (struct lane *lane = lane_after(cache, NULL); lane != NULL;
         lane = lane_after(cache, lane)) {
        if (vmm__lane_has_ended(lane))
            continue;
        vmm_status status = vmm__clock_stream_wait(&cache->clock, lane->owner.stream);
        bool is_passed_over = status == VMM__PENDING || status == VMM_ERR_INVALID_ARGUMENT;
        if (is_passed_over || first != VMM_OK) {
            vmm__error_restore(&line); /* what it was, or that of the first */
        } else if (status != VMM_OK) {
            first = status;
            vmm__error_save(&line);
        }
    }
    return first;
}

vmm_status vmm__cache_wait(struct vmm_cache *cache)
{
    vmm_status status = vmm__clock_wait(&cache->clock, vmm__clock_now(&cache->clock));
    if (status != VMM__PENDING)
        return status;
    /* a stream whose capture is announced takes no event, and may have work from before */
    status = vmm__clock_wait_recorded(&cache->clock);
    return status == VMM_OK ? streams_wait(cache) : status;
}

vmm_status vmm__cache_wait_all(struct vmm_cache *cache)
{
    vmm_status status = vmm__clock_wait_all(&cache->clock);
    return status == VMM__PENDING ? vmm__cache_wait(cache) : status;
}
