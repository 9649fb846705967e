/*
 * The only place of the library that asks the system for host memory.
 *
 * Owns: nothing; counts what is outstanding so that tests can take a census.
 * May be called by: everything. Locks: none (atomic counters).
 */
#ifndef VMM_BASE_HOSTMEM_H
#define VMM_BASE_HOSTMEM_H

#include <stddef.h>
#include <stdint.h>

/* Zeroed memory, or NULL. 64 bytes or more begin at a line of the processor's cache. */
void *vmm__host_alloc(size_t count, size_t bytes_each);

/* Grows an array; the new part is not zeroed. NULL leaves the old array as it was. */
void *vmm__host_resize(void *memory, size_t old_bytes, size_t new_bytes);

/* `bytes` as given to alloc or resize. NULL does nothing. */
void vmm__host_free(void *memory, size_t bytes);

/*
 * A large zeroed table of which only touched pages cost memory (an anonymous mapping); NULL when
 * the system refuses. Freed with vmm__host_table_free() and the same size.
 */
void *vmm__host_table_alloc(size_t bytes);
void vmm__host_table_free(void *table, size_t bytes);

/*
 * For tests: makes the `number`th allocation from now on fail, counting those of all kinds and
 * threads from 1; 0 turns it off. Returns how many were counted since the last such call.
 */
uint64_t vmm__host_fail_at(uint64_t number);

/* Bytes handed out and not given back, tables not counted by page but by size. */
uint64_t vmm__host_outstanding(void);

#endif
