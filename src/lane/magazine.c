/* Magazines of lanes that several threads use: see magazine.h. */
#include "lane/magazine.h"
#include "base/hostmem.h"
#include "base/thread_slot.h"
#include "lane/lane.h"

/* A magazine keeps one block of any size. It keeps n blocks only if n blocks of the newest one's size have at most this
 * many bytes. */
enum { KEPT_MOST_BYTES = 64 << 20 };

/* A thread that allocates and frees a block in a loop keeps one. A thread that only frees keeps more and more: half of
 * what may be kept makes the magazine pending. */
enum { PENDING_KEPT = MAGAZINE_KEPT / 2, PENDING_BYTES = KEPT_MOST_BYTES / 2 };

/* Magazines that a thread tries. */
enum { TRIES = 4 };

static struct magazines *magazines_of(const struct lane *lane)
{
    return atomic_load_explicit(&lane->magazines, memory_order_acquire);
}

void vmm__magazines_make_locked(struct lane *lane)
{
    VMM_ASSERT_HELD(&lane->lock);
    struct magazines *magazines = vmm__host_table_alloc(sizeof *magazines);
    atomic_store_explicit(&lane->magazines, magazines, memory_order_release);
}

void vmm__magazines_fini(struct lane *lane)
{
    if (magazines_of(lane) != NULL)
        vmm__host_table_free(magazines_of(lane), sizeof(struct magazines));
}

/* ---- The lock of a magazine ------------------------------------------------------------------ */

static bool magazine_try_lock(struct magazine *magazine)
{
    return !atomic_load_explicit(&magazine->is_locked, memory_order_relaxed) &&
           !atomic_exchange_explicit(&magazine->is_locked, true, memory_order_acquire);
}

static void magazine_unlock(struct magazine *magazine)
{
    atomic_store_explicit(&magazine->is_locked, false, memory_order_release);
}

/* Locks the calling thread's magazine, or one of the next if that has another holder or keeps more than `most` blocks.
 * NULL if there is none, or if the thread's fast path is disabled. */
static struct magazine *magazine_lock_mine(struct magazines *magazines, uint32_t most)
{
    int number = magazines == NULL ? -1 : vmm__thread_slot_number();
    for (int i = number; i >= 0 && i < number + TRIES; i++) {
        struct magazine *magazine = &magazines->each[i % MAGAZINES];
        if (!magazine_try_lock(magazine))
            continue;
        if (magazine->kept_count <= most)
            return magazine;
        magazine_unlock(magazine);
    }
    return NULL;
}

/* ---- Take and give --------------------------------------------------------------------------- */

static uint32_t pending_bit(const struct magazines *magazines, const struct magazine *magazine)
{
    return UINT32_C(1) << (magazine - magazines->each);
}

static void pending_clear(struct magazines *magazines, const struct magazine *magazine)
{
    atomic_fetch_and_explicit(&magazines->pending, ~pending_bit(magazines, magazine),
                              memory_order_relaxed);
}

static void kept_drop(struct magazine *magazine, uint32_t i)
{
    magazine->kept_count--;
    for (; i < magazine->kept_count; i++)
        magazine->kept[i] = magazine->kept[i + 1];
}

/* Locks a pending magazine other than `mine`; NULL if there is none whose lock is free. Threads begin at different
 * ones. */
static struct magazine *pending_lock(struct magazines *magazines, const struct magazine *mine)
{
    uint32_t pending = atomic_load_explicit(&magazines->pending, memory_order_relaxed) &
                       ~pending_bit(magazines, mine);
    for (unsigned i = (unsigned)(mine - magazines->each) + 1; pending != 0; i++) {
        struct magazine *magazine = &magazines->each[i % MAGAZINES];
        uint32_t bit = pending_bit(magazines, magazine);
        if ((pending & bit) != 0 && magazine_try_lock(magazine))
            return magazine;
        pending &= ~bit;
    }
    return NULL;
}

/* Moves blocks from a pending magazine whose last one has the size: a thread that only allocates lives on those that
 * another frees. */
static bool pending_move(struct magazines *magazines, struct magazine *magazine, uint64_t bytes)
{
    struct magazine *from = pending_lock(magazines, magazine);
    if (from == NULL)
        return false;
    bool moves = from->kept_count > 0 && from->kept[from->kept_count - 1]->requested_bytes == bytes;
    while (moves && from->kept_count > 0 && magazine->kept_count < MAGAZINE_KEPT)
        magazine->kept[magazine->kept_count++] = from->kept[--from->kept_count];
    if (from->kept_count == 0)
        pending_clear(magazines, from);
    magazine_unlock(from);
    return moves;
}

/* The number of blocks up to the last one of a size; 0: there is none. */
static uint32_t kept_find(const struct magazine *magazine, uint64_t bytes)
{
    uint32_t end = magazine->kept_count;
    while (end > 0 && magazine->kept[end - 1]->requested_bytes != bytes)
        end--;
    return end;
}

static bool kept_take(struct magazines *magazines, struct magazine *magazine, uint64_t bytes,
                      void **out)
{
    uint32_t end = kept_find(magazine, bytes);
    if (end == 0 && pending_move(magazines, magazine, bytes))
        end = kept_find(magazine, bytes);
    if (end == 0)
        return false;
    *out = (void *)(uintptr_t)vmm__live_entry_release(magazine->kept[end - 1]);
    kept_drop(magazine, end - 1);
    magazine->taken.requested_bytes += bytes;
    magazine->taken.allocated_bytes += vmm__lane_block_bytes(bytes);
    magazine->taken.allocations++;
    return true;
}

bool vmm__magazine_take(struct lane *lane, uint64_t bytes, void **out)
{
    struct magazines *magazines = magazines_of(lane);
    struct magazine *magazine = magazine_lock_mine(magazines, MAGAZINE_KEPT);
    if (magazine == NULL)
        return false;
    /* the pool may have gone to sleep since the caller found the lane */
    bool took = !lane->is_asleep && kept_take(magazines, magazine, bytes, out);
    magazine_unlock(magazine);
    return took;
}

/* False if the magazine would keep too many bytes. */
static bool kept_add(struct magazines *magazines, struct magazine *magazine,
                     struct live_entry *entry)
{
    uint32_t count = magazine->kept_count + 1;
    uint64_t bytes = entry->requested_bytes;
    if (count > 1 && bytes > KEPT_MOST_BYTES / count)
        return false;
    magazine->kept[magazine->kept_count++] = entry;
    if (count == 1 || (count < PENDING_KEPT && bytes <= PENDING_BYTES / count))
        return true;
    uint32_t bit = pending_bit(magazines, magazine);
    if ((atomic_load_explicit(&magazines->pending, memory_order_relaxed) & bit) == 0)
        atomic_fetch_or_explicit(&magazines->pending, bit, memory_order_relaxed);
    return true;
}

/* Claims a listed block of this lane. Its address may have changed its lane since the caller looked it up, if the
 * program frees a block twice. */
static struct live_entry *block_claim(const struct lane *lane, uint64_t address)
{
    const struct directory *directory = lane->large.directory;
    struct live_entry *entry = vmm__live_table_claim(directory->live, address);
    if (entry == NULL || vmm__directory_heap(directory, address)->lane == lane)
        return entry;
    (void)vmm__live_entry_release(entry);
    return NULL;
}

bool vmm__magazine_give(struct lane *lane, uint64_t address, uint64_t *frees)
{
    struct magazines *magazines = magazines_of(lane);
    struct magazine *magazine = magazine_lock_mine(magazines, MAGAZINE_KEPT - 1);
    if (magazine == NULL)
        return false;
    struct live_entry *entry = block_claim(lane, address);
    bool keeps = entry != NULL && kept_add(magazines, magazine, entry);
    if (keeps)
        *frees = magazine->frees++;
    else if (entry != NULL)
        (void)vmm__live_entry_release(entry);
    magazine_unlock(magazine);
    return keeps;
}

/* ---- Drain ----------------------------------------------------------------------------------- */

static void taken_add(struct magazine *magazine, struct counters *counters)
{
    counters->requested_bytes.taken += magazine->taken.requested_bytes;
    counters->allocated_bytes.taken += magazine->taken.allocated_bytes;
    counters->allocations.taken += magazine->taken.allocations;
    magazine->taken.requested_bytes = 0;
    magazine->taken.allocated_bytes = 0;
    magazine->taken.allocations = 0;
}

/* Frees what a magazine keeps, whose lock the caller holds. */
static void magazine_drain(struct lane *lane, struct magazine *magazine)
{
    taken_add(magazine, &lane->counters);
    for (uint32_t i = 0; i < magazine->kept_count; i++)
        vmm__lane_give_kept_locked(lane, magazine->kept[i]);
    magazine->kept_count = 0;
}

void vmm__magazines_drain_locked(struct lane *lane, struct magazines *magazines, uint32_t which)
{
    VMM_ASSERT_HELD(&lane->lock);
    for (; !magazines->is_closed && which != 0; which &= which - 1) {
        struct magazine *magazine = &magazines->each[__builtin_ctz(which)];
        if (!magazine_try_lock(magazine))
            continue;
        magazine_drain(lane, magazine);
        pending_clear(magazines, magazine);
        magazine_unlock(magazine);
    }
}

void vmm__magazines_close_locked(struct lane *lane)
{
    VMM_ASSERT_HELD(&lane->lock);
    struct magazines *magazines = magazines_of(lane);
    for (unsigned m = 0; m < MAGAZINES; m++) {
        for (unsigned i = 0; !magazine_try_lock(&magazines->each[m]); i++)
            vmm__barrier_pause(i);
        magazine_drain(lane, &magazines->each[m]);
    }
    atomic_store_explicit(&magazines->pending, 0, memory_order_relaxed);
    magazines->is_closed = true;
}

void vmm__magazines_open_locked(struct lane *lane)
{
    VMM_ASSERT_HELD(&lane->lock);
    struct magazines *magazines = magazines_of(lane);
    if (!magazines->is_closed)
        return;
    magazines->is_closed = false;
    for (unsigned m = 0; m < MAGAZINES; m++)
        magazine_unlock(&magazines->each[m]);
}
