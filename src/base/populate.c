/* Populates host memory ahead of its use: see populate.h. */
#define _GNU_SOURCE
#include "base/populate.h"
#include "base/arith.h"
#include "base/hostmem.h"
#include "base/time.h"
#include "base/worker.h"

#include <sys/mman.h>
#include <unistd.h>

enum { STRIPE_BYTES = 64 << 20, PAUSE_NS = 100000 };

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

static uint64_t stripe_count(uint64_t bytes)
{
    return (bytes + STRIPE_BYTES - 1) / STRIPE_BYTES;
}

/* Writes one byte of each page where the kernel cannot populate. */
static void stripe_populate(char *memory, uint64_t bytes)
{
    if (madvise(memory, bytes, MADV_POPULATE_WRITE) == 0)
        return;
    long page = sysconf(_SC_PAGESIZE);
    for (uint64_t at = 0; at < bytes; at += (uint64_t)page)
        ((volatile char *)memory)[at] = 0;
}

static void *populate_main(void *context)
{
    struct populate *populate = context;
    uint64_t count = stripe_count(populate->bytes);
    uint64_t stripe = atomic_fetch_add(&populate->next, 1);
    for (; stripe < count; stripe = atomic_fetch_add(&populate->next, 1)) {
        uint64_t start = stripe * STRIPE_BYTES;
        stripe_populate(populate->memory + start, vmm__min(STRIPE_BYTES, populate->bytes - start));
        atomic_store_explicit(&populate->is_populated[stripe], true, memory_order_release);
    }
    return NULL;
}

void vmm__populate_begin(struct populate *populate, void *memory, uint64_t bytes)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t wanted = vmm__min(vmm__min((uint64_t)(cpus > 0 ? cpus : 1), POPULATE_THREADS_MOST),
                               stripe_count(bytes));
    *populate = (struct populate){ .memory = memory, .bytes = bytes };
    populate->is_populated = vmm__host_alloc(stripe_count(bytes), sizeof *populate->is_populated);
    if (populate->is_populated == NULL)
        return;
    while (populate->threads < wanted &&
           vmm__worker_start(&populate->thread[populate->threads], populate_main, populate) == 0)
        populate->threads++;
}

void vmm__populate_wait(const struct populate *populate, uint64_t bytes)
{
    if (populate->threads == 0)
        return;
    for (uint64_t stripe = 0; stripe < stripe_count(bytes); stripe++) {
        while (!atomic_load_explicit(&populate->is_populated[stripe], memory_order_acquire))
            vmm__time_pause(PAUSE_NS);
    }
}

void vmm__populate_end(struct populate *populate)
{
    atomic_store(&populate->next, UINT64_MAX / 2);
    for (unsigned i = 0; i < populate->threads; i++)
        (void)pthread_join(populate->thread[i], NULL);
    vmm__host_free(populate->is_populated,
                   stripe_count(populate->bytes) * sizeof *populate->is_populated);
    *populate = (struct populate){ .memory = NULL };
}
