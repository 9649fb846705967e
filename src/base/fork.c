/* The generation of the process, and functions that a child of fork() calls: see fork.h. */
#include "base/fork.h"
#include "base/error.h"
#include "base/mutex.h"
#include "base/thread_slot.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

enum { FUNCTIONS_MOST = 7 }; /* at least one for each caller of vmm__fork_watch() */

_Atomic uint64_t vmm__fork_generations = 1;

/* Guards what follows. A child reads the functions without it. */
static struct mutex watch_lock = VMM_MUTEX_INIT;
static bool is_watched;
static _Atomic(fork_fn) functions[FUNCTIONS_MOST];

VMM_FORK_CHILD static void child_begin(void)
{
    atomic_fetch_add_explicit(&vmm__fork_generations, 1, memory_order_relaxed);
    watch_lock = (struct mutex)VMM_MUTEX_INIT; /* the child does not have the thread that held it */
    vmm__thread_slots_leave();
    for (int i = 0; i < FUNCTIONS_MOST; i++) {
        fork_fn function = atomic_load_explicit(&functions[i], memory_order_acquire);
        if (function != NULL)
            function();
    }
}

static vmm_status watch_refused(void)
{
    return vmm__error(VMM_ERR_HOST_OOM, "no host memory to register a handler for fork()");
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
    VMM_HOLD(&watch_lock);
    if (!is_watched)
        is_watched = pthread_atfork(NULL, NULL, child_begin) == 0;
    if (!is_watched)
        return watch_refused();
    return function != NULL ? function_add_locked(function) : VMM_OK;
}

vmm_status vmm__fork_refuse(const char *function)
{
    return vmm__error(
        VMM_ERR_FORKED,
        "%s: the cache belongs to the process that called fork(); the child makes its "
        "own, and starts by spawn or forkserver to use a GPU",
        function);
}
