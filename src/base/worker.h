/*
 * Starts threads of the library. They block all signals: the program's own threads handle its signals.
 *
 * Owns: nothing; the caller joins the thread. May be called by: everything. Locks: none.
 */
#ifndef VMM_BASE_WORKER_H
#define VMM_BASE_WORKER_H

#include <pthread.h>

/* Returns 0, or the error number of pthread_create(). */
int vmm__worker_start(pthread_t *thread, void *(*function)(void *context), void *context);

#endif
