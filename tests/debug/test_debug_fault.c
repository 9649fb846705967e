/*
 * Accesses that fault at once under VMM_DEBUG_ON: beyond large blocks, and after their free. On the host driver the
 * processor raises SIGSEGV. On sim and cuda the test only checks that no memory is mapped there: an access would
 * damage the driver, or end the context, for the tests that follow.
 */
#define _GNU_SOURCE
#include "debug_support.h"

#include <setjmp.h>
#include <signal.h>

enum { LARGE = (3 << 20) + 512 };

static sigjmp_buf before_signal;

static void signal_handle(int signal_number)
{
    (void)signal_number;
    siglongjmp(before_signal, 1);
}

/* Whether an action raises a signal. Runs in this process, because a child cannot use the driver's memory. */
static bool raises(int signal_number, void (*act)(struct cache_test *test, void *block),
                   struct cache_test *test, void *block)
{
    struct sigaction before;
    struct sigaction action = { .sa_handler = signal_handle };
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

static void byte_change(struct cache_test *test, void *byte)
{
    (void)test;
    *(volatile char *)byte ^= 1;
}

static void block_free_again(struct cache_test *test, void *block)
{
    (void)vmm_free(test->cache, block);
}

struct memory_query {
    uint64_t address;
    bool found;
};

static int chunk_visit(void *context, const vmm_item *item)
{
    struct memory_query *memory_query = context;
    bool is_there =
        item->kind != VMM_ITEM_BLOCK && memory_query->address - item->address < item->bytes;
    memory_query->found = memory_query->found || is_there;
    return 0;
}

static bool has_memory(struct cache_test *test, const char *byte)
{
    struct memory_query memory_query = { .address = (uintptr_t)byte };
    assert_ok(vmm_walk(test->cache, chunk_visit, &memory_query));
    return memory_query.found;
}

/* Requires that neither a read nor a write succeeds. */
static void assert_faults(struct cache_test *test, char *byte)
{
    assert_false(has_memory(test, byte));
    if (driver_choice_kind() != VMM_DRIVER_HOST)
        return;
    assert_true(raises(SIGSEGV, byte_read, test, byte));
    assert_true(raises(SIGSEGV, byte_change, test, byte));
}

static void assert_passes(struct cache_test *test, char *byte)
{
    assert_true(has_memory(test, byte));
    if (driver_choice_kind() == VMM_DRIVER_HOST)
        assert_false(raises(SIGSEGV, byte_change, test, byte));
}

/* Small blocks and further large blocks are allocated and freed around them. */
CACHE_TEST(large_blocks_end_before_a_guard_page)
{
    debug_restart(test, VMM_DEBUG_ON, 0);
    char *blocks[8];
    void *smalls[8];
    for (unsigned i = 0; i < 8; i++) {
        blocks[i] = block_alloc(test, LARGE, i % CACHE_STREAMS);
        smalls[i] = block_alloc(test, 700000, i % CACHE_STREAMS);
    }
    for (unsigned i = 0; i < 8; i++) {
        assert_faults(test, blocks[i] + LARGE);
        assert_faults(test, blocks[i] + LARGE + (2 << 20) - 1);
        block_free(test, smalls[i]);
    }
    assert_passes(test, blocks[0]);
    assert_passes(test, blocks[7] + LARGE - 1);
    for (unsigned i = 0; i < 8; i++)
        block_free(test, blocks[i]);
}

/* vmm_free() waits for the block's work before it unmaps the block. */
CACHE_TEST(large_blocks_fault_after_their_free)
{
    debug_restart(test, VMM_DEBUG_ON, 0);
    char *block = block_alloc(test, LARGE, 1);
    block_fill(test, block, LARGE, 1, 1);
    work_verify(test);
    assert_passes(test, block);
    block_free(test, block);
    for (int i = 0; i < 20; i++)
        block_free(test, block_alloc(test, LARGE + 512 * (size_t)i, 1));
    assert_faults(test, block);
    assert_faults(test, block + LARGE - 1);
}

static void line_check(void *context, const char *line)
{
    bool *has_report = context;
    *has_report = *has_report || strstr(line, "misuse: vmm_free: ") != NULL;
}

/* The signal is raised once, with no lock held, so that a handler that continues can use the cache. */
CACHE_TEST(debug_stop_raises_a_signal_once)
{
    static const vmm_debug_mode modes[] = { VMM_DEBUG_RECORD, VMM_DEBUG_ON, VMM_DEBUG_STOP };
    for (int i = 0; i < 3; i++) {
        bool has_report = false;
        cache_restart_with(test, .debug = modes[i], .log = line_check, .log_context = &has_report);
        void *block = block_alloc(test, 1000, 1);
        block_free(test, block);
        assert_int_equal(raises(SIGTRAP, block_free_again, test, block),
                         modes[i] == VMM_DEBUG_STOP);
        assert_true(has_report);
        assert_status(vmm_free(test->cache, block), VMM_ERR_UNKNOWN_POINTER);
        block_free(test, block_alloc(test, LARGE, 1));
    }
}

CACHE_MAIN()
