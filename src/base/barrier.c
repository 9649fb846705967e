/* A barrier for all threads: see barrier.h. */
#define _GNU_SOURCE
#include "base/barrier.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool is_ready;

static long membarrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0);
}

static void process_register(void)
{
    is_ready = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0 &&
               membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0;
}

bool vmm__barrier_is_ready(void)
{
    (void)pthread_once(&once, process_register);
    return is_ready;
}

/* The whole pause, also when signals come. */
static void whole_pause(long ns)
{
    struct timespec left = { .tv_nsec = ns };
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        continue;
}

void vmm__barrier_all(void)
{
    atomic_thread_fence(memory_order_seq_cst);
    /* A system that offered it and refuses now (a filter of system calls was set meanwhile) leaves
     * only time: no processor keeps a store to itself for a thousandth of a second. */
    if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0)
        whole_pause(1000000);
}

void vmm__barrier_pause(unsigned round)
{
    if (round < 64)
        (void)sched_yield();
    else
        whole_pause(20000);
}
