/* Each case of misuse in a process of its own, so that what dies there is seen here. */
#define _GNU_SOURCE
#include "misuse.h"

#include "support/cache_support.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_CASES = 400, NAME_BYTES = 96, DEADLOCK_SECONDS = 60, EXIT_SKIPPED = 77 };

static const struct misuse_group *const groups[] = {
    &misuse_double_frees, &misuse_pointers,    &misuse_sizes,    &misuse_nulls,
    &misuse_config,       &misuse_environment, &misuse_captures, &misuse_private_pools,
    &misuse_callbacks,    &misuse_structs,
};
enum { GROUPS = sizeof groups / sizeof groups[0] };

/* What a failed request or a question to the driver counts, and what takes time. */
static void counts_forget(const struct misuse *misuse, vmm_stats *stats)
{
    stats->driver_ns = 0;
    if (misuse->status != VMM_ERR_DEVICE_OOM && misuse->status != VMM_ERR_ADDRESS_SPACE)
        return;
    stats->ooms = 0;
    stats->retries = 0;
    stats->stalls = 0;
}

static void misuse_do(const struct misuse *misuse)
{
    struct stage stage;
    stage_open(&stage);
    if (misuse->prepare != NULL)
        misuse->prepare(&stage, misuse->value);
    vmm_stats before = stage_stats(&stage);
    must_be(misuse->status, misuse->misuse(&stage, misuse->value));
    if (misuse->words != NULL && !stage_error_says(misuse->words))
        stage_fail(__FILE__, __LINE__, misuse->words);
    vmm_stats after = stage_stats(&stage);
    counts_forget(misuse, &before);
    counts_forget(misuse, &after);
    must(misuse->is_counted || memcmp(&before, &after, sizeof after) == 0);
    stage_check(&stage);
    stage_go_on(&stage);
    stage_close(&stage);
}

static int child_wait(pid_t child)
{
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status))
        fail_msg("ended by signal %d%s", WTERMSIG(status),
                 WTERMSIG(status) == SIGALRM ? ": it hung" : "");
    return WEXITSTATUS(status);
}

/* cmocka's handlers would make a child that faults go on with the parent's tests. */
static void signals_restore(void)
{
    static const int signals[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGSYS };
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        (void)signal(signals[i], SIG_DFL);
}

static void misuse_is_survived(void **state)
{
    const struct misuse *misuse = *state;
    (void)fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signals_restore();
        (void)alarm(DEADLOCK_SECONDS);
        misuse_do(misuse);
        exit(0); /* sanitizers have the last word */
    }
    assert_int_equal(child_wait(child), 0);
}

/* Whether there is the device at all: asked in a process of its own, as no driver survives a fork. */
static int device_try(int argc, char **argv)
{
    pid_t child = fork();
    if (child == 0) {
        driver_choice_read(argc, argv);
        _exit(0);
    }
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status)
               ? WEXITSTATUS(status)
               : 1;
}

int main(int argc, char **argv)
{
    static struct CMUnitTest tests[MOST_CASES];
    static char names[MOST_CASES][NAME_BYTES];
    unsigned count = 0;
    driver_choice_parse(argc, argv);
    int tried = device_try(argc, argv);
    if (tried != 0)
        return tried;
    for (unsigned g = 0; g < GROUPS; g++) {
        for (unsigned i = 0; i < groups[g]->count && count < MOST_CASES; i++, count++) {
            const struct misuse *misuse = &groups[g]->cases[i];
            (void)snprintf(names[count], NAME_BYTES, "%s: %s", groups[g]->name, misuse->name);
            tests[count] = (struct CMUnitTest){ .name = names[count],
                                                .test_func = misuse_is_survived,
                                                .initial_state = (void *)(uintptr_t)misuse };
        }
        (void)printf("%-14s %3u cases\n", groups[g]->name, groups[g]->count);
    }
    (void)printf("%-14s %3u cases\n", "all", count);
    return _cmocka_run_group_tests("misuse", tests, count, NULL, NULL);
}
