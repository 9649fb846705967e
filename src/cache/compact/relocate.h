/*
 * Relocation: moves the live granules of a chunk to chunks of their own, under the same addresses, and releases the
 * chunk, with its free granules, to the driver.
 *
 * The caller promises that no work of the device is in flight and that no thread submits any meanwhile.
 * Owns: nothing. May be called by: compact. Locks: the caller holds the grow lock and every lane's lock.
 */
#ifndef VMM_CACHE_COMPACT_RELOCATE_H
#define VMM_CACHE_COMPACT_RELOCATE_H

#include "cache/compact/occupancy_scan.h"

/*
 * Relocates a chunk: each run of live granules becomes a chunk. Until the old chunk is released, this needs new memory
 * for the live granules. The free granules end up unmapped, in no heap. ERR_DEVICE_OOM (no room for the copy),
 * ERR_HOST_OOM, ERR_ADDRESS_SPACE, ERR_DRIVER: nothing has changed, or the chunk is remap pending (vm.h, 5).
 */
vmm_status vmm__relocate(struct vmm_cache *cache, const struct partly *partly);

#endif
