/*
 * cudaMallocAsync: the driver's own pool, whose memory streams share. For a GPU only, and for workloads that count no
 * driver calls: it calls libcuda itself.
 *
 * Owns: nothing. May be called by: replay/unrecorded.c. Locks: none.
 */
#ifndef FRAGTEST_MALLOC_ASYNC_H
#define FRAGTEST_MALLOC_ASYNC_H

#include "fragtest/policies/policy.h"

/* On device 0. open: ERR_UNSUPPORTED if libcuda or the device has no such pool. It has no trim: the driver takes back
 * idle memory whenever the program waits for the device. */
extern const struct policy_ops policy_malloc_async;

#endif
