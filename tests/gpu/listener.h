/*
 * A tool that listens to marks, for tests without a GPU: a shared library that NVTX loads by NVTX_INJECTION64_PATH, as
 * it loads compute-sanitizer's. It keeps what it was told and refuses what compute-sanitizer refuses: a region outside
 * of its heap or over another one, and the end of one that is not there.
 *
 * A test opens the same library and asks it. Locks: one mutex guards all.
 */
#ifndef VMM_LISTENER_H
#define VMM_LISTENER_H

#include <stdint.h>

struct listener_heard {
    uint64_t heaps;      /* that are registered */
    uint64_t regions;    /* the same */
    uint64_t registered; /* regions, ever */
    uint64_t refused;
    uint64_t heap_address; /* of the last heap */
    uint64_t heap_bytes;
};

/* X(name, type): what the library exports. */
typedef struct listener_heard listener_heard_fn(void);
typedef uint64_t
listener_region_fn(uint64_t address); /* bytes of the region that starts there; 0: none */

#define LISTENER_HEARD  "listener_heard"
#define LISTENER_REGION "listener_region"

#endif
