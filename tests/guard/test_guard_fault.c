/*
 * What faults at once under VMM_GUARD_ON: accesses beyond large blocks and after their free. On the host driver the
 * processor raises SIGSEGV. On sim and cuda the places are seen to have no memory: touching it there would spoil the
 * driver, or end the context, for the tests that follow.
 */
#define _GNU_SOURCE
#include "guard_support.h"

#include <setjmp.h>
#include <signal.h>

enum { LARGE = (3 << 20) + 512 };

static sigjmp_buf before_signal;

static void signal_caught(int signal_number)
{
    (void)signal_number;
    siglongjmp(before_signal, 1);
}

/* Whether an action raises a signal. The driver's memory is not for child processes, so it is done here. */
static bool raises(int signal_number, void (*act)(struct cache_test *test, void *block),
                   struct cache_test *test, void *block)
{
    struct sigaction before;
    struct sigaction action = { .sa_handler = signal_caught };
    assert_int_equal(sigaction(signal_number, &action, &before), 0);
    volatile bool was_raised = true;
    if (sigsetjmp(before_signal, 1) == 0) {
        act(test, block);
        was_raised = false;
    }
    assert_int_equal(sigaction(signal_number, &before, NULL), 0);
    return was_raised;
}

static void byte_read(struct cache_test *test, void *byte)
{
    (void)test;
    (void)*(volatile char *)byte;
}

static void byte_changed(struct cache_test *test, void *byte)
{
    (void)test;
    *(volatile char *)byte ^= 1;
}

static void block_freed_again(struct cache_test *test, void *block)
{
    (void)vmm_free(test->cache, block);
}

struct quest {
    uint64_t address;
    bool found;
};

static int chunk_sought(void *context, const vmm_item *item)
{
    struct quest *quest = context;
    bool is_there = item->kind != VMM_ITEM_BLOCK && quest->address - item->address < item->bytes;
    quest->found = quest->found || is_there;
    return 0;
}

static bool has_memory(struct cache_test *test, const char *byte)
{
    struct quest quest = { .address = (uintptr_t)byte };
    assert_ok(vmm_walk(test->cache, chunk_sought, &quest));
    return quest.found;
}

/* Neither write nor read passes. */
static void assert_faults(struct cache_test *test, char *byte)
{
    assert_false(has_memory(test, byte));
    if (driver_choice_kind() != VMM_DRIVER_HOST)
        return;
    assert_true(raises(SIGSEGV, byte_read, test, byte));
    assert_true(raises(SIGSEGV, byte_changed, test, byte));
}

static void assert_passes(struct cache_test *test, char *byte)
{
    assert_true(has_memory(test, byte));
    if (driver_choice_kind() == VMM_DRIVER_HOST)
        assert_false(raises(SIGSEGV, byte_changed, test, byte));
}

/* Small blocks come and go beside, and more large ones. */
static void large_blocks_end_before_a_fence(void **state)
{
    struct cache_test *test = *state;
    guard_begun(test, VMM_GUARD_ON, 0);
    char *blocks[8];
    void *smalls[8];
    for (unsigned i = 0; i < 8; i++) {
        blocks[i] = block_taken(test, LARGE, i % CACHE_STREAMS);
        smalls[i] = block_taken(test, 700000, i % CACHE_STREAMS);
    }
    for (unsigned i = 0; i < 8; i++) {
        assert_faults(test, blocks[i] + LARGE);
        assert_faults(test, blocks[i] + LARGE + (2 << 20) - 1);
        block_given(test, smalls[i]);
    }
    assert_passes(test, blocks[0]);
    assert_passes(test, blocks[7] + LARGE - 1);
    for (unsigned i = 0; i < 8; i++)
        block_given(test, blocks[i]);
}

/* Once their work is done, which vmm_free() waits for. */
static void large_blocks_fault_after_their_free(void **state)
{
    struct cache_test *test = *state;
    guard_begun(test, VMM_GUARD_ON, 0);
    char *block = block_taken(test, LARGE, 1);
    block_filled(test, block, LARGE, 1, 1);
    work_verified(test);
    assert_passes(test, block);
    block_given(test, block);
    for (int i = 0; i < 20; i++)
        block_given(test, block_taken(test, LARGE + 512 * (size_t)i, 1));
    assert_faults(test, block);
    assert_faults(test, block + LARGE - 1);
}

static void line_kept(void *context, const char *line)
{
    bool *has_story = context;
    *has_story = *has_story || strstr(line, "misuse: vmm_free: ") != NULL;
}

/* It stops with no lock held, so that whoever goes on from there can use the cache; and only once. */
static void the_process_stops_at_a_misuse_if_told_to(void **state)
{
    struct cache_test *test = *state;
    for (int guard = VMM_GUARD_RECORD; guard <= VMM_GUARD_STOP; guard++) {
        bool has_story = false;
        vmm_config config = VMM_CONFIG_INIT;
        config.guard = (vmm_guard)guard;
        config.log = line_kept;
        config.log_context = &has_story;
        cache_restart(test, &config);
        void *block = block_taken(test, 1000, 1);
        block_given(test, block);
        assert_int_equal(raises(SIGTRAP, block_freed_again, test, block), guard == VMM_GUARD_STOP);
        assert_true(has_story);
        assert_status(vmm_free(test->cache, block), VMM_ERR_UNKNOWN_POINTER);
        block_given(test, block_taken(test, LARGE, 1));
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        CACHE_TEST(large_blocks_end_before_a_fence),
        CACHE_TEST(large_blocks_fault_after_their_free),
        CACHE_TEST(the_process_stops_at_a_misuse_if_told_to),
    };
    CACHE_MAIN(tests);
}
