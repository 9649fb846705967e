/* A barrier for all threads: see barrier.h. */
#define _GNU_SOURCE
#include "base/barrier.h"
#include "base/time.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool is_ready;

static long membarrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0);
}

static void register_process(void)
{
    is_ready = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0 &&
               membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0;
}

bool vmm__barrier_is_ready(void)
{
    (void)pthread_once(&once, register_process);
    return is_ready;
}

void vmm__barrier_all(void)
{
    atomic_thread_fence(memory_order_seq_cst);
    /* The call may fail after it worked before, if the program has installed a filter of system calls since. Then
     * only time helps: every processor makes a store visible within a millisecond. */
    if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0)
        vmm__time_pause(1000000);
}

void vmm__barrier_pause(unsigned round)
{
    if (round < 64)
        (void)sched_yield();
    else
        vmm__time_pause(20000);
}
