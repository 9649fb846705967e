/*
 * How programs find libcuda's functions: see preload.h.
 *
 * A program that is linked to libcuda finds the replacements by itself, because LD_PRELOAD comes first. The CUDA
 * runtime and most bindings open libcuda and ask dlsym() for cuGetProcAddress(), and that for everything else: so both
 * are replaced. Each asks the original first, and answers with a replacement only where that found the very function
 * which is replaced.
 */
#define _GNU_SOURCE
#include "preload/preload.h"

#include <dlfcn.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* Names of many other libraries begin like libcuda's, and a program that only asks for those runs without it. */
static void *replacement_find(void *handle, const char *name)
{
    if (name == NULL || strncmp(name, "cu", 2) != 0 || !vmm__preload_has_name(name) ||
        !vmm__preload_serves())
        return NULL;
    void *found = vmm__preload_dlsym()(handle, name);
    if (found == NULL || vmm__preload_real() == NULL)
        return NULL;
    return vmm__preload_replacement(name, found);
}

/* Ends with a jump, not a call: with RTLD_NEXT, dlsym() looks at its return address to find the object that called. */
#if defined(__clang__)
#define TAIL_CALL __attribute__((musttail))
#define JUMPS
#else
#define TAIL_CALL
#define JUMPS __attribute__((optimize("O2"), no_profile_instrument_function))
#endif

EXPORT JUMPS void *dlsym(void *handle, const char *name)
{
    void *replacement = handle != RTLD_NEXT ? replacement_find(handle, name) : NULL;
    if (replacement != NULL)
        return replacement;
    preload_dlsym_fn original = vmm__preload_dlsym();
    TAIL_CALL return original(handle, name);
}

static void address_replace(CUresult result, const char *symbol, void **found)
{
    void *replacement = NULL;
    if (result == CUDA_SUCCESS && found != NULL && *found != NULL && vmm__preload_serves())
        replacement = vmm__preload_replacement(symbol, *found);
    if (replacement != NULL)
        *found = replacement;
}

EXPORT CUresult cuGetProcAddress(const char *symbol, void **found, int version, cuuint64_t flags)
{
    const struct preload_real *real = vmm__preload_real();
    if (real == NULL || real->cuGetProcAddress == NULL)
        return CUDA_ERROR_NOT_FOUND;
    CUresult result = real->cuGetProcAddress(symbol, found, version, flags);
    address_replace(result, symbol, found);
    return result;
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **found, int version, cuuint64_t flags,
                                    CUdriverProcAddressQueryResult *state)
{
    const struct preload_real *real = vmm__preload_real();
    if (real == NULL || real->cuGetProcAddress_v2 == NULL)
        return CUDA_ERROR_NOT_FOUND;
    CUresult result = real->cuGetProcAddress_v2(symbol, found, version, flags, state);
    address_replace(result, symbol, found);
    return result;
}
