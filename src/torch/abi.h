/*
 * What abi.cpp needs of the C side, as C and C++ both understand it. A status that is not VMM_OK has its
 * line in vmm_last_error().
 * May be called by: torch.
 */
#ifndef VMM_TORCH_ABI_H
#define VMM_TORCH_ABI_H

#include "vmmcache/torch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* vmm_torch_try_alloc() with a status. */
vmm_status vmm__torch_take(size_t bytes, int ordinal, vmm_stream stream, void **out);

/* vmm_pool_begin() and its like on a device's cache, which begin makes if there is none. */
vmm_status vmm__torch_pool_begin(int ordinal, vmm_pool_id id, vmm_pool_filter filter,
                                 void *context);
vmm_status vmm__torch_pool_end(int ordinal, vmm_pool_id id);
vmm_status vmm__torch_pool_release(int ordinal, vmm_pool_id id);

/* Keeps an error that a hook cannot return: a line in the log of the settings. */
void vmm__torch_complain(const char *hook, vmm_status status);

#ifdef __cplusplus
}
#endif

#endif
