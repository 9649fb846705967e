/*
 * A tool that receives NVTX annotations, for tests without a GPU: a shared library that NVTX loads by
 * NVTX_INJECTION64_PATH, as it loads compute-sanitizer's. It stores the annotations and refuses what compute-sanitizer
 * refuses: a region outside of its heap or over another region, and the end of an unknown region.
 *
 * Tests open the same library and query it. Locks: one mutex guards everything.
 */
#ifndef VMM_LISTENER_H
#define VMM_LISTENER_H

#include <stdint.h>

struct listener_heard {
    uint64_t heaps;      /* registered now */
    uint64_t regions;    /* registered now */
    uint64_t registered; /* regions registered so far */
    uint64_t refused;
    uint64_t heap_address; /* of the last heap */
    uint64_t heap_bytes;
};

/* The exported functions and their names. */
typedef struct listener_heard listener_heard_fn(void);
typedef uint64_t
listener_region_fn(uint64_t address); /* size of the region that starts there; 0: none */

typedef uint64_t listener_name_fn(uint64_t address, char *name,
                                  uint64_t bytes); /* length of the region's name */

#define LISTENER_HEARD  "listener_heard"
#define LISTENER_NAME   "listener_name"
#define LISTENER_REGION "listener_region"

#endif
