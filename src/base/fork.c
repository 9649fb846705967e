/* What a child of fork() must know: see fork.h. */
#include "base/fork.h"
#include "base/error.h"
#include "base/seat.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

enum { FUNCTIONS_MOST = 4 }; /* one a part of the library */

_Atomic uint64_t vmm__fork_generations = 1;

/* The watching guards the rest. The functions themselves are read by children without it. */
static pthread_mutex_t watching = PTHREAD_MUTEX_INITIALIZER;
static bool is_watched;
static _Atomic(fork_fn) functions[FUNCTIONS_MOST];

static void child_begins(void)
{
    atomic_fetch_add_explicit(&vmm__fork_generations, 1, memory_order_relaxed);
    watching = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; /* whoever held it is not here */
    vmm__seats_leave();
    for (int i = 0; i < FUNCTIONS_MOST; i++) {
        fork_fn function = atomic_load_explicit(&functions[i], memory_order_acquire);
        if (function != NULL)
            function();
    }
}

static vmm_status watch_refused(void)
{
    return vmm__error(VMM_ERR_HOST_OOM, "no host memory to watch for fork()");
}

static vmm_status function_add_locked(fork_fn added)
{
    for (int i = 0; i < FUNCTIONS_MOST; i++) {
        fork_fn function = atomic_load_explicit(&functions[i], memory_order_relaxed);
        if (function == added)
            return VMM_OK;
        if (function != NULL)
            continue;
        atomic_store_explicit(&functions[i], added, memory_order_release);
        return VMM_OK;
    }
    return watch_refused();
}

vmm_status vmm__fork_watch(fork_fn function)
{
    (void)pthread_mutex_lock(&watching);
    if (!is_watched)
        is_watched = pthread_atfork(NULL, NULL, child_begins) == 0;
    vmm_status status = is_watched ? VMM_OK : watch_refused();
    if (status == VMM_OK && function != NULL)
        status = function_add_locked(function);
    (void)pthread_mutex_unlock(&watching);
    return status;
}

vmm_status vmm__fork_refuse(const char *function)
{
    return vmm__error(
        VMM_ERR_FORKED,
        "%s: the cache belongs to the process that called fork(); the child makes its "
        "own, and starts by spawn or forkserver to use a GPU",
        function);
}
