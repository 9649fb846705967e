/*
 * The C functions that abi.cpp calls, declared for C and C++. If a function returns anything but VMM_OK,
 * vmm_last_error() holds the reason.
 *
 * Owns: nothing. May be called by: torch. Locks: those of the functions that it leads to.
 */
#ifndef VMM_TORCH_ABI_H
#define VMM_TORCH_ABI_H

#include "vmmcache/torch_provider.h"

#ifdef __cplusplus
extern "C" {
#endif

/* vmm_torch_try_alloc() that returns a status. */
vmm_status vmm__torch_take(size_t bytes, int ordinal, vmm_stream stream, void **out);

/* See failure_write() in torch_provider.h. */
void vmm__torch_failure_write(int ordinal, size_t bytes, vmm_status status, char *text,
                              size_t text_bytes);

/* begin: vmm__torch_pool_use() and _route() (pools.h), or neither. */
vmm_status vmm__torch_pool_begin(int ordinal, vmm_pool_id id, vmm_pool_filter filter,
                                 void *context);
vmm_status vmm__torch_pool_unroute(int ordinal, vmm_pool_id id);
vmm_status vmm__torch_pool_leave(int ordinal, vmm_pool_id id);

/* Writes an error that a hook cannot return to the log of the settings. */
void vmm__torch_complain(const char *hook, vmm_status status);

#ifdef __cplusplus
}
#endif

#endif
