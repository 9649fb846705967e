/* The fixture of a case: see stage.h. */
#include "stage.h"

#include "support/cache_support.h"

#include "base/hostmem.h"
#include "driver/sim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_FAILED = 1, EXIT_SKIPPED = 77, OPERATIONS_AFTER = 100 };

static const size_t block_bytes[] = { 100, 512, 5000, 8192, 70000, MIB, 3 * MIB };
enum { KINDS = sizeof block_bytes / sizeof block_bytes[0] };
_Static_assert(KINDS *STAGE_STREAMS == STAGE_BLOCKS, "a block of each kind on each stream");

_Noreturn void stage_fail(const char *file, int line, const char *what)
{
    (void)fprintf(stderr, "%s:%d: %s; last error: %s\n", file, line, what, vmm_last_error());
    _exit(EXIT_FAILED);
}

void stage_status(vmm_status wanted, vmm_status got, const char *file, int line, const char *call)
{
    if (got == wanted)
        return;
    (void)fprintf(stderr, "%s instead of %s: ", vmm_status_name(got), vmm_status_name(wanted));
    stage_fail(file, line, call);
}

bool stage_error_says(const char *words)
{
    const char *line = vmm_last_error();
    return *line != '\0' && strchr(line, '\n') == NULL && strstr(line, words) != NULL;
}

/* ---- Life ----------------------------------------------------------------------------------- */

static void stage_block_fill(struct stage *stage, const struct stage_block *block)
{
    must_ok(vmm__driver_fill(stage->driver, (uintptr_t)block->address, block->bytes, block->word,
                             stage->streams[block->stream]));
}

static void blocks_take(struct stage *stage)
{
    for (unsigned i = 0; i < STAGE_BLOCKS; i++) {
        struct stage_block *block = &stage->blocks[i];
        *block = (struct stage_block){ .bytes = block_bytes[i % KINDS],
                                       .word = i + 1,
                                       .stream = i / KINDS };
        block->address = stage_take(stage, block->bytes, block->stream);
        stage_block_fill(stage, block);
    }
    must_ok(vmm_pin(stage->cache, stage->blocks[2].address));
    must_ok(vmm_record_stream(stage->cache, stage->blocks[4].address, stage->streams[1]));
}

static void driver_open(struct stage *stage)
{
    bool is_cuda = driver_choice_kind() == VMM_DRIVER_CUDA;
    struct driver_options options = { .device_bytes = is_cuda ? 0 : STAGE_DEVICE };
    vmm_status status = vmm__driver_open(driver_choice_kind(), &options, &stage->driver);
    if (is_cuda && (status == VMM_ERR_NO_DEVICE || status == VMM_ERR_UNSUPPORTED))
        _exit(EXIT_SKIPPED);
    must_ok(status);
    for (int i = 1; i < STAGE_STREAMS; i++)
        must_ok(vmm__driver_stream_create(stage->driver, &stage->streams[i]));
}

static void cache_open(struct stage *stage, const vmm_config *config)
{
    vmm_config settings = *config;
    if (settings.limit_bytes == 0)
        settings.limit_bytes = STAGE_LIMIT;
    if (settings.arena_bytes == 0)
        settings.arena_bytes = STAGE_ARENA;
    must_ok(vmm__cache_create_on(&settings, stage->driver, &stage->cache));
    blocks_take(stage);
}

void stage_open(struct stage *stage)
{
    *stage = (struct stage){ .driver = NULL };
    driver_open(stage);
    vmm_config config = VMM_CONFIG_INIT;
    cache_open(stage, &config);
}

void stage_restart_from(struct stage *stage, const vmm_config *config)
{
    must_ok(vmm_destroy(stage->cache));
    cache_open(stage, config);
}

static void driver_check_empty(const struct driver *driver)
{
    must(driver->reservations == 0);
    must(driver->handles == 0);
    must(driver->created_bytes == 0);
    must(driver->mapped_bytes == 0);
    must(driver->events == 0);
}

void stage_close(struct stage *stage)
{
    const char *violation = "";
    must_ok(vmm_destroy(stage->cache));
    must_ok(vmm_destroy(stage->other));
    driver_check_empty(stage->driver);
    for (int i = 1; i < STAGE_STREAMS; i++)
        must_ok(vmm__driver_stream_destroy(stage->driver, stage->streams[i]));
    if (driver_choice_kind() == VMM_DRIVER_SIM &&
        vmm__soft_violations(stage->driver, &violation) != 0)
        stage_fail(__FILE__, __LINE__, violation);
    vmm__driver_close(stage->driver);
    must(vmm__host_outstanding() == 0);
}

/* ---- Operations ----------------------------------------------------------------------------- */

vmm_config stage_config(void)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.driver = driver_choice_kind();
    config.device_bytes = config.driver == VMM_DRIVER_CUDA ? 0 : STAGE_DEVICE;
    return config;
}

void *stage_take(struct stage *stage, size_t bytes, unsigned stream)
{
    void *block = NULL;
    must_ok(vmm_alloc(stage->cache, bytes, stage->streams[stream], &block));
    must(block != NULL && (uintptr_t)block % 512 == 0);
    return block;
}

vmm_stats stage_stats(struct stage *stage)
{
    vmm_stats stats = VMM_STATS_INIT;
    must_ok(vmm_stats_get(stage->cache, &stats));
    return stats;
}

static void stage_block_check(struct stage *stage, const struct stage_block *block)
{
    vmm_item item = VMM_ITEM_INIT;
    must_ok(vmm_find(stage->cache, block->address, &item));
    must(item.address == (uintptr_t)block->address && item.requested_bytes == block->bytes);
    must(item.stream == stage->streams[block->stream] && item.state == VMM_ITEM_LIVE);
    must_ok(vmm__driver_check(stage->driver, (uintptr_t)block->address, block->bytes, block->word,
                              stage->streams[block->stream]));
}

void stage_check(struct stage *stage)
{
    uint64_t mismatches = 0;
    must_ok(vmm__cache_check(stage->cache));
    for (unsigned i = 0; i < STAGE_BLOCKS; i++) {
        if (stage->blocks[i].address != NULL)
            stage_block_check(stage, &stage->blocks[i]);
    }
    must_ok(vmm__driver_mismatches(stage->driver, &mismatches));
    must(mismatches == 0);
}

static void block_toggle(struct stage *stage, uint64_t *seed, uint32_t word)
{
    struct stage_block *block = &stage->blocks[random_next(seed) % STAGE_BLOCKS];
    if (block->address != NULL) {
        must_ok(vmm_free(stage->cache, block->address));
        block->address = NULL;
        return;
    }
    block->bytes = random_bytes(seed, 3 * MIB);
    block->stream = (unsigned)(random_next(seed) % STAGE_STREAMS);
    block->word = word;
    block->address = stage_take(stage, block->bytes, block->stream);
    stage_block_fill(stage, block);
}

void stage_go_on(struct stage *stage)
{
    uint64_t seed = 6;
    for (uint32_t i = 0; i < OPERATIONS_AFTER; i++)
        block_toggle(stage, &seed, 1000 + i);
    must_ok(vmm_trim(stage->cache, 0, NULL));
    stage_check(stage);
}
