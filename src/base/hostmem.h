/*
 * The only module of the library that asks the system for host memory.
 *
 * Owns: a count of the outstanding bytes, with which tests find leaks.
 * May be called by: everything. Locks: none (atomic counters).
 */
#ifndef VMM_BASE_HOSTMEM_H
#define VMM_BASE_HOSTMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns zeroed memory, or NULL. Memory of 64 bytes or more starts at a cache line. */
void *vmm__host_alloc(size_t count, size_t bytes_each);

/* Grows an array and does not zero the new part. On failure returns NULL and keeps the old array. */
void *vmm__host_resize(void *memory, size_t old_bytes, size_t new_bytes);

/* Makes room for one more item in an array of `count` items. False: out of host memory, nothing changed. */
bool vmm__host_array_grow(void **items, uint64_t *capacity, uint64_t count, size_t item_bytes);

/* `bytes` is the size that was passed to alloc or resize. Does nothing for NULL. */
void vmm__host_free(void *memory, size_t bytes);

/* Returns a large zeroed table, or NULL. Only pages that are touched cost memory (an anonymous mapping). Free it with
 * vmm__host_table_free() and the same size. */
void *vmm__host_table_alloc(size_t bytes);
void vmm__host_table_free(void *table, size_t bytes);

/* The same for memory that will be used completely: asks for huge pages. NULL also if the machine cannot hold it. */
void *vmm__host_huge_alloc(size_t bytes);

/* Gives a table up that cannot be freed: it stays mapped, and vmm__host_outstanding() no longer counts it. */
void vmm__host_table_abandon(size_t bytes);

/* For tests: makes the `number`th allocation from now on fail, counted from 1 over all kinds and threads; 0 turns this
 * off. Returns how many allocations were counted since the previous call. */
uint64_t vmm__host_fail_at(uint64_t number);

/* Returns the bytes that are allocated and not freed. A table counts with its whole size. */
uint64_t vmm__host_outstanding(void);

/* The same without tables above 1 MiB: what records take. */
uint64_t vmm__host_record_bytes(void);

#endif
