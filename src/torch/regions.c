/* Regions: see regions.h. */
#include "torch/regions.h"
#include "base/error.h"
#include "base/handle.h"
#include "base/hostmem.h"
#include "base/mutex.h"

#include <string.h>

/* A pool. */
struct member {
    struct member *next;
    vmm_torch_pool pool;
    struct torch_pool_settings settings;
    bool is_region; /* of vmm_torch_region_begin(); else PyTorch's */
    bool is_ended;  /* PyTorch has ended it; it is destroyed once it is awake */
};

/* What a thread pushed. */
struct region {
    struct region *outer;
    int ordinal;
    vmm_torch_pool pool;
    bool is_route;
};

struct mutex vmm__torch_pools = { .mutex = PTHREAD_MUTEX_INITIALIZER };

static struct mutex members_lock = { .mutex = PTHREAD_MUTEX_INITIALIZER };
static struct member *members;
static _Thread_local struct region *innermost;
static _Atomic uint64_t region_count; /* pools of tags so far */

/* ---- The list ------------------------------------------------------------------------------- */

/* Removes what the list has of pools that were destroyed. */
static void members_purge_locked(void)
{
    struct member **link = &members;
    while (*link != NULL) {
        struct member *member = *link;
        if (vmm__handle_find(HANDLE_POOL, member->pool.pool) != NULL) {
            link = &member->next;
            continue;
        }
        *link = member->next;
        vmm__host_free(member, sizeof *member);
    }
}

static struct member *member_find_locked(const vmm_torch_pool *wanted)
{
    struct member *member = members;
    while (member != NULL && !(member->is_region && member->pool.device == wanted->device &&
                               member->pool.discards == wanted->discards &&
                               strcmp(member->pool.tag, wanted->tag) == 0))
        member = member->next;
    return member;
}

/* Adds a pool. If another thread has added one of the same tag meanwhile, *pool becomes that one. */
static vmm_status member_add(vmm_torch_pool *pool, bool is_region,
                             const struct torch_pool_settings *settings)
{
    struct member *member = vmm__host_alloc(1, sizeof *member);
    if (member == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "no host memory for the list of pools");
    member->pool = *pool;
    member->is_region = is_region;
    member->settings = *settings;
    vmm__mutex_lock(&members_lock);
    members_purge_locked();
    struct member *other = is_region ? member_find_locked(pool) : NULL;
    if (other == NULL) {
        member->next = members;
        members = member;
    } else {
        *pool = other->pool;
    }
    vmm__mutex_unlock(&members_lock);
    if (other != NULL)
        vmm__host_free(member, sizeof *member);
    return VMM_OK;
}

bool vmm__torch_region_defer(const vmm_pool *pool)
{
    struct error_line line;
    vmm_pool_phase phase = VMM_POOL_AWAKE;
    bool is_deferred = false;
    vmm__error_save(&line);
    (void)vmm_pool_state((vmm_pool *)pool, &phase);
    vmm__error_restore(&line);
    vmm__mutex_lock(&members_lock);
    for (struct member *member = members; member != NULL; member = member->next) {
        bool has_source = member->settings.source.alloc != NULL;
        if (member->pool.pool != pool || (phase == VMM_POOL_AWAKE && !has_source))
            continue;
        member->is_ended = true;
        is_deferred = true;
    }
    vmm__mutex_unlock(&members_lock);
    return is_deferred;
}

/* Takes the pools from the list that are to be destroyed. */
static struct member *ended_take(void)
{
    struct member *ended = NULL;
    vmm__mutex_lock(&members_lock);
    for (struct member **link = &members; *link != NULL;) {
        struct member *member = *link;
        if (!member->is_ended) {
            link = &member->next;
            continue;
        }
        *link = member->next;
        member->next = ended;
        ended = member;
    }
    vmm__mutex_unlock(&members_lock);
    return ended;
}

static void member_put_back(struct member *member)
{
    vmm__mutex_lock(&members_lock);
    member->next = members;
    members = member;
    vmm__mutex_unlock(&members_lock);
}

static vmm_status ended_destroy(const struct member *member)
{
    if (member->settings.source.alloc != NULL)
        return vmm_pool_destroy(member->pool.pool, 1);
    vmm__mutex_lock(&vmm__torch_pools);
    vmm_status status = vmm_pool_destroy(member->pool.pool, 1);
    vmm__mutex_unlock(&vmm__torch_pools);
    return status;
}

void vmm__torch_region_end_deferred(void)
{
    struct error_line line;
    if (vmm__torch_is_forked())
        return; /* a thread of the parent may have held the locks */
    vmm__error_save(&line);
    for (struct member *next, *member = ended_take(); member != NULL; member = next) {
        next = member->next;
        if (ended_destroy(member) == VMM_ERR_INVALID_ARGUMENT &&
            vmm__handle_find(HANDLE_POOL, member->pool.pool) != NULL)
            member_put_back(member);
        else
            vmm__host_free(member, sizeof *member);
    }
    vmm__error_restore(&line);
}

/* ---- Pools of tags -------------------------------------------------------------------------- */

static vmm_status pool_create(vmm_cache *cache, vmm_torch_pool *pool)
{
    uint64_t number = atomic_fetch_add_explicit(&region_count, 1, memory_order_relaxed) + 1;
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    options.name = pool->tag;
    options.on_sleep = pool->discards ? VMM_ON_SLEEP_DISCARD : VMM_ON_SLEEP_KEEP;
    options.user_id = (vmm_pool_id){ number, number }; /* ids of PyTorch have one zero */
    pool->id = (vmm_pool_id){ number, number };
    return vmm_pool_create(cache, &options, &pool->pool);
}

/* Finds the pool of pool->tag, or creates it. */
static vmm_status pool_get(vmm_cache *cache, vmm_torch_pool *pool)
{
    vmm__mutex_lock(&members_lock);
    const struct member *member = member_find_locked(pool);
    if (member != NULL)
        *pool = member->pool;
    vmm__mutex_unlock(&members_lock);
    vmm_status status = member != NULL ? VMM_OK : pool_create(cache, pool);
    if (member != NULL || status != VMM_OK)
        return status;
    vmm_pool *created = pool->pool;
    struct torch_pool_settings none = { .flags = 0 };
    status = member_add(pool, true, &none);
    if (pool->pool != created || status != VMM_OK) {
        struct error_line line;
        vmm__error_save(&line);
        (void)vmm_pool_destroy(created, 0);
        vmm__error_restore(&line);
    }
    return status;
}

/* ---- The thread's regions ------------------------------------------------------------------- */

static vmm_status region_push(const struct region *wanted)
{
    struct region *region = vmm__host_alloc(1, sizeof *region);
    if (region == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "no host memory for the region");
    vmm_status status = vmm_pool_push(wanted->pool.pool);
    if (status != VMM_OK) {
        vmm__host_free(region, sizeof *region);
        return status;
    }
    *region = *wanted;
    region->outer = innermost;
    innermost = region;
    return VMM_OK;
}

static vmm_status region_pop(void)
{
    struct region *region = innermost;
    vmm_status status = vmm_pool_pop(region->pool.pool);
    innermost = region->outer;
    vmm__host_free(region, sizeof *region);
    return status;
}

static const struct region *region_find(int ordinal)
{
    const struct region *region = innermost;
    while (region != NULL && (region->is_route || region->ordinal != ordinal))
        region = region->outer;
    return region;
}

vmm_status vmm_torch_region_begin(int device, const char *tag, int discards)
{
    struct torch_device *opened = NULL;
    struct region region = { .ordinal = device,
                             .pool.device = device,
                             .pool.discards = discards != 0 };
    if (tag == NULL || *tag == '\0' || strlen(tag) >= sizeof region.pool.tag)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "the tag of a region has 1 to %zu bytes",
                          sizeof region.pool.tag - 1);
    vmm_status status = vmm__torch_open(device, &opened);
    if (status != VMM_OK)
        return status;
    memcpy(region.pool.tag, tag, strlen(tag));
    status = pool_get(vmm__torch_cache_of(opened), &region.pool);
    return status == VMM_OK ? region_push(&region) : status;
}

/* A capture that failed may have left its route. */
vmm_status vmm_torch_region_end(int device)
{
    while (innermost != NULL && innermost->is_route && innermost->ordinal == device)
        (void)region_pop();
    if (innermost == NULL || innermost->ordinal != device)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "the innermost region of this thread is not one of device %d", device);
    return region_pop();
}

vmm_status vmm__torch_region_cover(int ordinal, vmm_pool *pool)
{
    struct region route = { .ordinal = ordinal, .pool.pool = pool, .is_route = true };
    return region_find(ordinal) == NULL ? VMM_OK : region_push(&route);
}

void vmm__torch_region_uncover(const vmm_pool *pool)
{
    if (innermost != NULL && innermost->is_route && innermost->pool.pool == pool)
        (void)region_pop();
}

/* ---- PyTorch's pools ------------------------------------------------------------------------ */

vmm_status vmm__torch_region_note(int ordinal, vmm_pool *pool, vmm_pool_id id,
                                  const struct torch_pool_settings *settings)
{
    const struct region *region = region_find(ordinal);
    vmm_torch_pool noted = { .pool = pool, .id = id, .device = ordinal };
    if (region != NULL) {
        noted.discards = region->pool.discards;
        memcpy(noted.tag, region->pool.tag, sizeof noted.tag);
    }
    return member_add(&noted, false, settings);
}

static const struct member *member_of_locked(const vmm_pool *pool)
{
    const struct member *member = members;
    VMM_ASSERT_HELD(&members_lock);
    while (member != NULL && member->pool.pool != pool)
        member = member->next;
    return member;
}

struct torch_pool_settings vmm__torch_region_settings(const vmm_pool *pool)
{
    struct torch_pool_settings settings = { .flags = 0 };
    vmm__mutex_lock(&members_lock);
    const struct member *member = member_of_locked(pool);
    if (member != NULL)
        settings = member->settings;
    vmm__mutex_unlock(&members_lock);
    return settings;
}

/* Adds a pool to a list with room for so many. */
static void list_add(vmm_torch_pool *pools, size_t room, size_t *count, const vmm_torch_pool *pool)
{
    if (*count < room)
        pools[*count] = *pool;
    ++*count;
}

static size_t list_make(const struct torch_device *device, vmm_torch_pool *pools, size_t room)
{
    vmm_torch_pool unnamed = { .pool = vmm_cache_pool(vmm__torch_cache_of(device)),
                               .device = device->ordinal };
    size_t count = 0;
    vmm__torch_region_end_deferred();
    list_add(pools, room, &count, &unnamed);
    vmm__mutex_lock(&members_lock);
    members_purge_locked();
    for (const struct member *member = members; member != NULL; member = member->next) {
        if (member->pool.device == device->ordinal && member->settings.source.alloc == NULL)
            list_add(pools, room, &count, &member->pool);
    }
    vmm__mutex_unlock(&members_lock);
    return count;
}

vmm_status vmm_torch_pools_list(int device, vmm_torch_pool *pools, size_t room, size_t *count)
{
    if (count == NULL || (pools == NULL && room > 0))
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "vmm_torch_pools_list: %s is NULL",
                          count == NULL ? "count" : "pools");
    const struct torch_device *opened = vmm__torch_find(device);
    *count = opened == NULL ? 0 : list_make(opened, pools, room);
    return VMM_OK;
}

/* ---- Sleep ---------------------------------------------------------------------------------- */

static _Atomic(vmm_torch_sleep_fn) sleep_watch; /* NULL: none */

void vmm__torch_sleep_watch(vmm_torch_sleep_fn watch)
{
    atomic_store_explicit(&sleep_watch, watch, memory_order_release);
}

/* Finds the device and the id of a pool. */
static bool pool_describe(const vmm_pool *pool, vmm_torch_pool *out)
{
    for (const struct torch_device *device = vmm__torch_next(NULL); device != NULL;
         device = vmm__torch_next(device)) {
        *out = (vmm_torch_pool){ .device = device->ordinal };
        if (vmm_cache_pool(vmm__torch_cache_of(device)) == pool)
            return true;
    }
    vmm__mutex_lock(&members_lock);
    const struct member *member = member_of_locked(pool);
    if (member != NULL)
        *out = member->pool;
    vmm__mutex_unlock(&members_lock);
    return member != NULL;
}

static void mapping_tell(const vmm_pool *pool, uint64_t address, uint64_t bytes, int is_mapped)
{
    vmm_torch_sleep_fn watch = atomic_load_explicit(&sleep_watch, memory_order_acquire);
    vmm_torch_pool known;
    if (watch != NULL && pool_describe(pool, &known))
        watch(known.device, known.id, address, bytes, is_mapped);
}

void vmm_torch_unmapping(void *context, vmm_pool *pool, uint64_t address, uint64_t bytes)
{
    (void)context;
    mapping_tell(pool, address, bytes, 0);
}

void vmm_torch_mapped(void *context, vmm_pool *pool, uint64_t address, uint64_t bytes)
{
    (void)context;
    mapping_tell(pool, address, bytes, 1);
}
