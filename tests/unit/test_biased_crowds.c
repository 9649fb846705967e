/* A lock biased to one thread excludes all others, however they meet. */
#include "support/test_support.h"

#include "base/biased.h"

#include <sched.h>

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
    struct crowd crowds[16];
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
    (void)crowd_run(16, CROWD_ROUNDS / 4, true);
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
        cmocka_unit_test(crowds_exclude_each_other),
        cmocka_unit_test(the_bias_changes_hands_thousands_of_times),
        cmocka_unit_test(entering_and_dismissing_meet),
        cmocka_unit_test(short_lives_exclude_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
