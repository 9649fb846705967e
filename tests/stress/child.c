/* Runs in a process of their own: see child.h. */
#define _GNU_SOURCE
#include "child.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_TROUBLE = 3, POLL_NS = 20000000 };

struct child_report *child_report_make(void)
{
    void *report = mmap(NULL, sizeof(struct child_report), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return report == MAP_FAILED ? NULL : report;
}

const char *child_outcome_name(enum child_outcome outcome)
{
    static const char *const names[] = { "well", "trouble", "crash", "hang" };
    return names[outcome];
}

void child_breathes(unsigned patience_ms)
{
    struct itimerval patience = { .it_value = { .tv_sec = patience_ms / 1000,
                                                .tv_usec = patience_ms % 1000 * 1000 } };
    (void)setitimer(ITIMER_REAL, &patience, NULL);
}

static void output_throw_away(void)
{
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere < 0)
        return;
    (void)dup2(nowhere, STDOUT_FILENO);
    (void)dup2(nowhere, STDERR_FILENO);
}

static _Noreturn void child_main(const struct child_job *job, struct child_report *report)
{
    (void)signal(SIGALRM, SIG_DFL);
    if (job->is_quiet)
        output_throw_away();
    child_breathes(job->patience_ms);
    exit(job->work(job->context, report) ? EXIT_SUCCESS
                                         : EXIT_TROUBLE); /* leaks are looked for, too */
}

static enum child_outcome status_read(int status, struct child_report *report)
{
    if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS)
        return CHILD_WELL;
    if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_TROUBLE)
        return CHILD_TROUBLE;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) {
        (void)snprintf(report->trouble, sizeof report->trouble, "hang: it did not come to an end");
        return CHILD_HANG;
    }
    if (WIFSIGNALED(status))
        (void)snprintf(report->trouble, sizeof report->trouble, "crash: signal %d (%s)",
                       WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        (void)snprintf(report->trouble, sizeof report->trouble, "crash: it ended with status %d",
                       WEXITSTATUS(status));
    return CHILD_CRASH;
}

static int child_wait(pid_t child, const struct child_job *job, const struct child_report *report)
{
    const struct timespec pause = { .tv_nsec = POLL_NS };
    int status = 0;
    if (job->wait == NULL) {
        (void)waitpid(child, &status, 0);
        return status;
    }
    while (waitpid(child, &status, WNOHANG) == 0) {
        job->wait(job->wait_context, report);
        (void)nanosleep(&pause, NULL);
    }
    return status;
}

enum child_outcome child_run(const struct child_job *job, struct child_report *report)
{
    report->trouble[0] = '\0';
    (void)fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        child_main(job, report);
    if (child < 0) {
        (void)snprintf(report->trouble, sizeof report->trouble, "crash: no process to run it in");
        report->outcome = CHILD_CRASH;
    } else {
        report->outcome = status_read(child_wait(child, job, report), report);
    }
    return report->outcome;
}
