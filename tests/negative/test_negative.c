/* Runs each wrong call in a process of its own, so that a crash or a hang fails that case only. */
#define _GNU_SOURCE
#include "negative.h"

#include "support/cache_support.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_CASES = 400, NAME_BYTES = 96, DEADLOCK_SECONDS = 60, EXIT_SKIPPED = 77 };

static const struct negative_group *const groups[] = {
    &negative_double_frees, &negative_pointers,    &negative_sizes,     &negative_nulls,
    &negative_config,       &negative_environment, &negative_captures,  &negative_graph_pools,
    &negative_pools,        &negative_handles,     &negative_callbacks, &negative_structs,
};
enum { GROUPS = sizeof groups / sizeof groups[0] };

/* Clears the counters that a failed request or a query of the driver may change, and times. */
static void counts_clear(const struct negative_case *wrong_call, vmm_stats *stats)
{
    stats->driver_ns = 0;
    if (wrong_call->status != VMM_ERR_DEVICE_OOM && wrong_call->status != VMM_ERR_ADDRESS_SPACE)
        return;
    stats->ooms = 0;
    stats->retries = 0;
    stats->plans = 0;
    stats->planning_ns = 0;
    stats->stalls = 0;
    stats->driver_calls = 0;
}

static void case_run(const struct negative_case *wrong_call)
{
    struct stage stage;
    stage_open(&stage);
    if (wrong_call->prepare != NULL)
        wrong_call->prepare(&stage, wrong_call->value);
    vmm_stats before = stage_stats(&stage);
    must_be(wrong_call->status, wrong_call->call(&stage, wrong_call->value));
    if (wrong_call->words != NULL && !stage_error_says(wrong_call->words))
        stage_fail(__FILE__, __LINE__, wrong_call->words);
    vmm_stats after = stage_stats(&stage);
    counts_clear(wrong_call, &before);
    counts_clear(wrong_call, &after);
    must(wrong_call->is_counted || memcmp(&before, &after, sizeof after) == 0);
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

/* With cmocka's handlers a child that faults would continue with the parent's tests. */
static void signals_restore(void)
{
    static const int signals[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGSYS };
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        (void)signal(signals[i], SIG_DFL);
}

static void cache_survives_wrong_call(void **state)
{
    const struct negative_case *wrong_call = *state;
    (void)fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signals_restore();
        (void)alarm(DEADLOCK_SECONDS);
        case_run(wrong_call);
        exit(0); /* runs the handlers of sanitizers, which may change the status */
    }
    assert_int_equal(child_wait(child), 0);
}

/* Whether the device exists. Checked in a child, because no driver survives a fork. */
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
            const struct negative_case *wrong_call = &groups[g]->cases[i];
            (void)snprintf(names[count], NAME_BYTES, "%s: %s", groups[g]->name, wrong_call->name);
            tests[count] = (struct CMUnitTest){ .name = names[count],
                                                .test_func = cache_survives_wrong_call,
                                                .initial_state = (void *)(uintptr_t)wrong_call };
        }
        (void)printf("%-14s %3u cases\n", groups[g]->name, groups[g]->count);
    }
    (void)printf("%-14s %3u cases\n", "all", count);
    return _cmocka_run_group_tests("negative", tests, count, NULL, NULL);
}
