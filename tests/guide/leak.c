/* Finding a leak by walking the live blocks, and a double free by its record. */
#include "gpu.h"

#include <string.h>

enum { STEPS = 10, LEAK_BYTES = 3 << 20 };

/* [live] */
struct live {
    uint64_t blocks;
    uint64_t bytes;
};

/* Counts the live blocks of a size: called with locks held, so it must not call the cache. */
static int count_live(void *context, const vmm_item *item)
{
    struct live *live = context;
    if (item->kind == VMM_ITEM_BLOCK && item->state == VMM_ITEM_LIVE &&
        item->requested_bytes == LEAK_BYTES) {
        live->blocks++;
        live->bytes += item->bytes;
    }
    return 0; /* go on */
}

static struct live find_live(vmm_cache *cache)
{
    struct live live = { 0, 0 };
    check(vmm_walk(cache, count_live, &live));
    return live;
}
/* [end] */

/* [record] */
/* Each block remembers who allocated and freed it; a wrong pointer is then reported with both stacks. */
static vmm_cache *create_recording(void)
{
    vmm_config config = VMM_CONFIG_INIT;
    vmm_cache *cache;
    config.debug = VMM_DEBUG_RECORD; /* or VMM_DEBUG=record in the environment */
    check(vmm_create(&config, &cache));
    return cache;
}

static void free_twice(vmm_cache *cache, FILE *report)
{
    void *block;
    check(vmm_alloc(cache, 4000, NULL, &block));
    check(vmm_free(cache, block));
    if (vmm_free(cache, block) == VMM_ERR_UNKNOWN_POINTER)
        check(vmm_debug_report(cache, report));
}
/* [end] */

static void train_step(vmm_cache *cache)
{
    void *kept;
    void *lost;
    check(vmm_alloc(cache, 2 * (size_t)LEAK_BYTES, NULL, &kept));
    check(vmm_alloc(cache, LEAK_BYTES, NULL, &lost)); /* the bug: never freed */
    check(vmm_free(cache, kept));
}

int main(void)
{
    vmm_cache *cache = create_recording();
    for (int step = 0; step < STEPS; step++)
        train_step(cache);
    struct live live = find_live(cache);
    EXPECT(live.blocks == STEPS && live.bytes >= STEPS * (uint64_t)LEAK_BYTES);

    char text[4096] = "";
    FILE *report = tmpfile();
    EXPECT(report != NULL);
    free_twice(cache, report);
    rewind(report);
    EXPECT(fread(text, 1, sizeof text - 1, report) > 0);
    EXPECT(strstr(text, "freed before") != NULL && strstr(text, "allocated by") != NULL);
    EXPECT(fclose(report) == 0);
    check(vmm_destroy(cache));
    return 0;
}
