/*
 * What faults at once under VMM_GUARD_ON: accesses beyond large blocks and after their free. On the host driver the
 * processor raises SIGSEGV, as a GPU would end the context. On sim and
 * cuda the places are seen to have no memory: touching it there would spoil the driver for the tests that follow.
 */
#define _GNU_SOURCE
#include "guard_support.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LARGE = (3 << 20) + 512 };

static const struct rlimit no_core = { 0, 0 };

/* The signal that ends a child which does something to a block; 0: none did. */
static int child_signal(void (*act)(struct cache_test *test, char *block), struct cache_test *test,
                        char *block)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)setrlimit(RLIMIT_CORE, &no_core);
        static const int signals[] = { SIGSEGV, SIGTRAP }; /* the test library catches them */
        for (int i = 0; i < 2; i++)
            (void)signal(signals[i], SIG_DFL);
        act(test, block);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static sigjmp_buf before_fault;

static void fault_caught(int signal_number)
{
    (void)signal_number;
    siglongjmp(before_fault, 1);
}

/* Whether reading, or writing, a byte faults. The driver's memory is not for children, so it is done here. */
static bool byte_faults(volatile char *byte, bool is_write)
{
    struct sigaction before;
    struct sigaction action = { .sa_handler = fault_caught };
    assert_int_equal(sigaction(SIGSEGV, &action, &before), 0);
    volatile bool faults = true;
    if (sigsetjmp(before_fault, 1) == 0) {
        char found = *byte;
        if (is_write)
            *byte = found;
        faults = false;
    }
    assert_int_equal(sigaction(SIGSEGV, &before, NULL), 0);
    return faults;
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
    assert_true(byte_faults(byte, true));
    assert_true(byte_faults(byte, false));
}

static void assert_passes(struct cache_test *test, char *byte)
{
    assert_true(has_memory(test, byte));
    if (driver_choice_kind() == VMM_DRIVER_HOST)
        assert_false(byte_faults(byte, true));
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
    assert_passes(test, block);
    block_given(test, block);
    for (int i = 0; i < 20; i++)
        block_given(test, block_taken(test, LARGE + 512 * (size_t)i, 1));
    assert_faults(test, block);
    assert_faults(test, block + LARGE - 1);
}

static void block_freed_again(struct cache_test *test, char *block)
{
    (void)vmm_free(test->cache, block);
}

static void the_process_stops_at_a_misuse_if_told_to(void **state)
{
    struct cache_test *test = *state;
    guard_begun(test, VMM_GUARD_RECORD, 0);
    void *block = block_taken(test, 1000, 1);
    block_given(test, block);
    int fault =
        driver_choice_kind() == VMM_DRIVER_CUDA ? 0 : child_signal(block_freed_again, test, block);
    assert_int_equal(fault, 0);
    guard_begun(test, VMM_GUARD_STOP, 0);
    block = block_taken(test, 1000, 1);
    block_given(test, block);
    if (driver_choice_kind() != VMM_DRIVER_CUDA) /* a child may not use CUDA */
        assert_int_equal(child_signal(block_freed_again, test, block), SIGTRAP);
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
