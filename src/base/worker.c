/* Threads of the library: see worker.h. */
#define _GNU_SOURCE
#include "base/worker.h"

#include <signal.h>
#include <stddef.h>

/* The new thread inherits the signal mask. */
int vmm__worker_start(pthread_t *thread, void *(*function)(void *context), void *context)
{
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = pthread_create(thread, NULL, function, context);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failure;
}
