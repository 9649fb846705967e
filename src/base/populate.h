/*
 * Gives the pages of fresh host memory their physical memory ahead of use, with several threads: the kernel clears each
 * page, which one thread does too slowly for tens of gigabytes.
 *
 * Owns: its threads and a flag for each stripe of the range. Invariant: a stripe whose flag is set is populated.
 * May be called by: cache. Locks: none; one thread uses a populate.
 */
#ifndef VMM_BASE_POPULATE_H
#define VMM_BASE_POPULATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { POPULATE_THREADS_MOST = 8 };

struct populate {
    char *memory;
    uint64_t bytes;
    _Atomic uint64_t next;      /* stripe */
    _Atomic bool *is_populated; /* by stripe; NULL: no thread runs */
    unsigned threads;
    pthread_t thread[POPULATE_THREADS_MOST];
};

/* Starts to populate a range, in rising order. What cannot be populated ahead, because no thread starts, is populated
 * when it is used. */
void vmm__populate_begin(struct populate *populate, void *memory, uint64_t bytes);

/* Waits until the range is populated up to `bytes`. */
void vmm__populate_wait(const struct populate *populate, uint64_t bytes);

/* Ends the threads, as soon as the stripes that they work on are populated. */
void vmm__populate_end(struct populate *populate);

#endif
