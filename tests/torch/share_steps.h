/*
 * Steps of tests in which processes share memory of PyTorch's allocator, on the host driver. A step that fails ends a
 * child, or fails the test.
 *
 * Define _GNU_SOURCE before the first header.
 */
#ifndef VMM_TEST_TORCH_SHARE_STEPS_H
#define VMM_TEST_TORCH_SHARE_STEPS_H

#include "life/child.h"
#include "support/folder_support.h"
#include "torch/share_socket.h"
#include "vmmcache/torch_provider.h"

extern const vmm_torch_functions *torch;

/* Configures the allocator; a program calls it first. */
void torch_open(vmm_switch shareable);

unsigned char *block_make(size_t bytes, int byte);
void block_drop(void *block);

/* The handle of an address so far into its block. */
struct share_handle handle_of(const void *address, uint64_t offset);
unsigned char *handle_open(const struct share_handle *handle);

/* Why a handle, which may be any bytes, does not open. */
vmm_status open_status(const void *handle, size_t bytes);

bool bytes_are(const unsigned char *bytes, size_t count, int byte);

/* Waits until no more descriptors are open than before. */
void descriptors_are_closed(int before);

vmm_stats stats_of(void);

/* Waits until no block is active that is not allocated, and nothing is imported. */
void all_is_freed(void);

#endif
