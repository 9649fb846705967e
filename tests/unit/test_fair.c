/* A fair lock: who has it next, and who is woken for that. */
#define _GNU_SOURCE
#include "support/test_support.h"

#include "base/fair.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

enum { THREADS = 200, TURNS = 50 };

struct line {
    struct fair_lock lock;
    unsigned had; /* guarded by the lock: how many have had it */
};

struct asker {
    struct line *line;
    pthread_t thread;
    atomic_int id;  /* of the thread, once it is about to ask */
    unsigned place; /* in the order of having it */
    long sleeps;
};

static void *lock_asked(void *context)
{
    struct asker *asker = context;
    struct line *line = asker->line;
    atomic_store(&asker->id, gettid());
    vmm__fair_take(&line->lock);
    asker->place = line->had++;
    vmm__fair_drop(&line->lock);
    struct rusage usage;
    (void)getrusage(RUSAGE_THREAD, &usage);
    asker->sleeps = usage.ru_nvcsw;
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

/* Threads line up, each once the one before sleeps; then all have their turn. */
static void line_served(struct line *line, struct asker *askers)
{
    *line = (struct line){ .had = 0 };
    vmm__fair_init(&line->lock);
    vmm__fair_take(&line->lock);
    for (unsigned i = 0; i < THREADS; i++) {
        askers[i] = (struct asker){ .line = line };
        assert_int_equal(pthread_create(&askers[i].thread, NULL, lock_asked, &askers[i]), 0);
        while (atomic_load(&askers[i].id) == 0 || !is_asleep(askers[i].id))
            (void)sched_yield();
    }
    assert_false(vmm__fair_try(&line->lock));
    vmm__fair_drop(&line->lock);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(askers[i].thread, NULL), 0);
    assert_true(vmm__fair_try(&line->lock));
    vmm__fair_drop(&line->lock);
    vmm__fair_fini(&line->lock);
}

static void it_is_had_in_the_order_of_asking(void **state)
{
    static struct line line;
    static struct asker askers[THREADS];
    (void)state;
    line_served(&line, askers);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(askers[i].place, i);
}

/* A thread sleeps until its turn, and may find the mutex taken once or twice. */
static void a_drop_wakes_one(void **state)
{
    static struct line line;
    static struct asker askers[THREADS];
    long sleeps = 0;
    (void)state;
    line_served(&line, askers);
    for (unsigned i = 0; i < THREADS; i++)
        sleeps += askers[i].sleeps;
    assert_in_range(sleeps, THREADS, 5 * THREADS);
}

static void *turns_taken(void *context)
{
    struct line *line = context;
    for (unsigned i = 0; i < TURNS; i++) {
        vmm__fair_take(&line->lock);
        unsigned had = line->had;
        (void)sched_yield();
        line->had = had + 1;
        vmm__fair_drop(&line->lock);
    }
    return NULL;
}

static void one_at_a_time_has_it(void **state)
{
    static struct line line;
    pthread_t threads[THREADS];
    (void)state;
    vmm__fair_init(&line.lock);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, turns_taken, &line), 0);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(line.had, THREADS * TURNS);
    vmm__fair_fini(&line.lock);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_had_in_the_order_of_asking),
        cmocka_unit_test(a_drop_wakes_one),
        cmocka_unit_test(one_at_a_time_has_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
