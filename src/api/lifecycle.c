/* vmm_create() and vmm_destroy(): see "Life" in include/vmmcache/vmmcache.h. */
#include "api/config.h"
#include "api/create_on.h"
#include "api/create_trial.h"
#include "api/internal.h"
#include "api/monitor.h"
#include "base/callback.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "base/variable.h"
#include "cache/grow/plan.h"
#include "cache/grow/source.h"
#include "cache/idle/trim.h"
#include "cache/pool/life.h"
#include "cache/pool/pool_sleep.h"
#include "cache/pool/route.h"
#include "cache/pool/ticket.h"
#include "cache/reclaim/answer.h"
#include "cache/registry.h"
#include "cache/share/export.h"
#include "cache/share/import.h"
#include "cache/streams.h"
#include "debug/debug_mode.h"
#include "debug/nvtx.h"
#include "vm/captures.h"
#include "vmmcache/vmmcache.h"

#include <stddef.h>

#define DEFAULT_ARENA_BYTES (UINT64_C(1) << 44)

/* Reserved memory may exceed the peak of active memory by 1 % before the cache makes views. docs/results/footprint.md
 * has the measurements. */
enum { FOOTPRINT_PERMILLE = 10 };

/* How often the library's thread polls in each decay_ms. */
enum { TICKS_A_PERIOD = 4 };

/* Disables the fast path of allocations: each request then takes the slow path, which fails with ERR_LOST. */
static void device_lost(struct lost_listener *listener)
{
    vmm_cache *cache = (vmm_cache *)((char *)listener - offsetof(vmm_cache, lost_listener));
    vmm__slow_path_set(cache, SLOW_PATH_ONLY, true);
}

/* The size of the first reservation, as a multiple of the device's memory. With 4, many streams have room to grow in
 * place, and 64 caches on a device of 288 GiB fit into the 128 TiB of a process. Debug mode reuses a block's addresses
 * only after all other addresses, so it needs more of them. */
enum { FIRST_DEVICES = 4, FIRST_DEVICES_DEBUG = 64 };

/* The same for a driver whose addresses are backed at once, and with NVTX, which registers the whole arena as one
 * heap. */
enum { PLAIN_DEVICES = 2 };

static struct memory_limits limits_choose(const vmm_config *config, const struct driver *driver)
{
    bool is_plain = driver->is_plain || config->nvtx == VMM_ON;
    bool is_debug = vmm__debug_mode_watches(config->debug);
    uint64_t devices = is_plain ? PLAIN_DEVICES : is_debug ? FIRST_DEVICES_DEBUG : FIRST_DEVICES;
    uint64_t first_bytes;
    if (__builtin_mul_overflow(devices, driver->total_bytes, &first_bytes))
        first_bytes = UINT64_MAX;
    uint64_t most_bytes = config->arena_bytes != 0 ? config->arena_bytes : DEFAULT_ARENA_BYTES;
    return (struct memory_limits){ .first_arena_bytes = first_bytes,
                                   .arena_bytes = is_plain ? first_bytes : most_bytes,
                                   .bytes = vmm__limit_bytes(config->limit_bytes),
                                   .is_exportable = config->shareable == VMM_ON };
}

/* Stores what the program has configured. */
static void settings_take(vmm_cache *cache, const vmm_config *config, struct driver *driver)
{
    cache->driver = driver;
    cache->device = config->device;
    cache->generation = vmm__fork_generation();
    cache->no_caching = config->no_caching == VMM_ON;
    atomic_init(&cache->slow_path, cache->no_caching ? SLOW_PATH_ONLY : 0);
    cache->footprint_permille =
        config->footprint_permille != 0 ? config->footprint_permille : FOOTPRINT_PERMILLE;
    cache->reuse = config->reuse;
    cache->announces_captures = config->announces_captures == VMM_ON;
    cache->compaction = config->compaction;
    cache->zeroes = config->zero == VMM_ON;
    vmm__decay_init(&cache->decay, config, cache);
    cache->log = config->log;
    cache->log_context = config->log_context;
    cache->pressure = config->pressure;
    cache->pressure_context = config->pressure_context;
}

/* From now on calls find the cache, and it learns of a lost device. */
static void cache_publish(vmm_cache *cache)
{
    cache->lost_listener.notify = device_lost;
    vmm__lost_listen(&cache->driver->lost, &cache->lost_listener);
    vmm__registry_add(cache);
}

static vmm_status views_open(vmm_cache *cache)
{
    vmm_status status = vmm__views_init(&cache->views, &cache->vm, &cache->directory);
    if (status != VMM_OK)
        return status;
    status = vmm__plan_open(cache);
    if (status != VMM_OK)
        vmm__views_fini(&cache->views);
    return status;
}

static void views_close(vmm_cache *cache)
{
    vmm__plan_close(cache);
    vmm__views_fini(&cache->views);
}

static void clock_start(vmm_cache *cache, const vmm_config *config)
{
    struct clock_watch watch = vmm__streams_watch(cache);
    vmm__events_init(&cache->events, cache->driver);
    vmm__clock_init(&cache->clock, cache->driver, &cache->events, &watch, config->clock_kind);
}

static vmm_status clock_stop(vmm_cache *cache)
{
    vmm__captures_forget(cache->driver);
    vmm_status status = vmm__clock_fini(&cache->clock);
    vmm_status ended = vmm__events_fini(&cache->events);
    return status != VMM_OK ? status : ended;
}

static vmm_status cache_open(const vmm_config *config, struct driver *driver, vmm_cache **out)
{
    vmm_status status = vmm__captures_open();
    if (status != VMM_OK)
        return status;
    vmm_cache *cache = vmm__host_alloc(1, sizeof *cache);
    if (cache == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "create: no host memory for the cache");
    settings_take(cache, config, driver);
    vmm__fair_init(&cache->grow_lock);
    vmm__mutex_init_ranked(&cache->recorder_lock, LOCK_RANK_CALL);
    vmm__routes_init(cache);
    clock_start(cache, config);
    status = vmm__vm_init(&cache->vm, driver, limits_choose(config, driver));
    if (status != VMM_OK)
        goto fail_memory;
    status = vmm__directory_init(&cache->directory, &cache->vm.arena, &cache->clock);
    if (status != VMM_OK)
        goto fail_directory;
    cache->directory.has_own_clocks = config->reuse != VMM_REUSE_ANY_USE;
    status = views_open(cache);
    if (status != VMM_OK)
        goto fail_views;
    status = vmm__pools_init(cache);
    if (status != VMM_OK)
        goto fail_pools;
    status = vmm__import_open(cache);
    if (status != VMM_OK)
        goto fail_imports;
    if (config->nvtx == VMM_ON)
        status = vmm__nvtx_open(cache);
    if (status != VMM_OK)
        goto fail_nvtx;
    status = vmm__debug_open(cache, config);
    if (status != VMM_OK)
        goto fail_debug;
    cache->has_views = config->views == VMM_ON && driver->has_aliases && !driver->is_plain &&
                       !vmm__debug_mode_watches(config->debug);
    cache_publish(cache);
    *out = cache;
    return VMM_OK;

fail_debug:
    vmm__nvtx_close(cache);
fail_nvtx:
    vmm__import_close(cache);
fail_imports:
    vmm__pools_close(cache);
    vmm__pools_fini(cache);
fail_pools:
    views_close(cache);
fail_views:
    vmm__directory_fini(&cache->directory);
fail_directory:
    (void)vmm__vm_fini(&cache->vm);
fail_memory:
    (void)clock_stop(cache);
    vmm__routes_fini(&cache->routes);
    vmm__mutex_fini(&cache->recorder_lock);
    vmm__fair_fini(&cache->grow_lock);
    vmm__host_free(cache, sizeof *cache);
    return status;
}

static void cache_tick(void *cache)
{
    vmm__import_poll(cache);
    (void)vmm__poll(cache);
    vmm__source_poll(cache);
}

/* Says what the self-test could not do. */
static void failures_log(vmm_cache *cache)
{
    const struct driver *driver = cache->driver;
    if (!driver->has_clock)
        vmm__cache_log(cache, "create: %s has no events of all work: self-test failed at %s",
                       driver->device_name, driver->clock_failure);
    if (!driver->has_aliases && !driver->is_plain)
        vmm__cache_log(cache,
                       "create: %s cannot map memory at two addresses: self-test failed at %s",
                       driver->device_name, driver->alias_failure);
}

static const char *neighbours_folder(void)
{
    const char *folder = vmm__variable("VMM_NEIGHBOURS_DIR");
    return folder != NULL ? folder : MONITOR_DIRECTORY;
}

/* Makes a cache on a driver, which it owns from the start if owns_driver: then a failure closes the driver, too. */
static vmm_status cache_create(const vmm_config *settings, struct driver *driver, bool owns_driver,
                               vmm_cache **out)
{
    vmm_cache *cache = NULL;
    vmm_status status = VMM_OK;
    if (settings->shareable == VMM_ON)
        status = vmm__driver_sharing_check(driver, "create");
    if (status == VMM_OK)
        status = cache_open(settings, driver, &cache);
    if (status != VMM_OK) {
        vmm__driver_close(owns_driver ? driver : NULL);
        return status;
    }
    cache->owns_driver = owns_driver;
    if (owns_driver) {
        status = vmm__config_log(cache);
        vmm__environment_check(cache);
        failures_log(cache);
    }
    if (status == VMM_OK && settings->decay_thread == VMM_ON) /* the thread may use the cache */
        status = vmm__ticker_start(&cache->ticker, settings->decay_ms / TICKS_A_PERIOD, cache_tick,
                                   cache);
    if (status == VMM_OK && settings->neighbours == VMM_ON)
        vmm__neighbours_begin(cache, settings, neighbours_folder());
    if (status == VMM_OK)
        *out = cache;
    else
        (void)vmm_destroy(cache);
    return status;
}

vmm_status vmm__cache_create_on(const vmm_config *config, struct driver *driver, vmm_cache **out)
{
    vmm_config settings;
    struct error_line line;
    vmm__error_save(&line);
    vmm_status status = vmm__config_read(config, &settings);
    if (status == VMM_OK)
        status = vmm__config_settle(&settings);
    if (status == VMM_OK)
        status = cache_create(&settings, driver, false, out);
    return vmm__error_end(&line, status);
}

/* With NVTX the driver allocates the whole device at once, so the limit is the device's size by default. */
static uint64_t device_bytes_choose(const vmm_config *config)
{
    bool is_limited = config->nvtx == VMM_ON && config->device_bytes == 0;
    return is_limited ? vmm__limit_bytes(config->limit_bytes) : config->device_bytes;
}

/* A cache that may not hold one granule could serve nothing. */
static vmm_status limit_read(struct driver *driver, vmm_config *config)
{
    const char *from = config->limit_bytes != 0 ? "config: limit_bytes" : vmm__limit_variable();
    vmm_status status = vmm__config_limit(driver, config);
    if (status != VMM_OK || config->limit_bytes == 0 ||
        config->limit_bytes >= driver->granule_bytes)
        return status;
    return vmm__error(
        VMM_ERR_INVALID_ARGUMENT, "%s: the limit is %llu bytes, but the smallest chunk has %llu",
        from, (unsigned long long)config->limit_bytes, (unsigned long long)driver->granule_bytes);
}

static vmm_status settings_read(const vmm_config *config, vmm_config *settings)
{
    vmm_status status = vmm__config_read(config, settings);
    if (status == VMM_OK)
        status = vmm__config_environment(settings);
    return status == VMM_OK ? vmm__config_settle(settings) : status;
}

vmm_status vmm__cache_settings_check(const vmm_config *config)
{
    vmm_config settings;
    vmm_status status = settings_read(config, &settings);
    return status == VMM_OK ? vmm__monitor_check() : status;
}

vmm_status vmm__cache_create_trial(const vmm_config *config, vmm_cache **out)
{
    vmm_config settings;
    vmm_status status = settings_read(config, &settings);
    if (status != VMM_OK)
        return status;
    struct driver_options options = { .device = settings.device,
                                      .device_bytes = device_bytes_choose(&settings),
                                      .peer_devices = settings.peer_devices,
                                      .file = vmm__variable("VMM_HOST_DEVICE"),
                                      .is_plain = settings.nvtx == VMM_ON };
    struct error_line line;
    vmm__error_save(&line);
    struct driver *driver;
    status = vmm__driver_open(settings.driver, &options, &driver);
    if (status != VMM_OK)
        return status;
    status = limit_read(driver, &settings);
    if (status == VMM_OK)
        status = cache_create(&settings, driver, true, out);
    else
        vmm__driver_close(driver);
    return vmm__error_end(&line, status);
}

/* Records and publishes a cache if the environment asks for it. */
static vmm_status watch_begin(vmm_cache *cache)
{
    struct error_line line;
    vmm__error_save(&line);
    vmm_status status = vmm__trace_environment(cache);
    if (status == VMM_OK)
        status = vmm__monitor_environment(cache);
    return vmm__error_end(&line, status);
}

vmm_status vmm_create(const vmm_config *config, vmm_cache **out)
{
    if (out == NULL)
        return vmm__cache_missing("vmm_create", "out");
    vmm_cache *cache;
    vmm_status status = vmm__cache_create_trial(config, &cache);
    if (status != VMM_OK)
        return status;
    status = watch_begin(cache);
    if (status == VMM_OK)
        *out = cache;
    else
        (void)vmm_destroy(cache);
    return status;
}

/* Refuses a call inside one of the cache's callbacks, which would continue to use the cache. If several threads destroy
 * the same cache, the registry lets one of them succeed; the others must not read the cache, which that thread
 * frees. */
static vmm_status destroy_begin(const vmm_cache *cache)
{
    if (vmm__callback_is_in(cache, false) || vmm__callback_is_in(cache, true))
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "vmm_destroy: called inside a callback of this cache");
    if (!vmm__registry_remove(cache))
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "vmm_destroy: %p is not a cache, or was destroyed", (const void *)cache);
    if (cache->generation == vmm__fork_generation())
        return VMM_OK;
    vmm__registry_add(cache);
    return vmm__fork_refuse("vmm_destroy");
}

static vmm_status first_of(vmm_status first, vmm_status status)
{
    return first != VMM_OK ? first : status;
}

/*
 * The last wait before the cache is torn down. Waits for the whole device, because graphs may run on streams that the
 * cache does not know; but only for the streams that are not captured during a capture. If the wait fails, a stream
 * that the cache does not know may be captured, so the others are waited for instead; the error is still returned.
 */
static vmm_status work_wait(vmm_cache *cache)
{
    vmm_status status = vmm__cache_wait_all(cache);
    if (status == VMM_OK || status == VMM_ERR_LOST)
        return status;
    VMM_QUIET();
    (void)vmm__cache_wait(cache);
    return status;
}

vmm_status vmm_destroy(vmm_cache *cache)
{
    if (cache == NULL)
        return VMM_OK;
    vmm_status status = destroy_begin(cache);
    if (status != VMM_OK)
        return status;
    vmm__monitor_end(cache);
    vmm__tickets_end(cache); /* a wake may claim memory of neighbours */
    vmm__neighbours_end(cache);
    vmm__pools_close(cache);
    vmm__ticker_stop(&cache->ticker); /* its polls check what follows */
    vmm__exports_leave(cache);
    struct error_line line;
    vmm__error_save(&line);
    vmm__leaks_log(cache);
    vmm__trace_end(cache);
    status = work_wait(cache);
    if (status != VMM_OK)
        status = work_wait(cache); /* retry once, like every release below */
    status = first_of(status, vmm__debug_close(cache, status == VMM_OK));
    vmm__nvtx_close(cache);
    vmm__directory_fini(&cache->directory);
    vmm__reserves_fini(cache->reserves);
    status = first_of(status, vmm__lanes_fini(&cache->lanes));
    status = first_of(status, vmm__pool_sleep_transfers_close(cache));
    views_close(cache);
    status = first_of(status, vmm__vm_fini(&cache->vm));
    status = first_of(status, clock_stop(cache));
    vmm__source_end(cache);
    vmm__pools_fini(cache); /* last: chunks leave the accounts of their pools */
    vmm__import_close(cache);
    vmm__lost_unlisten(&cache->driver->lost, &cache->lost_listener);
    if (cache->owns_driver)
        vmm__driver_close(cache->driver);
    if (cache->log_file != NULL && cache->log_file != stderr)
        (void)fclose(cache->log_file);
    vmm__routes_fini(&cache->routes);
    vmm__mutex_fini(&cache->recorder_lock);
    vmm__fair_fini(&cache->grow_lock);
    vmm__host_free(cache, sizeof *cache);
    return vmm__error_end(&line, status);
}
