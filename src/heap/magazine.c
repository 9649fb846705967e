/* What threads keep of a crowded pool: see magazine.h. */
#include "heap/magazine.h"
#include "base/hostmem.h"
#include "base/seat.h"
#include "base/thread.h"
#include "heap/pool.h"

/* One place of any size may be kept; several only up to this. */
enum { KEPT_MOST_BYTES = 64 << 20 };

/* ---- The thread's own --------------------------------------------------------------------- */

/* Which magazines the thread has, as far as it remembers. A pool's serial number is never used again, so
 * what it remembers of pools that are gone does not mislead it. */
enum { REMEMBERED = 4 };
static _Thread_local struct {
    uint64_t serial;
    struct magazine *magazine;
} remembered[REMEMBERED];

struct magazine *vmm__magazine_mine(const struct pool *pool)
{
    unsigned i = pool->serial % REMEMBERED;
    struct magazine *magazine =
        remembered[i].serial == pool->serial ? remembered[i].magazine : NULL;
    return magazine != NULL && vmm__seat_is_mine(magazine->seat) ? magazine : NULL;
}

static struct magazine *magazine_open(struct pool *pool)
{
    uint8_t number = pool->magazines == NULL ? 1 : (uint8_t)(pool->magazines->number + 1);
    const struct seat *seat = vmm__seat_mine();
    if (number == 0 || seat == NULL)
        return NULL;
    struct magazine *magazine = vmm__host_alloc(1, sizeof *magazine);
    if (magazine == NULL)
        return NULL;
    magazine->number = number;
    magazine->seat = seat;
    magazine->thread = vmm__thread_self();
    magazine->next = pool->magazines;
    pool->magazines = magazine;
    return magazine;
}

/* A thread may find the magazine of one that has ended and had the same identity; all that this one did
 * comes before what follows. */
struct magazine *vmm__magazine_find_locked(struct pool *pool)
{
    struct magazine *magazine = pool->magazines;
    while (magazine != NULL && magazine->thread != vmm__thread_self())
        magazine = magazine->next;
    if (magazine == NULL)
        magazine = magazine_open(pool);
    else
        (void)atomic_load_explicit(&magazine->is_entered, memory_order_acquire);
    unsigned i = pool->serial % REMEMBERED;
    remembered[i].serial = pool->serial;
    remembered[i].magazine = magazine;
    return magazine;
}

static bool magazine_enter(struct magazine *magazine)
{
    atomic_store_explicit(&magazine->is_entered, true, memory_order_relaxed);
    vmm__barrier_light();
    if (!atomic_load_explicit(&magazine->is_called, memory_order_acquire))
        return true;
    atomic_store_explicit(&magazine->is_entered, false, memory_order_release);
    return false;
}

static void magazine_leave(struct magazine *magazine)
{
    atomic_store_explicit(&magazine->is_entered, false, memory_order_release);
}

/* ---- Knowing ------------------------------------------------------------------------------ */

static struct magazine_known *known_at(struct magazine *magazine, uint64_t address)
{
    uint64_t hash = (address >> 9) * UINT64_C(0x9E3779B97F4A7C15); /* hint: a hash */
    return &magazine->known[hash >> (64 - MAGAZINE_KNOWN_BITS)];
}

static void known_set(struct magazine_known *known, const struct place *place, uint64_t address,
                      uint64_t requested_bytes)
{
    known->place = *place;
    atomic_store_explicit(&known->requested_bytes, requested_bytes, memory_order_relaxed);
    atomic_store_explicit(&known->address, address, memory_order_release);
}

/* Makes the place of a slot an ordinary live one, if it is the one at an address. */
static bool known_settle(struct magazine_known *known, struct place *place, uint64_t address)
{
    uint64_t bytes = atomic_load_explicit(&known->requested_bytes, memory_order_relaxed);
    if (address == 0 ||
        !atomic_compare_exchange_strong_explicit(&known->address, &address, 0, memory_order_relaxed,
                                                 memory_order_relaxed))
        return false;
    vmm__place_set_requested(place, bytes);
    vmm__place_set_knower(place, 0);
    return true;
}

static void known_free(struct magazine_known *known)
{
    struct place place = known->place;
    (void)known_settle(known, &place, atomic_load_explicit(&known->address, memory_order_relaxed));
}

void vmm__magazine_know_locked(struct magazine *magazine, const struct heap *heap, uint64_t address)
{
    struct place place;
    if (!vmm__place_find(heap, address, &place))
        return;
    struct magazine_known *known = known_at(magazine, address);
    known_free(known);
    magazine->has_known = true;
    vmm__place_set_knower(&place, magazine->number);
    known_set(known, &place, address, vmm__place_requested_bytes(&place));
}

bool vmm__magazines_forget_locked(struct pool *pool, struct place *place, uint64_t address)
{
    struct magazine *magazine = pool->magazines;
    while (magazine->number != vmm__place_knower(place))
        magazine = magazine->next;
    return known_settle(known_at(magazine, address), place, address);
}

/* ---- Taking and giving -------------------------------------------------------------------- */

static void figure_take(struct account_change *figure, uint64_t amount)
{
    figure->change += amount;
    figure->taken += amount;
}

static void kept_drop(struct magazine *magazine, uint32_t i)
{
    magazine->kept_bytes -= magazine->kept[i].bytes;
    magazine->kept_count--;
    for (; i < magazine->kept_count; i++)
        magazine->kept[i] = magazine->kept[i + 1];
}

static bool kept_take(struct magazine *magazine, uint32_t i, uint64_t bytes)
{
    const struct magazine_kept *kept = &magazine->kept[i];
    struct magazine_known *known = known_at(magazine, kept->address);
    if (atomic_load_explicit(&known->address, memory_order_acquire) != 0)
        return false;
    figure_take(&magazine->requested_bytes, bytes);
    figure_take(&magazine->allocated_bytes, kept->bytes);
    figure_take(&magazine->allocations, 1);
    known_set(known, &kept->place, kept->address, bytes);
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

/* A block that others use must wait, and one that is pinned be unpinned: that is for the pool. */
static bool may_keep(const struct magazine *magazine, const struct pool *pool)
{
    return magazine->kept_count < MAGAZINE_KEPT && vmm__uses_count(&pool->uses) == 0 &&
           vmm__heap_unmovable(&pool->small) == 0 && vmm__heap_unmovable(&pool->large) == 0;
}

/* Frees the slot of what is at an address: false if another thread does, who gives it back, too. Only who
 * has freed it may look at the place. */
static bool known_claim(struct magazine_known *known, uint64_t address)
{
    return atomic_load_explicit(&known->address, memory_order_relaxed) == address &&
           atomic_compare_exchange_strong_explicit(&known->address, &address, 0,
                                                   memory_order_relaxed, memory_order_relaxed);
}

static bool known_keep(struct magazine *magazine, struct magazine_known *known, uint64_t address)
{
    uint64_t bytes = vmm__place_bytes(&known->place);
    if (magazine->kept_count > 0 && magazine->kept_bytes + bytes > KEPT_MOST_BYTES) {
        atomic_store_explicit(&known->address, address, memory_order_release);
        return false;
    }
    struct magazine_kept *kept = &magazine->kept[magazine->kept_count++];
    *kept = (struct magazine_kept){ .address = address, .bytes = bytes, .place = known->place };
    magazine->kept_bytes += bytes;
    magazine->requested_bytes.change -=
        atomic_load_explicit(&known->requested_bytes, memory_order_relaxed);
    magazine->allocated_bytes.change -= bytes;
    magazine->allocations.change--;
    return true;
}

bool vmm__magazine_give(struct magazine *magazine, const struct pool *pool, uint64_t address)
{
    if (!magazine_enter(magazine))
        return false;
    struct magazine_known *known = known_at(magazine, address);
    bool keeps = may_keep(magazine, pool) && known_claim(known, address) &&
                 known_keep(magazine, known, address);
    magazine_leave(magazine);
    return keeps;
}

/* ---- Calling in --------------------------------------------------------------------------- */

static void account_merge(struct magazine *magazine, struct account *account)
{
    vmm__account_figure_merge(&account->requested_bytes, &magazine->requested_bytes);
    vmm__account_figure_merge(&account->allocated_bytes, &magazine->allocated_bytes);
    vmm__account_figure_merge(&account->allocations, &magazine->allocations);
    vmm__account_active_raise(account);
}

void vmm__magazine_empty_locked(struct magazine *magazine, struct pool *pool)
{
    uint64_t epoch = vmm__timeline_now(&pool->timeline);
    for (uint32_t i = 0; i < magazine->kept_count; i++) {
        struct magazine_kept *kept = &magazine->kept[i];
        struct heap *heap = vmm__directory_heap(pool->large.directory, kept->address);
        vmm__place_set_knower(&kept->place, 0);
        if (kept->place.slab == NULL)
            (void)vmm__heap_give(heap, kept->place.block, epoch);
        else
            vmm__slab_give(&pool->slabs, kept->place.slab, kept->place.object, epoch);
    }
    magazine->kept_count = 0;
    magazine->kept_bytes = 0;
    account_merge(magazine, &pool->account);
}

static void magazine_settle(struct magazine *magazine, struct pool *pool)
{
    if (!magazine->has_known)
        return;
    magazine->has_known = false;
    for (int i = 0; i < MAGAZINE_KNOWN; i++)
        known_free(&magazine->known[i]);
    vmm__magazine_empty_locked(magazine, pool);
}

void vmm__magazines_call_locked(struct pool *pool)
{
    for (struct magazine *each = pool->magazines; each != NULL; each = each->next)
        atomic_store_explicit(&each->is_called, true, memory_order_relaxed);
    vmm__barrier_all();
    for (struct magazine *each = pool->magazines; each != NULL; each = each->next) {
        for (unsigned i = 0; atomic_load_explicit(&each->is_entered, memory_order_acquire); i++)
            vmm__barrier_pause(i);
        magazine_settle(each, pool);
    }
}

void vmm__magazines_release_locked(struct pool *pool)
{
    for (struct magazine *each = pool->magazines; each != NULL; each = each->next)
        atomic_store_explicit(&each->is_called, false, memory_order_release);
}

void vmm__magazines_fini(struct pool *pool)
{
    while (pool->magazines != NULL) {
        struct magazine *magazine = pool->magazines;
        pool->magazines = magazine->next;
        vmm__host_free(magazine, sizeof *magazine);
    }
}
