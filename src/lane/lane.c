/* Lanes: see lane.h. */
#define _GNU_SOURCE
#include "lane/lane.h"
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "base/time.h"
#include "lane/block_ref.h"
#include "lane/views.h"

/* Waits that an allocation checks: usually at most two event queries. */
enum { POLL_ON_TAKE = 2 };

static _Atomic uint64_t last_serial;

/* What a lane allocated last if it has allocated nothing: a block without bytes. */
static struct block no_block;

/* ---- Life --------------------------------------------------------------------------------- */

/* Gives a lane the cache's clock, or one of its own. */
static bool clock_open(struct lane *lane, const struct directory *directory, vmm_stream stream)
{
    lane->clock = directory->clock;
    if (!directory->has_own_clocks)
        return true;
    lane->clock = vmm__host_alloc(1, sizeof *lane->clock);
    if (lane->clock != NULL)
        vmm__clock_init_own(lane->clock, directory->clock, stream);
    return lane->clock != NULL;
}

static vmm_status clock_close(const struct lane *lane)
{
    if (!vmm__clock_is_own(lane->clock))
        return VMM_OK;
    vmm_status status = vmm__clock_fini(lane->clock);
    vmm__host_free(lane->clock, sizeof *lane->clock);
    return status;
}

static void pool_leave(struct lane *lane)
{
    *lane->pool_link = lane->next_of_pool;
    if (lane->next_of_pool != NULL)
        lane->next_of_pool->pool_link = lane->pool_link;
}

void vmm__lane_join(struct lane *lane, struct pool *pool)
{
    if (lane->owner.pool != NULL)
        pool_leave(lane);
    lane->owner.pool = pool;
    lane->hasty_takes = 0;
    lane->next_of_pool = pool->lanes;
    lane->pool_link = &pool->lanes;
    if (lane->next_of_pool != NULL)
        lane->next_of_pool->pool_link = &lane->next_of_pool;
    pool->lanes = lane;
}

static void heap_open(struct lane *lane, struct heap *heap, struct directory *directory,
                      bool is_small)
{
    vmm__heap_init(heap, directory, is_small);
    heap->lane = lane;
    heap->owner = &lane->owner;
    heap->counters = &lane->counters;
    heap->clock = lane->clock;
}

vmm_status vmm__lane_open(vmm_stream stream, struct directory *directory, struct pool *pool,
                          struct lane **out)
{
    struct lane *lane = vmm__host_alloc(1, sizeof *lane);
    if (lane == NULL || !clock_open(lane, directory, stream)) {
        vmm__host_free(lane, sizeof *lane);
        return vmm__error(VMM_ERR_HOST_OOM, "lane: no host memory for the lane of a stream");
    }
    lane->serial = atomic_fetch_add_explicit(&last_serial, 1, memory_order_relaxed) + 1;
    atomic_init(&lane->owner.stream, stream);
    vmm__lane_join(lane, pool);
    lane->owner.has_own_chunks = pool->has_own_chunks;
    lane->owner.is_imported = pool->account.is_imported;
    lane->owner.has_source = vmm__pool_has_source(pool);
    lane->until_due_bytes = UINT64_MAX;
    lane->due_bytes = UINT64_MAX;
    lane->gather_bytes = UINT64_MAX;
    lane->last.block = &no_block;
    vmm__biased_init(&lane->lock);
    vmm__counters_init(&lane->counters);
    heap_open(lane, &lane->small, directory, true);
    heap_open(lane, &lane->large, directory, false);
    lane->slabs.heap = &lane->small;
    vmm__notes_init(&lane->notes, directory->clock);
    *out = lane;
    return VMM_OK;
}

vmm_status vmm__lane_close(struct lane *lane)
{
    vmm__magazines_fini(lane);
    vmm__notes_fini(&lane->notes);
    vmm__slabs_fini(&lane->slabs);
    vmm__heap_fini(&lane->large);
    vmm__heap_fini(&lane->small);
    vmm__host_free(lane->reserved, sizeof *lane->reserved); /* it owns nothing */
    pool_leave(lane);
    vmm_status status = clock_close(lane);
    vmm__biased_fini(&lane->lock);
    vmm__host_free(lane, sizeof *lane);
    return status;
}

vmm_status vmm__lane_reserved_keep(struct lane *lane)
{
    if (lane->reserved != NULL)
        return VMM_OK;
    struct heap *heap = vmm__host_alloc(1, sizeof *heap);
    if (heap == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "vmm_reserve: no host memory for the stream's heap");
    heap_open(lane, heap, lane->large.directory, false);
    heap->is_reserved = true;
    lane->reserved = heap;
    return VMM_OK;
}

void vmm__lane_vacate_locked(struct lane *lane)
{
    VMM_ASSERT_HELD(&lane->lock);
    vmm__lane_counters_flush(lane);
    lane->last = (struct last_allocated){ .block = &no_block };
    vmm__notes_fini(&lane->notes);
    vmm__notes_init(&lane->notes, lane->notes.clock);
    vmm__heap_vacate(&lane->large);
    vmm__heap_vacate(&lane->small);
}

static struct magazines *magazines_of(const struct lane *lane)
{
    return atomic_load_explicit(&lane->magazines, memory_order_relaxed);
}

/* ---- The lock ----------------------------------------------------------------------------- */

static void lane_drain(struct lane *lane)
{
    if (magazines_of(lane) != NULL)
        vmm__magazines_close_locked(lane);
    vmm__slabs_purge_lone(&lane->slabs);
    vmm__heap_settle(&lane->small);
    vmm__heap_settle(&lane->large);
    vmm__views_update(&lane->large);
}

void vmm__lane_lock(struct lane *lane)
{
    vmm__biased_lock(&lane->lock);
    lane_drain(lane);
}

void vmm__lane_lock_second(struct lane *lane)
{
    vmm__biased_lock_second(&lane->lock);
    lane_drain(lane);
}

void vmm__lane_lock_for_scan(struct lane *lane, uint64_t scan)
{
    vmm__biased_lock_second(&lane->lock);
    struct last_scan *last_scan = &lane->last_scan;
    uint64_t taken = vmm__counters_allocations(&lane->counters);
    if (last_scan->scan != scan)
        *last_scan = (struct last_scan){ .scan = scan,
                                         .taken = taken,
                                         .is_idle = last_scan->taken == taken };
    if (last_scan->is_idle)
        lane_drain(lane);
}

void vmm__lane_unlock(struct lane *lane)
{
    if (magazines_of(lane) != NULL)
        vmm__magazines_open_locked(lane);
    vmm__biased_unlock(&lane->lock);
}

/* ---- Allocate ----------------------------------------------------------------------------- */

static struct heap *heap_for(struct lane *lane, uint64_t bytes)
{
    return bytes <= LANE_SMALL_LARGEST_BYTES ? &lane->small : &lane->large;
}

/* The steps of block sizes: 4 KiB, from 2 MiB on 8 KiB, and from 4 MiB on 16 KiB, so at most 1/256 of a large block. A
 * block that replaces a slightly smaller one, as in a cache that grows by a token, then mostly fits where another such
 * block was freed. */
enum { SECOND_STEP_LEAST_BYTES = 2 << 20, THIRD_STEP_LEAST_BYTES = 4 << 20 };

/* Rounds up a request that no slab serves. False: it is too large. */
static inline bool block_round(uint64_t bytes, uint64_t *block_bytes)
{
    uint64_t step = bytes < SECOND_STEP_LEAST_BYTES  ? SMALL_SLOT_BYTES
                    : bytes < THIRD_STEP_LEAST_BYTES ? 2 * SMALL_SLOT_BYTES
                                                     : 4 * SMALL_SLOT_BYTES;
    return vmm__align_up_checked(bytes, step, block_bytes);
}

bool vmm__lane_need(struct lane *lane, uint64_t bytes, struct heap **heap, uint64_t *block_bytes)
{
    *heap = heap_for(lane, bytes);
    if (bytes > SLAB_LARGEST_BYTES)
        return block_round(bytes, block_bytes);
    *block_bytes = vmm__slab_need_bytes(&lane->slabs, vmm__slab_class(bytes));
    return true;
}

uint64_t vmm__lane_block_bytes(uint64_t bytes)
{
    if (bytes <= SLAB_LARGEST_BYTES)
        return vmm__slab_object_bytes(vmm__slab_class(bytes));
    uint64_t block_bytes;
    return block_round(bytes, &block_bytes) ? block_bytes : UINT64_MAX;
}

static void *address_publish(struct lane *lane, struct heap *heap, struct block *block,
                             uint64_t address)
{
    lane->last = (struct last_allocated){ .address = address, .heap = heap, .block = block };
    return (void *)(uintptr_t)address;
}

/* The two functions below are inlined into the fast path, however many others call them. */
static inline __attribute__((always_inline)) void *
block_publish(struct lane *lane, struct heap *heap, struct block *block, uint64_t bytes)
{
    block->requested_bytes = bytes;
    vmm__counters_alloc(&lane->counters, &lane->owner.pool->totals, bytes, block->node.size);
    return address_publish(lane, heap, block, block->address);
}

static inline __attribute__((always_inline)) void *object_publish(struct lane *lane,
                                                                  struct slab *slab, uint64_t bytes)
{
    uint32_t object = vmm__slab_take(&lane->slabs, slab, bytes);
    vmm__counters_alloc(&lane->counters, &lane->owner.pool->totals, bytes, slab->object_bytes);
    return address_publish(lane, &lane->small, slab->block, vmm__slab_address(slab, object));
}

/* One long gap must not outlast many short ones, so it counts as TAKES_GAP_MOST_US. */
enum { TAKES_MEAN_OF = 8, TAKES_GAP_MOST_US = 4 * TAKES_APART_US };

void vmm__lane_takes_count(struct lane *lane, bool has_queued)
{
    struct takes *takes = &lane->owner.pool->takes;
    uint32_t now_us = (uint32_t)(vmm__time_ns() / 1000);
    uint32_t gap_us = now_us - takes->last_us;
    gap_us = gap_us < TAKES_GAP_MOST_US ? gap_us : TAKES_GAP_MOST_US;
    takes->apart_us = (takes->apart_us * (TAKES_MEAN_OF - 1) + gap_us) / TAKES_MEAN_OF;
    takes->last_us = now_us;
    bool is_hasty = has_queued || takes->apart_us < TAKES_APART_US;
    lane->hasty_takes = is_hasty ? lane->hasty_takes + (has_queued ? TAKES_QUEUED : 1) : 0;
    if (vmm__lane_hoards(lane))
        lane->gather_bytes = UINT64_MAX; /* it need not gather what it keeps */
}

/* The two functions below are not inlined, so that the fast path needs no stack frame. */
static __attribute__((noinline)) vmm_status object_open(struct lane *lane, uint32_t class_index,
                                                        uint64_t bytes, enum search_depth search,
                                                        void **out)
{
    vmm_status status = vmm__slab_open(&lane->slabs, class_index, search);
    if (status == VMM_OK)
        *out = object_publish(lane, lane->slabs.partial[class_index], bytes);
    return status;
}

bool vmm__lane_should_gather_locked(struct lane *lane, struct heap *heap, uint64_t block_bytes)
{
    VMM_ASSERT_HELD(&lane->lock);
    if (block_bytes < lane->gather_bytes || !vmm__pool_should_gather(lane->owner.pool, lane))
        return false;
    vmm__heap_settle(heap);
    const struct size_node *fit = vmm__size_index_find(&heap->index, block_bytes, SEARCH_QUICK);
    return fit == NULL || fit->size != block_bytes;
}

static __attribute__((noinline)) vmm_status block_take(struct lane *lane, struct heap *heap,
                                                       uint64_t block_bytes, uint64_t bytes,
                                                       enum search_depth search, void **out)
{
    struct block *block;
    if (vmm__lane_should_gather_locked(lane, heap, block_bytes) && lane->refills == 0)
        return VMM__NO_FIT;
    vmm_status status = vmm__heap_take(heap, block_bytes, search, &block);
    if (status == VMM__NO_FIT)
        status = vmm__views_take(heap, block_bytes, search, &block);
    if (status == VMM_OK)
        *out = block_publish(lane, heap, block, bytes);
    return status == VMM__STRANDS ? VMM__NO_FIT : status;
}

static inline __attribute__((always_inline)) vmm_status
object_take(struct lane *lane, uint64_t bytes, enum search_depth search, void **out)
{
    uint32_t class_index = vmm__slab_class(bytes);
    struct slab *slab = lane->slabs.partial[class_index];
    if (slab == NULL)
        return object_open(lane, class_index, bytes, search, out);
    *out = object_publish(lane, slab, bytes);
    return VMM_OK;
}

/* A driver error here does not fail the request. */
static __attribute__((noinline)) void waits_poll(struct lane *lane)
{
    VMM_QUIET();
    (void)vmm__lane_poll_locked(lane, POLL_ON_TAKE);
}

/* Inlined, so that the fast path does not carry the depth of its search. */
static inline __attribute__((always_inline)) vmm_status take(struct lane *lane, uint64_t bytes,
                                                             enum search_depth search, void **out)
{
    VMM_ASSERT_HELD(&lane->lock);
    if (lane->notes.oldest != NULL)
        waits_poll(lane);
    if (bytes <= SLAB_LARGEST_BYTES)
        return object_take(lane, bytes, search, out);
    struct heap *heap = heap_for(lane, bytes);
    uint64_t block_bytes;
    if (!block_round(bytes, &block_bytes))
        return VMM__NO_FIT;
    struct block *last_freed = vmm__heap_take_last_freed(heap, block_bytes);
    if (last_freed == NULL)
        return block_take(lane, heap, block_bytes, bytes, search, out);
    *out = block_publish(lane, heap, last_freed, bytes);
    return VMM_OK;
}

vmm_status vmm__lane_take_plain_locked(struct lane *lane, uint64_t bytes, void **out)
{
    return take(lane, bytes, SEARCH_QUICK, out);
}

/* A slab that is shorter than others of its class, or a slot of a larger class. VMM__NO_FIT; ERR_HOST_OOM. */
static vmm_status object_take_misfit(struct lane *lane, uint64_t bytes, void **out)
{
    uint32_t class_index = vmm__slab_class(bytes);
    vmm_status status = vmm__slab_open_short(&lane->slabs, class_index);
    struct slab *slab = status == VMM_OK ? lane->slabs.partial[class_index]
                                         : vmm__slab_larger(&lane->slabs, class_index);
    if (slab == NULL)
        return status;
    *out = object_publish(lane, slab, bytes);
    return VMM_OK;
}

/* Not in a pool that the program made: there the place of a block follows from its size (vmm_pool_place()). */
static vmm_status misfit_take(struct lane *lane, uint64_t bytes, void **out)
{
    struct block *block;
    struct heap *other = heap_for(lane, bytes) == &lane->small ? &lane->large : &lane->small;
    if (lane->owner.is_pooled || vmm__lane_is_retained(lane))
        return VMM__NO_FIT;
    if (bytes <= SLAB_LARGEST_BYTES && object_take_misfit(lane, bytes, out) == VMM_OK)
        return VMM_OK;
    vmm_status status = vmm__heap_take(other, vmm__lane_block_bytes(bytes), SEARCH_WHOLE, &block);
    if (status == VMM_OK)
        *out = block_publish(lane, other, block, bytes);
    return status;
}

/* Takes a block that other threads have freed, for the bias owner; other threads have tried their magazine before they
 * locked the lane. */
static bool pending_take(struct lane *lane, struct magazines *magazines, uint64_t bytes, void **out)
{
    uint32_t pending = vmm__magazines_pending(magazines);
    if (pending == 0 && !magazines->owner_takes)
        return false;
    magazines->owner_takes = vmm__magazine_take(lane, bytes, out);
    if (!magazines->owner_takes)
        vmm__magazines_drain_locked(lane, magazines, pending);
    return magazines->owner_takes;
}

/* Lists the block that was allocated last, if the live table has room for it. */
static void last_list(struct lane *lane, uint64_t bytes)
{
    if (!vmm__live_table_add(lane->large.directory->live, lane->last.address, bytes))
        return;
    struct block *block = lane->last.block;
    if (block->state == BLOCK_SLAB)
        block->slab->listed_bits |= UINT64_C(1)
                                    << vmm__slab_object(block->slab, lane->last.address);
    else
        block->is_listed = true;
}

vmm_status vmm__lane_take_listed_locked(struct lane *lane, uint64_t bytes, void **out)
{
    VMM_ASSERT_HELD(&lane->lock);
    struct magazines *magazines = magazines_of(lane);
    if (vmm__biased_is_fast(&lane->lock) && pending_take(lane, magazines, bytes, out))
        return VMM_OK;
    vmm_status status = vmm__lane_take_plain_locked(lane, bytes, out);
    if (status == VMM__NO_FIT && !magazines->is_closed) {
        vmm__magazines_drain_locked(lane, magazines, UINT32_MAX);
        status = vmm__lane_take_plain_locked(lane, bytes, out);
    }
    if (status == VMM_OK)
        last_list(lane, bytes);
    return status;
}

vmm_status vmm__lane_take_whole_locked(struct lane *lane, uint64_t bytes, void **out)
{
    struct magazines *magazines = magazines_of(lane);
    if (magazines != NULL)
        vmm__magazines_drain_locked(lane, magazines, UINT32_MAX);
    vmm_status status = take(lane, bytes, SEARCH_WHOLE, out);
    if (status == VMM_OK && magazines != NULL)
        last_list(lane, bytes);
    return status;
}

vmm_status vmm__lane_take_any_locked(struct lane *lane, uint64_t bytes, void **out)
{
    vmm_status status = vmm__lane_take_whole_locked(lane, bytes, out);
    return status == VMM__NO_FIT ? misfit_take(lane, bytes, out) : status;
}

vmm_status vmm__lane_take_block_locked(struct lane *lane, struct block *block, uint64_t skip_bytes,
                                       uint64_t bytes, void **out)
{
    VMM_ASSERT_HELD(&lane->lock);
    uint64_t address = block->address + skip_bytes;
    vmm_status status =
        vmm__heap_take_edge(&lane->large, block, address, block->node.size - skip_bytes, &block);
    if (status == VMM_OK)
        *out = block_publish(lane, &lane->large, block, bytes);
    return status;
}

vmm_status vmm__lane_take_aligned_locked(struct lane *lane, struct heap *heap,
                                         const struct block *free_block, uint64_t bytes,
                                         uint64_t block_bytes, uint64_t alignment, void **out)
{
    VMM_ASSERT_HELD(&lane->lock);
    uint64_t address = vmm__align_up(free_block->address, alignment);
    vmm_status status = vmm__heap_records_keep(heap, 2);
    if (status == VMM_OK)
        *out = block_publish(lane, heap, vmm__heap_take_at(heap, address, block_bytes), bytes);
    return status;
}

static vmm_status object_place(struct lane *lane, uint64_t address, uint64_t bytes)
{
    uint32_t class_index = vmm__slab_class(bytes);
    const struct block *block = vmm__heap_cover(&lane->small, address);
    struct slab *slab = block->state == BLOCK_SLAB ? block->slab : NULL;
    vmm_status status = VMM_OK;
    if (slab == NULL || slab->class_index != class_index)
        status = vmm__slab_open_at(&lane->slabs, class_index, address, &slab);
    if (status != VMM_OK)
        return status;
    uint32_t object = vmm__slab_object(slab, address);
    if (object == SLAB_OBJECTS)
        return VMM__NOT_FOUND;
    if ((slab->free_bits >> object & 1) == 0)
        return VMM__NO_FIT;
    vmm__slab_take_object(&lane->slabs, slab, object, bytes);
    vmm__counters_alloc(&lane->counters, &lane->owner.pool->totals, bytes, slab->object_bytes);
    (void)address_publish(lane, &lane->small, slab->block, address);
    return VMM_OK;
}

/* In a pool whose blocks have chunks of their own, a free block is placed as a whole: otherwise another block would get
 * the rest of its chunks. */
static bool would_split(const struct heap *heap, uint64_t address, uint64_t bytes)
{
    if (!heap->lane->owner.has_own_chunks || !vmm__heap_has_extent(heap, address))
        return false;
    const struct block *block = vmm__heap_cover(heap, address);
    return block->state == BLOCK_FREE && (block->address != address || block->node.size != bytes);
}

vmm_status vmm__lane_place_locked(struct lane *lane, struct heap *heap, uint64_t address,
                                  uint64_t bytes, uint64_t block_bytes)
{
    VMM_ASSERT_HELD(&lane->lock);
    if (heap->is_small && bytes <= SLAB_LARGEST_BYTES)
        return object_place(lane, address, bytes);
    if (address % heap->unit_bytes != 0)
        return VMM__NOT_FOUND;
    struct block *block;
    vmm_status status;
    if (would_split(heap, address, block_bytes))
        return VMM__NOT_FOUND;
    if (vmm__heap_has_extent(heap, address)) {
        status = vmm__heap_is_free(heap, address, block_bytes) ? vmm__heap_records_keep(heap, 2)
                                                               : VMM__NO_FIT;
        if (status == VMM_OK)
            block = vmm__heap_take_at(heap, address, block_bytes);
    } else {
        status = vmm__views_take_at(heap, address, block_bytes, &block);
    }
    if (status == VMM_OK)
        (void)block_publish(lane, heap, block, bytes);
    return status;
}

/* ---- Free --------------------------------------------------------------------------------- */

bool vmm__lane_find_live_locked(struct lane *lane, const struct heap *heap, uint64_t address,
                                struct block_ref *ref)
{
    if (!vmm__block_ref_find_live(heap, address, ref))
        return false;
    if (!vmm__block_ref_is_listed(ref))
        return true;
    if (!vmm__live_table_remove(lane->large.directory->live, address))
        return false;
    vmm__block_ref_set_listed(ref, false);
    return true;
}

static void object_give(struct lane *lane, struct slab *slab, uint32_t object)
{
    vmm__counters_free(&lane->counters, &lane->owner.pool->totals, slab->requested[object],
                       slab->object_bytes);
    vmm__slab_give(&lane->slabs, slab, object);
}

void vmm__lane_clock_arm_locked(struct lane *lane)
{
    lane->due_bytes = vmm__stat_now(&lane->owner.pool->account.reserved_bytes) / CLOCK_SHARES;
    lane->until_due_bytes = vmm__min(lane->until_due_bytes, lane->due_bytes);
}

/* The lane has freed due_bytes since the last call: makes its clock due, and closes its fast path. */
static __attribute__((noinline)) void freed_note(struct lane *lane)
{
    vmm__clock_due(lane->clock);
    atomic_store_explicit(&lane->is_fast, false, memory_order_relaxed);
    vmm__pool_note_free(lane->owner.pool, lane);
    lane->until_due_bytes = lane->due_bytes;
}

/* Not inlined, so that the fast path needs no stack frame. */
static __attribute__((noinline)) void block_return(struct lane *lane, struct heap *heap,
                                                   struct block *block)
{
    uint64_t bytes = block->node.size;
    (void)vmm__heap_give(heap, block);
    if (bytes >= lane->until_due_bytes)
        freed_note(lane);
    else
        lane->until_due_bytes -= bytes;
}

static void block_give(struct lane *lane, struct heap *heap, struct block *block)
{
    uint64_t requested_bytes = block->requested_bytes;
    uint64_t bytes = block->node.size;
    if (vmm__heap_give_last(heap, block, lane->clock)) {
        vmm__counters_free_last(&lane->counters, requested_bytes, bytes);
        return;
    }
    vmm__counters_free(&lane->counters, &lane->owner.pool->totals, requested_bytes, bytes);
    block_return(lane, heap, block);
}

void vmm__lane_give_kept_locked(struct lane *lane, struct live_entry *entry)
{
    VMM_ASSERT_HELD(&lane->lock);
    uint64_t address = vmm__live_entry_address(entry);
    struct heap *heap = vmm__directory_heap(lane->large.directory, address);
    struct block_ref ref;
    (void)vmm__block_ref_find(heap, address, &ref); /* a listed block is allocated */
    vmm__block_ref_set_listed(&ref, false);
    vmm__live_entry_clear(entry);
    if (ref.slab == NULL)
        block_give(lane, heap, ref.block);
    else
        object_give(lane, ref.slab, ref.object);
}

/* Makes a live block wait if other streams or processes may still use it; false: none does. */
static bool ref_await(struct lane *lane, struct heap *heap, uint64_t address, struct block_ref *ref)
{
    bool has_uses = vmm__block_ref_is_noted(ref) && vmm__notes_end(&lane->notes, address);
    vmm__block_ref_set_noted(ref, false);
    /* other processes use an exported block without this cache's knowledge */
    if (!has_uses && !vmm__block_ref_is_exported(ref))
        return false;
    uint64_t bytes = vmm__block_ref_bytes(ref);
    uint64_t requested_bytes = vmm__block_ref_requested_bytes(ref);
    vmm__block_ref_set_pinned(heap, ref, false);
    /* First, because the next call may flush and the bytes stay active. */
    vmm__counters_wait(&lane->counters, bytes);
    vmm__counters_free(&lane->counters, &lane->owner.pool->totals, requested_bytes, bytes);
    vmm__block_ref_wait(ref);
    vmm__listener_call_block(heap, VMM_CHANGE_WAIT, address, bytes, requested_bytes);
    return true;
}

/* Frees a block in any special case: pinned, exported, noted, or not live. */
static __attribute__((noinline)) vmm_status ref_give(struct lane *lane, struct heap *heap,
                                                     uint64_t address)
{
    struct block_ref ref;
    if (!vmm__lane_find_live_locked(lane, heap, address, &ref))
        return vmm__block_ref_unknown("vmm_free", heap, address);
    if (heap->is_reserved)
        return VMM__NOT_FOUND;
    if (ref_await(lane, heap, address, &ref))
        return VMM_OK;
    vmm__block_ref_set_pinned(heap, &ref, false);
    if (ref.slab == NULL)
        block_give(lane, heap, ref.block);
    else
        object_give(lane, ref.slab, ref.object);
    return VMM_OK;
}

/* Frees a listed block that is not pinned. */
static vmm_status listed_give(struct lane *lane, struct heap *heap, struct block *block,
                              uint64_t address)
{
    if (!vmm__live_table_remove(lane->large.directory->live, address))
        return vmm__block_ref_unknown("vmm_free", heap, address);
    if (block->state != BLOCK_SLAB) {
        block->is_listed = false;
        block_give(lane, heap, block);
        return VMM_OK;
    }
    uint32_t object = vmm__slab_object(block->slab, address);
    block->slab->listed_bits &= ~(UINT64_C(1) << object);
    object_give(lane, block->slab, object);
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
static __attribute__((noinline)) vmm_status special_give(struct lane *lane, struct heap *heap,
                                                         struct block *block, uint64_t address)
{
    return is_listed(block, address) ? listed_give(lane, heap, block, address)
                                     : ref_give(lane, heap, address);
}

vmm_status vmm__lane_give_locked(struct lane *lane, struct heap *heap, uint64_t address)
{
    VMM_ASSERT_HELD(&lane->lock);
    struct block *block = lane->last.block;
    if (!vmm__lane_is_last(lane, address))
        block = vmm__heap_find(heap, address);
    if (block == NULL)
        return ref_give(lane, heap, address);
    if (block->state == BLOCK_LIVE && block->address == address &&
        !(block->pins | block->is_noted | block->is_listed)) {
        block_give(lane, heap, block);
        return VMM_OK;
    }
    if (block->state != BLOCK_SLAB)
        return special_give(lane, heap, block, address);
    struct slab *slab = block->slab;
    uint32_t object = vmm__slab_object(slab, address);
    uint64_t special_bits = slab->free_bits | slab->waiting_bits | slab->pinned_bits |
                            slab->noted_bits | slab->listed_bits;
    if (object == SLAB_OBJECTS || (special_bits >> object & 1) != 0)
        return special_give(lane, heap, block, address);
    object_give(lane, slab, object);
    return VMM_OK;
}

/* Frees a block that waited. */
static void ref_release(struct lane *lane, struct heap *heap, struct block_ref *ref,
                        uint64_t address)
{
    uint64_t bytes = vmm__block_ref_bytes(ref);
    vmm__counters_release(&lane->counters, bytes);
    vmm__listener_call_block(heap, VMM_CHANGE_FREE, address, bytes,
                             vmm__block_ref_requested_bytes(ref));
    if (ref->slab == NULL)
        (void)vmm__heap_give(heap, ref->block);
    else
        vmm__slab_give(&lane->slabs, ref->slab, ref->object);
}

vmm_status vmm__lane_use_locked(struct lane *lane, struct heap *heap, uint64_t address,
                                const struct lane *other)
{
    VMM_ASSERT_HELD(&lane->lock);
    struct block_ref ref;
    if (!vmm__lane_find_live_locked(lane, heap, address, &ref))
        return vmm__block_ref_unknown("vmm_record_stream", heap, address);
    if (vmm__lane_is_of(lane, other))
        return VMM_OK;
    vmm_status status = vmm__notes_use(&lane->notes, address, vmm__lane_user(other));
    if (status == VMM_OK)
        vmm__block_ref_set_noted(&ref, true);
    return status;
}

vmm_status vmm__lane_pin_locked(struct heap *heap, uint64_t address, bool pinned)
{
    VMM_ASSERT_HELD(&heap->lane->lock);
    struct block_ref ref;
    if (!vmm__lane_find_live_locked(heap->lane, heap, address, &ref))
        return vmm__block_ref_unknown(pinned ? "vmm_pin" : "vmm_unpin", heap, address);
    vmm__block_ref_set_pinned(heap, &ref, pinned);
    return VMM_OK;
}

vmm_status vmm__lane_export_locked(struct lane *lane, struct heap *heap, uint64_t address,
                                   uint64_t *bytes, uint64_t *requested_bytes)
{
    VMM_ASSERT_HELD(&lane->lock);
    struct block_ref ref;
    if (!vmm__lane_find_live_locked(lane, heap, address, &ref))
        return vmm__block_ref_unknown("vmm_share_export", heap, address);
    if (heap->is_reserved)
        return VMM__NO_FIT;
    lane->exports += vmm__block_ref_is_exported(&ref) ? 0 : 1;
    vmm__block_ref_set_exported(heap, &ref, true);
    *bytes = vmm__block_ref_bytes(&ref);
    *requested_bytes = vmm__block_ref_requested_bytes(&ref);
    return VMM_OK;
}

void vmm__lane_unexport_locked(struct lane *lane, struct heap *heap, uint64_t address)
{
    VMM_ASSERT_HELD(&lane->lock);
    struct block_ref ref;
    if (!vmm__block_ref_find(heap, address, &ref))
        return;
    vmm__block_ref_set_exported(heap, &ref, false);
    lane->exports--;
    if (vmm__block_ref_is_live(&ref) || vmm__notes_is_waiting(&lane->notes, address))
        return;
    ref_release(lane, heap, &ref, address);
    vmm__lane_counters_flush(lane);
}

vmm_status vmm__lane_name_locked(struct heap *heap, uint64_t address, const char *text)
{
    VMM_ASSERT_HELD(&heap->lane->lock);
    struct block_ref ref;
    struct notes *notes = &heap->lane->notes;
    if (!vmm__lane_find_live_locked(heap->lane, heap, address, &ref))
        return vmm__block_ref_unknown("vmm_name", heap, address);
    vmm_status status = vmm__notes_name(notes, address, text);
    vmm__block_ref_set_noted(&ref, vmm__notes_has(notes, address));
    return status;
}

/* Frees a block whose wait is over, unless another process has it. */
static void waited_release(struct lane *lane, uint64_t address)
{
    struct heap *heap = vmm__directory_heap(lane->large.directory, address);
    struct block_ref ref;
    if (vmm__block_ref_find(heap, address, &ref) && !vmm__block_ref_is_exported(&ref))
        ref_release(lane, heap, &ref, address);
}

bool vmm__lane_wait_end_locked(struct lane *lane, uint64_t address)
{
    VMM_ASSERT_HELD(&lane->lock);
    if (!vmm__notes_wait_end(&lane->notes, address))
        return false;
    waited_release(lane, address);
    vmm__lane_counters_flush(lane);
    return true;
}

vmm_status vmm__lane_poll_locked(struct lane *lane, unsigned most)
{
    VMM_ASSERT_HELD(&lane->lock);
    vmm_status any = VMM__NOTHING;
    uint64_t address;
    struct notes_pass pass;
    vmm__notes_pass_begin(&lane->notes, most, &pass);
    vmm_status status = vmm__notes_pass_next(&lane->notes, &pass, &address);
    while (status == VMM_OK) {
        waited_release(lane, address);
        any = VMM_OK;
        status = vmm__notes_pass_next(&lane->notes, &pass, &address);
    }
    if (any == VMM_OK) /* no later call flushes the change of the active bytes */
        vmm__lane_counters_flush(lane);
    return status == VMM__NOTHING ? any : status;
}

uint64_t vmm__lane_settle_locked(struct lane *lane)
{
    VMM_ASSERT_HELD(&lane->lock);
    VMM_QUIET();
    (void)vmm__lane_poll_locked(lane, UINT32_MAX); /* what fails here is polled again */
    (void)vmm__slabs_purge(&lane->slabs);
    return vmm__clock_advance(lane->clock);
}
