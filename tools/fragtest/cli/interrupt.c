/* Interrupted runs: see interrupt.h. */
#include "fragtest/cli/interrupt.h"

#include <signal.h>
#include <unistd.h>

static const char clear_line[] = "\r\033[K";

/* The default action is in place again (SA_RESETHAND) and takes effect when this returns. */
static void on_signal(int number)
{
    ssize_t written = write(STDERR_FILENO, clear_line, sizeof(clear_line) - 1);
    (void)written;
    (void)raise(number);
}

static void handler_set(int number)
{
    struct sigaction before;
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND };

    (void)sigemptyset(&action.sa_mask);
    if (sigaction(number, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        (void)sigaction(number, &action, NULL);
}

void interrupt_init(bool has_bar)
{
    if (!has_bar)
        return;
    handler_set(SIGINT);
    handler_set(SIGTERM);
}
