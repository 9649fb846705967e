/*
 * A program for test_modes.py, which runs it with and without the preload library: usage preload_program ROUTE [fork].
 * Prints how many of its blocks libcuda served, and which sizes. With `fork` a child exits meanwhile. It exits without
 * freeing the last block.
 */
#define _GNU_SOURCE
#include "preload_support.h"

#include <sys/wait.h>
#include <unistd.h>

static void child_run(void)
{
    int status = 0;
    CUdeviceptr block = 0;
    (void)fflush(stdout); /* or both processes print it */
    pid_t child = fork();
    if (child == 0) {
        (void)alarm(20);
        (void)cuda.cuMemAlloc_v2(&block, MIB);
        exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
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
        child_run();
    block_free(blocks[1]);
    block_free(blocks[0]);
    assert_int_equal(cuda.cuMemFreeAsync(last, stream), CUDA_SUCCESS);
    return 0;
}
