/* The memory of one stream: see pool.h. */
#include "heap/pool.h"
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"

/* Waits that an allocation looks at on its way: two event queries in the worst usual case. */
enum { POLL_ON_TAKE = 2 };

/* ---- Life --------------------------------------------------------------------------------- */

vmm_status vmm__pool_open(vmm_stream stream, struct driver *driver, struct directory *directory,
                          struct ledger *ledger, struct pool **out)
{
    struct pool *pool = vmm__host_alloc(1, sizeof *pool);
    if (pool == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "pool: no host memory for another stream");
    pool->stream = stream;
    pool->ledger = ledger;
    vmm__biased_init(&pool->lock);
    vmm__account_init(&pool->account);
    vmm__timeline_init(&pool->timeline, driver, stream);
    vmm__heap_init(&pool->small, pool, directory, true);
    vmm__heap_init(&pool->large, pool, directory, false);
    pool->slabs.heap = &pool->small;
    vmm__uses_init(&pool->uses);
    *out = pool;
    return VMM_OK;
}

void vmm__pool_close(struct pool *pool)
{
    vmm__uses_fini(&pool->uses);
    vmm__slabs_fini(&pool->slabs);
    vmm__heap_fini(&pool->large);
    vmm__heap_fini(&pool->small);
    vmm__timeline_fini(&pool->timeline);
    vmm__biased_fini(&pool->lock);
    vmm__host_free(pool, sizeof *pool);
}

/* ---- The lock ----------------------------------------------------------------------------- */

static void pool_settle_warm(struct pool *pool)
{
    vmm__heap_settle(&pool->small);
    vmm__heap_settle(&pool->large);
}

void vmm__pool_lock(struct pool *pool)
{
    vmm__biased_take(&pool->lock);
    pool_settle_warm(pool);
}

void vmm__pool_lock_second(struct pool *pool)
{
    vmm__biased_take_second(&pool->lock);
    pool_settle_warm(pool);
}

/* ---- Taking ------------------------------------------------------------------------------- */

bool vmm__pool_need(struct pool *pool, uint64_t bytes, struct heap **heap, uint64_t *block_bytes)
{
    *heap = bytes <= POOL_SMALL_LARGEST_BYTES ? &pool->small : &pool->large;
    if (bytes > SLAB_LARGEST_BYTES)
        return vmm__align_up_checked(bytes, (*heap)->unit_bytes, block_bytes);
    *block_bytes = vmm__slab_run_bytes(vmm__slab_class(bytes == 0 ? 1 : bytes));
    return true;
}

static vmm_status object_take(struct pool *pool, uint64_t bytes, uint64_t *address)
{
    struct slab *slab;
    uint32_t object;
    vmm_status status = vmm__slab_take(&pool->slabs, bytes, &slab, &object);
    if (status != VMM_OK)
        return status;
    vmm__account_take(&pool->account, pool->ledger, bytes, slab->object_bytes);
    *address = vmm__slab_address(slab, object);
    return VMM_OK;
}

static void block_hand_out(struct pool *pool, struct block *block, uint64_t bytes,
                           uint64_t *address)
{
    block->requested_bytes = bytes;
    vmm__account_take(&pool->account, pool->ledger, bytes, block->node.size);
    *address = block->address;
}

vmm_status vmm__pool_take_locked(struct pool *pool, uint64_t bytes, uint64_t *address)
{
    if (pool->uses.oldest != NULL)
        (void)vmm__pool_poll_locked(pool, POLL_ON_TAKE);
    if (bytes <= SLAB_LARGEST_BYTES)
        return object_take(pool, bytes, address);
    struct heap *heap;
    uint64_t block_bytes;
    if (!vmm__pool_need(pool, bytes, &heap, &block_bytes))
        return VMM_NOT_READY;
    struct block *block;
    vmm_status status = vmm__heap_take(heap, block_bytes, &block);
    if (status == VMM_OK)
        block_hand_out(pool, block, bytes, address);
    return status;
}

vmm_status vmm__pool_take_block_locked(struct pool *pool, struct block *block, uint64_t bytes,
                                       uint64_t *address)
{
    vmm_status status = vmm__heap_take_from(&pool->large, block, block->node.size, &block);
    if (status == VMM_OK)
        block_hand_out(pool, block, bytes, address);
    return status;
}

/* ---- Giving back -------------------------------------------------------------------------- */

/* What an address of a pool names: a block, or an object of a slab. */
struct place {
    struct block *block;
    struct slab *slab; /* NULL for a block */
    uint32_t object;
};

static bool block_is_handed_out(const struct block *block)
{
    return block->state == BLOCK_LIVE || block->state == BLOCK_SLAB ||
           block->state == BLOCK_WAITING;
}

static bool place_find(const struct heap *heap, uint64_t address, struct place *place)
{
    struct block *block = vmm__heap_find(heap, address);
    if (block == NULL || !block_is_handed_out(block))
        return false;
    *place = (struct place){ .block = block };
    if (block->state != BLOCK_SLAB)
        return true;
    place->slab = block->slab;
    return vmm__slab_find(block->slab, address, &place->object);
}

static bool place_is_waiting(const struct place *place)
{
    if (place->slab == NULL)
        return place->block->state == BLOCK_WAITING;
    return (place->slab->waiting_bits >> place->object & 1) != 0;
}

static bool place_is_live(const struct heap *heap, uint64_t address, struct place *place)
{
    return place_find(heap, address, place) && !place_is_waiting(place);
}

static bool place_is_pinned(const struct place *place)
{
    if (place->slab == NULL)
        return place->block->is_pinned;
    return (place->slab->pinned_bits >> place->object & 1) != 0;
}

static uint64_t place_bytes(const struct place *place)
{
    return place->slab == NULL ? place->block->node.size : place->slab->object_bytes;
}

static void place_pin(struct heap *heap, struct place *place)
{
    if (place_is_pinned(place))
        return;
    heap->unmovable_bytes += place_bytes(place);
    if (place->slab == NULL)
        place->block->is_pinned = true;
    else
        place->slab->pinned_bits |= UINT64_C(1) << place->object;
}

static void place_unpin(struct heap *heap, struct place *place)
{
    if (!place_is_pinned(place))
        return;
    heap->unmovable_bytes -= place_bytes(place);
    if (place->slab == NULL)
        place->block->is_pinned = false;
    else
        place->slab->pinned_bits &= ~(UINT64_C(1) << place->object);
}

static void place_set_waiting(struct place *place)
{
    if (place->slab == NULL)
        place->block->state = BLOCK_WAITING;
    else
        place->slab->waiting_bits |= UINT64_C(1) << place->object;
}

static uint64_t place_requested_bytes(const struct place *place)
{
    return place->slab == NULL ? place->block->requested_bytes
                               : place->slab->requested[place->object];
}

/* Makes a place that waited free: no stream but the pool's own may still use it. */
static void place_release(struct pool *pool, struct heap *heap, struct place *place)
{
    uint64_t epoch = vmm__timeline_now(&pool->timeline);
    vmm__account_release(&pool->account, place_bytes(place));
    if (place->slab == NULL)
        (void)vmm__heap_give(heap, place->block, epoch);
    else
        vmm__slab_give(&pool->slabs, place->slab, place->object, epoch);
}

static vmm_status not_live(const char *function, uint64_t address)
{
    return vmm__error(VMM_ERR_UNKNOWN_POINTER, "%s: 0x%llx is not the start of a live block",
                      function, (unsigned long long)address);
}

/* Lets a live place wait if other streams may still use it: VMM_NOT_READY. VMM_OK: none does. */
static vmm_status place_await(struct pool *pool, struct heap *heap, uint64_t address,
                              struct place *place)
{
    vmm_status status = vmm__uses_end(&pool->uses, address);
    if (status != VMM_NOT_READY)
        return status;
    place_unpin(heap, place);
    vmm__account_give(&pool->account, pool->ledger, place_requested_bytes(place),
                      place_bytes(place));
    place_set_waiting(place);
    return VMM_NOT_READY;
}

vmm_status vmm__pool_give_locked(struct pool *pool, struct heap *heap, uint64_t address)
{
    struct place place;
    if (!place_is_live(heap, address, &place))
        return not_live("free", address);
    if (pool->uses.count != 0) {
        vmm_status status = place_await(pool, heap, address, &place);
        if (status != VMM_OK)
            return status == VMM_NOT_READY ? VMM_OK : status;
    }
    place_unpin(heap, &place);
    uint64_t epoch = vmm__timeline_now(&pool->timeline);
    uint64_t bytes = place_bytes(&place);
    vmm__account_give(&pool->account, pool->ledger, place_requested_bytes(&place), bytes);
    vmm__account_release(&pool->account, bytes);
    if (place.slab == NULL)
        vmm__heap_give_live(heap, place.block, epoch);
    else
        vmm__slab_give(&pool->slabs, place.slab, place.object, epoch);
    return VMM_OK;
}

vmm_status vmm__pool_use_locked(struct pool *pool, struct heap *heap, uint64_t address,
                                struct timeline *other)
{
    struct place place;
    if (!place_is_live(heap, address, &place))
        return not_live("use", address);
    if (other == &pool->timeline)
        return VMM_OK;
    return vmm__uses_add(&pool->uses, address, other);
}

vmm_status vmm__pool_pin_locked(struct heap *heap, uint64_t address, bool pinned)
{
    struct place place;
    if (!place_is_live(heap, address, &place))
        return not_live(pinned ? "pin" : "unpin", address);
    if (pinned)
        place_pin(heap, &place);
    else
        place_unpin(heap, &place);
    return VMM_OK;
}

vmm_status vmm__pool_poll_locked(struct pool *pool, unsigned most)
{
    vmm_status any = VMM_NOT_READY;
    uint64_t address;
    struct uses_pass pass;
    vmm__uses_pass_begin(&pool->uses, most, &pass);
    vmm_status status = vmm__uses_pass_next(&pool->uses, &pass, &address);
    while (status == VMM_OK) {
        struct heap *heap = vmm__directory_heap(pool->large.directory, address);
        struct place place;
        if (place_find(heap, address, &place))
            place_release(pool, heap, &place);
        any = VMM_OK;
        status = vmm__uses_pass_next(&pool->uses, &pass, &address);
    }
    return status == VMM_NOT_READY ? any : status;
}

uint64_t vmm__pool_settle_locked(struct pool *pool)
{
    (void)vmm__pool_poll_locked(pool, UINT32_MAX);
    (void)vmm__slabs_purge(&pool->slabs, vmm__timeline_now(&pool->timeline));
    return vmm__timeline_advance(&pool->timeline);
}
