/* Logs the blocks that are live when their cache is destroyed: see internal.h. */
#include "api/internal.h"
#include "base/size.h"

#include <string.h>

enum { LARGEST = 3, LINE_BYTES = 448 };

struct leaks {
    uint64_t blocks;
    uint64_t bytes;            /* as requested */
    vmm_item largest[LARGEST]; /* in descending order of size; unused entries have the address 0 */
};

/* What the program holds: of a reserved block its memory. */
static uint64_t held_bytes(const vmm_item *item)
{
    return item->is_reserved ? item->committed_bytes : item->requested_bytes;
}

static int leak_count(void *context, const vmm_item *item)
{
    struct leaks *leaks = context;
    if (item->kind != VMM_ITEM_BLOCK || item->state != VMM_ITEM_LIVE)
        return 0;
    leaks->blocks++;
    leaks->bytes += held_bytes(item);
    vmm_item next = *item;
    for (int i = 0; i < LARGEST; i++) {
        vmm_item here = leaks->largest[i];
        if (here.address != 0 && held_bytes(&here) >= held_bytes(&next))
            continue;
        leaks->largest[i] = next;
        next = here;
    }
    return 0;
}

void vmm__leaks_log(struct vmm_cache *cache)
{
    struct leaks leaks = { .blocks = 0 };
    char line[LINE_BYTES] = "";
    if (cache->log == NULL && cache->log_file == NULL)
        return;
    vmm__walk(cache, NULL, leak_count, &leaks);
    if (leaks.blocks == 0)
        return;
    for (int i = 0; i < LARGEST && leaks.largest[i].address != 0; i++) {
        const vmm_item *item = &leaks.largest[i];
        size_t length = strlen(line);
        (void)snprintf(line + length, sizeof line - length, "%s %s at 0x%llx (stream %p%s%s)",
                       i == 0 ? "" : ",", vmm__size_text(held_bytes(item)).text,
                       (unsigned long long)item->address, item->stream,
                       item->name[0] == '\0' ? "" : ", ", item->name);
    }
    vmm__cache_log(cache, "destroy: %llu blocks of %s were not freed; the largest:%s",
                   (unsigned long long)leaks.blocks, vmm__size_text(leaks.bytes).text, line);
}
