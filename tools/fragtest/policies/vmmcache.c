/*
 * libvmmcache itself, through its public functions, on the driver that the replayer counts.
 *
 * Owns: the cache. May be called by: replayer, through the table. Locks: none (one thread).
 */
#include "fragtest/policies/policy.h"

#include "api/create_on.h"
#include "base/error.h"

#include <stdlib.h>

struct vmmcache {
    struct policy policy;
    struct policy_setup setup;
    vmm_cache *cache;
};

static struct vmmcache *self_of(struct policy *policy)
{
    return (struct vmmcache *)policy;
}

static vmm_status vmmcache_alloc(struct policy *policy, uint64_t bytes, uint32_t stream,
                                 struct policy_place *out)
{
    struct vmmcache *self = self_of(policy);
    void *memory;

    vmm_status status = vmm_alloc(self->cache, bytes, self->setup.streams[stream], &memory);
    if (status != VMM_OK)
        return status;
    *out = (struct policy_place){ .address = (uint64_t)(uintptr_t)memory, .token = memory };
    return VMM_OK;
}

static vmm_status vmmcache_free(struct policy *policy, struct policy_place place)
{
    return vmm_free(self_of(policy)->cache, place.token);
}

static vmm_status vmmcache_record(struct policy *policy, struct policy_place place, uint32_t stream)
{
    struct vmmcache *self = self_of(policy);
    return vmm_record_stream(self->cache, place.token, self->setup.streams[stream]);
}

static vmm_status vmmcache_trim(struct policy *policy)
{
    return vmm_trim(self_of(policy)->cache, 0, NULL);
}

static vmm_status vmmcache_compact(struct policy *policy)
{
    return vmm_compact(self_of(policy)->cache, 0, NULL, NULL);
}

static vmm_status vmmcache_stats(struct policy *policy, vmm_stats *out)
{
    *out = (vmm_stats)VMM_STATS_INIT;
    return vmm_stats_get(self_of(policy)->cache, out);
}

static vmm_status vmmcache_close(struct policy *policy)
{
    struct vmmcache *self = self_of(policy);
    vmm_status status = vmm_destroy(self->cache);

    free(self);
    return status;
}

static vmm_status vmmcache_open(const struct policy_ops *ops, const struct policy_setup *setup,
                                struct policy **out)
{
    vmm_config config = VMM_CONFIG_INIT;
    struct vmmcache *self = calloc(1, sizeof(*self));

    if (self == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "out of host memory for a policy");
    self->policy.ops = ops;
    self->setup = *setup;
    config.limit_bytes = setup->limit_bytes;
    config.footprint_permille = setup->settings.footprint_permille;
    config.reuse = setup->settings.reuse;
    config.compaction = setup->settings.compaction;
    vmm_status status = vmm__cache_create_on(&config, setup->driver, &self->cache);
    if (status != VMM_OK) {
        free(self);
        return status;
    }
    *out = &self->policy;
    return VMM_OK;
}

const struct policy_ops policy_vmmcache = {
    .name = "vmmcache",
    .has_settings = true,
    .open = vmmcache_open,
    .alloc = vmmcache_alloc,
    .free = vmmcache_free,
    .record = vmmcache_record,
    .trim = vmmcache_trim,
    .compact = vmmcache_compact,
    .stats = vmmcache_stats,
    .close = vmmcache_close,
};
