/* A copy of a segment that is safe to use: see snapshot.h. */
#include "vmmtop/snapshot.h"

#include "base/error.h"
#include "text/utf8.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum snapshot_outcome wrong(struct snapshot_error *error, const char *why)
{
    (void)snprintf(error->text, sizeof error->text, "%s", why);
    return SNAPSHOT_WRONG;
}

/* Checks what the size and the place of everything else depend on. */
static enum snapshot_outcome head_check(const struct monitor_head *head, uint64_t count,
                                        struct snapshot_error *error)
{
    if (memcmp(head->magic, MONITOR_MAGIC, sizeof head->magic) != 0)
        return wrong(error, "not a segment of vmmcache");
    if (head->version != MONITOR_VERSION) {
        (void)snprintf(error->text, sizeof error->text, "format %u; this vmmtop reads format %u",
                       head->version, (unsigned)MONITOR_VERSION);
        return SNAPSHOT_WRONG;
    }
    if (head->head_bytes != sizeof *head || head->cache_bytes != sizeof(struct monitor_cache) ||
        head->pool_bytes != sizeof(struct monitor_pool) ||
        head->lane_bytes != sizeof(struct monitor_lane))
        return wrong(error, "its structures have other sizes than those of this vmmtop");
    if (head->bytes < sizeof *head || head->bytes > MONITOR_MOST_BYTES ||
        head->bytes % sizeof(uint64_t) != 0)
        return wrong(error, "its size is no size of a segment");
    return head->bytes > count ? wrong(error, "it is cut") : SNAPSHOT_OK;
}

/* Bytes of the copy that are not yet some record's. */
struct rest {
    char *at;
    uint64_t bytes;
};

/* The next `count` records; NULL: the bytes end before. */
static void *records_take(struct rest *rest, uint64_t count, uint64_t bytes_each)
{
    void *records = rest->at;
    if (count > rest->bytes / bytes_each)
        return NULL;
    rest->at += count * bytes_each;
    rest->bytes -= count * bytes_each;
    return records;
}

/* Makes a text of an array that may have no end. */
static void text_make(char *text, size_t bytes)
{
    text[bytes - 1] = '\0';
    vmm__line_make(text);
    utf8_make(text);
}

static bool cache_take(struct rest *rest, struct snapshot_cache *out)
{
    struct monitor_cache *cache = records_take(rest, 1, sizeof *cache);
    if (cache == NULL || cache->pools == 0)
        return false;
    struct monitor_pool *pools = records_take(rest, cache->pools, sizeof *pools);
    const struct monitor_lane *lanes =
        pools == NULL ? NULL : records_take(rest, cache->lanes, sizeof *lanes);
    if (lanes == NULL)
        return false;
    text_make(cache->driver, sizeof cache->driver);
    text_make(cache->device_name, sizeof cache->device_name);
    for (uint32_t i = 0; i < cache->pools; i++)
        text_make(pools[i].name, sizeof pools[i].name);
    for (uint32_t i = 0; i < cache->lanes; i++) {
        if (lanes[i].pool >= cache->pools)
            return false;
    }
    *out = (struct snapshot_cache){ .cache = cache, .pools = pools, .lanes = lanes };
    return true;
}

static bool caches_take(struct snapshot *snapshot)
{
    struct monitor_head *head = snapshot->head;
    struct rest rest = { .at = (char *)(head + 1), .bytes = head->bytes - sizeof *head };
    if (head->caches > rest.bytes / sizeof(struct monitor_cache))
        return false;
    snapshot->caches = calloc((size_t)head->caches + 1, sizeof *snapshot->caches);
    for (uint32_t i = 0; i < head->caches && snapshot->caches != NULL; i++) {
        if (!cache_take(&rest, &snapshot->caches[i]))
            return false;
    }
    return snapshot->caches != NULL && rest.bytes == 0;
}

static bool checksum_is_right(const struct monitor_head *head)
{
    return head->checksum == vmm__monitor_checksum((const char *)head + MONITOR_COVERED,
                                                   head->bytes - MONITOR_COVERED);
}

enum snapshot_outcome snapshot_make(struct snapshot *snapshot, const void *bytes, uint64_t count,
                                    struct snapshot_error *error)
{
    struct monitor_head head;
    *snapshot = (struct snapshot){ NULL, NULL };
    if (count < sizeof head)
        return wrong(error, "it is cut");
    memcpy(&head, bytes, sizeof head);
    enum snapshot_outcome outcome = head_check(&head, count, error);
    if (outcome != SNAPSHOT_OK)
        return outcome;
    snapshot->head = malloc(head.bytes);
    if (snapshot->head == NULL)
        return wrong(error, "no memory to read it");
    memcpy(snapshot->head, bytes, head.bytes);
    if (!checksum_is_right(snapshot->head)) {
        (void)wrong(error, "its checksum is wrong");
        outcome = SNAPSHOT_TORN;
    } else if (!caches_take(snapshot)) {
        outcome = wrong(error, "its records do not add up");
    } else {
        text_make(snapshot->head->program, sizeof snapshot->head->program);
        text_make(snapshot->head->library, sizeof snapshot->head->library);
    }
    if (outcome != SNAPSHOT_OK)
        snapshot_free(snapshot);
    return outcome;
}

void snapshot_free(struct snapshot *snapshot)
{
    free(snapshot->head);
    free(snapshot->caches);
    *snapshot = (struct snapshot){ NULL, NULL };
}

const struct snapshot_cache *snapshot_find(const struct snapshot *snapshot, uint64_t serial)
{
    for (uint32_t i = 0; snapshot->head != NULL && i < snapshot->head->caches; i++) {
        if (snapshot->caches[i].cache->serial == serial)
            return &snapshot->caches[i];
    }
    return NULL;
}
