/* A biased lock excludes all other threads, in every combination of its ways to lock. */
#include "support/test_support.h"

#include "base/biased.h"

#include <sched.h>

/* Plain memory that the lock guards, so that ThreadSanitizer sees an access without the lock. */
struct guarded {
    struct biased_lock lock;
    uint64_t count;
    uintptr_t holder;
    uint64_t collisions;
    uint64_t fast_locks; /* by lock_fast() */
};

struct worker {
    struct guarded *guarded;
    pthread_t thread;
    unsigned rounds;
    unsigned locks_every; /* rounds; 0: never */
    bool resets;          /* the threshold, so that the bias changes often */
};

/* Takes long enough, once in 256 changes, for another thread to reach its wait for the holder. */
static void guarded_change(struct guarded *guarded)
{
    uintptr_t self = vmm__thread_self();
    if (guarded->holder != 0)
        guarded->collisions++;
    guarded->holder = self;
    guarded->count++;
    for (volatile unsigned i = guarded->count % 256 == 0 ? 5000 : 4; i > 0; i--)
        continue;
    if (guarded->holder != self)
        guarded->collisions++;
    guarded->holder = 0;
}

static void *worker_main(void *context)
{
    struct worker *worker = context;
    struct guarded *guarded = worker->guarded;
    for (unsigned round = 1; round <= worker->rounds; round++) {
        bool is_fast = false;
        if (worker->locks_every != 0 && round % worker->locks_every == 0)
            vmm__biased_lock(&guarded->lock);
        else if (vmm__biased_lock_fast(&guarded->lock))
            is_fast = true;
        else
            vmm__biased_lock_slow(&guarded->lock);
        guarded_change(guarded);
        guarded->fast_locks += is_fast;
        if (worker->resets && !is_fast)
            guarded->lock.rebias_threshold = 0;
        vmm__biased_unlock(&guarded->lock);
    }
    return NULL;
}

enum { WORKERS = 6, ROUNDS = 6000 };

static uint64_t run_workers(unsigned threads, unsigned rounds, bool may_bias)
{
    struct guarded guarded = { .count = 0 };
    struct worker workers[16];
    vmm__biased_init(&guarded.lock);
    guarded.lock.may_bias = may_bias;
    for (unsigned i = 0; i < threads; i++) {
        /* The first never calls lock(), the last always, the others every 40th, 80th ... round. */
        workers[i] = (struct worker){ .guarded = &guarded,
                                      .rounds = rounds,
                                      .locks_every = i == 0             ? 0
                                                     : i == threads - 1 ? 1
                                                                        : 40 * i,
                                      .resets = i % 2 == 1 };
        assert_int_equal(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]), 0);
    }
    for (unsigned i = 0; i < threads; i++)
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
    assert_int_equal(guarded.collisions, 0);
    assert_int_equal(guarded.count, (uint64_t)threads * rounds);
    vmm__biased_fini(&guarded.lock);
    return guarded.fast_locks;
}

TEST(threads_exclude_each_other)
{
    assert_true(run_workers(WORKERS, ROUNDS, true) > 0);
    assert_true(run_workers(2, 2 * ROUNDS, true) > 0);
    (void)run_workers(16, ROUNDS / 4, true);
    assert_int_equal(run_workers(WORKERS, ROUNDS / 4, false), 0);
}

/* ---- Changes of the bias -------------------------------------------------------------------- */

enum { BIAS_CHANGES = 6000 };

struct rival {
    struct guarded *guarded;
    pthread_t thread;
    _Atomic unsigned *biased; /* times that a thread got the bias */
};

/* Each lock_slow() gets the bias, and revokes another thread's while that thread may be in lock_fast(). */
static void *rival_main(void *context)
{
    struct rival *rival = context;
    struct guarded *guarded = rival->guarded;
    while (atomic_load(rival->biased) < BIAS_CHANGES) {
        for (int i = 0; i < 50 && vmm__biased_lock_fast(&guarded->lock); i++) {
            guarded_change(guarded);
            vmm__biased_unlock(&guarded->lock);
        }
        vmm__biased_lock(&guarded->lock);
        guarded->lock.rebias_threshold = 0;
        vmm__biased_unlock(&guarded->lock);
        vmm__biased_lock_slow(&guarded->lock);
        guarded_change(guarded);
        if (atomic_load(&guarded->lock.bias_owner) != NULL)
            (void)atomic_fetch_add(rival->biased, 1);
        vmm__biased_unlock(&guarded->lock);
    }
    return NULL;
}

TEST(the_bias_changes_thousands_of_times)
{
    struct guarded guarded = { .count = 0 };
    _Atomic unsigned biased = 0;
    struct rival rivals[4];
    vmm__biased_init(&guarded.lock);
    for (int i = 0; i < 4; i++) {
        rivals[i] = (struct rival){ .guarded = &guarded, .biased = &biased };
        assert_int_equal(pthread_create(&rivals[i].thread, NULL, rival_main, &rivals[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(rivals[i].thread, NULL), 0);
    assert_int_equal(guarded.collisions, 0);
    assert_true(atomic_load(&biased) >= BIAS_CHANGES);
    vmm__biased_fini(&guarded.lock);
}

struct owner {
    struct guarded *guarded;
    pthread_t thread;
    atomic_bool must_run;
};

/* Gets the bias back each time, because it resets the threshold. */
static void *owner_main(void *context)
{
    struct owner *owner = context;
    struct guarded *guarded = owner->guarded;
    while (atomic_load(&owner->must_run)) {
        bool is_fast = vmm__biased_lock_fast(&guarded->lock);
        if (!is_fast)
            vmm__biased_lock_slow(&guarded->lock);
        guarded->lock.rebias_threshold = 0;
        guarded->fast_locks += is_fast;
        guarded_change(guarded);
        vmm__biased_unlock(&guarded->lock);
    }
    return NULL;
}

/* The bias owner is in lock_fast() while its bias is revoked. */
TEST(fast_lock_races_with_revocation)
{
    enum { REVOCATIONS = 4000 };
    struct guarded guarded = { .count = 0 };
    struct owner owner = { .guarded = &guarded, .must_run = true };
    vmm__biased_init(&guarded.lock);
    assert_int_equal(pthread_create(&owner.thread, NULL, owner_main, &owner), 0);
    for (int revocations = 0; revocations < REVOCATIONS; revocations++) {
        while (atomic_load(&guarded.lock.bias_owner) == NULL)
            (void)sched_yield();
        vmm__biased_lock(&guarded.lock);
        guarded_change(&guarded);
        vmm__biased_unlock(&guarded.lock);
    }
    atomic_store(&owner.must_run, false);
    assert_int_equal(pthread_join(owner.thread, NULL), 0);
    assert_int_equal(guarded.collisions, 0);
    assert_true(guarded.fast_locks > 0);
    vmm__biased_fini(&guarded.lock);
}

/* Threads begin and end while others work, so that new threads inherit identities and slots. */
static void *short_lived_main(void *context)
{
    struct guarded *guarded = context;
    for (int i = 0; i < 200; i++) {
        if (!vmm__biased_lock_fast(&guarded->lock))
            vmm__biased_lock_slow(&guarded->lock);
        guarded_change(guarded);
        vmm__biased_unlock(&guarded->lock);
    }
    return NULL;
}

TEST(short_lived_threads_exclude_each_other)
{
    struct guarded guarded = { .count = 0 };
    vmm__biased_init(&guarded.lock);
    for (int round = 0; round < 100; round++) {
        pthread_t threads[3];
        for (int i = 0; i < 3; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, short_lived_main, &guarded), 0);
        (void)short_lived_main(&guarded);
        for (int i = 0; i < 3; i++)
            assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(guarded.count, 100 * 4 * 200);
    assert_int_equal(guarded.collisions, 0);
    vmm__biased_fini(&guarded.lock);
}
