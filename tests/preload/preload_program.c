/*
 * A program for test_modes.py, which runs it with and without the preload library: usage preload_program ROUTE. Prints
 * how many of its blocks libcuda served, and which sizes. It exits without freeing the last block.
 */
#define _GNU_SOURCE
#include "preload_support.h"

int main(int count, char **arguments)
{
    CUdeviceptr blocks[3] = { 0 };
    CUdeviceptr last = 0;
    if (count != 2)
        return 2;
    cuda_start(arguments[1]);
    CUstream stream = stream_create();
    for (unsigned i = 0; i < 3; i++)
        blocks[i] = block_alloc((i + 1) * MIB);
    assert_int_equal(cuda.cuMemAllocAsync(&last, 5 * MIB, stream), CUDA_SUCCESS);
    (void)printf("libcuda served %u\n", (unsigned)fake->plain_blocks);
    block_free(blocks[1]);
    block_free(blocks[0]);
    assert_int_equal(cuda.cuMemFreeAsync(last, stream), CUDA_SUCCESS);
    return 0;
}
