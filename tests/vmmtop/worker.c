/*
 * A process for vmmtop to show, or to record. It does what the lines of its standard input say, and answers each with
 * "ok":
 *
 *   alloc POOL BYTES STREAM   POOL 0 is the default pool; the handle of the stream is 16 * STREAM
 *   free                      frees the oldest block
 *   pool NAME
 *   sleep POOL, wake POOL
 *   cache                     makes another cache
 *   end                       destroys the caches; the end of the input exits without that
 */
#define _GNU_SOURCE
#include "vmmcache/vmmcache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CACHES_MOST = 8, POOLS_MOST = 16, BLOCKS_MOST = 1024 };

static vmm_cache *caches[CACHES_MOST];
static unsigned cache_count;
static vmm_pool *pools[POOLS_MOST];
static unsigned pool_count;
static void *blocks[BLOCKS_MOST];
static unsigned block_count;
static unsigned freed_count;

static void check(vmm_status status)
{
    if (status == VMM_OK)
        return;
    fprintf(stderr, "worker: %s\n", vmm_last_error());
    exit(1);
}

static void cache_make(void)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.device_bytes = (uint64_t)1 << 30;
    check(vmm_create(&config, &caches[cache_count++]));
}

static void pool_make(const char *name)
{
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    options.name = name;
    check(vmm_pool_create(caches[0], &options, &pools[pool_count++]));
}

static void block_make(unsigned pool, size_t bytes, uintptr_t stream)
{
    check(vmm_alloc_from(pools[pool], bytes, (vmm_stream)(stream * 16), &blocks[block_count++]));
}

static void end(void)
{
    for (unsigned i = 0; i < cache_count; i++)
        check(vmm_destroy(caches[i]));
    cache_count = 0;
}

static void line_run(const char *line)
{
    char name[64];
    unsigned pool;
    unsigned long bytes;
    unsigned long stream;
    if (sscanf(line, "alloc %u %lu %lu", &pool, &bytes, &stream) == 3)
        block_make(pool, bytes, stream);
    else if (sscanf(line, "pool %63[^\n]", name) == 1)
        pool_make(name);
    else if (sscanf(line, "sleep %u", &pool) == 1)
        check(vmm_pool_sleep(&pools[pool], 1, NULL, NULL));
    else if (sscanf(line, "wake %u", &pool) == 1)
        check(vmm_pool_wake(&pools[pool], 1, NULL, NULL));
    else if (strcmp(line, "free\n") == 0)
        check(vmm_free(caches[0], blocks[freed_count++]));
    else if (strcmp(line, "cache\n") == 0)
        cache_make();
    else if (strcmp(line, "end\n") == 0)
        end();
    else
        exit(2);
}

int main(void)
{
    char line[128];
    cache_make();
    pools[pool_count++] = vmm_cache_pool(caches[0]);
    puts("ok");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        line_run(line);
        puts("ok");
        fflush(stdout);
    }
    return 0;
}
