/* Logs the blocks that are live when their cache is destroyed: see internal.h. */
#include "api/internal.h"
#include "base/size.h"

#include <string.h>

enum { LARGEST = 3, LINE_BYTES = 256 };

struct leaks {
    uint64_t blocks;
    uint64_t bytes;            /* as requested */
    vmm_item largest[LARGEST]; /* in descending order of size; unused entries have the address 0 */
};

static int leak_count(void *context, const vmm_item *item)
{
    struct leaks *leaks = context;
    if (item->kind != VMM_ITEM_BLOCK || item->state != VMM_ITEM_LIVE)
        return 0;
    leaks->blocks++;
    leaks->bytes += item->requested_bytes;
    vmm_item next = *item;
    for (int i = 0; i < LARGEST; i++) {
        vmm_item here = leaks->largest[i];
        if (here.address != 0 && here.requested_bytes >= next.requested_bytes)
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
        (void)snprintf(line + length, sizeof line - length, "%s %s at 0x%llx (stream %p)",
                       i == 0 ? "" : ",", vmm__size_text(item->requested_bytes).text,
                       (unsigned long long)item->address, item->stream);
    }
    vmm__cache_log(cache, "destroy: %llu blocks of %s were not freed; the largest:%s",
                   (unsigned long long)leaks.blocks, vmm__size_text(leaks.bytes).text, line);
}
