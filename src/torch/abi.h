/*
 * The C functions that abi.cpp calls, declared for C and C++. If a function returns anything but VMM_OK,
 * vmm_last_error() holds the reason.
 * May be called by: torch.
 */
#ifndef VMM_TORCH_ABI_H
#define VMM_TORCH_ABI_H

#include "vmmcache/torch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* vmm_torch_try_alloc() that returns a status. */
vmm_status vmm__torch_take(size_t bytes, int ordinal, vmm_stream stream, void **out);

/* Use the pool of an id for a capture, end the capture, end one use. Begin creates the cache and the pool if there is
 * none; the last release destroys the pool. */
vmm_status vmm__torch_pool_begin(int ordinal, vmm_pool_id id, vmm_pool_filter filter,
                                 void *context);
vmm_status vmm__torch_pool_end(int ordinal, vmm_pool_id id);
vmm_status vmm__torch_pool_release(int ordinal, vmm_pool_id id);

/* Writes an error that a hook cannot return to the log of the settings. */
void vmm__torch_complain(const char *hook, vmm_status status);

#ifdef __cplusplus
}
#endif

#endif
