/* The memory of one stream: see pool.h. */
#include "heap/pool.h"
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "heap/place.h"

/* Waits that an allocation looks at on its way: two event queries in the worst usual case. */
enum { POLL_ON_TAKE = 2 };

static _Atomic uint64_t last_serial;

/* ---- Life --------------------------------------------------------------------------------- */

vmm_status vmm__pool_open(vmm_stream stream, struct driver *driver, struct directory *directory,
                          struct ledger *ledger, struct pool **out)
{
    struct pool *pool = vmm__host_alloc(1, sizeof *pool);
    if (pool == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "pool: no host memory for another stream");
    pool->serial = atomic_fetch_add_explicit(&last_serial, 1, memory_order_relaxed) + 1;
    atomic_init(&pool->stream, stream);
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

vmm_status vmm__pool_close(struct pool *pool)
{
    vmm__magazines_fini(pool);
    vmm__uses_fini(&pool->uses);
    vmm__slabs_fini(&pool->slabs);
    vmm__heap_fini(&pool->large);
    vmm__heap_fini(&pool->small);
    vmm_status status = vmm__timeline_fini(&pool->timeline);
    vmm__biased_fini(&pool->lock);
    vmm__host_free(pool, sizeof *pool);
    return status;
}

/* ---- The lock ----------------------------------------------------------------------------- */

static void pool_gather(struct pool *pool)
{
    if (pool->magazines != NULL)
        vmm__magazines_call_locked(pool);
    vmm__heap_settle(&pool->small);
    vmm__heap_settle(&pool->large);
}

void vmm__pool_lock(struct pool *pool)
{
    vmm__biased_take(&pool->lock);
    pool_gather(pool);
}

void vmm__pool_lock_second(struct pool *pool)
{
    vmm__biased_take_second(&pool->lock);
    pool_gather(pool);
}

void vmm__pool_lock_passing(struct pool *pool, uint64_t occasion)
{
    vmm__biased_take_second(&pool->lock);
    struct passer_by *passer_by = &pool->passer_by;
    uint64_t taken = pool->account.allocations.taken;
    if (passer_by->occasion != occasion)
        *passer_by = (struct passer_by){ .occasion = occasion,
                                         .taken = taken,
                                         .is_at_rest = passer_by->taken == taken };
    if (passer_by->is_at_rest)
        pool_gather(pool);
}

void vmm__pool_unlock(struct pool *pool)
{
    if (pool->magazines != NULL)
        vmm__magazines_release_locked(pool);
    vmm__biased_drop(&pool->lock);
}

/* ---- Taking ------------------------------------------------------------------------------- */

static struct heap *heap_for(struct pool *pool, uint64_t bytes)
{
    return bytes <= POOL_SMALL_LARGEST_BYTES ? &pool->small : &pool->large;
}

bool vmm__pool_need(struct pool *pool, uint64_t bytes, struct heap **heap, uint64_t *block_bytes)
{
    *heap = heap_for(pool, bytes);
    if (bytes > SLAB_LARGEST_BYTES)
        return vmm__align_up_checked(bytes, (*heap)->unit_bytes, block_bytes);
    *block_bytes = vmm__slab_run_bytes(vmm__slab_class(bytes));
    return true;
}

uint64_t vmm__pool_place_bytes(uint64_t bytes)
{
    if (bytes <= SLAB_LARGEST_BYTES)
        return vmm__slab_object_bytes(vmm__slab_class(bytes));
    uint64_t unit_bytes = bytes <= POOL_SMALL_LARGEST_BYTES ? SMALL_SLOT_BYTES : LARGE_UNIT_BYTES;
    uint64_t block_bytes;
    return vmm__align_up_checked(bytes, unit_bytes, &block_bytes) ? block_bytes : UINT64_MAX;
}

static void *address_hand_out(struct pool *pool, struct heap *heap, struct block *block,
                              uint64_t address)
{
    pool->last = (struct last_handed_out){ .address = address, .heap = heap, .block = block };
    return (void *)(uintptr_t)address;
}

static void *block_hand_out(struct pool *pool, struct heap *heap, struct block *block,
                            uint64_t bytes)
{
    block->requested_bytes = bytes;
    vmm__account_take(&pool->account, pool->ledger, bytes, block->node.size);
    return address_hand_out(pool, heap, block, block->address);
}

static void *object_hand_out(struct pool *pool, struct slab *slab, uint64_t bytes)
{
    uint32_t object = vmm__slab_take(&pool->slabs, slab, bytes);
    vmm__account_take(&pool->account, pool->ledger, bytes, slab->object_bytes);
    return address_hand_out(pool, &pool->small, slab->block, vmm__slab_address(slab, object));
}

/* The two below are apart from the fast path, which then needs no room on the stack. */
static __attribute__((noinline)) vmm_status object_open(struct pool *pool, uint32_t class_index,
                                                        uint64_t bytes, void **out)
{
    vmm_status status = vmm__slab_open(&pool->slabs, class_index);
    if (status == VMM_OK)
        *out = object_hand_out(pool, pool->slabs.partial[class_index], bytes);
    return status;
}

static __attribute__((noinline)) vmm_status
block_take(struct pool *pool, struct heap *heap, uint64_t block_bytes, uint64_t bytes, void **out)
{
    struct block *block;
    vmm_status status = vmm__heap_take(heap, block_bytes, &block);
    if (status == VMM_OK)
        *out = block_hand_out(pool, heap, block, bytes);
    return status;
}

static vmm_status object_take(struct pool *pool, uint64_t bytes, void **out)
{
    uint32_t class_index = vmm__slab_class(bytes);
    struct slab *slab = pool->slabs.partial[class_index];
    if (slab == NULL)
        return object_open(pool, class_index, bytes, out);
    *out = object_hand_out(pool, slab, bytes);
    return VMM_OK;
}

/* The request does not fail if the driver does not say what has ended. */
static __attribute__((noinline)) void waits_look(struct pool *pool)
{
    struct error_line line;
    vmm__error_save(&line);
    (void)vmm__pool_poll_locked(pool, POLL_ON_TAKE);
    vmm__error_restore(&line);
}

vmm_status vmm__pool_take_locked(struct pool *pool, uint64_t bytes, void **out)
{
    if (pool->uses.oldest != NULL)
        waits_look(pool);
    if (bytes <= SLAB_LARGEST_BYTES)
        return object_take(pool, bytes, out);
    struct heap *heap = heap_for(pool, bytes);
    uint64_t block_bytes;
    if (!vmm__align_up_checked(bytes, heap->unit_bytes, &block_bytes))
        return VMM_NOT_READY;
    struct block *warm = vmm__heap_take_warm(heap, block_bytes);
    if (warm == NULL)
        return block_take(pool, heap, block_bytes, bytes, out);
    *out = block_hand_out(pool, heap, warm, bytes);
    return VMM_OK;
}

vmm_status vmm__pool_take_block_locked(struct pool *pool, struct block *block, uint64_t bytes,
                                       void **out)
{
    vmm_status status = vmm__heap_take_from(&pool->large, block, block->node.size, &block);
    if (status == VMM_OK)
        *out = block_hand_out(pool, &pool->large, block, bytes);
    return status;
}

/* ---- Giving back -------------------------------------------------------------------------- */

/* What a magazine knows about the place is settled with it; what it keeps is not live. */
static bool place_find_live(struct pool *pool, const struct heap *heap, uint64_t address,
                            struct place *place)
{
    if (!vmm__place_find_live(heap, address, place))
        return false;
    return vmm__place_knower(place) == 0 || vmm__magazines_forget_locked(pool, place, address);
}

static void object_give(struct pool *pool, struct slab *slab, uint32_t object)
{
    vmm__account_give(&pool->account, pool->ledger, slab->requested[object], slab->object_bytes);
    vmm__slab_give(&pool->slabs, slab, object, vmm__timeline_now(&pool->timeline));
}

static void block_give(struct pool *pool, struct heap *heap, struct block *block)
{
    vmm__account_give(&pool->account, pool->ledger, block->requested_bytes, block->node.size);
    vmm__heap_give_live(heap, block, vmm__timeline_now(&pool->timeline));
}

/* Lets a live place wait if other streams may still use it: VMM_NOT_READY. VMM_OK: none does. */
static vmm_status place_await(struct pool *pool, struct heap *heap, uint64_t address,
                              struct place *place)
{
    vmm_status status = vmm__uses_end(&pool->uses, address);
    if (status != VMM_NOT_READY)
        return status;
    uint64_t bytes = vmm__place_bytes(place);
    vmm__place_set_pinned(heap, place, false);
    vmm__account_wait(&pool->account, bytes); /* first, as giving may post: it stays active */
    vmm__account_give(&pool->account, pool->ledger, vmm__place_requested_bytes(place), bytes);
    vmm__place_wait(place);
    vmm__watch_tell(heap, VMM_CHANGE_WAIT, address, bytes);
    return VMM_NOT_READY;
}

/* Whatever may be the matter with the place at an address: pinned, used, known, or not live. */
static __attribute__((noinline)) vmm_status place_give(struct pool *pool, struct heap *heap,
                                                       uint64_t address)
{
    struct place place;
    if (!place_find_live(pool, heap, address, &place))
        return vmm__place_unknown("vmm_free", heap, address);
    vmm_status status = place_await(pool, heap, address, &place);
    if (status != VMM_OK)
        return status == VMM_NOT_READY ? VMM_OK : status;
    vmm__place_set_pinned(heap, &place, false);
    if (place.slab == NULL)
        block_give(pool, heap, place.block);
    else
        object_give(pool, place.slab, place.object);
    return VMM_OK;
}

vmm_status vmm__pool_give_locked(struct pool *pool, struct heap *heap, uint64_t address)
{
    struct block *block = pool->last.block;
    if (vmm__pool_last_heap(pool, address) == NULL)
        block = vmm__heap_find(heap, address);
    if (block == NULL || vmm__uses_count(&pool->uses) != 0)
        return place_give(pool, heap, address);
    if (block->state == BLOCK_LIVE && block->address == address && !block->is_pinned &&
        block->knower == 0) {
        block_give(pool, heap, block);
        return VMM_OK;
    }
    if (block->state != BLOCK_SLAB)
        return place_give(pool, heap, address);
    struct slab *slab = block->slab;
    uint32_t object = vmm__slab_object(slab, address);
    uint64_t odd_bits = slab->free_bits | slab->waiting_bits | slab->pinned_bits | slab->known_bits;
    if (object == SLAB_OBJECTS || (odd_bits >> object & 1) != 0)
        return place_give(pool, heap, address);
    object_give(pool, slab, object);
    return VMM_OK;
}

/* Makes a place that waited free: no stream but the pool's own may still use it. */
static void place_release(struct pool *pool, struct heap *heap, struct place *place,
                          uint64_t address)
{
    uint64_t epoch = vmm__timeline_now(&pool->timeline);
    uint64_t bytes = vmm__place_bytes(place);
    vmm__account_release(&pool->account, bytes);
    vmm__watch_tell(heap, VMM_CHANGE_FREE, address, bytes);
    if (place->slab == NULL)
        (void)vmm__heap_give(heap, place->block, epoch);
    else
        vmm__slab_give(&pool->slabs, place->slab, place->object, epoch);
}

/* A private pool's stream has a timeline beside the pool's. Once it has ended, the same handle is another
 * stream's. */
static bool is_own(const struct pool *pool, const struct timeline *other)
{
    if (other == &pool->timeline)
        return true;
    return other->stream == pool->stream && !vmm__timeline_has_ended(&pool->timeline);
}

vmm_status vmm__pool_use_locked(struct pool *pool, struct heap *heap, uint64_t address,
                                struct timeline *other)
{
    struct place place;
    if (!place_find_live(pool, heap, address, &place))
        return vmm__place_unknown("vmm_use", heap, address);
    if (is_own(pool, other))
        return VMM_OK;
    return vmm__uses_add(&pool->uses, address, other);
}

vmm_status vmm__pool_pin_locked(struct heap *heap, uint64_t address, bool pinned)
{
    struct place place;
    if (!place_find_live(heap->pool, heap, address, &place))
        return vmm__place_unknown(pinned ? "vmm_pin" : "vmm_unpin", heap, address);
    vmm__place_set_pinned(heap, &place, pinned);
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
        if (vmm__place_find(heap, address, &place))
            place_release(pool, heap, &place, address);
        any = VMM_OK;
        status = vmm__uses_pass_next(&pool->uses, &pass, &address);
    }
    if (any == VMM_OK) /* nothing else notices that it is active no more */
        vmm__account_post(&pool->account, pool->ledger);
    return status == VMM_NOT_READY ? any : status;
}

uint64_t vmm__pool_settle_locked(struct pool *pool)
{
    (void)vmm__pool_poll_locked(pool, UINT32_MAX);
    (void)vmm__slabs_purge(&pool->slabs, vmm__timeline_now(&pool->timeline));
    return vmm__timeline_advance(&pool->timeline);
}
