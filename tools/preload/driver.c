/*
 * A program of the driver API that is linked to libcuda, for tools/preload/check.py: usage driver primary|own. Prints
 * results that must not depend on the allocator. It is built with the toolkit's libcuda, a stub.
 */
#include <cuda.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(CUresult result, const char *call)
{
    if (result == CUDA_SUCCESS)
        return;
    printf("%s: %d\n", call, (int)result);
    exit(1);
}

#define CHECK(call) check((call), #call)

enum { BLOCKS = 64 };

/* A context of the program's own keeps libcuda's allocator. */
static void context_make(const char *kind, CUdevice device)
{
    CUcontext context;
    if (strcmp(kind, "primary") == 0) {
        CHECK(cuDevicePrimaryCtxRetain(&context, device));
        CHECK(cuCtxPushCurrent(context));
    } else {
#if CUDA_VERSION >= 13000
        CHECK(cuCtxCreate(&context, NULL, 0, device));
#else
        CHECK(cuCtxCreate(&context, 0, device));
#endif
    }
}

static void blocks_use(void)
{
    CUdeviceptr blocks[BLOCKS];
    unsigned wrong = 0;
    for (unsigned i = 0; i < BLOCKS; i++) {
        size_t bytes = (i + 1) * 100003;
        CHECK(cuMemAlloc(&blocks[i], bytes));
        CHECK(cuMemsetD8(blocks[i], (unsigned char)i, bytes));
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        unsigned char last = 0;
        CHECK(cuMemcpyDtoH(&last, blocks[i] + (i + 1) * 100003 - 1, 1));
        wrong += last != (unsigned char)i;
        CHECK(cuMemFree(blocks[i]));
    }
    printf("%u of %d blocks are wrong\n", wrong, BLOCKS);
}

static void questions_ask(void)
{
    CUdeviceptr block;
    CUdeviceptr base;
    size_t bytes;
    CUcontext current;
    CUcontext found = NULL;
    CHECK(cuMemAlloc(&block, 5 << 20));
    CHECK(cuCtxGetCurrent(&current));
    CHECK(cuMemGetAddressRange(&base, &bytes, block + 4711));
    CHECK(cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_CONTEXT, block));
    printf("range %d %zu, context %d\n", base == block, bytes, found == current);
    CHECK(cuMemFree(block));
    printf("freed twice: %d\n", (int)cuMemFree(block));
}

int main(int count, char **arguments)
{
    CUdevice device;
    if (count != 2)
        return 2;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    context_make(arguments[1], device);
    blocks_use();
    questions_ask();
    return 0;
}
