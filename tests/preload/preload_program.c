/*
 * A program for test_modes.py, which runs it with and without the preload library: usage preload_program ROUTE [fork].
 * Prints how many of its blocks libcuda served, and which sizes. With `fork` children exit meanwhile. It exits without
 * freeing the last block.
 */
#define _GNU_SOURCE
#include "preload_support.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static CUdeviceptr shared; /* a block that a thread and the child ask about */
static _Atomic bool has_ended;

static void *questions_ask(void *unused)
{
    CUdeviceptr base = 0;
    while (!has_ended)
        (void)cuda.cuMemGetAddressRange_v2(&base, NULL, shared);
    return unused;
}

static void child_run(void)
{
    int status = 0;
    CUdeviceptr block = 0;
    pid_t child = fork();
    if (child == 0) {
        (void)alarm(10);
        (void)cuda.cuMemGetAddressRange_v2(&block, NULL, shared);
        (void)cuda.cuMemFree_v2(shared);
        (void)cuda.cuMemAlloc_v2(&block, MIB);
        exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* Another thread holds locks at some of the forks. */
static void children_run(CUdeviceptr block)
{
    pthread_t thread;
    shared = block;
    (void)fflush(stdout); /* or all processes print it */
    assert_int_equal(pthread_create(&thread, NULL, questions_ask, NULL), 0);
    for (unsigned i = 0; i < 50; i++)
        child_run();
    has_ended = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
}

int main(int count, char **arguments)
{
    CUdeviceptr blocks[3] = { 0 };
    CUdeviceptr last = 0;
    if (count != 2 && count != 3)
        return 2;
    cuda_start(arguments[1]);
    CUstream stream = stream_create();
    for (unsigned i = 0; i < 3; i++)
        blocks[i] = block_alloc((i + 1) * MIB);
    assert_int_equal(cuda.cuMemAllocAsync(&last, 5 * MIB, stream), CUDA_SUCCESS);
    (void)printf("libcuda served %u\n", (unsigned)fake->plain_blocks);
    if (count == 3)
        children_run(blocks[0]);
    block_free(blocks[1]);
    block_free(blocks[0]);
    assert_int_equal(cuda.cuMemFreeAsync(last, stream), CUDA_SUCCESS);
    return 0;
}
