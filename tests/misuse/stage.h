/*
 * The stage of a case of misuse: a fresh cache with live blocks of every kind whose bytes are known, in a
 * process of its own. What goes wrong ends that process with a line that says what, and status 1.
 */
#ifndef VMM_MISUSE_STAGE_H
#define VMM_MISUSE_STAGE_H

#include "base/sanitizer.h"
#include "cache_on.h"
#include "driver/driver.h"
#include "vmmcache/vmmcache.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MIB (UINT64_C(1) << 20)

enum { STAGE_STREAMS = 3, STAGE_BLOCKS = 21 };
#define STAGE_DEVICE (256 * MIB) /* of sim and host */
#define STAGE_LIMIT  (128 * MIB)
#ifdef VMM_THREAD_SANITIZER /* leaves less in a row */
#define STAGE_ARENA (UINT64_C(1) << 38)
#else
#define STAGE_ARENA (UINT64_C(1) << 40)
#endif

struct stage_block {
    void *address; /* NULL: there is none */
    size_t bytes;
    uint32_t word; /* what it is filled with */
    unsigned stream;
};

struct stage {
    struct driver *driver;
    vmm_cache *cache;
    vmm_stream streams[STAGE_STREAMS]; /* the first is the default stream */
    struct stage_block blocks[STAGE_BLOCKS];
    void *victim;      /* what the case misuses */
    vmm_cache *other;  /* a second cache of the case; ended with the stage */
    bool *was_touched; /* of callbacks */
};

#define must(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            stage_fail(__FILE__, __LINE__, #condition);                                            \
    } while (0)
#define must_be(status, call) stage_status((status), (call), __FILE__, __LINE__, #call)
#define must_ok(call)         must_be(VMM_OK, call)

_Noreturn void stage_fail(const char *file, int line, const char *what);
void stage_status(vmm_status wanted, vmm_status got, const char *file, int line, const char *call);

/* Whether the last error is one line that has `words` in it. */
bool stage_error_says(const char *words);

/* Opens the driver, makes a cache and fills its blocks. Ends the process with 77 if there is no GPU. */
void stage_open(struct stage *stage);

/* The same driver, another cache; limit and arena are the stage's where the config has none. */
void stage_restart(struct stage *stage, const vmm_config *config);

/* A config for the stage's driver by way of vmm_create(). */
vmm_config stage_config(void);

void *stage_take(struct stage *stage, size_t bytes, unsigned stream);
vmm_stats stage_stats(struct stage *stage);

/* Every block is live, found, and has its bytes; all invariants hold. */
void stage_check(struct stage *stage);

/* 100 operations that must succeed, then the end, which must leave nothing. */
void stage_go_on(struct stage *stage);
void stage_close(struct stage *stage);

#endif
