/* A fair lock: which thread gets it next, and how many threads wake for that. */
#define _GNU_SOURCE
#include "support/test_support.h"

#include "base/fair.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

enum { THREADS = 200, ROUNDS = 50 };

struct queue {
    struct fair_lock lock;
    unsigned count; /* threads that had the lock; guarded by it */
};

struct waiter {
    struct queue *queue;
    pthread_t thread;
    atomic_int id;  /* of the thread, once it is about to lock */
    unsigned place; /* in the order in which threads got the lock */
    long sleeps;
};

static void *waiter_main(void *context)
{
    struct waiter *waiter = context;
    struct queue *queue = waiter->queue;
    atomic_store(&waiter->id, gettid());
    vmm__fair_lock(&queue->lock);
    waiter->place = queue->count++;
    vmm__fair_unlock(&queue->lock);
    struct rusage usage;
    (void)getrusage(RUSAGE_THREAD, &usage);
    waiter->sleeps = usage.ru_nvcsw;
    return NULL;
}

static bool is_asleep(int id)
{
    char name[64];
    char state = 'R';
    (void)snprintf(name, sizeof name, "/proc/self/task/%d/stat", id);
    FILE *file = fopen(name, "re");
    if (file == NULL)
        return false;
    bool is_read = fscanf(file, "%*d (%*[^)]) %c", &state) == 1;
    (void)fclose(file);
    return is_read && state == 'S';
}

/* Each thread waits once the one before it sleeps; then all of them get the lock. */
static void run_queue(struct queue *queue, struct waiter *waiters)
{
    *queue = (struct queue){ .count = 0 };
    vmm__fair_init(&queue->lock);
    vmm__fair_lock(&queue->lock);
    for (unsigned i = 0; i < THREADS; i++) {
        waiters[i] = (struct waiter){ .queue = queue };
        assert_int_equal(pthread_create(&waiters[i].thread, NULL, waiter_main, &waiters[i]), 0);
        while (atomic_load(&waiters[i].id) == 0 || !is_asleep(waiters[i].id))
            (void)sched_yield();
    }
    assert_false(vmm__fair_try_lock(&queue->lock));
    vmm__fair_unlock(&queue->lock);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(waiters[i].thread, NULL), 0);
    assert_true(vmm__fair_try_lock(&queue->lock));
    vmm__fair_unlock(&queue->lock);
    vmm__fair_fini(&queue->lock);
}

TEST(threads_get_the_lock_in_order)
{
    static struct queue queue;
    static struct waiter waiters[THREADS];
    run_queue(&queue, waiters);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(waiters[i].place, i);
}

/* A thread sleeps until it gets the lock, and may find the inner mutex taken once or twice. */
TEST(unlock_wakes_one_thread)
{
    static struct queue queue;
    static struct waiter waiters[THREADS];
    long sleeps = 0;
    run_queue(&queue, waiters);
    for (unsigned i = 0; i < THREADS; i++)
        sleeps += waiters[i].sleeps;
    assert_in_range(sleeps, THREADS, 5 * THREADS);
}

static void *counter_main(void *context)
{
    struct queue *queue = context;
    for (unsigned i = 0; i < ROUNDS; i++) {
        vmm__fair_lock(&queue->lock);
        unsigned count = queue->count;
        (void)sched_yield();
        queue->count = count + 1;
        vmm__fair_unlock(&queue->lock);
    }
    return NULL;
}

TEST(one_thread_has_the_lock)
{
    static struct queue queue;
    pthread_t threads[THREADS];
    vmm__fair_init(&queue.lock);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, counter_main, &queue), 0);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(queue.count, THREADS * ROUNDS);
    vmm__fair_fini(&queue.lock);
}
