/* Magazines of contended pools: see magazine.h. */
#include "pool/magazine.h"
#include "base/hostmem.h"
#include "base/thread.h"
#include "base/thread_slot.h"
#include "pool/pool.h"

/* A magazine keeps one block of any size, but several only up to this sum. */
enum { KEPT_MOST_BYTES = 64 << 20 };

/* ---- Lookup ------------------------------------------------------------------------------- */

/* The thread's most recent magazines. Serial numbers of pools are never reused, so an entry of a
 * destroyed pool never matches. */
enum { RECENT_MAGAZINES = 4 };
static _Thread_local struct {
    uint64_t serial;
    struct magazine *magazine;
} recent_magazines[RECENT_MAGAZINES];

struct magazine *vmm__magazine_mine(const struct pool *pool)
{
    unsigned i = pool->serial % RECENT_MAGAZINES;
    struct magazine *magazine =
        recent_magazines[i].serial == pool->serial ? recent_magazines[i].magazine : NULL;
    return magazine != NULL && vmm__thread_slot_is_mine(magazine->thread_slot) ? magazine : NULL;
}

static struct magazine *magazine_open(struct pool *pool)
{
    uint8_t number = pool->magazines == NULL ? 1 : (uint8_t)(pool->magazines->number + 1);
    const struct thread_slot *thread_slot = vmm__thread_slot_mine();
    if (number == 0 || thread_slot == NULL)
        return NULL;
    struct magazine *magazine = vmm__host_alloc(1, sizeof *magazine);
    if (magazine == NULL)
        return NULL;
    magazine->number = number;
    magazine->thread_slot = thread_slot;
    magazine->thread = vmm__thread_self();
    magazine->next = pool->magazines;
    pool->magazines = magazine;
    return magazine;
}

/* A thread may find the magazine of an ended thread that had the same identity. The acquire load
 * orders everything that thread did before what follows. */
struct magazine *vmm__magazine_find_locked(struct pool *pool)
{
    VMM_ASSERT_HELD(&pool->lock);
    struct magazine *magazine = pool->magazines;
    while (magazine != NULL && magazine->thread != vmm__thread_self())
        magazine = magazine->next;
    if (magazine == NULL)
        magazine = magazine_open(pool);
    else
        (void)atomic_load_explicit(&magazine->is_entered, memory_order_acquire);
    unsigned i = pool->serial % RECENT_MAGAZINES;
    recent_magazines[i].serial = pool->serial;
    recent_magazines[i].magazine = magazine;
    return magazine;
}

static bool magazine_enter(struct magazine *magazine)
{
    atomic_store_explicit(&magazine->is_entered, true, memory_order_relaxed);
    vmm__barrier_light();
    if (!atomic_load_explicit(&magazine->is_closed, memory_order_acquire))
        return true;
    atomic_store_explicit(&magazine->is_entered, false, memory_order_release);
    return false;
}

static void magazine_leave(struct magazine *magazine)
{
    atomic_store_explicit(&magazine->is_entered, false, memory_order_release);
}

/* ---- Table of live blocks ----------------------------------------------------------------- */

static struct magazine_entry *entry_at(struct magazine *magazine, uint64_t address)
{
    uint64_t hash = (address >> 9) * UINT64_C(0x9E3779B97F4A7C15);
    return &magazine->entries[hash >> (64 - MAGAZINE_ENTRY_BITS)];
}

static void entry_set(struct magazine_entry *entry, const struct block_ref *ref, uint64_t address,
                      uint64_t requested_bytes)
{
    entry->ref = *ref;
    atomic_store_explicit(&entry->requested_bytes, requested_bytes, memory_order_relaxed);
    atomic_store_explicit(&entry->address, address, memory_order_release);
}

/* Clears a table entry if it is the one at `address`: the block is live and uncached from then
 * on. */
static bool entry_clear_if(struct magazine_entry *entry, struct block_ref *ref, uint64_t address)
{
    uint64_t bytes = atomic_load_explicit(&entry->requested_bytes, memory_order_relaxed);
    if (address == 0 ||
        !atomic_compare_exchange_strong_explicit(&entry->address, &address, 0, memory_order_relaxed,
                                                 memory_order_relaxed))
        return false;
    vmm__block_ref_set_requested(ref, bytes);
    vmm__block_ref_set_cached_by(ref, 0);
    return true;
}

static void entry_clear(struct magazine_entry *entry)
{
    struct block_ref ref = entry->ref;
    (void)entry_clear_if(entry, &ref, atomic_load_explicit(&entry->address, memory_order_relaxed));
}

void vmm__magazine_add_locked(struct magazine *magazine, const struct heap *heap, uint64_t address)
{
    VMM_ASSERT_HELD(&heap->pool->lock);
    struct block_ref ref;
    if (!vmm__block_ref_find(heap, address, &ref))
        return;
    struct magazine_entry *entry = entry_at(magazine, address);
    entry_clear(entry);
    magazine->has_entries = true;
    vmm__block_ref_set_cached_by(&ref, magazine->number);
    entry_set(entry, &ref, address, vmm__block_ref_requested_bytes(&ref));
}

bool vmm__magazines_forget_locked(struct pool *pool, struct block_ref *ref, uint64_t address)
{
    VMM_ASSERT_HELD(&pool->lock);
    struct magazine *magazine = pool->magazines;
    while (magazine->number != vmm__block_ref_cached_by(ref))
        magazine = magazine->next;
    return entry_clear_if(entry_at(magazine, address), ref, address);
}

/* ---- Take and give ------------------------------------------------------------------------ */

static void change_add(struct counter_change *change, uint64_t amount)
{
    change->change += amount;
    change->taken += amount;
}

static void kept_drop(struct magazine *magazine, uint32_t i)
{
    magazine->retained_bytes -= magazine->kept[i].bytes;
    magazine->kept_count--;
    for (; i < magazine->kept_count; i++)
        magazine->kept[i] = magazine->kept[i + 1];
}

static bool kept_take(struct magazine *magazine, uint32_t i, uint64_t bytes)
{
    const struct magazine_kept *kept = &magazine->kept[i];
    struct magazine_entry *entry = entry_at(magazine, kept->address);
    if (atomic_load_explicit(&entry->address, memory_order_acquire) != 0)
        return false;
    change_add(&magazine->requested_bytes, bytes);
    change_add(&magazine->allocated_bytes, kept->bytes);
    change_add(&magazine->allocations, 1);
    entry_set(entry, &kept->ref, kept->address, bytes);
    kept_drop(magazine, i);
    return true;
}

bool vmm__magazine_take(struct magazine *magazine, uint64_t block_bytes, uint64_t bytes, void **out)
{
    if (!magazine_enter(magazine))
        return false;
    uint32_t i = magazine->kept_count;
    while (i > 0 && magazine->kept[i - 1].bytes != block_bytes)
        i--;
    uint64_t address = i > 0 ? magazine->kept[i - 1].address : 0;
    bool took = i > 0 && kept_take(magazine, i - 1, bytes);
    magazine_leave(magazine);
    if (took)
        *out = (void *)(uintptr_t)address;
    return took;
}

/* A block that other streams use must wait, and a pinned block must be unpinned: the pool handles
 * both. */
static bool may_keep(const struct magazine *magazine, const struct pool *pool)
{
    return magazine->kept_count < MAGAZINE_KEPT && vmm__uses_count(&pool->uses) == 0 &&
           vmm__heap_unmovable(&pool->small) == 0 && vmm__heap_unmovable(&pool->large) == 0;
}

/* Clears the table entry of an address. False if another thread cleared it first, because it
 * frees the same block. Only the thread that cleared the entry may read the block reference. */
static bool entry_claim(struct magazine_entry *entry, uint64_t address)
{
    return atomic_load_explicit(&entry->address, memory_order_relaxed) == address &&
           atomic_compare_exchange_strong_explicit(&entry->address, &address, 0,
                                                   memory_order_relaxed, memory_order_relaxed);
}

static bool block_keep(struct magazine *magazine, struct magazine_entry *entry, uint64_t address)
{
    uint64_t bytes = vmm__block_ref_bytes(&entry->ref);
    if (magazine->kept_count > 0 && magazine->retained_bytes + bytes > KEPT_MOST_BYTES) {
        atomic_store_explicit(&entry->address, address, memory_order_release);
        return false;
    }
    struct magazine_kept *kept = &magazine->kept[magazine->kept_count++];
    *kept = (struct magazine_kept){ .address = address, .bytes = bytes, .ref = entry->ref };
    magazine->retained_bytes += bytes;
    magazine->requested_bytes.change -=
        atomic_load_explicit(&entry->requested_bytes, memory_order_relaxed);
    magazine->allocated_bytes.change -= bytes;
    magazine->allocations.change--;
    return true;
}

bool vmm__magazine_give(struct magazine *magazine, const struct pool *pool, uint64_t address)
{
    if (!magazine_enter(magazine))
        return false;
    struct magazine_entry *entry = entry_at(magazine, address);
    bool keeps = may_keep(magazine, pool) && entry_claim(entry, address) &&
                 block_keep(magazine, entry, address);
    magazine_leave(magazine);
    return keeps;
}

/* ---- Drain -------------------------------------------------------------------------------- */

static void changes_merge(struct magazine *magazine, struct counters *counters)
{
    vmm__counter_merge(&counters->requested_bytes, &magazine->requested_bytes);
    vmm__counter_merge(&counters->allocated_bytes, &magazine->allocated_bytes);
    vmm__counter_merge(&counters->allocations, &magazine->allocations);
    vmm__counters_active_raise(counters);
}

void vmm__magazine_empty_locked(struct magazine *magazine, struct pool *pool)
{
    VMM_ASSERT_HELD(&pool->lock);
    uint64_t epoch = vmm__timeline_now(&pool->timeline);
    for (uint32_t i = 0; i < magazine->kept_count; i++) {
        struct magazine_kept *kept = &magazine->kept[i];
        struct heap *heap = vmm__directory_heap(pool->large.directory, kept->address);
        vmm__block_ref_set_cached_by(&kept->ref, 0);
        if (kept->ref.slab == NULL)
            (void)vmm__heap_give(heap, kept->ref.block, epoch);
        else
            vmm__slab_give(&pool->slabs, kept->ref.slab, kept->ref.object, epoch);
    }
    magazine->kept_count = 0;
    magazine->retained_bytes = 0;
    changes_merge(magazine, &pool->counters);
}

static void magazine_drain(struct magazine *magazine, struct pool *pool)
{
    if (!magazine->has_entries)
        return;
    magazine->has_entries = false;
    for (int i = 0; i < MAGAZINE_ENTRIES; i++)
        entry_clear(&magazine->entries[i]);
    vmm__magazine_empty_locked(magazine, pool);
}

void vmm__magazines_close_locked(struct pool *pool)
{
    VMM_ASSERT_HELD(&pool->lock);
    for (struct magazine *each = pool->magazines; each != NULL; each = each->next)
        atomic_store_explicit(&each->is_closed, true, memory_order_relaxed);
    vmm__barrier_all();
    for (struct magazine *each = pool->magazines; each != NULL; each = each->next) {
        for (unsigned i = 0; atomic_load_explicit(&each->is_entered, memory_order_acquire); i++)
            vmm__barrier_pause(i);
        magazine_drain(each, pool);
    }
}

void vmm__magazines_open_locked(struct pool *pool)
{
    VMM_ASSERT_HELD(&pool->lock);
    for (struct magazine *each = pool->magazines; each != NULL; each = each->next)
        atomic_store_explicit(&each->is_closed, false, memory_order_release);
}

void vmm__magazines_fini(struct pool *pool)
{
    while (pool->magazines != NULL) {
        struct magazine *magazine = pool->magazines;
        pool->magazines = magazine->next;
        vmm__host_free(magazine, sizeof *magazine);
    }
}
