/*
 * A thread that gives other processes the blocks which this process shares. It starts with the first share and runs
 * until the process ends.
 *
 * Owns: the thread, the socket that listens, the connections. Invariants:
 *  1. a connection that has not sent its request after PEER_SECONDS, or makes room for a newer one, is closed;
 *  2. only processes of the same user get an answer.
 * May be called by: share, plugin. Locks: `starting` guards the start; the thread alone uses the rest.
 */
#ifndef VMM_TORCH_SHARE_SERVER_H
#define VMM_TORCH_SHARE_SERVER_H

#include "vmmcache/vmmcache.h"

/* Starts the thread at the first call; *name is its socket's. ERR_DRIVER, ERR_HOST_OOM. */
vmm_status vmm__share_server_start(const char **name);

/* In a child of fork(): the parent's socket is not the child's, so it must end with the parent. */
void vmm__share_server_forked(void);

#endif
