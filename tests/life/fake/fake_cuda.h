/*
 * A libcuda.so.1 for tests of the cuda driver without a GPU. Its devices are host memory (the host driver's). Tests can
 * reset its contexts and make any call fail. As on a GPU, handles, mappings and reserved addresses outlive the context
 * that made them, and releasing them needs no context. Programs load it by name, as they load the real one;
 * LD_LIBRARY_PATH selects it.
 *
 * It refuses what CUDA refuses. A call in which CUDA may crash, because exit() has ended CUDA, aborts the process. In a
 * child of the process that started CUDA every call fails.
 *
 * The environment sets what must be known before the first call:
 *   FAKE_CUDA_DEVICES=N      number of devices (default 2)
 *   FAKE_CUDA_FAIL=CALL:N    every call of that function returns that result
 *   FAKE_CUDA_NO_VMM=1       devices without virtual memory management
 *   FAKE_CUDA_NO_PEERS=1     no device can access another's memory
 * Tests set everything else through the symbol "fake_cuda".
 */
#ifndef VMM_FAKE_CUDA_H
#define VMM_FAKE_CUDA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { FAKE_DEVICES = 4, FAKE_NAME_BYTES = 48 };

/* Streams from here on belong to green contexts: FAKE_GREEN_STEP many to each device's. Those from FAKE_FOREIGN_STREAM
 * on belong to a context that is no device's primary one. */
#define FAKE_GREEN_STREAM   UINT64_C(0x7e00000000000000)
#define FAKE_GREEN_STEP     UINT64_C(0x0000000100000000)
#define FAKE_FOREIGN_STREAM UINT64_C(0x7f00000000000000)

/* How devices treat the second mapping of a handle. */
enum fake_alias {
    FAKE_ALIAS_WORKS,
    FAKE_ALIAS_REFUSED,     /* cuMemMap fails: not supported */
    FAKE_ALIAS_OTHER_BYTES, /* it shows memory of its own */
    FAKE_ALIAS_BROKEN,      /* unmapping the first mapping loses what the second one shows */
};

struct fake_cuda {
    enum fake_alias alias; /* set before the first call */
    /* Set before the first call: the devices use the machine's memory. cuMemGetInfo() reports next to nothing of it as
     * free, and cuMemCreate() gives all. */
    bool is_integrated;
    bool lacks_dmabuf;      /* set before the first call */
    bool lacks_fabric;      /* no process may use fabric handles, as on a machine without IMEX */
    _Atomic uint64_t calls; /* so far, without queries of names and texts of results */
    /* The function of this name returns this result from its `fail_from`th call on (from 1), or at that call only. */
    char fail_call[FAKE_NAME_BYTES]; /* empty: none; "*": any */
    int fail_result;
    uint64_t fail_from;
    bool fails_once;
    int capture_result;               /* cuStreamEndCapture() ends the capture, but returns this */
    _Atomic uint64_t fail_count;      /* calls of that name so far */
    uint64_t holds[FAKE_DEVICES];     /* references to primary contexts */
    uint64_t resets;                  /* of all devices */
    _Atomic uint64_t misuses;         /* calls that violate CUDA's rules */
    char misuse[2 * FAKE_NAME_BYTES]; /* the first of them */
    _Atomic uint64_t plain_blocks;    /* live blocks of cuMemAlloc() and its like, of all devices */
    uint64_t (*taken)(int device);    /* number of reservations and handles, and bytes mapped */
    uint64_t (*outstanding)(int device); /* the same, events and streams */
};

#endif
