/*
 * The public entry points with which a cache begins and ends. See include/vmmcache/vmmcache.h for what each
 * promises.
 */
#include "base/callback.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "cache_on.h"
#include "config.h"
#include "guard/guard.h"
#include "marks.h"
#include "policy/roll.h"
#include "policy/trim.h"
#include "vmmcache/vmmcache.h"

#include <stddef.h>

#define DEFAULT_ARENA_BYTES (UINT64_C(1) << 44)

/*
 * Reserved memory may exceed the peak of active memory by 1 % before idle chunks are stolen; chunks
 * have at most 16 granules. docs/design.md has the figures behind both.
 */
enum { FOOTPRINT_PERMILLE = 10, LARGEST_CHUNK_GRANULES = 16 };

/* How often the library's thread looks in a period of decay. */
enum { TICKS_A_PERIOD = 4 };

/* From now on every request has a detour, at the beginning of which it fails. */
static void device_lost(struct lost_watch *watch)
{
    vmm_cache *cache = (vmm_cache *)((char *)watch - offsetof(vmm_cache, lost_watch));
    atomic_store_explicit(&cache->has_detour, true, memory_order_seq_cst);
}

/* Where addresses are memory, no more than there have to be. */
static uint64_t arena_wanted(const vmm_config *config, const struct driver *driver)
{
    if (driver->is_plain)
        return driver->granule_bytes;
    return config->arena_bytes != 0 ? config->arena_bytes : DEFAULT_ARENA_BYTES;
}

static vmm_status cache_open(const vmm_config *config, struct driver *driver, vmm_cache **out)
{
    vmm_status status = vmm__fork_watch(NULL);
    if (status != VMM_OK)
        return status;
    vmm_cache *cache = vmm__host_alloc(1, sizeof *cache);
    if (cache == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "create: no host memory for the cache");
    cache->driver = driver;
    cache->generation = vmm__fork_generation();
    cache->no_caching = config->no_caching != 0;
    atomic_init(&cache->has_detour, cache->no_caching);
    cache->largest_chunk_granules = LARGEST_CHUNK_GRANULES;
    cache->footprint_permille =
        config->footprint_permille != 0 ? config->footprint_permille : FOOTPRINT_PERMILLE;
    cache->sharing = config->sharing;
    cache->compaction = config->compaction;
    vmm__decay_init(&cache->decay, config, cache);
    cache->log = config->log;
    cache->log_context = config->log_context;
    cache->pressure = config->pressure;
    cache->pressure_context = config->pressure_context;
    vmm__fair_init(&cache->grow_lock);
    vmm__privates_init(&cache->privates);
    vmm__timeline_init(&cache->copies, driver, NULL);
    status =
        vmm__memory_init(&cache->memory, driver, arena_wanted(config, driver), config->limit_bytes);
    if (status != VMM_OK)
        goto fail_memory;
    status = vmm__directory_init(&cache->directory, &cache->memory.arena);
    if (status != VMM_OK)
        goto fail_directory;
    if (config->marks != 0)
        status = vmm__marks_open(cache);
    if (status != VMM_OK)
        goto fail_marks;
    status = vmm__guard_open(cache, config);
    if (status != VMM_OK)
        goto fail_guard;
    cache->lost_watch.tell = device_lost;
    vmm__lost_watch(&driver->lost, &cache->lost_watch);
    vmm__roll_enter(cache);
    *out = cache;
    return VMM_OK;

fail_guard:
    vmm__marks_close(cache);
fail_marks:
    vmm__directory_fini(&cache->directory);
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

/* With marks the device is as large as the limit, unless it is to be something else: all of it is taken at once. */
static uint64_t device_wanted(const vmm_config *config)
{
    bool is_limited = config->marks != 0 && config->device_bytes == 0;
    return is_limited ? config->limit_bytes : config->device_bytes;
}

vmm_status vmm_create(const vmm_config *config, vmm_cache **out)
{
    if (out == NULL)
        return vmm__cache_missing("vmm_create", "out");
    vmm_config settings;
    vmm_status status = vmm__config_read(config, &settings);
    if (status == VMM_OK)
        status = vmm__config_environment(&settings);
    if (status == VMM_OK)
        status = vmm__config_settle(&settings);
    if (status != VMM_OK)
        return status;
    struct driver_options options = { .device = settings.device,
                                      .device_bytes = device_wanted(&settings),
                                      .peer_devices = settings.peer_devices,
                                      .is_plain = settings.marks != 0 };
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

/* What this thread is in would go on with a cache that is gone. Of threads that end the same cache, one does. */
static vmm_status destroy_begin(const vmm_cache *cache)
{
    if (vmm__callback_is_in(cache, false))
        return vmm__error(
            VMM_ERR_INVALID_ARGUMENT,
            "vmm_destroy: called by a function that the cache calls, which goes on with it");
    vmm_status status = vmm__cache_admit(cache, "vmm_destroy");
    if (status == VMM_OK && !vmm__roll_strike(cache))
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "vmm_destroy: %p is none any more",
                          (const void *)cache);
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
    vmm_status status = destroy_begin(cache);
    if (status != VMM_OK)
        return status;
    vmm__ticker_stop(&cache->ticker);
    struct error_line line;
    vmm__error_save(&line);
    status = vmm__privates_work_wait(cache);
    if (status != VMM_OK)
        status = vmm__privates_work_wait(cache); /* as all that the driver refuses here */
    status = first_of(status, vmm__guard_close(cache, status == VMM_OK));
    vmm__marks_close(cache);
    vmm__directory_fini(&cache->directory);
    status = first_of(status, vmm__pools_fini(&cache->pools));
    status = first_of(status, vmm__timeline_fini(&cache->copies));
    status = first_of(status, vmm__memory_fini(&cache->memory));
    vmm__lost_unwatch(&cache->driver->lost, &cache->lost_watch);
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
