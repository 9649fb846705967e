/* A lock biased to one thread: who becomes the favourite, who stops being it, and that it excludes. */
#include "support/test_support.h"

#include "base/biased.h"

#include <sched.h>
#include <stdlib.h>

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
    for (int i = 0; i < BIASED_SEATS; i++)
        assert_false(atomic_load(&lock->seats[i].is_entered));
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

static void only_the_first_threads_have_seats(void **state)
{
    enum { THREADS = BIASED_SEATS + 3 };
    struct biased_lock *lock = *state;
    struct actor actors[THREADS];
    for (int i = 0; i < THREADS; i++)
        actor_begin(&actors[i], lock);
    for (int i = 0; i < THREADS; i++) {
        (void)acted(&actors[i], DEED_VISIT, 1100);
        assert_int_equal(acted(&actors[i], DEED_ENTER, 1), i < BIASED_SEATS);
        assert_int_equal(atomic_load(&lock->favourite) != NULL, i < BIASED_SEATS);
    }
    (void)acted(&actors[3], DEED_VISIT, 1100); /* seats stay whose they were */
    assert_true(acted(&actors[3], DEED_ENTER, 1));
    for (int i = 0; i < THREADS; i++)
        actor_end(&actors[i]);
}

/* A favourite that is no more is dismissed like any other; a thread of its identity may follow it. */
static void threads_may_end(void **state)
{
    struct biased_lock *lock = *state;
    for (int i = 0; i < 3 * BIASED_SEATS; i++) {
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
    assert_int_equal(lock->seats[0].thread, 0);
    for (int i = 0; i < 2; i++)
        actor_end(&actors[i]);
}

/* ---- Exclusion ------------------------------------------------------------------------------ */

/* What the lock guards: plain memory, so that ThreadSanitizer sees who should not be there. */
struct guarded {
    struct biased_lock lock;
    uint64_t count;
    uintptr_t insider;
    uint64_t collisions;
    uint64_t entries; /* by enter() */
};

struct crowd {
    struct guarded *guarded;
    pthread_t thread;
    unsigned rounds;
    unsigned takes_every; /* rounds; 0: never */
    bool resets;          /* patience, so that the bias changes hands often */
};

/* Now and then long enough for another thread to come all the way to the wait for who is inside. */
static void guarded_change(struct guarded *guarded)
{
    uintptr_t self = vmm__thread_self();
    if (guarded->insider != 0)
        guarded->collisions++;
    guarded->insider = self;
    guarded->count++;
    for (volatile unsigned i = guarded->count % 256 == 0 ? 5000 : 4; i > 0; i--)
        continue;
    if (guarded->insider != self)
        guarded->collisions++;
    guarded->insider = 0;
}

static void *crowd_main(void *context)
{
    struct crowd *crowd = context;
    struct guarded *guarded = crowd->guarded;
    for (unsigned round = 1; round <= crowd->rounds; round++) {
        bool is_entered = false;
        if (crowd->takes_every != 0 && round % crowd->takes_every == 0)
            vmm__biased_take(&guarded->lock);
        else if (vmm__biased_enter(&guarded->lock))
            is_entered = true;
        else
            vmm__biased_visit(&guarded->lock);
        guarded_change(guarded);
        guarded->entries += is_entered;
        if (crowd->resets && !is_entered)
            guarded->lock.patience = 0;
        vmm__biased_drop(&guarded->lock);
    }
    return NULL;
}

enum { CROWD = 6, CROWD_ROUNDS = 6000 };

static uint64_t crowd_run(unsigned threads, unsigned rounds, bool may_favour)
{
    struct guarded guarded = { .count = 0 };
    struct crowd crowds[2 * BIASED_SEATS];
    vmm__biased_init(&guarded.lock);
    guarded.lock.may_favour = may_favour;
    for (unsigned i = 0; i < threads; i++) {
        /* The first only enters and visits; the others take now and then, the last always. */
        crowds[i] = (struct crowd){ .guarded = &guarded,
                                    .rounds = rounds,
                                    .takes_every = i == 0             ? 0
                                                   : i == threads - 1 ? 1
                                                                      : 40 * i,
                                    .resets = i % 2 == 1 };
        assert_int_equal(pthread_create(&crowds[i].thread, NULL, crowd_main, &crowds[i]), 0);
    }
    for (unsigned i = 0; i < threads; i++)
        assert_int_equal(pthread_join(crowds[i].thread, NULL), 0);
    assert_int_equal(guarded.collisions, 0);
    assert_int_equal(guarded.count, (uint64_t)threads * rounds);
    vmm__biased_fini(&guarded.lock);
    return guarded.entries;
}

static void crowds_exclude_each_other(void **state)
{
    (void)state;
    assert_true(crowd_run(CROWD, CROWD_ROUNDS, true) > 0);
    assert_true(crowd_run(2, 2 * CROWD_ROUNDS, true) > 0);
    (void)crowd_run(2 * BIASED_SEATS, CROWD_ROUNDS / 4, true);
    assert_int_equal(crowd_run(CROWD, CROWD_ROUNDS / 4, false), 0);
}

/* ---- Changing hands ------------------------------------------------------------------------- */

enum { HAND_OVERS = 6000 };

struct dancer {
    struct guarded *guarded;
    pthread_t thread;
    _Atomic unsigned *favoured; /* times that a thread became the favourite */
};

/* Each visit makes the visitor the favourite, and dismisses the one before while it may be entering. */
static void *dancer_main(void *context)
{
    struct dancer *dancer = context;
    struct guarded *guarded = dancer->guarded;
    while (atomic_load(dancer->favoured) < HAND_OVERS) {
        for (int i = 0; i < 50 && vmm__biased_enter(&guarded->lock); i++) {
            guarded_change(guarded);
            vmm__biased_drop(&guarded->lock);
        }
        vmm__biased_take(&guarded->lock);
        guarded->lock.patience = 0;
        vmm__biased_drop(&guarded->lock);
        vmm__biased_visit(&guarded->lock);
        guarded_change(guarded);
        if (atomic_load(&guarded->lock.favourite) != NULL)
            (void)atomic_fetch_add(dancer->favoured, 1);
        vmm__biased_drop(&guarded->lock);
    }
    return NULL;
}

static void the_bias_changes_hands_thousands_of_times(void **state)
{
    (void)state;
    struct guarded guarded = { .count = 0 };
    _Atomic unsigned favoured = 0;
    struct dancer dancers[4];
    vmm__biased_init(&guarded.lock);
    for (int i = 0; i < 4; i++) {
        dancers[i] = (struct dancer){ .guarded = &guarded, .favoured = &favoured };
        assert_int_equal(pthread_create(&dancers[i].thread, NULL, dancer_main, &dancers[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(dancers[i].thread, NULL), 0);
    assert_int_equal(guarded.collisions, 0);
    assert_true(atomic_load(&favoured) >= HAND_OVERS);
    vmm__biased_fini(&guarded.lock);
}

struct duel {
    struct guarded *guarded;
    pthread_t thread;
    atomic_bool goes_on;
};

/* The favourite again and again, as nobody has patience. */
static void *duel_main(void *context)
{
    struct duel *duel = context;
    struct guarded *guarded = duel->guarded;
    while (atomic_load(&duel->goes_on)) {
        bool is_entered = vmm__biased_enter(&guarded->lock);
        if (!is_entered)
            vmm__biased_visit(&guarded->lock);
        guarded->lock.patience = 0;
        guarded->entries += is_entered;
        guarded_change(guarded);
        vmm__biased_drop(&guarded->lock);
    }
    return NULL;
}

/* The favourite enters at the moment when it is dismissed. */
static void entering_and_dismissing_meet(void **state)
{
    enum { DISMISSALS = 4000 };
    (void)state;
    struct guarded guarded = { .count = 0 };
    struct duel duel = { .guarded = &guarded, .goes_on = true };
    vmm__biased_init(&guarded.lock);
    assert_int_equal(pthread_create(&duel.thread, NULL, duel_main, &duel), 0);
    for (int dismissals = 0; dismissals < DISMISSALS; dismissals++) {
        while (atomic_load(&guarded.lock.favourite) == NULL)
            (void)sched_yield();
        vmm__biased_take(&guarded.lock);
        guarded_change(&guarded);
        vmm__biased_drop(&guarded.lock);
    }
    atomic_store(&duel.goes_on, false);
    assert_int_equal(pthread_join(duel.thread, NULL), 0);
    assert_int_equal(guarded.collisions, 0);
    assert_true(guarded.entries > 0);
    vmm__biased_fini(&guarded.lock);
}

/* Threads that begin and end while others work, so that identities and seats are used again. */
static void *short_life_main(void *context)
{
    struct guarded *guarded = context;
    for (int i = 0; i < 200; i++) {
        if (!vmm__biased_enter(&guarded->lock))
            vmm__biased_visit(&guarded->lock);
        guarded_change(guarded);
        vmm__biased_drop(&guarded->lock);
    }
    return NULL;
}

static void short_lives_exclude_each_other(void **state)
{
    (void)state;
    struct guarded guarded = { .count = 0 };
    vmm__biased_init(&guarded.lock);
    for (int round = 0; round < 100; round++) {
        pthread_t threads[3];
        for (int i = 0; i < 3; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, short_life_main, &guarded), 0);
        (void)short_life_main(&guarded);
        for (int i = 0; i < 3; i++)
            assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(guarded.count, 100 * 4 * 200);
    assert_int_equal(guarded.collisions, 0);
    vmm__biased_fini(&guarded.lock);
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
        BIASED_TEST(only_the_first_threads_have_seats),
        BIASED_TEST(threads_may_end),
        BIASED_TEST(without_a_barrier_it_is_a_mutex),
        cmocka_unit_test(crowds_exclude_each_other),
        cmocka_unit_test(the_bias_changes_hands_thousands_of_times),
        cmocka_unit_test(entering_and_dismissing_meet),
        cmocka_unit_test(short_lives_exclude_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
