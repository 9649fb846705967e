/* Settings, and the creation of caches: see plugin.h. */
#define _GNU_SOURCE
#include "torch/plugin.h"
#include "api/create_trial.h"
#include "api/listen.h"
#include "base/arith.h"
#include "base/error.h"
#include "base/fork.h"
#include "base/mutex.h"
#include "base/variable.h"
#include "torch/record.h"
#include "torch/share_server.h"

#include <stdlib.h>
#include <string.h>

/* The program's vmm_config may be longer than this version's; its fields go to vmm_create() unchanged. */
union settings {
    vmm_config config;
    unsigned char bytes[4096];
};

typedef void (*change_watch_fn)(int device, const vmm_change *change);

struct torch_device vmm__torch_devices[TORCH_DEVICES];
_Atomic unsigned vmm__torch_mode;

static struct mutex opening = VMM_MUTEX_INIT;
static union settings settings = { .config = VMM_CONFIG_INIT };
static double limit_share;       /* of the device; 0: the settings have the limit */
static bool has_caches;          /* a cache exists, or is being created: settings are fixed */
static _Atomic int device_count; /* from vmm_torch_init(); 0: unknown */
static _Atomic(change_watch_fn) change_watch;  /* NULL: none */
static _Atomic double first_fraction = 1.0;    /* see vmm__torch_fraction_begin() */
static _Atomic bool has_class;                 /* see vmm__torch_class_note() */
static _Atomic bool defers_peers;              /* see vmm__torch_peers_defer() */
static _Thread_local uint64_t waiting_address; /* last freed block; 0: no stream uses it */

vmm_status vmm__torch_forked_error(void)
{
    return vmm__error(VMM_ERR_FORKED,
                      "a process cannot use its parent's GPU memory after fork(); start "
                      "it by spawn or forkserver");
}

/* ---- Settings ------------------------------------------------------------------------------- */

/* Checks the fields as vmm_create() does: creates a cache on the simulator and destroys it. Writes a line to its log,
 * unless `line` is NULL. */
static vmm_status settings_check(const union settings *wanted, const char *line)
{
    union settings trial = *wanted;
    trial.config.driver = VMM_DRIVER_SIM;
    trial.config.device = 0;
    vmm_cache *cache;
    vmm_status status = vmm__cache_create_trial(&trial.config, &cache);
    if (status != VMM_OK)
        return status;
    if (line != NULL)
        (void)vmm_log_write(cache, line);
    return vmm_destroy(cache);
}

static vmm_status settings_check_open_locked(const char *function)
{
    VMM_ASSERT_HELD(&opening);
    if (!has_caches)
        return VMM_OK;
    return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                      "%s: a device was opened before, by an allocation, a limit or a "
                      "query of its free memory; call it earlier",
                      function);
}

vmm_status vmm_torch_configure(const vmm_config *config)
{
    if (config == NULL)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "vmm_torch_configure: config is NULL");
    union settings wanted = { .config = VMM_CONFIG_INIT };
    size_t bytes = config->struct_size;
    if (bytes < sizeof bytes || bytes > sizeof wanted)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "vmm_torch_configure: struct_size is %zu; use VMM_CONFIG_INIT", bytes);
    memcpy(&wanted, config, bytes);
    wanted.config.struct_size = bytes < sizeof *config ? sizeof *config : bytes;
    if (vmm__torch_is_forked())
        return vmm__torch_forked_error();
    vmm_status status =
        vmm__cache_settings_check(&wanted.config); /* the trial has another driver */
    if (status == VMM_OK)
        status = settings_check(&wanted, NULL);
    if (status != VMM_OK)
        return status;
    VMM_HOLD(&opening);
    status = settings_check_open_locked("vmm_torch_configure");
    if (status == VMM_OK)
        settings = wanted;
    return status;
}

vmm_status vmm_torch_limit_share(double share)
{
    if (!(share >= 0.0 && share <= 1.0))
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "vmm_torch_limit_share: a share of %g is not from 0 to 1", share);
    if (vmm__torch_is_forked())
        return vmm__torch_forked_error();
    VMM_HOLD(&opening);
    vmm_status status = settings_check_open_locked("vmm_torch_limit_share");
    if (status == VMM_OK)
        limit_share = share;
    return status;
}

/* ---- Peers ---------------------------------------------------------------------------------- */

void vmm__torch_peers_defer(void)
{
    atomic_store_explicit(&defers_peers, true, memory_order_relaxed);
}

/* The devices that the settings name. */
static uint64_t peers_named(void)
{
    VMM_HOLD(&opening);
    return settings.config.peer_devices;
}

/* Those among them that get access at once. */
static uint64_t peers_at_once(uint64_t named)
{
    bool defers = atomic_load_explicit(&defers_peers, memory_order_relaxed);
    return named == UINT64_MAX && defers ? 0 : named;
}

uint64_t vmm__torch_peers(int ordinal)
{
    const struct torch_device *device = vmm__torch_find(ordinal);
    uint64_t peers = peers_at_once(peers_named());
    if (device != NULL)
        (void)vmm_peers_get(vmm__torch_cache_of(device), &peers);
    return peers;
}

vmm_status vmm__torch_peers_add(int ordinal, uint64_t devices)
{
    struct torch_device *device = NULL;
    uint64_t missing = devices & ~peers_named();
    if (missing != 0)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "device %d may not access memory of device %d: name both in "
                          "vmmcache.install(peers=...)",
                          __builtin_ctzll(missing), ordinal);
    vmm_status status = vmm__torch_open(ordinal, &device);
    return status == VMM_OK ? vmm_peers_add(vmm__torch_cache_of(device), devices) : status;
}

bool vmm__torch_is_open(void)
{
    VMM_HOLD(&opening);
    return has_caches;
}

void vmm__torch_complain(const char *hook, vmm_status status)
{
    if (vmm__torch_is_forked())
        return; /* a thread of the parent may have held the lock */
    VMM_QUIET();
    char line[ERROR_LINE_BYTES];
    (void)snprintf(line, sizeof line, "%s: %s: %.400s", hook, vmm_status_name(status),
                   vmm_last_error());
    const struct torch_device *any = vmm__torch_next(NULL); /* all have the same log */
    if (any != NULL) {
        (void)vmm_log_write(vmm__torch_cache_of(any), line);
        return;
    }
    vmm__mutex_lock(&opening);
    union settings now = settings;
    vmm__mutex_unlock(&opening);
    (void)settings_check(&now, line);
}

/* ---- Making caches -------------------------------------------------------------------------- */

void vmm__torch_change_watch(void (*watch)(int device, const vmm_change *change))
{
    atomic_store_explicit(&change_watch, watch, memory_order_release);
}

/* Called with the cache's locks held. */
static void change_handle(void *context, const vmm_change *change)
{
    struct torch_device *device = context;
    if (change->is_imported) /* memory of other processes has no part in what PyTorch reports */
        return;
    uint64_t block_bytes =
        change->kind == VMM_CHANGE_FREE
            ? vmm_block_bytes(vmm__torch_cache_of(device), change->requested_bytes)
            : 0;
    vmm__torch_stats_change(&device->stats, change, block_bytes);
    if (vmm__torch_records() || vmm__history_knows())
        vmm__record_change(device, change);
    change_watch_fn watch = atomic_load_explicit(&change_watch, memory_order_acquire);
    if (watch != NULL)
        watch(device->ordinal, change);
    if (change->kind == VMM_CHANGE_WAIT) {
        waiting_address = change->address;
        atomic_fetch_add_explicit(&device->waits, 1, memory_order_relaxed);
    }
}

bool vmm__torch_waits(const void *ptr)
{
    if (waiting_address != (uint64_t)(uintptr_t)ptr)
        return false;
    waiting_address = 0; /* the next block at this address may not wait */
    return true;
}

/* The child has no other threads, and any lock may have been held by one of them: it must not touch the caches. A
 * child of a process without caches may create its own. */
static void fork_child_mark(void)
{
    if (has_caches)
        atomic_store_explicit(&vmm__torch_mode, TORCH_FORKED, memory_order_relaxed);
    vmm__share_server_forked();
}

static vmm_status share_bytes(vmm_cache *cache, double share, uint64_t *bytes)
{
    uint64_t free_bytes;
    uint64_t total_bytes;
    vmm_status status = vmm_device_memory(cache, &free_bytes, &total_bytes);
    if (status == VMM_OK)
        *bytes = vmm__max(1, (uint64_t)(share * (double)total_bytes));
    return status;
}

vmm_status vmm__torch_fraction_limit(struct torch_device *device, vmm_cache *cache, double fraction)
{
    uint64_t bytes = 0;
    vmm_status status = fraction < 1.0 ? share_bytes(cache, fraction, &bytes) : VMM_OK;
    if (status != VMM_OK)
        return status;
    if (device->limit_bytes != 0 && (bytes == 0 || bytes > device->limit_bytes)) {
        bytes = device->limit_bytes;
        fraction = -1.0;
    }
    status = vmm_limit_set(cache, bytes);
    if (status != VMM_OK)
        return status;
    atomic_store_explicit(&device->fraction, fraction, memory_order_relaxed);
    atomic_store_explicit(&device->fraction_limit_bytes, bytes, memory_order_relaxed);
    return VMM_OK;
}

void vmm__torch_fraction_begin(double fraction)
{
    atomic_store_explicit(&first_fraction, fraction, memory_order_relaxed);
}

double vmm__torch_fraction_first(void)
{
    return atomic_load_explicit(&first_fraction, memory_order_relaxed);
}

/* Limits a new cache to the share that vmm_torch_limit_share() has set, and to the first fraction. */
static vmm_status limit_begin_locked(struct torch_device *device, vmm_cache *cache)
{
    VMM_ASSERT_HELD(&opening);
    uint64_t bytes;
    vmm_stats stats = VMM_STATS_INIT;
    vmm_status status = VMM_OK;
    if (limit_share != 0.0) {
        status = share_bytes(cache, limit_share, &bytes);
        if (status == VMM_OK)
            status = vmm_limit_set(cache, bytes);
    }
    if (status == VMM_OK)
        status = vmm_stats_get(cache, &stats);
    if (status != VMM_OK)
        return status;
    device->limit_bytes = stats.limit_bytes;
    return vmm__torch_fraction_limit(device, cache, vmm__torch_fraction_first());
}

void vmm__torch_class_note(void)
{
    atomic_store_explicit(&has_class, true, memory_order_relaxed);
}

/* Creates a cache whose blocks can be shared, if the settings leave that open and the device can do it. */
static vmm_status shareable_create(struct torch_device *device, union settings *wanted,
                                   vmm_cache **out)
{
    struct error_line line;
    bool is_open = atomic_load_explicit(&has_class, memory_order_relaxed) &&
                   wanted->config.shareable == VMM_DEFAULT &&
                   vmm__variable("VMM_SHAREABLE") == NULL;
    if (!is_open)
        return vmm_create(&wanted->config, out);
    vmm__error_save(&line);
    wanted->config.shareable = VMM_ON;
    vmm_status status = vmm_create(&wanted->config, out);
    if (status != VMM_ERR_UNSUPPORTED)
        return status;
    vmm__error_save(&device->sharing_failure);
    vmm__error_restore(&line);
    wanted->config.shareable = VMM_OFF;
    return vmm_create(&wanted->config, out);
}

static vmm_status cache_create_locked(struct torch_device *device, int ordinal, vmm_cache **out)
{
    VMM_ASSERT_HELD(&opening);
    union settings wanted = settings;
    wanted.config.device = ordinal;
    wanted.config.peer_devices = peers_at_once(wanted.config.peer_devices);
    device->pressure = wanted.config.pressure;
    device->pressure_context = wanted.config.pressure_context;
    if (device->pressure != NULL || vmm__record_reclaims()) {
        wanted.config.pressure = vmm__record_pressure;
        wanted.config.pressure_context = device;
    }
    device->misuse = wanted.config.misuse;
    device->misuse_context = wanted.config.misuse_context;
    if (device->misuse != NULL) {
        wanted.config.misuse = vmm__record_misuse;
        wanted.config.misuse_context = device;
    }
    bool is_class = atomic_load_explicit(&has_class, memory_order_relaxed);
    if (is_class && wanted.config.announces_captures == VMM_DEFAULT &&
        vmm__variable("VMM_ANNOUNCES_CAPTURES") == NULL)
        wanted.config.announces_captures = VMM_ON;
    return shareable_create(device, &wanted, out);
}

static vmm_status device_create_locked(struct torch_device *device, int ordinal)
{
    VMM_ASSERT_HELD(&opening);
    vmm_cache *cache;
    vmm_status status = cache_create_locked(device, ordinal, &cache);
    if (status != VMM_OK)
        return status;
    device->ordinal = ordinal;
    vmm__torch_stats_init(&device->stats);
    vmm__history_init(&device->history);
    status = limit_begin_locked(device, cache);
    if (status == VMM_OK)
        status = vmm__listen_beside(cache, change_handle, device);
    if (status != VMM_OK) {
        (void)vmm_destroy(cache);
        return status;
    }
    atomic_store_explicit(&device->cache, cache, memory_order_release);
    vmm__record_newcomer(device);
    return VMM_OK;
}

static vmm_status device_open_locked(struct torch_device *device, int ordinal)
{
    VMM_ASSERT_HELD(&opening);
    vmm_status status = vmm__fork_watch(fork_child_mark);
    if (status != VMM_OK)
        return status;
    bool had_caches = has_caches;
    has_caches =
        true; /* first: a child that another thread forks meanwhile must not use the cache */
    status = device_create_locked(device, ordinal);
    if (status != VMM_OK)
        has_caches = had_caches;
    return status;
}

static vmm_status ordinal_check(int ordinal)
{
    int count = atomic_load_explicit(&device_count, memory_order_relaxed);
    int end = count > 0 && count < TORCH_DEVICES ? count : TORCH_DEVICES;
    if (ordinal < 0 || ordinal >= end)
        return vmm__error(VMM_ERR_NO_DEVICE, "there is no device %d: devices are 0 to %d", ordinal,
                          end - 1);
    if (vmm__torch_is_forked())
        return vmm__torch_forked_error();
    return VMM_OK;
}

vmm_status vmm__torch_open(int ordinal, struct torch_device **out)
{
    struct torch_device *device = vmm__torch_find(ordinal);
    vmm_status status = device == NULL ? ordinal_check(ordinal) : VMM_OK;
    if (status == VMM_OK && device == NULL) {
        device = &vmm__torch_devices[ordinal];
        VMM_HOLD(&opening);
        if (vmm__torch_cache_of(device) == NULL)
            status = device_open_locked(device, ordinal);
    }
    if (status == VMM_OK)
        *out = device;
    return status;
}

vmm_cache *vmm_torch_cache(int device)
{
    const struct torch_device *found = vmm__torch_find(device);
    return found == NULL ? NULL : vmm__torch_cache_of(found);
}

void vmm_torch_init(int count)
{
    atomic_store_explicit(&device_count, count, memory_order_relaxed);
}
