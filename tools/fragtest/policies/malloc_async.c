/*
 * The driver's own pool: see malloc_async.h.
 *
 * The types of libcuda's functions are written out here, because a build without the CUDA toolkit has no header for
 * them. Owns: a reference to the primary context, which is current only during a call.
 */
#include "fragtest/policies/malloc_async.h"

#include "base/error.h"

#include <dlfcn.h>
#include <stdlib.h>

enum {
    DEVICE = 0,
    OUT_OF_MEMORY = 2,
    HAS_POOLS = 115 /* CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED */
};

/* X(member, symbol, parameters) */
#define FUNCTION_MAP(X)                                                                            \
    X(attribute, cuDeviceGetAttribute, (int *value, int attribute, int device))                    \
    X(retain, cuDevicePrimaryCtxRetain, (void **context, int device))                              \
    X(release, cuDevicePrimaryCtxRelease_v2, (int device))                                         \
    X(push, cuCtxPushCurrent_v2, (void *context))                                                  \
    X(pop, cuCtxPopCurrent_v2, (void **context))                                                   \
    X(wait, cuCtxSynchronize, (void))                                                              \
    X(alloc, cuMemAllocAsync, (uint64_t * address, size_t bytes, vmm_stream stream))               \
    X(free, cuMemFreeAsync, (uint64_t address, vmm_stream stream))

struct malloc_async {
    struct policy policy;
    struct policy_setup setup;
    void *library;
    void *context;
#define FUNCTION_MEMBER(member, symbol, parameters) int(*member) parameters;
    FUNCTION_MAP(FUNCTION_MEMBER)
#undef FUNCTION_MEMBER
};

static struct malloc_async *self_of(struct policy *policy)
{
    return (struct malloc_async *)policy;
}

static vmm_status status_of(int result, const char *call)
{
    if (result == 0)
        return VMM_OK;
    return vmm__error(result == OUT_OF_MEMORY ? VMM_ERR_DEVICE_OOM : VMM_ERR_DRIVER,
                      "%s failed: CUDA error %d", call, result);
}

/* The token is the stream's number. */
static vmm_status async_alloc(struct policy *policy, uint64_t bytes, uint32_t stream,
                              struct policy_place *out)
{
    struct malloc_async *self = self_of(policy);
    uint64_t address = 0;
    int result = self->push(self->context);
    if (result == 0) {
        result = self->alloc(&address, bytes, self->setup.streams[stream]);
        (void)self->pop(&self->context);
    }
    if (result == 0)
        *out = (struct policy_place){ .address = address, .token = (void *)(uintptr_t)stream };
    return status_of(result, "cuMemAllocAsync");
}

static vmm_status async_free(struct policy *policy, struct policy_place place)
{
    struct malloc_async *self = self_of(policy);
    int result = self->push(self->context);
    if (result == 0) {
        result = self->free(place.address, self->setup.streams[(uintptr_t)place.token]);
        (void)self->pop(&self->context);
    }
    return status_of(result, "cuMemFreeAsync");
}

static vmm_status async_close(struct policy *policy)
{
    struct malloc_async *self = self_of(policy);
    int result = self->push(self->context);
    if (result == 0) {
        result = self->wait();
        (void)self->pop(&self->context);
    }
    (void)self->release(DEVICE);
    (void)dlclose(self->library);
    free(self);
    return status_of(result, "cuCtxSynchronize");
}

/* The driver has loaded the library: this adds a reference. */
static bool functions_load(struct malloc_async *self)
{
    self->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    bool has_all = self->library != NULL;
#define FUNCTION_LOAD(member, symbol, parameters)                                                  \
    *(void **)&self->member = has_all ? dlsym(self->library, #symbol) : NULL;                      \
    has_all = has_all && self->member != NULL;
    FUNCTION_MAP(FUNCTION_LOAD)
#undef FUNCTION_LOAD
    return has_all;
}

static vmm_status async_open(const struct policy_ops *ops, const struct policy_setup *setup,
                             struct policy **out)
{
    struct malloc_async *self = calloc(1, sizeof(*self));
    int has_pools = 0;
    if (self == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "out of host memory for a policy");
    self->policy.ops = ops;
    self->setup = *setup;
    vmm_status status = VMM_OK;
    if (!functions_load(self) || self->attribute(&has_pools, HAS_POOLS, DEVICE) != 0 || !has_pools)
        status = vmm__error(VMM_ERR_UNSUPPORTED, "cuMemAllocAsync: not supported here");
    if (status == VMM_OK)
        status = status_of(self->retain(&self->context, DEVICE), "cuDevicePrimaryCtxRetain");
    if (status == VMM_OK) {
        *out = &self->policy;
        return VMM_OK;
    }
    if (self->library != NULL)
        (void)dlclose(self->library);
    free(self);
    return status;
}

const struct policy_ops policy_malloc_async = {
    .name = "cudaMallocAsync",
    .open = async_open,
    .alloc = async_alloc,
    .free = async_free,
    .close = async_close,
};
