/*
 * Frees without the lane's lock, in every order of their steps: the code of magazines and of the live table, compiled
 * here with atomic operations that pass control to a scheduler. It runs each scenario again and again, each time in
 * another order, up to a number of switches away from a thread that could go on. Memory is sequentially consistent
 * here; ThreadSanitizer finds a missing order of memory in test_magazine. Negative controls: without one of the atomic
 * operations a scenario must fail.
 */
#define _GNU_SOURCE
#include "support/explorer_support.h"

#include "base/barrier.h"
#include "lane/lane.h"

#include <string.h>

enum { SWITCHES_MOST = 3 };
enum control { CONTROL_NONE, CONTROL_CLAIM, CONTROL_TRY_LOCK, CONTROL_NO_LOCK };
static enum control control;

/* ---- The code, with its atomic operations replaced ------------------------------------------------ */

static bool exchange(_Atomic bool *value, bool to)
{
    explorer_step();
    if (control == CONTROL_NO_LOCK)
        return false;
    if (control != CONTROL_TRY_LOCK)
        return atomic_exchange(value, to);
    bool from = *value;
    explorer_step();
    *value = to;
    return from;
}

static bool compare_exchange(_Atomic uint64_t *value, uint64_t *from, uint64_t to)
{
    explorer_step();
    if (control != CONTROL_CLAIM)
        return atomic_compare_exchange_strong(value, from, to);
    if (*value != *from)
        return false;
    explorer_step();
    *value = to;
    return true;
}

/* The calling actor's number, or one that several actors share. */
static int slot_number(void);
static void kept_give(struct lane *lane, struct live_entry *entry);

static void pause_here(unsigned round)
{
    (void)round;
    explorer_wait();
}

#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_exchange_explicit
#undef atomic_compare_exchange_strong_explicit
#undef atomic_fetch_or_explicit
#undef atomic_fetch_and_explicit
#define atomic_load_explicit(value, order)            (explorer_step(), *(value))
#define atomic_store_explicit(value, to, order)       (explorer_step(), (void)(*(value) = (to)))
#define atomic_exchange_explicit(value, to, order)    exchange(value, to)
#define atomic_fetch_or_explicit(value, bits, order)  (explorer_step(), (void)(*(value) |= (bits)))
#define atomic_fetch_and_explicit(value, bits, order) (explorer_step(), (void)(*(value) &= (bits)))
#define atomic_compare_exchange_strong_explicit(value, from, to, order, other)                     \
    compare_exchange(value, from, to)
#define __atomic_load_n(value, order)      (explorer_step(), *(value))
#define __atomic_store_n(value, to, order) (explorer_step(), (void)(*(value) = (to)))
#define vmm__thread_slot_number            slot_number
#define vmm__lane_give_kept_locked         kept_give
#define vmm__barrier_pause                 pause_here
#define vmm__live_table_add                explored_table_add
#define vmm__live_table_claim              explored_table_claim
#define vmm__live_table_remove             explored_table_remove
#define vmm__live_table_read               explored_table_read
#define vmm__live_table_has                explored_table_has
#define vmm__live_table_at                 explored_table_at
#define vmm__magazines_make_locked         explored_make
#define vmm__magazines_fini                explored_fini
#define vmm__magazine_take                 explored_take
#define vmm__magazine_give                 explored_give
#define vmm__magazines_drain_locked        explored_drain
#define vmm__magazines_close_locked        explored_close
#define vmm__magazines_open_locked         explored_open
#undef VMM_ASSERT_HELD
#define VMM_ASSERT_HELD(lock) ((void)(lock))
bool explored_table_add(struct live_table *table, uint64_t address, uint64_t requested_bytes);
struct live_entry *explored_table_claim(struct live_table *table, uint64_t address);
bool explored_table_remove(struct live_table *table, uint64_t address);
bool explored_table_read(const struct live_table *table, uint64_t address,
                         uint64_t *requested_bytes);
bool explored_table_has(const struct live_table *table, uint64_t address);
uint64_t explored_table_at(const struct live_table *table, unsigned entry);
void explored_make(struct lane *lane);
void explored_fini(struct lane *lane);
bool explored_take(struct lane *lane, uint64_t bytes, void **out);
bool explored_give(struct lane *lane, uint64_t address, uint64_t *frees);
void explored_drain(struct lane *lane, struct magazines *magazines, uint32_t which);
void explored_close(struct lane *lane);
void explored_open(struct lane *lane);
#include "lane/live_table.c"
#include "lane/magazine.c"

/* ---- Scenarios -------------------------------------------------------------------------------- */

enum { BLOCKS = 3, SMALL_BLOCK = BLOCKS - 1, GRANULE_SHIFT = 21, BLOCK_GRANULES = 12 };
#define BLOCK_BYTES                                                                                \
    ((uint64_t)BLOCK_GRANULES << GRANULE_SHIFT) /* two of them make a magazine pending */

static struct lane lane;
static struct magazines magazines;
static struct live_table live_table;
static struct directory_entry entries[BLOCKS * BLOCK_GRANULES];
static struct directory directory = { .entries = entries,
                                      .granule_shift = GRANULE_SHIFT,
                                      .live = &live_table };
static struct {
    bool is_live[BLOCKS];      /* as the program sees it */
    unsigned accepted[BLOCKS]; /* frees */
    unsigned taken[BLOCKS];    /* again */
    unsigned returned[BLOCKS]; /* to the heap */
    bool share_number;         /* all actors use one magazine */
    bool was_disturbed;        /* something changed while the magazines were closed */
} world;

static int slot_number(void)
{
    return world.share_number ? 0 : (int)explorer.current;
}

static uint64_t address_of(unsigned block)
{
    return UINT64_C(0x100000000) + block * BLOCK_BYTES;
}

static unsigned block_at(uint64_t address)
{
    return (unsigned)((address - address_of(0)) / BLOCK_BYTES);
}

static void kept_give(struct lane *from, struct live_entry *entry)
{
    (void)from;
    unsigned block = block_at(vmm__live_entry_address(entry));
    if (block < BLOCKS)
        world.returned[block]++;
    else
        world.was_disturbed = true; /* the entry was cleared before */
    vmm__live_entry_clear(entry);
}

static void block_give(unsigned block)
{
    uint64_t frees;
    if (vmm__magazine_give(&lane, address_of(block), &frees)) {
        world.accepted[block]++;
        world.is_live[block] = false;
    }
}

static void block_take(void)
{
    void *out;
    if (!vmm__magazine_take(&lane, BLOCK_BYTES, &out))
        return;
    unsigned block = block_at((uint64_t)(uintptr_t)out);
    if (world.is_live[block] || block == SMALL_BLOCK)
        world.was_disturbed = true; /* two owners, or too small */
    world.taken[block]++;
    world.is_live[block] = true;
}

/* As a free under the lane's lock. */
static void block_give_locked(unsigned block)
{
    if (!vmm__live_table_remove(&live_table, address_of(block)))
        return;
    world.accepted[block]++;
    world.is_live[block] = false;
    world.returned[block]++;
}

static bool is_quiet(void)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (world.is_live[i] != vmm__live_table_has(&live_table, address_of(i)))
            return false;
    }
    for (unsigned m = 0; m < ACTORS_MOST + TRIES; m++) {
        if (magazines.each[m].kept_count > 0)
            return false;
    }
    return true;
}

static void close_and_open(void)
{
    vmm__magazines_close_locked(&lane);
    explorer_step();
    explorer.is_running = false; /* one look, not a step each */
    world.was_disturbed |= !is_quiet();
    explorer.is_running = true;
    vmm__magazines_open_locked(&lane);
}

static void drain_pending(void)
{
    vmm__magazines_drain_locked(&lane, &magazines, vmm__magazines_pending(&magazines));
}

static void give_0(void)
{
    block_give(0);
}

static void give_0_locked(void)
{
    block_give_locked(0);
}

static void give_1(void)
{
    block_give(1);
}

/* Another block, of one byte, gets the entry. */
static void give_0_and_reuse(void)
{
    uint64_t other = address_of(BLOCKS);
    while (set_number(other) != set_number(address_of(0)))
        other += BLOCK_BYTES;
    block_give_locked(0);
    world.was_disturbed |= !vmm__live_table_add(&live_table, other, 1);
    (void)vmm__live_table_remove(&live_table, other);
}

static void read_0(void)
{
    uint64_t bytes = BLOCK_BYTES;
    (void)vmm__live_table_read(&live_table, address_of(0), &bytes);
    world.was_disturbed |= bytes != BLOCK_BYTES;
}

static void give_0_and_take(void)
{
    block_give(0);
    block_take();
}

static void give_1_and_2(void)
{
    block_give(1);
    block_give(2);
}

struct scenario {
    void (*runs[ACTORS_MOST])(void);
    bool share_number;
    unsigned given_before; /* blocks that actor 0 has given */
};

/* Frees of one block by three threads; a drain, a close and a move beside frees; two threads with one magazine; a block
 * that is read while its entry goes to another. The lane has one lock, so one actor uses it. */
static const struct scenario scenarios[] = {
    { { give_0, give_0, give_0_locked }, false, 0 },
    { { give_0, give_0, NULL }, true, 0 },
    { { give_0_and_take, give_1_and_2, drain_pending }, false, 0 },
    { { give_0_and_take, close_and_open, NULL }, false, 0 },
    { { block_take, block_take, close_and_open }, false, 2 },
    { { block_take, block_take, drain_pending }, false, 3 },
    { { give_0_and_take, give_1, NULL }, true, 0 },
    { { give_0_and_reuse, read_0, read_0 }, false, 0 },
    { { give_0_and_take, read_0, NULL }, false, 0 },
};

static void world_begin(const struct scenario *scenario)
{
    memset(&world, 0, sizeof world);
    memset(&magazines, 0, sizeof magazines);
    memset(&live_table, 0, sizeof live_table);
    memset(&lane, 0, sizeof lane);
    lane.large.directory = &directory;
    lane.large.lane = &lane;
    directory.address = address_of(0);
    for (unsigned i = 0; i < BLOCKS * BLOCK_GRANULES; i++)
        atomic_init(&entries[i].heap, &lane.large);
    atomic_init(&lane.magazines, &magazines);
    explorer.current = 0;
    for (unsigned i = 0; i < BLOCKS; i++) {
        uint64_t bytes = i == SMALL_BLOCK ? BLOCK_BYTES / 2 : BLOCK_BYTES;
        world.is_live[i] = vmm__live_table_add(&live_table, address_of(i), bytes);
        assert_true(world.is_live[i]);
    }
    for (unsigned i = 0; i < scenario->given_before; i++) /* the small one first */
        block_give(SMALL_BLOCK - i);
    world.share_number = scenario->share_number;
    explorer.actor_count = 0;
    for (unsigned i = 0; i < ACTORS_MOST && scenario->runs[i] != NULL; i++)
        actor_add(scenario->runs[i]);
}

/* Each block is live in the end or was returned once, and each accepted free ended a life. */
static bool world_is_sound(void)
{
    if (world.was_disturbed)
        return false;
    explorer.current = 0;
    for (unsigned m = 0; m < MAGAZINES; m++) { /* a broken lock may have stayed taken */
        if (magazines.each[m].is_locked)
            return false;
    }
    vmm__magazines_close_locked(&lane);
    if (!is_quiet())
        return false;
    for (unsigned i = 0; i < BLOCKS; i++) {
        bool is_listed = vmm__live_table_has(&live_table, address_of(i));
        if (world.is_live[i] != is_listed || world.returned[i] != !is_listed ||
            world.accepted[i] != world.taken[i] + !is_listed)
            return false;
    }
    vmm__magazines_open_locked(&lane);
    return true;
}

/* Returns the number of orders; *sound: whether all passed. Stops at the first that did not. */
static unsigned scenario_explore(const struct scenario *scenario, bool *sound)
{
    unsigned orders = 0;
    explorer.length = 0;
    explorer.switches_most = SWITCHES_MOST;
    do {
        world_begin(scenario);
        bool all_ended = order_run();
        orders++;
        *sound = all_ended && world_is_sound();
    } while (*sound && order_next());
    return orders;
}

static bool all_are_sound(enum control broken)
{
    unsigned orders = 0;
    bool sound = true;
    control = broken;
    for (unsigned i = 0; i < sizeof scenarios / sizeof *scenarios && sound; i++)
        orders += scenario_explore(&scenarios[i], &sound);
    print_message("%u orders\n", orders);
    control = CONTROL_NONE;
    return sound;
}

TEST(every_order_frees_each_block_once)
{
    assert_true(all_are_sound(CONTROL_NONE));
}

TEST(a_claim_in_two_steps_is_found)
{
    assert_false(all_are_sound(CONTROL_CLAIM));
}

TEST(a_magazine_lock_in_two_steps_is_found)
{
    assert_false(all_are_sound(CONTROL_TRY_LOCK));
}

TEST(magazines_without_locks_are_found)
{
    assert_false(all_are_sound(CONTROL_NO_LOCK));
}
