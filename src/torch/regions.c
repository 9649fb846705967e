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
    vmm_pool_options options; /* without the name */
    bool is_region;           /* of vmm_torch_region_begin(); else PyTorch's */
    bool is_ended;            /* PyTorch has ended it; it is destroyed once it is awake */
};

/* What a thread pushed. */
struct region {
    struct region *outer;
    vmm_torch_pool pool; /* without a tag: of a route */
};

struct mutex vmm__torch_pools = VMM_MUTEX_INIT;

static struct mutex members_lock = VMM_MUTEX_INIT;
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

static struct member *member_of_locked(const vmm_pool *pool)
{
    VMM_ASSERT_HELD(&members_lock);
    struct member *member = members;
    while (member != NULL && member->pool.pool != pool)
        member = member->next;
    return member;
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
static vmm_status member_add(vmm_torch_pool *pool, bool is_region, const vmm_pool_options *options)
{
    struct member *member = vmm__host_alloc(1, sizeof *member);
    if (member == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "no host memory for the list of pools");
    member->pool = *pool;
    member->is_region = is_region;
    member->options = *options;
    member->options.name = NULL;
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
    VMM_QUIET();
    vmm_pool_phase phase = VMM_POOL_AWAKE;
    (void)vmm_pool_state((vmm_pool *)pool, &phase);
    VMM_HOLD(&members_lock);
    struct member *member = member_of_locked(pool);
    bool is_deferred =
        member != NULL && (phase != VMM_POOL_AWAKE || member->options.source.alloc != NULL);
    if (is_deferred)
        member->is_ended = true;
    return is_deferred;
}

/* Takes the pools from the list that are to be destroyed. */
static struct member *ended_take(void)
{
    struct member *ended = NULL;
    VMM_HOLD(&members_lock);
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
    return ended;
}

static void member_put_back(struct member *member)
{
    VMM_HOLD(&members_lock);
    member->next = members;
    members = member;
}

static vmm_status ended_destroy(const struct member *member)
{
    if (member->options.source.alloc != NULL)
        return vmm_pool_destroy(member->pool.pool, 1);
    VMM_HOLD(&vmm__torch_pools);
    return vmm_pool_destroy(member->pool.pool, 1);
}

void vmm__torch_region_end_deferred(void)
{
    VMM_QUIET();
    if (vmm__torch_is_forked())
        return; /* a thread of the parent may have held the locks */
    for (struct member *next, *member = ended_take(); member != NULL; member = next) {
        next = member->next;
        if (ended_destroy(member) == VMM_ERR_INVALID_ARGUMENT &&
            vmm__handle_find(HANDLE_POOL, member->pool.pool) != NULL)
            member_put_back(member);
        else
            vmm__host_free(member, sizeof *member);
    }
}

/* ---- Pools of tags -------------------------------------------------------------------------- */

/* Creates a pool of pool->tag. If another thread does the same, *pool becomes that one's. */
static vmm_status pool_create(vmm_cache *cache, vmm_torch_pool *pool)
{
    uint64_t number = atomic_fetch_add_explicit(&region_count, 1, memory_order_relaxed) + 1;
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    vmm_pool *created;
    options.name = pool->tag;
    options.on_sleep = pool->discards ? VMM_ON_SLEEP_DISCARD : VMM_ON_SLEEP_KEEP;
    options.user_id = (vmm_pool_id){ number, number }; /* ids of PyTorch have one zero */
    vmm_status status = vmm_pool_create(cache, &options, &created);
    if (status != VMM_OK)
        return status;
    pool->id = options.user_id;
    pool->pool = created;
    status = member_add(pool, true, &options);
    VMM_QUIET();
    if (pool->pool != created || status != VMM_OK)
        (void)vmm_pool_destroy(created, 0);
    return status;
}

/* Finds the pool of pool->tag, or creates it. */
static vmm_status pool_get(vmm_cache *cache, vmm_torch_pool *pool)
{
    vmm__mutex_lock(&members_lock);
    const struct member *member = member_find_locked(pool);
    if (member != NULL)
        *pool = member->pool;
    vmm__mutex_unlock(&members_lock);
    return member != NULL ? VMM_OK : pool_create(cache, pool);
}

/* ---- The thread's regions ------------------------------------------------------------------- */

static bool is_route(const struct region *region)
{
    return region->pool.tag[0] == '\0';
}

static vmm_status region_push(const vmm_torch_pool *pool)
{
    struct region *region = vmm__host_alloc(1, sizeof *region);
    if (region == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "no host memory for the region");
    vmm_status status = vmm_pool_push(pool->pool);
    if (status != VMM_OK) {
        vmm__host_free(region, sizeof *region);
        return status;
    }
    *region = (struct region){ .outer = innermost, .pool = *pool };
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
    while (region != NULL && (is_route(region) || region->pool.device != ordinal))
        region = region->outer;
    return region;
}

vmm_status vmm_torch_region_begin(int device, const char *tag, int discards)
{
    struct torch_device *opened = NULL;
    vmm_torch_pool pool = { .device = device, .discards = discards != 0 };
    if (tag == NULL || *tag == '\0' || strlen(tag) >= sizeof pool.tag)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "the tag of a region has 1 to %zu bytes",
                          sizeof pool.tag - 1);
    vmm_status status = vmm__torch_open(device, &opened);
    if (status != VMM_OK)
        return status;
    memcpy(pool.tag, tag, strlen(tag));
    status = pool_get(vmm__torch_cache_of(opened), &pool);
    return status == VMM_OK ? region_push(&pool) : status;
}

/* A capture that failed may have left its route. */
vmm_status vmm_torch_region_end(int device)
{
    while (innermost != NULL && is_route(innermost) && innermost->pool.device == device)
        (void)region_pop();
    if (innermost == NULL || innermost->pool.device != device)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "the innermost region of this thread is not one of device %d", device);
    return region_pop();
}

vmm_status vmm__torch_region_cover(int ordinal, vmm_pool *pool)
{
    const vmm_torch_pool route = { .pool = pool, .device = ordinal };
    return region_find(ordinal) == NULL ? VMM_OK : region_push(&route);
}

void vmm__torch_region_uncover(const vmm_pool *pool)
{
    if (innermost != NULL && is_route(innermost) && innermost->pool.pool == pool)
        (void)region_pop();
}

/* ---- PyTorch's pools ------------------------------------------------------------------------ */

vmm_status vmm__torch_region_note(int ordinal, vmm_pool *pool, const vmm_pool_options *options)
{
    const struct region *region = region_find(ordinal);
    vmm_torch_pool noted = { .pool = pool, .id = options->user_id, .device = ordinal };
    if (region != NULL) {
        noted.discards = region->pool.discards;
        memcpy(noted.tag, region->pool.tag, sizeof noted.tag);
    }
    return member_add(&noted, false, options);
}

vmm_pool_options vmm__torch_region_options(const vmm_pool *pool)
{
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    VMM_HOLD(&members_lock);
    const struct member *member = member_of_locked(pool);
    if (member != NULL)
        options = member->options;
    return options;
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
    VMM_HOLD(&members_lock);
    members_purge_locked();
    for (const struct member *member = members; member != NULL; member = member->next) {
        if (member->pool.device == device->ordinal && member->options.source.alloc == NULL)
            list_add(pools, room, &count, &member->pool);
    }
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
    VMM_HOLD(&members_lock);
    const struct member *member = member_of_locked(pool);
    if (member != NULL)
        *out = member->pool;
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
