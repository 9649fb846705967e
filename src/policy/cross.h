/*
 * Memory that crosses from one stream's heap to another's of the same kind at the address where it
 * lies: idle chunks in a row, long enough for the request. No driver call but for events.
 *
 * It crosses only once the first stream's work on it has finished or, when asked to, after a wait
 * that is put into the receiving stream: the host never waits.
 *
 * May be called by: ladder, supply. Locks: the grow lock and the receiving heap's pool lock; other
 * pools' locks are taken inside.
 */
#ifndef VMM_POLICY_CROSS_H
#define VMM_POLICY_CROSS_H

#include "policy/idle.h"

/*
 * Brings a free block of at least `bytes` into the heap from another one. VMM_NOT_READY if no heap
 * has one to give; one that it cannot be had from, for whatever reason, is passed over.
 */
vmm_status vmm__cross(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                      enum idle_when when);

#endif
