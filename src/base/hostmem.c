/* Host memory for the library's own records: see hostmem.h. */
#define _GNU_SOURCE
#include "base/hostmem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { LINE_BYTES = 64 /* a cache line of the processor */, ARRAY_ITEMS_FIRST = 4 };

/* A larger table is indexed by address, and few of its pages are touched; or it is a backup. */
enum { TABLE_DENSE_MOST_BYTES = 1 << 20 };

static _Atomic uint64_t outstanding_bytes;
static _Atomic uint64_t large_bytes; /* of these, those in larger tables */
static _Atomic uint64_t fail_number; /* 0: no allocation fails, and none is counted */
static _Atomic uint64_t fail_count;

static void outstanding_change(size_t freed, size_t allocated)
{
    atomic_fetch_add_explicit(&outstanding_bytes, (uint64_t)allocated - (uint64_t)freed,
                              memory_order_relaxed);
}

static void table_change(size_t freed, size_t allocated)
{
    outstanding_change(freed, allocated);
    if (freed > TABLE_DENSE_MOST_BYTES || allocated > TABLE_DENSE_MOST_BYTES)
        atomic_fetch_add_explicit(&large_bytes, (uint64_t)allocated - (uint64_t)freed,
                                  memory_order_relaxed);
}

/* Returns whether a test wants this allocation to fail. */
static bool must_fail(void)
{
    uint64_t number = atomic_load_explicit(&fail_number, memory_order_relaxed);
    return number != 0 &&
           atomic_fetch_add_explicit(&fail_count, 1, memory_order_relaxed) + 1 == number;
}

uint64_t vmm__host_fail_at(uint64_t number)
{
    atomic_store_explicit(&fail_number, number, memory_order_relaxed);
    return atomic_exchange_explicit(&fail_count, 0, memory_order_relaxed);
}

/* Large records start at a cache line, so that two records used by different threads share none. */
static void *lines_alloc(size_t bytes)
{
    void *memory;
    if (bytes > SIZE_MAX - LINE_BYTES)
        return NULL;
    size_t whole_bytes = (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
    if (posix_memalign(&memory, LINE_BYTES, whole_bytes) != 0)
        return NULL;
    return memset(memory, 0, whole_bytes);
}

void *vmm__host_alloc(size_t count, size_t bytes_each)
{
    size_t bytes;
    if (must_fail() || __builtin_mul_overflow(count, bytes_each, &bytes))
        return NULL;
    void *memory = bytes < LINE_BYTES ? calloc(1, bytes) : lines_alloc(bytes);
    if (memory != NULL)
        outstanding_change(0, bytes);
    return memory;
}

void *vmm__host_resize(void *memory, size_t old_bytes, size_t new_bytes)
{
    void *resized = must_fail() ? NULL : realloc(memory, new_bytes);
    if (resized != NULL)
        outstanding_change(old_bytes, new_bytes);
    return resized;
}

bool vmm__host_array_grow(void **items, uint64_t *capacity, uint64_t count, size_t item_bytes)
{
    if (count < *capacity)
        return true;
    uint64_t wanted = *capacity == 0 ? ARRAY_ITEMS_FIRST : *capacity * 2;
    void *grown = vmm__host_resize(*items, *capacity * item_bytes, wanted * item_bytes);
    if (grown == NULL)
        return false;
    *items = grown;
    *capacity = wanted;
    return true;
}

void vmm__host_free(void *memory, size_t bytes)
{
    if (memory == NULL)
        return;
    outstanding_change(bytes, 0);
    free(memory);
}

static void *pages_alloc(size_t bytes, int flags)
{
    if (must_fail())
        return NULL;
    void *pages =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (pages == MAP_FAILED)
        return NULL;
    table_change(0, bytes);
    return pages;
}

void *vmm__host_table_alloc(size_t bytes)
{
    return pages_alloc(bytes, MAP_NORESERVE);
}

/* Without MAP_NORESERVE, so that the kernel refuses what the machine cannot hold, instead of ending the process. */
void *vmm__host_huge_alloc(size_t bytes)
{
    void *memory = pages_alloc(bytes, 0);
    if (memory != NULL)
        (void)madvise(memory, bytes,
                      MADV_HUGEPAGE); /* a hint: small pages do as well, more slowly */
    return memory;
}

void vmm__host_table_free(void *table, size_t bytes)
{
    if (table == NULL)
        return;
    table_change(bytes, 0);
    (void)munmap(table, bytes);
}

void vmm__host_table_abandon(size_t bytes)
{
    table_change(bytes, 0);
}

uint64_t vmm__host_outstanding(void)
{
    return atomic_load_explicit(&outstanding_bytes, memory_order_relaxed);
}

/* Another thread may have changed only one of the two. */
uint64_t vmm__host_record_bytes(void)
{
    uint64_t large = atomic_load_explicit(&large_bytes, memory_order_relaxed);
    uint64_t all = atomic_load_explicit(&outstanding_bytes, memory_order_relaxed);
    return all - (large < all ? large : all);
}
