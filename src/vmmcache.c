/*
 * The public entry points: check arguments, take from the stream's pool, else ask policy.
 * No logic of their own. See include/vmmcache/vmmcache.h for what each promises.
 */
#include "vmmcache/vmmcache.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "cache_on.h"
#include "config.h"
#include "policy/handout.h"
#include "policy/supply.h"
#include "policy/trim.h"

#define DEFAULT_ARENA_BYTES (UINT64_C(1) << 44)

/*
 * Reserved memory may exceed the peak of active memory by 1 % before idle chunks are stolen; chunks
 * have at most 16 granules. docs/design.md has the figures behind both.
 */
enum { FOOTPRINT_PERMILLE = 10, LARGEST_CHUNK_GRANULES = 16 };

/* How often the library's thread looks in a period of decay. */
enum { TICKS_A_PERIOD = 4 };

static vmm_status missing_argument(const char *function, const char *argument)
{
    return vmm__error(VMM_ERR_INVALID_ARGUMENT, "%s: %s is NULL", function, argument);
}

/* ---- Life --------------------------------------------------------------------------------- */

static vmm_status cache_open(const vmm_config *config, struct driver *driver, vmm_cache **out)
{
    vmm_cache *cache = vmm__host_alloc(1, sizeof *cache);
    if (cache == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "create: no host memory for the cache");
    cache->driver = driver;
    cache->no_caching = config->no_caching != 0;
    atomic_init(&cache->has_detour, cache->no_caching);
    cache->largest_chunk_granules = LARGEST_CHUNK_GRANULES;
    cache->footprint_permille =
        config->footprint_permille != 0 ? config->footprint_permille : FOOTPRINT_PERMILLE;
    cache->sharing = config->sharing;
    cache->compaction = config->compaction;
    vmm__decay_init(&cache->decay, config);
    cache->log = config->log;
    cache->log_context = config->log_context;
    cache->pressure = config->pressure;
    cache->pressure_context = config->pressure_context;
    vmm__fair_init(&cache->grow_lock);
    vmm__privates_init(&cache->privates);
    vmm__timeline_init(&cache->copies, driver, NULL);
    uint64_t arena_bytes = config->arena_bytes != 0 ? config->arena_bytes : DEFAULT_ARENA_BYTES;
    vmm_status status = vmm__memory_init(&cache->memory, driver, arena_bytes, config->limit_bytes);
    if (status != VMM_OK)
        goto fail_memory;
    status = vmm__directory_init(&cache->directory, &cache->memory.arena);
    if (status != VMM_OK)
        goto fail_directory;
    *out = cache;
    return VMM_OK;

fail_directory:
    (void)vmm__memory_fini(&cache->memory);
fail_memory:
    (void)vmm__timeline_fini(&cache->copies);
    vmm__privates_fini(&cache->privates);
    vmm__fair_fini(&cache->grow_lock);
    vmm__host_free(cache, sizeof *cache);
    return status;
}

static void cache_tick(void *cache)
{
    (void)vmm__tick(cache);
}

/* The last step of creating: from here on the cache may be used by the thread, if there is to be one. */
static vmm_status thread_start(const vmm_config *config, vmm_cache *cache)
{
    if (config->decay_thread == 0)
        return VMM_OK;
    return vmm__ticker_start(&cache->ticker, config->decay_ms / TICKS_A_PERIOD, cache_tick, cache);
}

vmm_status vmm__cache_create_on(const vmm_config *config, struct driver *driver, vmm_cache **out)
{
    vmm_config settings;
    vmm_cache *cache = NULL;
    struct error_line line;
    vmm__error_save(&line);
    vmm_status status = vmm__config_read(config, &settings);
    if (status == VMM_OK)
        status = vmm__config_settle(&settings);
    if (status == VMM_OK)
        status = cache_open(&settings, driver, &cache);
    if (status != VMM_OK)
        return status;
    status = thread_start(&settings, cache);
    if (status != VMM_OK) {
        (void)vmm_destroy(cache);
        return status;
    }
    vmm__error_restore(&line);
    *out = cache;
    return VMM_OK;
}

vmm_status vmm_create(const vmm_config *config, vmm_cache **out)
{
    if (out == NULL)
        return missing_argument("vmm_create", "out");
    vmm_config settings;
    vmm_status status = vmm__config_read(config, &settings);
    if (status == VMM_OK)
        status = vmm__config_environment(&settings);
    if (status == VMM_OK)
        status = vmm__config_settle(&settings);
    if (status != VMM_OK)
        return status;
    struct driver_options options = { .device = settings.device,
                                      .device_bytes = settings.device_bytes,
                                      .peer_devices = settings.peer_devices };
    struct error_line line;
    vmm__error_save(&line);
    struct driver *driver;
    status = vmm__driver_open(settings.driver, &options, &driver);
    if (status != VMM_OK)
        return status;
    vmm_cache *cache;
    status = vmm__config_limit(driver->total_bytes, &settings);
    if (status == VMM_OK)
        status = cache_open(&settings, driver, &cache);
    if (status != VMM_OK)
        goto fail_cache;
    cache->owns_driver = true;
    status = vmm__config_log(cache);
    if (status == VMM_OK)
        status = thread_start(&settings, cache);
    if (status != VMM_OK) {
        (void)vmm_destroy(cache);
        return status;
    }
    vmm__error_restore(&line);
    *out = cache;
    return VMM_OK;

fail_cache:
    vmm__driver_close(driver);
    return status;
}

static vmm_status first_of(vmm_status first, vmm_status status)
{
    return first != VMM_OK ? first : status;
}

vmm_status vmm_destroy(vmm_cache *cache)
{
    if (cache == NULL)
        return VMM_OK;
    vmm__ticker_stop(&cache->ticker);
    struct error_line line;
    vmm__error_save(&line);
    vmm_status status = vmm__privates_work_wait(cache);
    if (status != VMM_OK)
        status = vmm__privates_work_wait(cache); /* as all that the driver refuses here */
    vmm__directory_fini(&cache->directory);
    status = first_of(status, vmm__pools_fini(&cache->pools));
    status = first_of(status, vmm__timeline_fini(&cache->copies));
    status = first_of(status, vmm__memory_fini(&cache->memory));
    if (cache->owns_driver)
        vmm__driver_close(cache->driver);
    if (cache->log_file != NULL && cache->log_file != stderr)
        (void)fclose(cache->log_file);
    vmm__privates_fini(&cache->privates);
    vmm__fair_fini(&cache->grow_lock);
    vmm__host_free(cache, sizeof *cache);
    if (status == VMM_OK)
        vmm__error_restore(&line);
    return status;
}

/* ---- Memory ------------------------------------------------------------------------------- */

vmm_status vmm_alloc(vmm_cache *cache, size_t bytes, vmm_stream stream, void **out)
{
    if (cache == NULL || out == NULL)
        return missing_argument("vmm_alloc", cache == NULL ? "cache" : "out");
    struct pool *pool = vmm__handout_enter(cache, stream);
    if (pool == NULL)
        return vmm__handout_visit(cache, bytes, stream, out);
    vmm_status status = vmm__pool_take_locked(pool, bytes, out);
    vmm__biased_drop(&pool->lock);
    return status == VMM_NOT_READY ? vmm__supply(cache, pool, bytes, out) : status;
}

static vmm_status unknown_pointer(const char *function, const void *ptr)
{
    return vmm__error(VMM_ERR_UNKNOWN_POINTER, "%s: %p is not an address of this cache's blocks",
                      function, ptr);
}

/* What may be due after a block was taken back. The free does not fail if this does: what cannot go back now
 * is tried again later. */
static __attribute__((noinline)) void after_free(vmm_cache *cache)
{
    struct error_line line;
    if (!cache->no_caching && !vmm__decay_is_due(&cache->decay))
        return;
    vmm__error_save(&line);
    (void)(cache->no_caching ? vmm__trim(cache, 0, NULL) : vmm__tick(cache));
    vmm__error_restore(&line);
}

vmm_status vmm_free(vmm_cache *cache, void *ptr)
{
    if (cache == NULL)
        return missing_argument("vmm_free", "cache");
    if (ptr == NULL)
        return VMM_OK;
    uint64_t address = (uint64_t)(uintptr_t)ptr;
    bool looks = false;
    struct heap *heap = vmm__handout_owner_enter(cache, address);
    vmm_status status;
    if (heap == NULL) {
        status = vmm__handout_return(cache, address, &looks);
    } else {
        struct pool *pool = heap->pool;
        status = vmm__pool_give_locked(pool, heap, address);
        looks = vmm__decay_looks(&cache->decay, &pool->frees) || cache->no_caching;
        vmm__biased_drop(&pool->lock);
    }
    if (status == VMM_NOT_READY)
        return unknown_pointer("vmm_free", ptr);
    if (looks && status == VMM_OK)
        after_free(cache);
    return status;
}

/* Notes that `user` uses a live block; user NULL: only looks whether the block is live. */
static vmm_status block_use(vmm_cache *cache, const void *ptr, struct pool *user)
{
    uint64_t address = (uint64_t)(uintptr_t)ptr;
    struct heap *heap = vmm__handout_owner(cache, address);
    if (heap == NULL)
        return unknown_pointer("vmm_use", ptr);
    struct pool *pool = heap->pool;
    struct timeline *timeline = user == NULL ? &pool->timeline : &user->timeline;
    vmm_status status = vmm__pool_use_locked(pool, heap, address, timeline);
    vmm__biased_drop(&pool->lock);
    return status;
}

vmm_status vmm_use(vmm_cache *cache, void *ptr, vmm_stream other)
{
    if (cache == NULL)
        return missing_argument("vmm_use", "cache");
    struct pool *user = vmm__pools_find(&cache->pools, other);
    vmm_status status = VMM_OK;
    if (user == NULL) { /* a stream gets a pool only for a block that is live */
        status = block_use(cache, ptr, NULL);
        if (status == VMM_OK)
            status = vmm__cache_pool(cache, other, &user);
    }
    return status == VMM_OK ? block_use(cache, ptr, user) : status;
}

static vmm_status block_pin(vmm_cache *cache, const char *function, const void *ptr, bool pinned)
{
    if (cache == NULL)
        return missing_argument(function, "cache");
    uint64_t address = (uint64_t)(uintptr_t)ptr;
    struct heap *heap = vmm__handout_owner(cache, address);
    if (heap == NULL)
        return unknown_pointer(function, ptr);
    struct pool *pool = heap->pool;
    vmm_status status = vmm__pool_pin_locked(heap, address, pinned);
    if (!pinned)
        atomic_fetch_add_explicit(&cache->unpins, 1, memory_order_relaxed);
    vmm__biased_drop(&pool->lock);
    return status;
}

vmm_status vmm_pin(vmm_cache *cache, void *ptr)
{
    return block_pin(cache, "vmm_pin", ptr, true);
}

vmm_status vmm_unpin(vmm_cache *cache, void *ptr)
{
    return block_pin(cache, "vmm_unpin", ptr, false);
}

vmm_status vmm_trim(vmm_cache *cache, size_t keep_bytes, size_t *released)
{
    if (cache == NULL)
        return missing_argument("vmm_trim", "cache");
    vmm__cache_called(cache);
    uint64_t released_bytes;
    vmm_status status = vmm__trim(cache, keep_bytes, &released_bytes);
    if (status == VMM_OK && released != NULL)
        *released = released_bytes;
    return status;
}

vmm_status vmm_wait(vmm_cache *cache)
{
    return cache == NULL ? missing_argument("vmm_wait", "cache") : vmm__cache_wait(cache);
}

vmm_status vmm_tick(vmm_cache *cache)
{
    return cache == NULL ? missing_argument("vmm_tick", "cache") : vmm__tick(cache);
}

vmm_status vmm_limit_set(vmm_cache *cache, uint64_t limit_bytes)
{
    if (cache == NULL)
        return missing_argument("vmm_limit_set", "cache");
    vmm__fair_take(&cache->grow_lock);
    cache->memory.limit_bytes = limit_bytes;
    vmm__fair_drop(&cache->grow_lock);
    return VMM_OK;
}

vmm_status vmm_watch(vmm_cache *cache, vmm_watch_fn watch, void *context)
{
    if (cache == NULL)
        return missing_argument("vmm_watch", "cache");
    vmm__fair_take(&cache->grow_lock);
    vmm__cache_pools_lock(cache, NULL);
    cache->directory.watch = (struct watch){ .tell = watch, .context = context };
    vmm__cache_pools_unlock(cache, NULL);
    vmm__fair_drop(&cache->grow_lock);
    return VMM_OK;
}

vmm_status vmm_log_write(vmm_cache *cache, const char *line)
{
    if (cache == NULL || line == NULL)
        return missing_argument("vmm_log_write", cache == NULL ? "cache" : "line");
    vmm__cache_log(cache, "%s", line);
    return VMM_OK;
}

vmm_status vmm__cache_check(vmm_cache *cache)
{
    vmm__fair_take(&cache->grow_lock);
    vmm_status status = vmm__cache_check_locked(cache);
    vmm__fair_drop(&cache->grow_lock);
    return status;
}
