/* A lock biased to one thread: how a thread gets and loses the bias. */
#define _GNU_SOURCE
#include "support/test_support.h"

#include "base/biased.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

#define BIASED_TEST(name) TEST_WITH(name, lock_setup, lock_teardown, struct biased_lock *lock)

static int lock_setup(void **state)
{
    struct biased_lock *lock = malloc(sizeof *lock);
    *state = lock;
    vmm__biased_init(lock);
    return 0;
}

static int lock_teardown(void **state)
{
    struct biased_lock *lock = *state;
    assert_null(lock->inside);
    assert_null(atomic_load(&vmm__thread_slot_mine()->inside));
    vmm__biased_fini(lock);
    free(lock);
    return 0;
}

/* ---- Actors: threads that run one call at a time -------------------------------------------- */

enum way { LOCK_FAST, LOCK_SLOW, LOCK, LOCK_SECOND };

/* A thread that takes and releases the lock on request. All actors are alive at once, so their identities differ. */
struct actor {
    struct biased_lock *lock;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    enum way way;
    unsigned requested;
    unsigned done;
    bool must_end;
    bool has_locked; /* the last request */
};

static bool lock_and_unlock(struct biased_lock *lock, enum way way)
{
    bool is_locked = true;
    if (way == LOCK_FAST)
        is_locked = vmm__biased_lock_fast(lock);
    else if (way == LOCK_SLOW)
        vmm__biased_lock_slow(lock);
    else if (way == LOCK)
        vmm__biased_lock(lock);
    else
        vmm__biased_lock_second(lock);
    if (is_locked)
        vmm__biased_unlock(lock);
    return is_locked;
}

static void *actor_main(void *context)
{
    struct actor *actor = context;
    (void)pthread_mutex_lock(&actor->mutex);
    while (!actor->must_end) {
        while (actor->done < actor->requested) {
            actor->has_locked = lock_and_unlock(actor->lock, actor->way);
            actor->done++;
        }
        (void)pthread_cond_broadcast(&actor->changed);
        (void)pthread_cond_wait(&actor->changed, &actor->mutex);
    }
    (void)pthread_mutex_unlock(&actor->mutex);
    return NULL;
}

static void actor_begin(struct actor *actor, struct biased_lock *lock)
{
    *actor = (struct actor){ .lock = lock,
                             .mutex = PTHREAD_MUTEX_INITIALIZER,
                             .changed = PTHREAD_COND_INITIALIZER };
    assert_int_equal(pthread_create(&actor->thread, NULL, actor_main, actor), 0);
}

static void actor_end(struct actor *actor)
{
    (void)pthread_mutex_lock(&actor->mutex);
    actor->must_end = true;
    (void)pthread_cond_broadcast(&actor->changed);
    (void)pthread_mutex_unlock(&actor->mutex);
    assert_int_equal(pthread_join(actor->thread, NULL), 0);
}

/* Lets the thread lock and unlock `times` times; returns whether it got the lock the last time. */
static bool act(struct actor *actor, enum way way, unsigned times)
{
    (void)pthread_mutex_lock(&actor->mutex);
    actor->way = way;
    actor->requested += times;
    (void)pthread_cond_broadcast(&actor->changed);
    while (actor->done < actor->requested)
        (void)pthread_cond_wait(&actor->changed, &actor->mutex);
    bool has_locked = actor->has_locked;
    (void)pthread_mutex_unlock(&actor->mutex);
    return has_locked;
}

/* Calls lock_slow() until lock_fast() succeeds; returns how many calls that took, at most `most`. */
static unsigned slow_locks_until_bias(struct actor *actor, unsigned most)
{
    unsigned visits = 0;
    while (visits < most && !act(actor, LOCK_FAST, 1)) {
        (void)act(actor, LOCK_SLOW, 1);
        visits++;
    }
    return visits;
}

/* ---- The bias owner -------------------------------------------------------------------------- */

BIASED_TEST(fast_lock_fails_on_a_new_lock)
{
    assert_false(vmm__biased_lock_fast(lock));
    vmm__biased_lock(lock);
    vmm__biased_unlock(lock);
    assert_false(vmm__biased_lock_fast(lock));
}

BIASED_TEST(first_slow_lock_gets_the_bias)
{
    assert_true(lock->may_bias);
    vmm__biased_lock_slow(lock);
    vmm__biased_unlock(lock);
    for (int i = 0; i < 3; i++) {
        assert_true(vmm__biased_lock_fast(lock));
        assert_non_null(lock->inside);
        vmm__biased_unlock(lock);
        assert_null(lock->inside);
    }
}

BIASED_TEST(fast_lock_fails_for_other_threads)
{
    struct actor actors[2];
    for (int i = 0; i < 2; i++)
        actor_begin(&actors[i], lock);
    (void)act(&actors[0], LOCK_SLOW, 1);
    assert_false(act(&actors[1], LOCK_FAST, 1));
    assert_true(act(&actors[0], LOCK_FAST, 1));
    for (int i = 0; i < 2; i++)
        actor_end(&actors[i]);
}

/* Each other way to lock revokes the bias of another thread, and keeps that of the own thread. */
BIASED_TEST(other_threads_revoke_the_bias)
{
    static const enum way ways[] = { LOCK, LOCK_SECOND, LOCK_SLOW };
    for (int i = 0; i < 3; i++) {
        struct actor actors[2];
        for (int j = 0; j < 2; j++)
            actor_begin(&actors[j], lock);
        lock->rebias_threshold = 0;
        (void)act(&actors[0], LOCK_SLOW, 1);
        (void)act(&actors[0], ways[i], 1);
        assert_true(act(&actors[0], LOCK_FAST, 1));
        (void)act(&actors[1], ways[i], 1);
        assert_false(act(&actors[0], LOCK_FAST, 1));
        assert_null(atomic_load(&lock->bias_owner));
        for (int j = 0; j < 2; j++)
            actor_end(&actors[j]);
    }
}

/* Each revocation doubles the threshold, up to a bound. */
BIASED_TEST(revocation_doubles_the_threshold)
{
    struct actor actors[2];
    for (int i = 0; i < 2; i++)
        actor_begin(&actors[i], lock);
    (void)act(&actors[0], LOCK_SLOW, 1);
    unsigned before = 0;
    for (int round = 0; round < 10; round++) {
        (void)act(&actors[1], LOCK, 1);
        unsigned visits = slow_locks_until_bias(&actors[0], 5000);
        assert_int_equal(visits, lock->rebias_threshold);
        assert_true(round == 0 ? visits == 16 : visits == (before < 1024 ? 2 * before : before));
        before = visits;
    }
    assert_int_equal(before, 1024);
    for (int i = 0; i < 2; i++)
        actor_end(&actors[i]);
}

/* Threads that alternate never reach the threshold, so they pay for no further barrier. */
BIASED_TEST(only_slow_locks_in_a_row_count)
{
    struct actor actors[2];
    for (int i = 0; i < 2; i++)
        actor_begin(&actors[i], lock);
    (void)act(&actors[0], LOCK_SLOW, 1);
    for (int round = 0; round < 100; round++) {
        (void)act(&actors[(round + 1) % 2], LOCK_SLOW, 10);
        assert_null(atomic_load(&lock->bias_owner));
    }
    assert_int_equal(lock->rebias_threshold, 16);
    (void)act(&actors[0], LOCK_SLOW, 17); /* the first in a row counts as 0 */
    assert_true(act(&actors[0], LOCK_FAST, 1));
    for (int i = 0; i < 2; i++)
        actor_end(&actors[i]);
}

BIASED_TEST(every_thread_can_get_the_bias)
{
    enum { THREADS = 11 };
    struct actor actors[THREADS];
    for (int i = 0; i < THREADS; i++)
        actor_begin(&actors[i], lock);
    for (int i = 0; i < THREADS; i++) {
        (void)act(&actors[i], LOCK_SLOW, 1100);
        assert_true(act(&actors[i], LOCK_FAST, 1));
    }
    for (int i = 0; i < THREADS; i++)
        actor_end(&actors[i]);
}

/* The bias of an ended thread can be revoked, and a new thread may have its identity. */
BIASED_TEST(bias_owner_may_end)
{
    for (int i = 0; i < 24; i++) {
        struct actor actor;
        actor_begin(&actor, lock);
        (void)act(&actor, LOCK_SLOW, 1100);
        (void)act(&actor, LOCK_FAST, 1);
        actor_end(&actor);
        vmm__biased_lock(lock);
        assert_null(atomic_load(&lock->bias_owner));
        vmm__biased_unlock(lock);
    }
}

BIASED_TEST(disabled_lock_is_a_mutex)
{
    lock->may_bias = false;
    struct actor actors[2];
    for (int i = 0; i < 2; i++)
        actor_begin(&actors[i], lock);
    for (int i = 0; i < 2; i++) {
        (void)act(&actors[i], LOCK_SLOW, 2000);
        assert_false(act(&actors[i], LOCK_FAST, 1));
        assert_true(act(&actors[i], LOCK, 1));
    }
    assert_int_equal(lock->rebias_threshold, 0);
    assert_null(atomic_load(&lock->bias_owner));
    for (int i = 0; i < 2; i++)
        actor_end(&actors[i]);
}

/* A thread that takes the lock once. */
struct locker {
    struct biased_lock *lock;
    atomic_bool had_lock;
};

static void *locker_main(void *context)
{
    struct locker *locker = context;
    vmm__biased_lock(locker->lock);
    atomic_store(&locker->had_lock, true);
    vmm__biased_unlock(locker->lock);
    return NULL;
}

BIASED_TEST(lock_waits_for_the_bias_owner_inside)
{
    const struct timespec pause = { .tv_nsec = 20000000 };
    struct locker locker = { .lock = lock };
    pthread_t thread;
    vmm__biased_lock_slow(locker.lock);
    vmm__biased_unlock(locker.lock);
    assert_true(vmm__biased_lock_fast(locker.lock));
    assert_int_equal(pthread_create(&thread, NULL, locker_main, &locker), 0);
    while (atomic_load(&locker.lock->bias_owner) != NULL)
        (void)sched_yield();
    (void)nanosleep(&pause, NULL);
    bool was_too_early = atomic_load(&locker.had_lock);
    vmm__biased_unlock(locker.lock);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(was_too_early);
    assert_true(atomic_load(&locker.had_lock));
}

/* The keeper has left the mutex, and is the holder until it has taken that again. */
BIASED_TEST(lock_waits_for_its_keeper)
{
    const struct timespec pause = { .tv_nsec = 20000000 };
    struct locker locker = { .lock = lock };
    pthread_t thread;
    vmm__biased_lock(lock);
    vmm__biased_keep(lock);
    assert_int_equal(pthread_create(&thread, NULL, locker_main, &locker), 0);
    (void)nanosleep(&pause, NULL);
    bool was_too_early = atomic_load(&locker.had_lock);
    vmm__biased_keep_end(lock);
    (void)nanosleep(&pause, NULL);
    was_too_early = was_too_early || atomic_load(&locker.had_lock);
    vmm__biased_unlock(lock);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(was_too_early);
    assert_true(atomic_load(&locker.had_lock));
}

/* A slow lock that found a keeper has waited, so that threads that wait for a lane get magazines. */
BIASED_TEST(waits_for_a_keeper_count)
{
    struct actor actor;
    actor_begin(&actor, lock);
    (void)act(&actor, LOCK_SLOW, 1);
    uint32_t waits = lock->waits;
    vmm__biased_lock(lock);
    vmm__biased_keep(lock);
    assert_false(act(&actor, LOCK_FAST, 1));
    (void)pthread_mutex_lock(&actor.mutex);
    actor.way = LOCK_SLOW;
    actor.requested++;
    (void)pthread_cond_broadcast(&actor.changed);
    (void)pthread_mutex_unlock(&actor.mutex);
    const struct timespec pause = { .tv_nsec = 20000000 };
    (void)nanosleep(&pause, NULL);
    vmm__biased_keep_end(lock);
    vmm__biased_unlock(lock);
    actor_end(&actor);
    assert_int_equal(lock->waits, waits + 1);
}
