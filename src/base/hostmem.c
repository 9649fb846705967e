/* Host memory for the library's own records: see hostmem.h. */
#define _GNU_SOURCE
#include "base/hostmem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

static _Atomic uint64_t outstanding_bytes;

static void outstanding_change(size_t freed, size_t allocated)
{
    atomic_fetch_add_explicit(&outstanding_bytes, (uint64_t)allocated - (uint64_t)freed,
                              memory_order_relaxed);
}

void *vmm__host_alloc(size_t count, size_t bytes_each)
{
    void *memory = calloc(count, bytes_each);
    if (memory != NULL)
        outstanding_change(0, count * bytes_each);
    return memory;
}

void *vmm__host_resize(void *memory, size_t old_bytes, size_t new_bytes)
{
    void *resized = realloc(memory, new_bytes);
    if (resized != NULL)
        outstanding_change(old_bytes, new_bytes);
    return resized;
}

void vmm__host_free(void *memory, size_t bytes)
{
    if (memory == NULL)
        return;
    outstanding_change(bytes, 0);
    free(memory);
}

void *vmm__host_table_alloc(size_t bytes)
{
    void *table = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (table == MAP_FAILED)
        return NULL;
    outstanding_change(0, bytes);
    return table;
}

void vmm__host_table_free(void *table, size_t bytes)
{
    if (table == NULL)
        return;
    outstanding_change(bytes, 0);
    (void)munmap(table, bytes);
}

uint64_t vmm__host_outstanding(void)
{
    return atomic_load_explicit(&outstanding_bytes, memory_order_relaxed);
}
