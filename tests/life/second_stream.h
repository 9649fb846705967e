/* A stream beside the default one, for programs that link neither CUDA nor the library. */
#ifndef VMM_TESTS_LIFE_SECOND_STREAM_H
#define VMM_TESTS_LIFE_SECOND_STREAM_H

#include "vmmcache/vmmcache.h"

#include <dlfcn.h>

/* Call it once a cache exists, which has started CUDA. Returns NULL if CUDA refuses; host and sim take any name. */
static inline vmm_stream second_stream_create(vmm_driver_kind driver)
{
    int (*retain)(void **context, int device);
    int (*push)(void *context);
    int (*create)(void **stream, unsigned flags);
    void *context = NULL;
    void *stream = NULL;
    if (driver != VMM_DRIVER_CUDA)
        return (vmm_stream)(uintptr_t)0x10;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL)
        return NULL;
    *(void **)&retain = dlsym(library, "cuDevicePrimaryCtxRetain");
    *(void **)&push = dlsym(library, "cuCtxPushCurrent_v2");
    *(void **)&create = dlsym(library, "cuStreamCreate");
    if (retain == NULL || push == NULL || create == NULL || retain(&context, 0) != 0 ||
        push(context) != 0 || create(&stream, 1) != 0)
        return NULL;
    return stream;
}

#endif
