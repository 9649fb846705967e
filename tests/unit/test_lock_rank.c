/* Assertions and the order of locks in builds with VMM_CHECK >= 1. */
#define _GNU_SOURCE
#if VMM_CHECK == 0 /* the library has no checks then: this program compiles its own */
#undef VMM_CHECK
#define VMM_CHECK 1
#include "base/lock_rank.c"
#endif

#include "support/test_support.h"

#include "base/mutex.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct locks {
    struct mutex gate, grow, lanes[2], clock, leaf;
};

static void locks_init(struct locks *locks)
{
    vmm__mutex_init_ranked(&locks->gate, LOCK_RANK_GATE);
    vmm__mutex_init_ranked(&locks->grow, LOCK_RANK_GROW);
    for (int i = 0; i < 2; i++)
        vmm__mutex_init_ranked(&locks->lanes[i], LOCK_RANK_LANE);
    vmm__mutex_init_ranked(&locks->clock, LOCK_RANK_CLOCK);
    vmm__mutex_init(&locks->leaf);
}

/* Runs an action on new locks in a child process. Returns its wait status and what it wrote to stderr. */
static int child_run(void (*act)(struct locks *locks), char *text, size_t text_bytes)
{
    int ends[2];
    int status;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct locks locks;
        (void)dup2(ends[1], STDERR_FILENO);
        (void)signal(SIGABRT, SIG_DFL);
        locks_init(&locks);
        act(&locks);
        _exit(0);
    }
    assert_int_equal(close(ends[1]), 0);
    size_t done = 0;
    for (ssize_t part = 1; part > 0; done += part > 0 ? (size_t)part : 0)
        part = read(ends[0], text + done, text_bytes - 1 - done);
    text[done] = '\0';
    assert_int_equal(close(ends[0]), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void assert_passes(void (*act)(struct locks *locks))
{
    char text[1024];
    assert_int_equal(child_run(act, text, sizeof text), 0);
    assert_string_equal(text, "");
}

static void assert_aborts(void (*act)(struct locks *locks), const char *message)
{
    char text[1024];
    int status = child_run(act, text, sizeof text);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
    assert_non_null(strstr(text, message));
}

/* ---- Orders ---------------------------------------------------------------------------------- */

static void lock_in_order(struct locks *locks)
{
    struct mutex *order[] = { &locks->gate,     &locks->grow,  &locks->lanes[1],
                              &locks->lanes[0], &locks->clock, &locks->leaf };
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 6; i++)
            vmm__mutex_lock(order[i]);
        for (int i = 0; i < 6; i++) /* in any order */
            vmm__mutex_unlock(order[i]);
    }
}

static void lock_lane_then_grow(struct locks *locks)
{
    vmm__mutex_lock(&locks->lanes[0]);
    vmm__mutex_lock(&locks->grow);
}

static void lock_two_lanes(struct locks *locks)
{
    vmm__mutex_lock(&locks->lanes[0]);
    vmm__mutex_lock(&locks->lanes[1]);
}

static void lock_twice(struct locks *locks)
{
    vmm__mutex_lock(&locks->grow);
    vmm__mutex_lock(&locks->grow);
}

static void lock_under_a_leaf(struct locks *locks)
{
    vmm__mutex_lock(&locks->leaf);
    vmm__mutex_lock(&locks->clock);
}

static void unlock_a_free_lock(struct locks *locks)
{
    vmm__mutex_lock(&locks->grow);
    vmm__mutex_unlock(&locks->leaf);
}

static void assert_held(struct locks *locks)
{
    vmm__mutex_lock(&locks->grow);
    VMM_ASSERT_HELD(&locks->grow);
    vmm__mutex_lock(&locks->leaf);
    VMM_ASSERT_HELD(&locks->grow);
}

static void assert_held_after_unlock(struct locks *locks)
{
    vmm__mutex_lock(&locks->grow);
    vmm__mutex_unlock(&locks->grow);
    VMM_ASSERT_HELD(&locks->grow);
}

/* A callback may use another cache while its thread holds a leaf of this one. */
static void lock_in_a_callback(struct locks *locks)
{
    struct lock_check callback = { .rank = LOCK_RANK_CALLBACK };
    struct locks other;
    locks_init(&other);
    vmm__mutex_lock(&locks->leaf);
    vmm__lock_check_take(&callback);
    lock_in_order(&other);
    vmm__lock_check_release(&callback);
    vmm__mutex_unlock(&locks->leaf);
}

static void lock_after_a_callback(struct locks *locks)
{
    struct lock_check callback = { .rank = LOCK_RANK_CALLBACK };
    vmm__mutex_lock(&locks->lanes[0]);
    vmm__lock_check_take(&callback);
    vmm__lock_check_release(&callback);
    vmm__mutex_lock(&locks->grow);
}

static void fail_an_assertion(struct locks *locks)
{
    VMM_ASSERT(locks == NULL);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

TEST(right_orders_pass)
{
    assert_passes(lock_in_order);
    assert_passes(lock_in_a_callback);
}

TEST(wrong_orders_abort)
{
    assert_aborts(lock_lane_then_grow, "held->rank < check->rank");
    assert_aborts(lock_two_lanes, "held->rank < check->rank");
    assert_aborts(lock_under_a_leaf, "held->rank < check->rank");
    assert_aborts(lock_after_a_callback, "held->rank < check->rank");
    assert_aborts(lock_twice, "held != check");
    assert_aborts(unlock_a_free_lock, "*link != NULL");
}

TEST(assert_held_knows_the_holder)
{
    assert_passes(assert_held);
    assert_aborts(assert_held_after_unlock, "vmm__lock_check_holds");
}

TEST(failed_assertion_names_its_place)
{
    assert_aborts(fail_an_assertion, "test_lock_rank.c:");
    assert_aborts(fail_an_assertion, "assertion failed: locks == NULL");
}

/* ---- Waits ----------------------------------------------------------------------------------- */

struct wait {
    struct locks *locks;
    pthread_cond_t condition;
    bool is_waiting;
    bool may_end;
};

static void *wait_main(void *context)
{
    struct wait *wait = context;
    vmm__mutex_lock(&wait->locks->gate);
    vmm__mutex_lock(&wait->locks->leaf);
    wait->is_waiting = true;
    while (!wait->may_end)
        (void)vmm__mutex_wait(&wait->locks->leaf, &wait->condition, NULL);
    VMM_ASSERT_HELD(&wait->locks->leaf);
    VMM_ASSERT_HELD(&wait->locks->gate);
    vmm__mutex_unlock(&wait->locks->leaf);
    VMM_ASSERT_HELD(&wait->locks->gate);
    vmm__mutex_unlock(&wait->locks->gate);
    return NULL;
}

/* Another thread holds the lock meanwhile, inside another lock than the waiting thread. */
static void wait_for_a_condition(struct locks *locks)
{
    struct wait wait = { .locks = locks, .condition = PTHREAD_COND_INITIALIZER };
    pthread_t thread;
    VMM_ASSERT(pthread_create(&thread, NULL, wait_main, &wait) == 0);
    vmm__mutex_lock(&locks->grow);
    while (!wait.may_end) {
        vmm__mutex_lock(&locks->leaf);
        wait.may_end = wait.is_waiting;
        (void)pthread_cond_signal(&wait.condition);
        vmm__mutex_unlock(&locks->leaf);
    }
    vmm__mutex_unlock(&locks->grow);
    VMM_ASSERT(pthread_join(thread, NULL) == 0);
}

TEST(a_waiting_thread_keeps_its_other_locks)
{
    assert_passes(wait_for_a_condition);
}

static void wait_until_now(struct locks *locks)
{
    const struct timespec now = { .tv_sec = 0 };
    pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    vmm__mutex_lock(&locks->leaf);
    VMM_ASSERT(!vmm__mutex_wait(&locks->leaf, &condition, &now));
    VMM_ASSERT_HELD(&locks->leaf);
    vmm__mutex_unlock(&locks->leaf);
}

TEST(a_wait_ends_at_its_time)
{
    assert_passes(wait_until_now);
}
