/*
 * Children that tests fork: each runs a function and exits with 0. If a child ends otherwise, the parent prints how.
 *
 * Define _GNU_SOURCE before the first header.
 */
#ifndef VMM_LIFE_CHILD_H
#define VMM_LIFE_CHILD_H

#include "support/test_support.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A signal ends a child that runs longer than so many seconds. */
enum { CHILD_SECONDS = 60 };

/* Ends a child whose condition does not hold, and prints the line. */
#define CHILD_REQUIRES(condition)                                                                  \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)dprintf(STDERR_FILENO, "%s:%d: in the child: %s; last error: %s\n", __FILE__,    \
                          __LINE__, #condition, vmm_last_error());                                 \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

/* The time that the calling thread has used a processor. */
static inline uint64_t thread_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

#ifdef VMM_COVERAGE /* _exit() would drop the child's branch counters */
void __gcov_dump(void);
#endif

/* Ends a child without the handlers of exit(). */
_Noreturn static inline void child_leave(void)
{
#ifdef VMM_COVERAGE
    __gcov_dump();
#endif
    _exit(0);
}

static inline pid_t child_begun(void (*function)(void *context), void *context)
{
    pid_t child = fork();
    if (child == 0) {
        (void)alarm(CHILD_SECONDS);
        function(context);
        child_leave();
    }
    return child;
}

/* Whether the child exited with this status, and not by a signal. */
static inline bool child_ended(pid_t child, int wanted)
{
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child)
        return false;
    if (WIFSIGNALED(status))
        (void)dprintf(STDERR_FILENO, "signal %d ended a child\n", WTERMSIG(status));
    return WIFEXITED(status) && WEXITSTATUS(status) == wanted;
}

static inline void child_runs(void (*function)(void *context), void *context)
{
    assert_true(child_ended(child_begun(function, context), 0));
}

/* Ends a child that does not end by itself. */
static inline void child_kill(pid_t child)
{
    int status = 0;
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

/* A test that runs in a child. */
#define CHILD_TEST(name)                                                                           \
    static void name##_in_child(void);                                                             \
    static void child_of_##name(void *context)                                                     \
    {                                                                                              \
        (void)context;                                                                             \
        name##_in_child();                                                                         \
    }                                                                                              \
    TEST(name)                                                                                     \
    {                                                                                              \
        child_runs(child_of_##name, NULL);                                                         \
    }                                                                                              \
    static void name##_in_child(void)

#endif
