/*
 * The fixture of a case: a fresh cache with live blocks of every kind and known contents, in a process of its own. A
 * failed check prints what is wrong and ends that process with status 1.
 */
#ifndef VMM_NEGATIVE_STAGE_H
#define VMM_NEGATIVE_STAGE_H

#include "api/create_on.h"
#include "base/sanitizer.h"
#include "driver/driver.h"
#include "vmmcache/vmmcache.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MIB (UINT64_C(1) << 20)

enum { STAGE_STREAMS = 3, STAGE_BLOCKS = 21 };
#define STAGE_DEVICE (256 * MIB) /* of sim and host */
#define STAGE_LIMIT  (128 * MIB)
#ifdef VMM_THREAD_SANITIZER /* it leaves fewer contiguous addresses */
#define STAGE_ARENA (UINT64_C(1) << 38)
#else
#define STAGE_ARENA (UINT64_C(1) << 40)
#endif

struct stage_block {
    void *address; /* NULL: no block */
    size_t bytes;
    uint32_t word; /* the block is filled with it */
    unsigned stream;
};

struct stage {
    struct driver *driver;
    vmm_cache *cache;
    vmm_stream streams[STAGE_STREAMS]; /* the first is the default stream */
    struct stage_block blocks[STAGE_BLOCKS];
    void *victim;      /* the pointer that the case misuses */
    vmm_cache *other;  /* a second cache of the case; stage_close() destroys it */
    bool *was_touched; /* set by callbacks */
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

/* Whether the last error is a single line that contains `words`. */
bool stage_error_says(const char *words);

/* Opens the driver, creates a cache and fills its blocks. Ends the process with 77 if there is no GPU. */
void stage_open(struct stage *stage);

/* Creates another cache on the same driver. Limit and arena are the fixture's if the config has none. */
void stage_restart_from(struct stage *stage, const vmm_config *config);
/* The same with a config of these fields: stage_restart(stage, .no_caching = 1). */
#define stage_restart(stage, ...)                                                                  \
    stage_restart_from(stage, &(vmm_config){ .struct_size = sizeof(vmm_config), __VA_ARGS__ })

/* A config with which vmm_create() opens the fixture's kind of driver. */
vmm_config stage_config(void);

void *stage_take(struct stage *stage, size_t bytes, unsigned stream);
vmm_stats stage_stats(struct stage *stage);

/* Requires that every block is live, is found and has its contents, and that all invariants hold. */
void stage_check(struct stage *stage);

/* Makes 100 operations, which must succeed. close() destroys the cache, which must leave nothing. */
void stage_go_on(struct stage *stage);
void stage_close(struct stage *stage);

#endif
