/* A lock biased to one thread: who becomes the favourite, who stops being it, and what it waits for. */
#define _GNU_SOURCE
#include "support/test_support.h"

#include "base/biased.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

#define BIASED_TEST(name) cmocka_unit_test_setup_teardown(name, lock_setup, lock_teardown)

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
    assert_null(atomic_load(&vmm__seat_mine()->inside));
    vmm__biased_fini(lock);
    free(lock);
    return 0;
}

/* ---- What a thread does, one thread at a time ----------------------------------------------- */

enum deed { DEED_ENTER, DEED_VISIT, DEED_TAKE, DEED_TAKE_SECOND };

/* One thread that does a deed whenever it is asked to: threads stay alive, so their identities differ. */
struct actor {
    struct biased_lock *lock;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    enum deed deed;
    unsigned asked; /* deeds */
    unsigned done;
    bool is_over;
    bool was_inside; /* by the last deed */
};

static bool deed_done(struct biased_lock *lock, enum deed deed)
{
    bool is_inside = true;
    if (deed == DEED_ENTER)
        is_inside = vmm__biased_enter(lock);
    else if (deed == DEED_VISIT)
        vmm__biased_visit(lock);
    else if (deed == DEED_TAKE)
        vmm__biased_take(lock);
    else
        vmm__biased_take_second(lock);
    if (is_inside)
        vmm__biased_drop(lock);
    return is_inside;
}

static void *actor_main(void *context)
{
    struct actor *actor = context;
    (void)pthread_mutex_lock(&actor->mutex);
    while (!actor->is_over) {
        while (actor->done < actor->asked) {
            actor->was_inside = deed_done(actor->lock, actor->deed);
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
    actor->is_over = true;
    (void)pthread_cond_broadcast(&actor->changed);
    (void)pthread_mutex_unlock(&actor->mutex);
    assert_int_equal(pthread_join(actor->thread, NULL), 0);
}

/* The last of `times` deeds of the thread got inside. */
static bool acted(struct actor *actor, enum deed deed, unsigned times)
{
    (void)pthread_mutex_lock(&actor->mutex);
    actor->deed = deed;
    actor->asked += times;
    (void)pthread_cond_broadcast(&actor->changed);
    while (actor->done < actor->asked)
        (void)pthread_cond_wait(&actor->changed, &actor->mutex);
    bool was_inside = actor->was_inside;
    (void)pthread_mutex_unlock(&actor->mutex);
    return was_inside;
}

/* Visits until the thread may enter; returns how many it took, at most `most`. */
static unsigned visits_until_favourite(struct actor *actor, unsigned most)
{
    unsigned visits = 0;
    while (visits < most && !acted(actor, DEED_ENTER, 1)) {
        (void)acted(actor, DEED_VISIT, 1);
        visits++;
    }
    return visits;
}

/* ---- The favourite -------------------------------------------------------------------------- */

static void nobody_enters_a_new_lock(void **state)
{
    struct biased_lock *lock = *state;
    assert_false(vmm__biased_enter(lock));
    vmm__biased_take(lock);
    vmm__biased_drop(lock);
    assert_false(vmm__biased_enter(lock));
}

static void the_first_visitor_becomes_the_favourite(void **state)
{
    struct biased_lock *lock = *state;
    assert_true(lock->may_favour);
    vmm__biased_visit(lock);
    vmm__biased_drop(lock);
    for (int i = 0; i < 3; i++) {
        assert_true(vmm__biased_enter(lock));
        assert_non_null(lock->inside);
        vmm__biased_drop(lock);
        assert_null(lock->inside);
    }
}

static void others_do_not_enter(void **state)
{
    struct actor actors[2];
    for (int i = 0; i < 2; i++)
        actor_begin(&actors[i], *state);
    (void)acted(&actors[0], DEED_VISIT, 1);
    assert_false(acted(&actors[1], DEED_ENTER, 1));
    assert_true(acted(&actors[0], DEED_ENTER, 1));
    for (int i = 0; i < 2; i++)
        actor_end(&actors[i]);
}

/* Taking, and visiting, from another thread ends the bias; the own thread's taking does not. */
static void others_dismiss_the_favourite(void **state)
{
    static const enum deed deeds[] = { DEED_TAKE, DEED_TAKE_SECOND, DEED_VISIT };
    for (int i = 0; i < 3; i++) {
        struct biased_lock *lock = *state;
        struct actor actors[2];
        for (int j = 0; j < 2; j++)
            actor_begin(&actors[j], lock);
        lock->patience = 0;
        (void)acted(&actors[0], DEED_VISIT, 1);
        (void)acted(&actors[0], deeds[i], 1);
        assert_true(acted(&actors[0], DEED_ENTER, 1));
        (void)acted(&actors[1], deeds[i], 1);
        assert_false(acted(&actors[0], DEED_ENTER, 1));
        assert_null(atomic_load(&lock->favourite));
        for (int j = 0; j < 2; j++)
            actor_end(&actors[j]);
    }
}

/* Each dismissal doubles what the next favourite has to show, up to a bound. */
static void patience_grows(void **state)
{
    struct biased_lock *lock = *state;
    struct actor actors[2];
    for (int i = 0; i < 2; i++)
        actor_begin(&actors[i], lock);
    (void)acted(&actors[0], DEED_VISIT, 1);
    unsigned before = 0;
    for (int round = 0; round < 10; round++) {
        (void)acted(&actors[1], DEED_TAKE, 1);
        unsigned visits = visits_until_favourite(&actors[0], 5000);
        assert_int_equal(visits, lock->patience);
        assert_true(round == 0 ? visits == 16 : visits == (before < 1024 ? 2 * before : before));
        before = visits;
    }
    assert_int_equal(before, 1024);
    for (int i = 0; i < 2; i++)
        actor_end(&actors[i]);
}

/* Threads that take turns never come `patience` times in a row: no barrier is paid for again. */
static void visits_in_a_row_count(void **state)
{
    struct biased_lock *lock = *state;
    struct actor actors[2];
    for (int i = 0; i < 2; i++)
        actor_begin(&actors[i], lock);
    (void)acted(&actors[0], DEED_VISIT, 1);
    for (int round = 0; round < 100; round++) {
        (void)acted(&actors[(round + 1) % 2], DEED_VISIT, 10);
        assert_null(atomic_load(&lock->favourite));
    }
    assert_int_equal(lock->patience, 16);
    (void)acted(&actors[0], DEED_VISIT, 17); /* the first of a row counts as none */
    assert_true(acted(&actors[0], DEED_ENTER, 1));
    for (int i = 0; i < 2; i++)
        actor_end(&actors[i]);
}

static void every_thread_may_become_the_favourite(void **state)
{
    enum { THREADS = 11 };
    struct biased_lock *lock = *state;
    struct actor actors[THREADS];
    for (int i = 0; i < THREADS; i++)
        actor_begin(&actors[i], lock);
    for (int i = 0; i < THREADS; i++) {
        (void)acted(&actors[i], DEED_VISIT, 1100);
        assert_true(acted(&actors[i], DEED_ENTER, 1));
    }
    for (int i = 0; i < THREADS; i++)
        actor_end(&actors[i]);
}

/* A favourite that is no more is dismissed like any other; a thread of its identity may follow it. */
static void threads_may_end(void **state)
{
    struct biased_lock *lock = *state;
    for (int i = 0; i < 24; i++) {
        struct actor actor;
        actor_begin(&actor, lock);
        (void)acted(&actor, DEED_VISIT, 1100);
        (void)acted(&actor, DEED_ENTER, 1);
        actor_end(&actor);
        vmm__biased_take(lock);
        assert_null(atomic_load(&lock->favourite));
        vmm__biased_drop(lock);
    }
}

static void without_a_barrier_it_is_a_mutex(void **state)
{
    struct biased_lock *lock = *state;
    lock->may_favour = false;
    struct actor actors[2];
    for (int i = 0; i < 2; i++)
        actor_begin(&actors[i], lock);
    for (int i = 0; i < 2; i++) {
        (void)acted(&actors[i], DEED_VISIT, 2000);
        assert_false(acted(&actors[i], DEED_ENTER, 1));
        assert_true(acted(&actors[i], DEED_TAKE, 1));
    }
    assert_int_equal(lock->patience, 0);
    assert_null(atomic_load(&lock->favourite));
    for (int i = 0; i < 2; i++)
        actor_end(&actors[i]);
}

/* A thread that takes the lock, and says so. */
struct taker {
    struct biased_lock *lock;
    atomic_bool has_it;
};

static void *taker_main(void *context)
{
    struct taker *taker = context;
    vmm__biased_take(taker->lock);
    atomic_store(&taker->has_it, true);
    vmm__biased_drop(taker->lock);
    return NULL;
}

static void the_favourite_inside_is_waited_for(void **state)
{
    const struct timespec pause = { .tv_nsec = 20000000 };
    struct taker taker = { .lock = *state };
    pthread_t thread;
    vmm__biased_visit(taker.lock);
    vmm__biased_drop(taker.lock);
    assert_true(vmm__biased_enter(taker.lock));
    assert_int_equal(pthread_create(&thread, NULL, taker_main, &taker), 0);
    while (atomic_load(&taker.lock->favourite) != NULL)
        (void)sched_yield();
    (void)nanosleep(&pause, NULL);
    bool came_too_early = atomic_load(&taker.has_it);
    vmm__biased_drop(taker.lock);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(came_too_early);
    assert_true(atomic_load(&taker.has_it));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        BIASED_TEST(nobody_enters_a_new_lock),
        BIASED_TEST(the_first_visitor_becomes_the_favourite),
        BIASED_TEST(others_do_not_enter),
        BIASED_TEST(others_dismiss_the_favourite),
        BIASED_TEST(patience_grows),
        BIASED_TEST(visits_in_a_row_count),
        BIASED_TEST(every_thread_may_become_the_favourite),
        BIASED_TEST(threads_may_end),
        BIASED_TEST(without_a_barrier_it_is_a_mutex),
        BIASED_TEST(the_favourite_inside_is_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
