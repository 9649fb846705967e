/* Pools: see pool.h. */
#include "pool/pool.h"
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "pool/block_ref.h"
#include "pool/views.h"

/* Waits that an allocation checks: usually at most two event queries. */
enum { POLL_ON_TAKE = 2 };

static _Atomic uint64_t last_serial;

/* ---- Life --------------------------------------------------------------------------------- */

vmm_status vmm__pool_open(vmm_stream stream, struct driver *driver, struct directory *directory,
                          struct totals *totals, struct pool **out)
{
    struct pool *pool = vmm__host_alloc(1, sizeof *pool);
    if (pool == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "pool: no host memory for the pool of a stream");
    pool->serial = atomic_fetch_add_explicit(&last_serial, 1, memory_order_relaxed) + 1;
    atomic_init(&pool->stream, stream);
    pool->totals = totals;
    pool->until_event_bytes = UINT64_MAX;
    pool->event_distance_bytes = UINT64_MAX / 2;
    vmm__biased_init(&pool->lock);
    vmm__counters_init(&pool->counters);
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

void vmm__pool_vacate_locked(struct pool *pool)
{
    VMM_ASSERT_HELD(&pool->lock);
    vmm__counters_flush(&pool->counters, pool->totals);
    pool->last = (struct last_allocated){ .address = 0 };
    vmm__uses_fini(&pool->uses);
    vmm__uses_init(&pool->uses);
    vmm__heap_vacate(&pool->large);
    vmm__heap_vacate(&pool->small);
    vmm__timeline_shrink(&pool->timeline);
}

static struct magazines *magazines_of(const struct pool *pool)
{
    return atomic_load_explicit(&pool->magazines, memory_order_relaxed);
}

/* ---- The lock ----------------------------------------------------------------------------- */

/* Few pools are contended: the calls below are for those that are. */
static bool has_magazines(const struct pool *pool)
{
    return atomic_load_explicit(&pool->magazines, memory_order_relaxed) != NULL;
}

static void pool_drain(struct pool *pool)
{
    if (has_magazines(pool))
        vmm__magazines_close_locked(pool);
    vmm__slabs_purge_lone(&pool->slabs, vmm__timeline_now(&pool->timeline));
    vmm__heap_settle(&pool->small);
    vmm__heap_settle(&pool->large);
    vmm__views_update(&pool->large);
}

void vmm__pool_lock(struct pool *pool)
{
    vmm__biased_lock(&pool->lock);
    pool_drain(pool);
}

void vmm__pool_lock_second(struct pool *pool)
{
    vmm__biased_lock_second(&pool->lock);
    pool_drain(pool);
}

void vmm__pool_lock_for_scan(struct pool *pool, uint64_t scan)
{
    vmm__biased_lock_second(&pool->lock);
    struct last_scan *last_scan = &pool->last_scan;
    uint64_t taken = pool->counters.allocations.taken;
    if (last_scan->scan != scan)
        *last_scan = (struct last_scan){ .scan = scan,
                                         .taken = taken,
                                         .is_idle = last_scan->taken == taken };
    if (last_scan->is_idle)
        pool_drain(pool);
}

void vmm__pool_unlock(struct pool *pool)
{
    if (has_magazines(pool))
        vmm__magazines_open_locked(pool);
    vmm__biased_unlock(&pool->lock);
}

/* ---- Allocate ----------------------------------------------------------------------------- */

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

uint64_t vmm__pool_block_bytes(uint64_t bytes)
{
    if (bytes <= SLAB_LARGEST_BYTES)
        return vmm__slab_object_bytes(vmm__slab_class(bytes));
    uint64_t unit_bytes = bytes <= POOL_SMALL_LARGEST_BYTES ? SMALL_SLOT_BYTES : LARGE_UNIT_BYTES;
    uint64_t block_bytes;
    return vmm__align_up_checked(bytes, unit_bytes, &block_bytes) ? block_bytes : UINT64_MAX;
}

static void *address_publish(struct pool *pool, struct heap *heap, struct block *block,
                             uint64_t address)
{
    pool->last = (struct last_allocated){ .address = address, .heap = heap, .block = block };
    return (void *)(uintptr_t)address;
}

static void *block_publish(struct pool *pool, struct heap *heap, struct block *block,
                           uint64_t bytes)
{
    block->requested_bytes = bytes;
    vmm__counters_alloc(&pool->counters, pool->totals, bytes, block->node.size);
    return address_publish(pool, heap, block, block->address);
}

static void *object_publish(struct pool *pool, struct slab *slab, uint64_t bytes)
{
    uint32_t object = vmm__slab_take(&pool->slabs, slab, bytes);
    vmm__counters_alloc(&pool->counters, pool->totals, bytes, slab->object_bytes);
    return address_publish(pool, &pool->small, slab->block, vmm__slab_address(slab, object));
}

/* The two functions below are not inlined, so that the fast path needs no stack frame. */
static __attribute__((noinline)) vmm_status object_open(struct pool *pool, uint32_t class_index,
                                                        uint64_t bytes, void **out)
{
    vmm_status status = vmm__slab_open(&pool->slabs, class_index);
    if (status == VMM_OK)
        *out = object_publish(pool, pool->slabs.partial[class_index], bytes);
    return status;
}

static __attribute__((noinline)) vmm_status
block_take(struct pool *pool, struct heap *heap, uint64_t block_bytes, uint64_t bytes, void **out)
{
    struct block *block;
    vmm_status status = vmm__heap_take(heap, block_bytes, &block);
    if (status == VMM__NO_FIT)
        status = vmm__views_take(heap, block_bytes, &block);
    if (status == VMM_OK)
        *out = block_publish(pool, heap, block, bytes);
    return status == VMM__STRANDS ? VMM__NO_FIT : status;
}

static vmm_status object_take(struct pool *pool, uint64_t bytes, void **out)
{
    uint32_t class_index = vmm__slab_class(bytes);
    struct slab *slab = pool->slabs.partial[class_index];
    if (slab == NULL)
        return object_open(pool, class_index, bytes, out);
    *out = object_publish(pool, slab, bytes);
    return VMM_OK;
}

/* A driver error here does not fail the request. */
static __attribute__((noinline)) void waits_poll(struct pool *pool)
{
    struct error_line line;
    vmm__error_save(&line);
    (void)vmm__pool_poll_locked(pool, POLL_ON_TAKE);
    vmm__error_restore(&line);
}

vmm_status vmm__pool_take_plain_locked(struct pool *pool, uint64_t bytes, void **out)
{
    VMM_ASSERT_HELD(&pool->lock);
    if (pool->uses.oldest != NULL)
        waits_poll(pool);
    if (bytes <= SLAB_LARGEST_BYTES)
        return object_take(pool, bytes, out);
    struct heap *heap = heap_for(pool, bytes);
    uint64_t block_bytes;
    if (!vmm__align_up_checked(bytes, heap->unit_bytes, &block_bytes))
        return VMM__NO_FIT;
    struct block *last_freed = vmm__heap_take_last_freed(heap, block_bytes);
    if (last_freed == NULL)
        return block_take(pool, heap, block_bytes, bytes, out);
    *out = block_publish(pool, heap, last_freed, bytes);
    return VMM_OK;
}

/* Takes a block that other threads have freed, for the bias owner; other threads have tried their magazine before they
 * locked the pool. */
static bool pending_take(struct pool *pool, struct magazines *magazines, uint64_t bytes, void **out)
{
    uint32_t pending = vmm__magazines_pending(magazines);
    if (pending == 0 && !magazines->owner_takes)
        return false;
    magazines->owner_takes = vmm__magazine_take(pool, bytes, out);
    if (!magazines->owner_takes)
        vmm__magazines_drain_locked(pool, magazines, pending);
    return magazines->owner_takes;
}

vmm_status vmm__pool_take_listed_locked(struct pool *pool, uint64_t bytes, void **out)
{
    VMM_ASSERT_HELD(&pool->lock);
    struct magazines *magazines = magazines_of(pool);
    if (vmm__biased_is_fast(&pool->lock) && pending_take(pool, magazines, bytes, out))
        return VMM_OK;
    vmm_status status = vmm__pool_take_plain_locked(pool, bytes, out);
    if (status == VMM__NO_FIT && !magazines->is_closed) {
        vmm__magazines_drain_locked(pool, magazines, UINT32_MAX);
        status = vmm__pool_take_plain_locked(pool, bytes, out);
    }
    if (status != VMM_OK ||
        !vmm__live_table_add(pool->large.directory->live, pool->last.address, bytes))
        return status;
    struct block *block = pool->last.block;
    if (block->state == BLOCK_SLAB)
        block->slab->listed_bits |= UINT64_C(1)
                                    << vmm__slab_object(block->slab, pool->last.address);
    else
        block->is_listed = true;
    return VMM_OK;
}

vmm_status vmm__pool_take_block_locked(struct pool *pool, struct block *block, uint64_t bytes,
                                       void **out)
{
    VMM_ASSERT_HELD(&pool->lock);
    vmm_status status = vmm__heap_take_from(&pool->large, block, block->node.size, &block);
    if (status == VMM_OK)
        *out = block_publish(pool, &pool->large, block, bytes);
    return status;
}

/* ---- Free --------------------------------------------------------------------------------- */

/* Finds a live block or object, which from then on is not listed. False if it is not live, or was freed without the
 * lock. */
static bool ref_find_live(struct pool *pool, const struct heap *heap, uint64_t address,
                          struct block_ref *ref)
{
    if (!vmm__block_ref_find_live(heap, address, ref))
        return false;
    if (!vmm__block_ref_is_listed(ref))
        return true;
    if (!vmm__live_table_remove(pool->large.directory->live, address))
        return false;
    vmm__block_ref_set_listed(ref, false);
    return true;
}

static void object_give(struct pool *pool, struct slab *slab, uint32_t object)
{
    vmm__counters_free(&pool->counters, pool->totals, slab->requested[object], slab->object_bytes);
    vmm__slab_give(&pool->slabs, slab, object, vmm__timeline_now(&pool->timeline));
}

/*
 * A pool whose memory other streams search records events as it frees: an event that is recorded at the search passes
 * later. It records one for each 64th of its large heap, so about that much at most is freed and has no event; but at
 * least 16 MiB apart, because an event costs about half a microsecond. Without another search each distance is 1/64
 * longer than the one before, so the events become rare.
 */
enum { EVENT_SHARE = 64, EVENT_LEAST_BYTES = 16 << 20 };

void vmm__pool_lend_locked(struct pool *pool)
{
    pool->event_distance_bytes = vmm__max(EVENT_LEAST_BYTES, pool->large.bytes / EVENT_SHARE);
    pool->until_event_bytes = vmm__min(pool->until_event_bytes, pool->event_distance_bytes);
}

/* A driver error here does not fail the free. */
static __attribute__((noinline)) void event_record(struct pool *pool)
{
    struct error_line line;
    vmm__error_save(&line);
    (void)vmm__timeline_record(&pool->timeline, vmm__timeline_now(&pool->timeline));
    vmm__error_restore(&line);
    pool->event_distance_bytes += pool->event_distance_bytes / EVENT_SHARE;
    pool->until_event_bytes = pool->event_distance_bytes;
}

/* Not inlined, so that the fast path needs no stack frame. */
static __attribute__((noinline)) void block_return(struct pool *pool, struct heap *heap,
                                                   struct block *block)
{
    uint64_t bytes = block->node.size;
    (void)vmm__heap_give(heap, block, vmm__timeline_now(&pool->timeline));
    if (bytes >= pool->until_event_bytes)
        event_record(pool);
    else
        pool->until_event_bytes -= bytes;
}

static void block_give(struct pool *pool, struct heap *heap, struct block *block)
{
    vmm__counters_free(&pool->counters, pool->totals, block->requested_bytes, block->node.size);
    if (!vmm__heap_give_last(heap, block, vmm__timeline_now(&pool->timeline)))
        block_return(pool, heap, block);
}

void vmm__pool_give_kept_locked(struct pool *pool, struct live_entry *entry)
{
    VMM_ASSERT_HELD(&pool->lock);
    uint64_t address = vmm__live_entry_address(entry);
    struct heap *heap = vmm__directory_heap(pool->large.directory, address);
    struct block_ref ref;
    (void)vmm__block_ref_find(heap, address, &ref); /* a listed block is allocated */
    vmm__block_ref_set_listed(&ref, false);
    vmm__live_entry_clear(entry);
    if (ref.slab == NULL)
        block_give(pool, heap, ref.block);
    else
        object_give(pool, ref.slab, ref.object);
}

/* Makes a live block wait if other streams may still use it: VMM__PENDING. VMM_OK: none does. */
static vmm_status ref_await(struct pool *pool, struct heap *heap, uint64_t address,
                            struct block_ref *ref)
{
    vmm_status status = vmm__uses_end(&pool->uses, address);
    if (status != VMM__PENDING)
        return status;
    uint64_t bytes = vmm__block_ref_bytes(ref);
    vmm__block_ref_set_pinned(heap, ref, false);
    /* First, because the next call may flush and the bytes stay active. */
    vmm__counters_wait(&pool->counters, bytes);
    vmm__counters_free(&pool->counters, pool->totals, vmm__block_ref_requested_bytes(ref), bytes);
    vmm__block_ref_wait(ref);
    vmm__listener_call(heap, VMM_CHANGE_WAIT, address, bytes);
    return VMM__PENDING;
}

/* Frees a block in any special case: pinned, used, or not live. */
static __attribute__((noinline)) vmm_status ref_give(struct pool *pool, struct heap *heap,
                                                     uint64_t address)
{
    struct block_ref ref;
    if (!ref_find_live(pool, heap, address, &ref))
        return vmm__block_ref_unknown("vmm_free", heap, address);
    vmm_status status = ref_await(pool, heap, address, &ref);
    if (status != VMM_OK)
        return status == VMM__PENDING ? VMM_OK : status;
    vmm__block_ref_set_pinned(heap, &ref, false);
    if (ref.slab == NULL)
        block_give(pool, heap, ref.block);
    else
        object_give(pool, ref.slab, ref.object);
    return VMM_OK;
}

/* Frees a listed block that is not pinned. */
static vmm_status listed_give(struct pool *pool, struct heap *heap, struct block *block,
                              uint64_t address)
{
    if (!vmm__live_table_remove(pool->large.directory->live, address))
        return vmm__block_ref_unknown("vmm_free", heap, address);
    if (block->state != BLOCK_SLAB) {
        block->is_listed = false;
        block_give(pool, heap, block);
        return VMM_OK;
    }
    uint32_t object = vmm__slab_object(block->slab, address);
    block->slab->listed_bits &= ~(UINT64_C(1) << object);
    object_give(pool, block->slab, object);
    return VMM_OK;
}

/* Whether a live block or object is in the live table. */
static bool is_listed(const struct block *block, uint64_t address)
{
    if (block->state != BLOCK_SLAB)
        return block->state == BLOCK_LIVE && block->address == address && block->is_listed;
    uint32_t object = vmm__slab_object(block->slab, address);
    return object != SLAB_OBJECTS && (block->slab->listed_bits >> object & 1) != 0;
}

/* Frees what is not an ordinary live block: see listed_give() and ref_give(). */
static __attribute__((noinline)) vmm_status special_give(struct pool *pool, struct heap *heap,
                                                         struct block *block, uint64_t address)
{
    return is_listed(block, address) ? listed_give(pool, heap, block, address)
                                     : ref_give(pool, heap, address);
}

vmm_status vmm__pool_give_locked(struct pool *pool, struct heap *heap, uint64_t address)
{
    VMM_ASSERT_HELD(&pool->lock);
    struct block *block = pool->last.block;
    if (vmm__pool_last_heap(pool, address) == NULL)
        block = vmm__heap_find(heap, address);
    if (block == NULL || vmm__uses_count(&pool->uses) != 0)
        return ref_give(pool, heap, address);
    if (block->state == BLOCK_LIVE && block->address == address &&
        !(block->is_pinned | block->is_listed)) {
        block_give(pool, heap, block);
        return VMM_OK;
    }
    if (block->state != BLOCK_SLAB)
        return special_give(pool, heap, block, address);
    struct slab *slab = block->slab;
    uint32_t object = vmm__slab_object(slab, address);
    uint64_t special_bits =
        slab->free_bits | slab->waiting_bits | slab->pinned_bits | slab->listed_bits;
    if (object == SLAB_OBJECTS || (special_bits >> object & 1) != 0)
        return special_give(pool, heap, block, address);
    object_give(pool, slab, object);
    return VMM_OK;
}

/* Frees a block that waited. */
static void ref_release(struct pool *pool, struct heap *heap, struct block_ref *ref,
                        uint64_t address)
{
    uint64_t epoch = vmm__timeline_now(&pool->timeline);
    uint64_t bytes = vmm__block_ref_bytes(ref);
    vmm__counters_release(&pool->counters, bytes);
    vmm__listener_call(heap, VMM_CHANGE_FREE, address, bytes);
    if (ref->slab == NULL)
        (void)vmm__heap_give(heap, ref->block, epoch);
    else
        vmm__slab_give(&pool->slabs, ref->slab, ref->object, epoch);
}

/* A stream that uses a graph pool has a timeline besides the graph pool's own. After the pool's
 * stream is closed, the same handle names another stream. */
static bool is_own(const struct pool *pool, const struct timeline *other)
{
    if (other == &pool->timeline)
        return true;
    return other->stream == pool->stream && !vmm__timeline_has_ended(&pool->timeline);
}

vmm_status vmm__pool_use_locked(struct pool *pool, struct heap *heap, uint64_t address,
                                struct timeline *other)
{
    VMM_ASSERT_HELD(&pool->lock);
    struct block_ref ref;
    if (!ref_find_live(pool, heap, address, &ref))
        return vmm__block_ref_unknown("vmm_record_stream", heap, address);
    if (is_own(pool, other))
        return VMM_OK;
    return vmm__uses_add(&pool->uses, address, other);
}

vmm_status vmm__pool_pin_locked(struct heap *heap, uint64_t address, bool pinned)
{
    VMM_ASSERT_HELD(&heap->pool->lock);
    struct block_ref ref;
    if (!ref_find_live(heap->pool, heap, address, &ref))
        return vmm__block_ref_unknown(pinned ? "vmm_pin" : "vmm_unpin", heap, address);
    vmm__block_ref_set_pinned(heap, &ref, pinned);
    return VMM_OK;
}

vmm_status vmm__pool_poll_locked(struct pool *pool, unsigned most)
{
    VMM_ASSERT_HELD(&pool->lock);
    vmm_status any = VMM__NOTHING;
    uint64_t address;
    struct uses_pass pass;
    vmm__uses_pass_begin(&pool->uses, most, &pass);
    vmm_status status = vmm__uses_pass_next(&pool->uses, &pass, &address);
    while (status == VMM_OK) {
        struct heap *heap = vmm__directory_heap(pool->large.directory, address);
        struct block_ref ref;
        if (vmm__block_ref_find(heap, address, &ref))
            ref_release(pool, heap, &ref, address);
        any = VMM_OK;
        status = vmm__uses_pass_next(&pool->uses, &pass, &address);
    }
    if (any == VMM_OK) /* no later call flushes the change of the active bytes */
        vmm__counters_flush(&pool->counters, pool->totals);
    return status == VMM__NOTHING ? any : status;
}

uint64_t vmm__pool_settle_locked(struct pool *pool)
{
    VMM_ASSERT_HELD(&pool->lock);
    (void)vmm__pool_poll_locked(pool, UINT32_MAX);
    (void)vmm__slabs_purge(&pool->slabs, vmm__timeline_now(&pool->timeline));
    return vmm__timeline_advance(&pool->timeline);
}
