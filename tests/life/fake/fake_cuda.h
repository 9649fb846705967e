/*
 * A libcuda.so.1 for tests of the cuda driver where there is no GPU: devices of host memory (the host driver's),
 * whose contexts can be reset, and any call of which can be made to fail. As on a GPU, handles, mappings and reserved
 * addresses outlive the context that made them, however it ended, and giving them back takes none. It is found as
 * the real one is, by name; LD_LIBRARY_PATH says where.
 *
 * It refuses what CUDA refuses, and ends the process by abort() on a call that CUDA may crash in: after
 * exit() has taken it down. In a child of the process that started it every call fails.
 *
 * The environment sets what must be known before the first call:
 *   FAKE_CUDA_DEVICES=N      how many there are (default 2)
 *   FAKE_CUDA_FAIL=CALL:N    that call gives that result, always
 *   FAKE_CUDA_NO_VMM=1       devices without virtual memory management
 *   FAKE_CUDA_NO_PEERS=1     no device reaches another's memory
 * Tests find the symbol "fake_cuda" for all else.
 */
#ifndef VMM_FAKE_CUDA_H
#define VMM_FAKE_CUDA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { FAKE_DEVICES = 4, FAKE_NAME_BYTES = 48 };

struct fake_cuda {
    _Atomic uint64_t calls; /* so far, but for names and texts of results */
    /* The call of this name gives this result from its `fail_from`th on (from 1), once or for ever. */
    char fail_call[FAKE_NAME_BYTES]; /* empty: none; "*": any */
    int fail_result;
    uint64_t fail_from;
    bool fails_once;
    _Atomic uint64_t fail_count;         /* calls of that name so far */
    uint64_t holds[FAKE_DEVICES];        /* of primary contexts */
    uint64_t resets;                     /* of all devices */
    _Atomic uint64_t misuses;            /* calls that a careful program does not make */
    char misuse[2 * FAKE_NAME_BYTES];    /* the first */
    uint64_t (*taken)(int device);       /* reservations, handles and bytes mapped */
    uint64_t (*outstanding)(int device); /* and events */
};

#endif
