/* What the process holds after each round, and whether that grows. See workers.h. */
#include "workers.h"

#include "support/folder_support.h"

#include "base/arith.h"
#include "base/hostmem.h"

#include <stddef.h>
#include <stdio.h>

/* A ratio of peaks is drawn anew each round: fewer than so many tell nothing of where it goes. */
enum { WARM_UP = 4 /* one in so many rounds */, PARTS = 3, RATIO_ROUNDS = 6 };

/* ---- What is held ---------------------------------------------------------------------------- */

static uint64_t mappings_count(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    uint64_t lines = 0;
    if (maps == NULL)
        return 0;
    for (int character = fgetc(maps); character != EOF; character = fgetc(maps))
        lines += character == '\n';
    (void)fclose(maps);
    return lines;
}

void drift_sample(struct drift *drift, const vmm_stats *stats)
{
    uint64_t live = vmm__max(stats->active_bytes.peak, 1);
    if (drift->count == DRIFT_ROUNDS)
        return;
    drift->samples[drift->count++] =
        (struct drift_sample){ .host_bytes = vmm__host_outstanding(),
                               .mappings = mappings_count(),
                               .files = (uint64_t)descriptors_open(),
                               .excess_permille = stats->reserved_bytes.peak * 1000 / live };
}

/* ---- Whether it grows ------------------------------------------------------------------------ */

struct range {
    uint64_t least;
    uint64_t most;
};

/* Of the figure at an offset, in the samples first..last - 1. */
static struct range range_of(const struct drift *drift, size_t offset, unsigned first,
                             unsigned last)
{
    struct range range = { .least = UINT64_MAX, .most = 0 };
    for (unsigned i = first; i < last; i++) {
        const char *sample = (const char *)&drift->samples[i];
        uint64_t value = *(const uint64_t *)(const void *)(sample + offset);
        range.least = vmm__min(range.least, value);
        range.most = vmm__max(range.most, value);
    }
    return range;
}

static bool stat_grew(const struct drift *drift, size_t offset, const char *text, uint64_t slack)
{
    unsigned warm = drift->count / WARM_UP;
    unsigned part = (drift->count - warm) / PARTS;
    struct range first = range_of(drift, offset, warm, warm + part);
    struct range last = range_of(drift, offset, drift->count - part, drift->count);
    bool is_ratio = offset == offsetof(struct drift_sample, excess_permille);
    bool is_told = part >= (is_ratio ? RATIO_ROUNDS : 1);
    bool grew = is_told && last.least > first.most + slack;
    (void)printf("drift: %s: %llu to %llu at first, %llu to %llu in the end%s\n", text,
                 (unsigned long long)first.least, (unsigned long long)first.most,
                 (unsigned long long)last.least, (unsigned long long)last.most,
                 grew ? ": GREW" : "");
    return grew;
}

const char *drift_report(const struct drift *drift)
{
    const char *grown = NULL;
#define DRIFT_STAT(name, text, slack)                                                              \
    if (stat_grew(drift, offsetof(struct drift_sample, name), text, slack) && grown == NULL)       \
        grown = text;
    DRIFT_MAP(DRIFT_STAT)
#undef DRIFT_STAT
    return grown;
}
