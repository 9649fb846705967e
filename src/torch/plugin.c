/* The caches of a process: see plugin.h. */
#define _GNU_SOURCE
#include "torch/plugin.h"
#include "base/arith.h"
#include "base/error.h"
#include "base/fork.h"
#include "base/lock.h"

#include <stdlib.h>
#include <string.h>

/* The program's, which may be longer than we know: its fields go to vmm_create() as they are. */
union settings {
    vmm_config config;
    unsigned char bytes[4096];
};

static struct lock opening = { PTHREAD_MUTEX_INITIALIZER };
static union settings settings = { .config = VMM_CONFIG_INIT };
static double limit_share;                     /* of the device; 0: settings have the limit */
static bool is_made;                           /* a cache was: settings stay */
static _Atomic int device_count;               /* as PyTorch told; 0: it did not */
static _Thread_local uint64_t waiting_address; /* of the thread's last free that others wait for */

struct torch_device vmm__torch_devices[TORCH_DEVICES];
_Atomic unsigned vmm__torch_mode;

/* ---- Settings ------------------------------------------------------------------------------- */

/* Whether the fields are as vmm_create() wants them: it makes a cache on no device, and ends it. Its log
 * gets a line, unless that is NULL. */
static vmm_status settings_try(const union settings *wanted, const char *line)
{
    union settings trial = *wanted;
    trial.config.driver = VMM_DRIVER_SIM;
    trial.config.device = 0;
    vmm_cache *cache;
    vmm_status status = vmm_create(&trial.config, &cache);
    if (status != VMM_OK)
        return status;
    if (line != NULL)
        (void)vmm_log_write(cache, line);
    return vmm_destroy(cache);
}

static vmm_status unmade_check_locked(const char *function)
{
    if (!is_made)
        return VMM_OK;
    return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                      "%s: a device was opened before, by an allocation, a limit or a "
                      "look at its free memory; call it earlier",
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
    if ((vmm__torch_mode_now() & TORCH_FORKED) != 0)
        return vmm__torch_forked_error();
    vmm_status status = settings_try(&wanted, NULL);
    if (status != VMM_OK)
        return status;
    vmm__lock_take(&opening);
    status = unmade_check_locked("vmm_torch_configure");
    if (status == VMM_OK)
        settings = wanted;
    vmm__lock_drop(&opening);
    return status;
}

vmm_status vmm_torch_limit_share(double share)
{
    if (!(share >= 0.0 && share <= 1.0))
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "vmm_torch_limit_share: a share of %g is not from 0 to 1", share);
    if ((vmm__torch_mode_now() & TORCH_FORKED) != 0)
        return vmm__torch_forked_error();
    vmm__lock_take(&opening);
    vmm_status status = unmade_check_locked("vmm_torch_limit_share");
    if (status == VMM_OK)
        limit_share = share;
    vmm__lock_drop(&opening);
    return status;
}

/* Any cache's: all were made with the same log. NULL if there is none. */
static vmm_cache *some_cache(void)
{
    for (int ordinal = 0; ordinal < TORCH_DEVICES; ordinal++) {
        vmm_cache *cache = vmm_torch_cache(ordinal);
        if (cache != NULL)
            return cache;
    }
    return NULL;
}

void vmm__torch_complain(const char *hook, vmm_status status)
{
    if ((vmm__torch_mode_now() & TORCH_FORKED) != 0)
        return; /* the lock may be held by a thread that is not there */
    struct error_line kept;
    struct error_line line;
    vmm__error_save(&kept);
    (void)snprintf(line.text, sizeof line.text, "%s: %s: %.400s", hook, vmm_status_name(status),
                   kept.text);
    vmm_cache *cache = some_cache();
    if (cache != NULL) {
        (void)vmm_log_write(cache, line.text);
        return;
    }
    vmm__lock_take(&opening);
    union settings now = settings;
    vmm__lock_drop(&opening);
    (void)settings_try(&now, line.text);
    vmm__error_restore(&kept);
}

/* ---- Making caches -------------------------------------------------------------------------- */

/* The cache's locks are held. */
static void change_note(void *context, const vmm_change *change)
{
    struct torch_device *device = context;
    vmm__figures_change(&device->figures, change);
    if (vmm__torch_records())
        vmm__record_change(device, change);
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

/* Only this thread is left of the parent's, and any lock may be held by one that is not. A child of a
 * process without caches may have its own. */
static void child_begins(void)
{
    if (is_made)
        atomic_store_explicit(&vmm__torch_mode, TORCH_FORKED, memory_order_relaxed);
}

static const char *variable(const char *name)
{
    const char *said = secure_getenv(name);
    return said == NULL || *said == '\0' ? NULL : said;
}

/* Kernels cannot use host memory: only a program that asks for it gets it where there is no GPU. */
static vmm_driver_kind driver_chosen(vmm_driver_kind wanted)
{
    bool is_said = variable("VMM_DRIVER") != NULL;
    return wanted == VMM_DRIVER_AUTO && !is_said ? VMM_DRIVER_CUDA : wanted;
}

vmm_status vmm__torch_limit(vmm_cache *cache, double share)
{
    uint64_t free_bytes;
    uint64_t total_bytes;
    vmm_status status = vmm_device_memory(cache, &free_bytes, &total_bytes);
    if (status != VMM_OK)
        return status;
    return vmm_limit_set(cache, vmm__max(1, (uint64_t)(share * (double)total_bytes)));
}

static vmm_status cache_make_locked(struct torch_device *device, int ordinal, vmm_cache **out)
{
    union settings wanted = settings;
    wanted.config.device = ordinal;
    wanted.config.driver = driver_chosen(wanted.config.driver);
    device->pressure = wanted.config.pressure;
    device->pressure_context = wanted.config.pressure_context;
    if (device->pressure != NULL) {
        wanted.config.pressure = vmm__record_pressure;
        wanted.config.pressure_context = device;
    }
    device->misuse = wanted.config.misuse;
    device->misuse_context = wanted.config.misuse_context;
    if (device->misuse != NULL) {
        wanted.config.misuse = vmm__record_misuse;
        wanted.config.misuse_context = device;
    }
    return vmm_create(&wanted.config, out);
}

static vmm_status device_make_locked(struct torch_device *device, int ordinal)
{
    vmm_cache *cache;
    vmm_status status = cache_make_locked(device, ordinal, &cache);
    if (status != VMM_OK)
        return status;
    device->ordinal = ordinal;
    device->has_guard = settings.config.guard != VMM_GUARD_OFF || variable("VMM_GUARD") != NULL;
    vmm__figures_init(&device->figures);
    vmm__history_init(&device->history);
    if (limit_share != 0.0)
        status = vmm__torch_limit(cache, limit_share);
    if (status == VMM_OK)
        status = vmm_watch(cache, change_note, device);
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
    vmm_status status = vmm__fork_watch(child_begins);
    if (status != VMM_OK)
        return status;
    bool was_made = is_made;
    is_made = true; /* for a fork() on another thread meanwhile, whose child cannot go on */
    status = device_make_locked(device, ordinal);
    if (status != VMM_OK)
        is_made = was_made;
    return status;
}

vmm_status vmm__torch_forked_error(void)
{
    return vmm__error(VMM_ERR_FORKED,
                      "a process cannot use its parent's GPU memory after fork(); start "
                      "it by spawn or forkserver");
}

static vmm_status ordinal_check(int ordinal)
{
    int count = atomic_load_explicit(&device_count, memory_order_relaxed);
    int end = count > 0 && count < TORCH_DEVICES ? count : TORCH_DEVICES;
    if (ordinal < 0 || ordinal >= end)
        return vmm__error(VMM_ERR_NO_DEVICE, "there is no device %d: devices are 0 to %d", ordinal,
                          end - 1);
    if ((vmm__torch_mode_now() & TORCH_FORKED) != 0)
        return vmm__torch_forked_error();
    return VMM_OK;
}

vmm_status vmm__torch_open(int ordinal, struct torch_device **out)
{
    struct torch_device *device = vmm__torch_find(ordinal);
    vmm_status status = device != NULL ? VMM_OK : ordinal_check(ordinal);
    if (device == NULL && status == VMM_OK) {
        device = &vmm__torch_devices[ordinal];
        vmm__lock_take(&opening);
        if (vmm__torch_cache_of(device) == NULL)
            status = device_open_locked(device, ordinal);
        vmm__lock_drop(&opening);
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
