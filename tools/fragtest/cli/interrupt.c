/* Interrupted runs: see interrupt.h. */
#include "fragtest/cli/interrupt.h"

#include <unistd.h>

static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };
enum { NUMBERS = sizeof(numbers) / sizeof(numbers[0]) };

static const char clear_line[] = "\r\033[K";
static bool clears_line;
static const char *volatile removed;
static sigset_t held;

/* The default action is in place again (SA_RESETHAND) and takes effect when this returns. */
static void on_signal(int number)
{
    const char *path = removed;

    if (path != NULL)
        (void)unlink(path);
    if (clears_line) {
        ssize_t written = write(STDERR_FILENO, clear_line, sizeof(clear_line) - 1);
        (void)written;
    }
    (void)raise(number);
}

static bool is_ignored(int number)
{
    struct sigaction action;

    return sigaction(number, NULL, &action) != 0 || action.sa_handler == SIG_IGN;
}

void interrupt_init(bool has_bar)
{
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND };

    clears_line = has_bar;
    (void)sigemptyset(&action.sa_mask);
    for (unsigned i = 0; i < NUMBERS; i++)
        if (!is_ignored(numbers[i]))
            (void)sigaction(numbers[i], &action, NULL);
}

void interrupt_removes(const char *path)
{
    removed = path;
}

/* One that is ignored would wait, too, if it were blocked. */
void interrupt_hold(sigset_t *before)
{
    (void)sigemptyset(&held);
    for (unsigned i = 0; i < NUMBERS; i++)
        if (!is_ignored(numbers[i]))
            (void)sigaddset(&held, numbers[i]);
    (void)sigprocmask(SIG_BLOCK, &held, before);
    for (unsigned i = 0; i < NUMBERS; i++)
        if (sigismember(before, numbers[i]) == 1)
            (void)sigdelset(&held, numbers[i]); /* the caller of the program blocks it */
}

void interrupt_release(const sigset_t *before)
{
    (void)sigprocmask(SIG_SETMASK, before, NULL);
}

bool interrupt_waits(void)
{
    sigset_t waiting;

    (void)sigpending(&waiting);
    for (unsigned i = 0; i < NUMBERS; i++)
        if (sigismember(&held, numbers[i]) == 1 && sigismember(&waiting, numbers[i]) == 1)
            return true;
    return false;
}
