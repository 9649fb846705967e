/* Negative controls: see control.h. */
#include "control.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OVERLAP_EVERY = 4, FORGET_EVERY = 3, LIVE_MANY = 3 };
#define OVERLAP_LEAST ((size_t)1 << 20)

/* ---- A driver that is wrong ------------------------------------------------------------------ */

static const struct driver_ops *true_ops;
static struct driver_ops wrong_ops;
static unsigned depth;
static uint64_t records;

void control_begin(struct control *control)
{
    *control = (struct control){ .kind = control->kind };
    records = 0;
}

static vmm_status query_wrong(struct driver *driver, void *event)
{
    (void)driver;
    (void)event;
    return VMM_OK;
}

static vmm_status follow_wrong(struct driver *driver, vmm_stream stream, void *event)
{
    (void)driver;
    (void)stream;
    (void)event;
    return VMM_OK;
}

static vmm_status device_wrong(struct driver *driver)
{
    (void)driver;
    return VMM_OK;
}

/* Every other event is an older one, or none. */
static vmm_status record_wrong(struct driver *driver, void *event, vmm_stream stream)
{
    return ++records % 2 == 0 ? VMM_OK : true_ops->event_record(driver, event, stream);
}

static vmm_status clock_record_wrong(struct driver *driver, void *event)
{
    return ++records % 2 == 0 ? VMM_OK : true_ops->clock_record(driver, event);
}

static vmm_status clock_record_partial(struct driver *driver, void *event)
{
    return true_ops->event_record(driver, event, NULL);
}

/* ---- A cache that is wrong ------------------------------------------------------------------- */

/* What is in limbo waits for nothing. */
static void limbo_hurry(vmm_cache *cache)
{
    vmm__fair_lock(&cache->grow_lock);
    for (uint32_t id = cache->vm.limbo_head; id != 0; id = cache->vm.records[id].next)
        cache->vm.records[id].clock = NULL;
    vmm__fair_unlock(&cache->grow_lock);
}

/* The oldest event is not waited for. */
static void epoch_hurry(struct clock *clock)
{
    vmm__mutex_lock(&clock->lock);
    uint64_t epoch = clock->count == 0 ? 0 : clock->ring[clock->oldest].epoch;
    vmm__mutex_unlock(&clock->lock);
    vmm__clock_pass(clock, epoch);
}

static void cache_spoil(const struct control *control, vmm_cache *cache)
{
    if (control->kind == CONTROL_limbo)
        limbo_hurry(cache);
    if (control->kind == CONTROL_epoch)
        epoch_hurry(&cache->clock);
}

void control_enter(const struct control *control, struct driver *driver, vmm_cache *cache)
{
    if (cache != NULL)
        cache_spoil(control, cache);
    if (control->kind < CONTROL_query || driver == NULL || depth++ > 0)
        return;
    true_ops = driver->ops;
    wrong_ops = *true_ops;
    if (control->kind == CONTROL_query)
        wrong_ops.event_query = query_wrong;
    if (control->kind == CONTROL_follow)
        wrong_ops.stream_wait = follow_wrong;
    if (control->kind == CONTROL_device)
        wrong_ops.device_wait = device_wrong;
    if (control->kind == CONTROL_record)
        wrong_ops.event_record = record_wrong;
    if (control->kind == CONTROL_clock)
        wrong_ops.clock_record = clock_record_wrong;
    if (control->kind == CONTROL_partial)
        wrong_ops.clock_record = clock_record_partial;
    driver->ops = &wrong_ops;
}

void control_leave(const struct control *control, struct driver *driver)
{
    if (control->kind >= CONTROL_query && driver != NULL && --depth == 0)
        driver->ops = true_ops;
}

/* ---- Calls ----------------------------------------------------------------------------------- */

vmm_status control_alloc(struct control *control, vmm_cache *cache, vmm_pool *pool, size_t bytes,
                         vmm_stream stream, void **out)
{
    if (control->kind == CONTROL_pool && pool != NULL)
        pool = vmm_cache_pool(cache);
    vmm_status status = pool == NULL ? vmm_alloc(cache, bytes, stream, out)
                                     : vmm_alloc_from(pool, bytes, stream, out);
    if (control->kind == CONTROL_none)
        return status;
    if (status != VMM_OK && control->kind == CONTROL_status)
        *out = NULL;
    if (status != VMM_OK)
        return status;
    control->live++;
    if (bytes < OVERLAP_LEAST)
        return VMM_OK;
    bool overlaps = control->kind == CONTROL_overlap && ++control->allocations % OVERLAP_EVERY == 0;
    if (overlaps)
        *out = control->last + OVERLAP_LEAST / 2;
    control->last = *out;
    return VMM_OK;
}

/* A free whose thread read the clock before the last tick, and goes on after it. */
static vmm_status free_early(vmm_cache *cache, void *ptr)
{
    bool is_first = vmm__clock_now(&cache->clock) == 1;
    atomic_fetch_sub_explicit(&cache->clock.now, is_first ? 0 : 1, memory_order_relaxed);
    vmm_status status = vmm_free(cache, ptr);
    atomic_fetch_add_explicit(&cache->clock.now, is_first ? 0 : 1, memory_order_relaxed);
    return status;
}

vmm_status control_free(struct control *control, vmm_cache *cache, void *ptr)
{
    bool is_contended = control->live >= LIVE_MANY;
    if (control->kind == CONTROL_forget && ++control->frees % FORGET_EVERY == 0)
        return VMM_OK;
    if (control->kind == CONTROL_crash && is_contended)
        abort();
    while (control->kind == CONTROL_hang && is_contended)
        (void)pause();
    vmm_status status =
        control->kind == CONTROL_stamp ? free_early(cache, ptr) : vmm_free(cache, ptr);
    if (status == VMM_OK && ptr != NULL && control->live > 0)
        control->live--;
    return status;
}

vmm_status control_alloc_aligned(const struct control *control, vmm_pool *pool, size_t bytes,
                                 size_t alignment, vmm_stream stream, void **out)
{
    return control->kind == CONTROL_align ? vmm_alloc_from(pool, bytes, stream, out)
                                          : vmm_alloc_aligned(pool, bytes, alignment, stream, out);
}

vmm_status control_commit(struct control *control, vmm_cache *cache, void *ptr, size_t offset,
                          size_t bytes)
{
    bool is_left_out = control->kind == CONTROL_commit && ++control->commits % FORGET_EVERY == 0;
    return is_left_out ? VMM_OK : vmm_commit(cache, ptr, offset, bytes);
}

vmm_status control_decommit(struct control *control, vmm_cache *cache, void *ptr, size_t offset,
                            size_t bytes)
{
    bool is_left_out = control->kind == CONTROL_decommit && ++control->commits % FORGET_EVERY == 0;
    return is_left_out ? VMM_OK : vmm_decommit(cache, ptr, offset, bytes);
}

vmm_status control_resize(const struct control *control, vmm_cache *cache, void *ptr, size_t bytes,
                          vmm_stream stream, void **out)
{
    if (control->kind != CONTROL_resize)
        return vmm_resize(cache, ptr, bytes, out);
    vmm_status status = vmm_alloc(cache, bytes, stream, out);
    return status == VMM_OK ? vmm_free(cache, ptr) : status;
}

vmm_status control_import(const struct control *control, vmm_cache *cache, vmm_share *share,
                          size_t bytes, vmm_stream stream, void **out)
{
    return control->kind == CONTROL_import ? vmm_alloc(cache, bytes, stream, out)
                                           : vmm_share_import(cache, share, stream, out);
}

vmm_status control_use(const struct control *control, vmm_cache *cache, void *ptr,
                       vmm_stream stream)
{
    return control->kind == CONTROL_use ? VMM_OK : vmm_record_stream(cache, ptr, stream);
}

vmm_status control_announce(const struct control *control, vmm_cache *cache, vmm_stream stream)
{
    return control->kind == CONTROL_announce ? VMM_OK : vmm_capture_announce(cache, stream);
}

vmm_status control_stream_end(const struct control *control, vmm_cache *cache, vmm_stream stream)
{
    return control->kind == CONTROL_end ? VMM_OK : vmm_stream_end(cache, stream);
}

bool control_read(const char *name, enum control_kind *kind)
{
    static const char *const names[] = {
#define CONTROL_NAME(name, text) #name,
        CONTROL_MAP(CONTROL_NAME)
#undef CONTROL_NAME
    };
    for (unsigned i = 0; i < CONTROL_KINDS; i++) {
        if (strcmp(names[i], name) != 0)
            continue;
        *kind = (enum control_kind)i;
        return true;
    }
    return false;
}
