/* The public functions of sleep and wake: see "Sleep" in include/vmmcache/vmmcache.h. */
#include "api/config.h"
#include "api/internal.h"
#include "base/error.h"
#include "base/handle.h"
#include "base/hostmem.h"
#include "cache/pool/pool_backup.h"
#include "cache/pool/ticket.h"

#include <string.h>

static vmm_status options_read(const char *function, const vmm_sleep_options *options,
                               vmm_sleep_options *out)
{
    const struct options_kind kind = { .what = function,
                                       .init = "VMM_SLEEP_OPTIONS_INIT",
                                       .least_bytes = offsetof(vmm_sleep_options, on_sleep) +
                                                      sizeof out->on_sleep,
                                       .bytes = sizeof *out };
    *out = (vmm_sleep_options)VMM_SLEEP_OPTIONS_INIT;
    vmm_status status = vmm__options_read(&kind, options, out);
    if (status != VMM_OK)
        return status;
    if (out->on_sleep == VMM_ON_SLEEP_KEEP || out->on_sleep == VMM_ON_SLEEP_DISCARD ||
        out->on_sleep == VMM_ON_SLEEP_AS_POOL)
        return VMM_OK;
    return vmm__error(VMM_ERR_INVALID_ARGUMENT, "%s: on_sleep is %d, which is no value of it",
                      function, (int)out->on_sleep);
}

/* Whether the memory of the cache can be unmapped under live blocks. */
static vmm_status support_check(const char *function, const struct vmm_cache *cache)
{
    if (cache->nvtx == NULL && !cache->driver->is_plain && !cache->has_guard_pages)
        return VMM_OK;
    return vmm__error(VMM_ERR_UNSUPPORTED, "%s: %s prevents it", function,
                      cache->has_guard_pages ? "debug mode" : "nvtx");
}

static bool is_named_before(const struct sleep_request *request, uint64_t number)
{
    uint64_t i = 0;
    while (i < number && request->pools[i] != request->pools[number])
        i++;
    return i < number;
}

/* Finds the pools, all of one cache. */
static vmm_status pools_find(const char *function, vmm_pool *const *handles,
                             struct sleep_request *request)
{
    for (uint64_t i = 0; i < request->count; i++) {
        vmm_status status =
            vmm__api_pool(handles[i], function, handles[i], "pool", &request->pools[i]);
        if (status != VMM_OK)
            return status;
        if (request->pools[i]->cache != request->pools[0]->cache)
            return vmm__error(VMM_ERR_INVALID_ARGUMENT, "%s: the pools belong to several caches",
                              function);
        if (is_named_before(request, i))
            return vmm__error(VMM_ERR_INVALID_ARGUMENT, "%s: pool %s is named twice", function,
                              request->pools[i]->name);
    }
    request->cache = request->pools[0]->cache;
    vmm_status status = vmm__cache_admit_work(request->cache, function);
    return status == VMM_OK ? support_check(function, request->cache) : status;
}

/* Ends a request that could not be carried out. */
static vmm_status request_undo(struct sleep_request *request, vmm_status status)
{
    VMM_QUIET();
    vmm__sleep_cancel(request);
    return status;
}

static void request_record(const char *function, const struct sleep_request *request,
                           vmm_status status)
{
    for (uint64_t i = 0; i < request->count; i++)
        vmm__record_note(request->cache, "%s: %s%s%s", function, request->pools[i]->name,
                         status == VMM_OK ? "" : ": ",
                         status == VMM_OK ? "" : vmm_status_name(status));
}

static vmm_status request_run(struct sleep_request *request, vmm_ticket **ticket)
{
    struct error_line line;
    vmm__error_save(&line);
    vmm_status status = vmm__sleep_begin(request);
    if (status != VMM_OK)
        return status;
    if (ticket == NULL) {
        status = vmm__sleep_run(request);
    } else {
        status = vmm__ticket_open(request, ticket);
        if (status != VMM_OK)
            return request_undo(request, status);
    }
    return vmm__error_end(&line, status);
}

static vmm_status pools_request(const char *function, bool is_wake, vmm_pool *const *handles,
                                size_t count, const vmm_sleep_options *options, vmm_ticket **ticket)
{
    struct sleep_request request = { .count = count, .is_wake = is_wake };
    if (handles == NULL || count == 0)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "%s: no pools are given", function);
    vmm_status status = options_read(function, options, &request.options);
    if (status != VMM_OK)
        return status;
    struct pool **pools = vmm__host_alloc(count, sizeof *pools);
    if (pools == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "%s: no host memory for %zu pools", function, count);
    request.pools = pools;
    status = pools_find(function, handles, &request);
    if (status == VMM_OK) {
        status = request_run(&request, ticket);
        request_record(function, &request, status);
    }
    vmm__host_free(pools, count * sizeof *pools);
    return status;
}

vmm_status vmm_pool_sleep(vmm_pool *const *pools, size_t count, const vmm_sleep_options *options,
                          vmm_ticket **ticket)
{
    return pools_request("vmm_pool_sleep", false, pools, count, options, ticket);
}

vmm_status vmm_pool_wake(vmm_pool *const *pools, size_t count, const vmm_sleep_options *options,
                         vmm_ticket **ticket)
{
    return pools_request("vmm_pool_wake", true, pools, count, options, ticket);
}

vmm_status vmm_pool_state(vmm_pool *handle, vmm_pool_phase *out)
{
    struct pool *pool;
    vmm_status status = vmm__api_pool(handle, "vmm_pool_state", out, "out", &pool);
    if (status != VMM_OK)
        return status;
    VMM_HOLD_FAIR(&pool->cache->grow_lock);
    *out = pool->phase;
    return VMM_OK;
}

static vmm_status ticket_refuse(const vmm_ticket *handle, const char *function, const char *why)
{
    return vmm__error(VMM_ERR_INVALID_ARGUMENT, "%s: %p %s", function, (const void *)handle, why);
}

static vmm_status ticket_find(vmm_ticket *handle, const char *function, struct ticket **out)
{
    *out = vmm__handle_find(HANDLE_TICKET, handle);
    if (*out == NULL)
        return ticket_refuse(handle, function, "is not a ticket, or has ended");
    return vmm__cache_admit((*out)->cache, function);
}

vmm_status vmm_ticket_poll(vmm_ticket *handle, int *done)
{
    struct ticket *ticket;
    vmm_status status = ticket_find(handle, "vmm_ticket_poll", &ticket);
    if (status == VMM_OK && done == NULL)
        return vmm__cache_missing("vmm_ticket_poll", "done");
    if (status != VMM_OK)
        return status;
    bool is_done = atomic_load_explicit(&ticket->is_done, memory_order_acquire);
    if (vmm__handle_find(HANDLE_TICKET, handle) != ticket) /* its record may serve another one */
        return ticket_refuse(handle, "vmm_ticket_poll", "has ended");
    *done = is_done;
    return VMM_OK;
}

vmm_status vmm_ticket_wait(vmm_ticket *handle)
{
    struct ticket *ticket;
    vmm_status status = ticket_find(handle, "vmm_ticket_wait", &ticket);
    if (status != VMM_OK)
        return status;
    if (vmm__ticket_is_run_here(ticket))
        return ticket_refuse(handle, "vmm_ticket_wait",
                             "would wait for the function that calls this");
    if (!vmm__ticket_claim(ticket, handle))
        return ticket_refuse(handle, "vmm_ticket_wait", "is waited for by another thread");
    return vmm__ticket_end(ticket);
}

vmm_status vmm_backup_find(vmm_pool *handle, const void *ptr, void **host)
{
    struct pool *pool;
    vmm_status status = vmm__api_pool(handle, "vmm_backup_find", host, "host", &pool);
    if (status == VMM_OK)
        status = vmm__pool_backup_find(pool, (uint64_t)(uintptr_t)ptr, host);
    if (status != VMM__NOT_FOUND)
        return status;
    return vmm__error(VMM_ERR_UNKNOWN_POINTER,
                      "vmm_backup_find: no live block of pool %s with saved contents contains %p",
                      pool->name, ptr);
}

vmm_status vmm_backup_drop(vmm_pool *handle)
{
    struct pool *pool;
    vmm_status status = vmm__api_pool(handle, "vmm_backup_drop", handle, "pool", &pool);
    return status == VMM_OK ? vmm__pool_backup_drop(pool) : status;
}
