/* Values of statistics: see metric.h. */
#include "vmmtop/metric.h"

#include <stdio.h>
#include <string.h>

/* The parts of a vmm_stat. Their names follow from that of the statistic, without its unit: see part_name(). */
struct part {
    const char *suffix;
    const char *of_allocations; /* whose parts have names of their own */
    const char *text;
    int is_counter;
};

static const struct part parts[] = { { "", "blocks", "", 0 },
                                     { "_peak", "blocks_peak", ": peak", 0 },
                                     { "_added", "allocations", ": all increases", 1 },
                                     { "_removed", "frees", ": all decreases", 1 } };

static void part_name(char *name, const vmm_stat_description *stat, const struct part *part)
{
    static const char *const units[] = {
        [VMM_UNIT_BYTES] = "_bytes", [VMM_UNIT_COUNT] = "", [VMM_UNIT_NANOSECONDS] = "_ns"
    };
    const char *unit = units[stat->unit];
    int stem = (int)(strlen(stat->name) - strlen(unit));
    if (strcmp(stat->name, "allocations") == 0)
        (void)snprintf(name, METRIC_NAME_BYTES, "%s", part->of_allocations);
    else
        (void)snprintf(name, METRIC_NAME_BYTES, "%.*s%s%s", stem, stat->name, part->suffix, unit);
}

static void parts_add(struct metrics *metrics, const vmm_stat_description *stat)
{
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        struct metric *metric = &metrics->items[metrics->count++];
        *metric = (struct metric){ .text = stat->text,
                                   .part = parts[i].text,
                                   .unit = stat->unit,
                                   .is_counter = parts[i].is_counter,
                                   .offset = stat->offset + i * sizeof(uint64_t) };
        part_name(metric->name, stat, &parts[i]);
    }
}

static void number_add(struct metrics *metrics, const vmm_stat_description *stat)
{
    struct metric *metric = &metrics->items[metrics->count++];
    *metric = (struct metric){ .text = stat->text,
                               .part = "",
                               .unit = stat->unit,
                               .is_counter = stat->kind == VMM_STAT_TOTAL,
                               .offset = stat->offset };
    (void)snprintf(metric->name, sizeof metric->name, "%s", stat->name);
}

void metrics_of_stats(struct metrics *metrics, int of_pools)
{
    const vmm_stat_description *stat;
    metrics->count = 0;
    for (unsigned i = 0; (stat = vmm_stat_describe(i)) != NULL; i++) {
        if (stat->kind == VMM_STAT_SCAN || (of_pools && !stat->of_pools))
            continue;
        if (stat->kind == VMM_STAT_OVER_TIME)
            parts_add(metrics, stat);
        else
            number_add(metrics, stat);
    }
}

void metrics_of_lane(struct metrics *metrics)
{
    metrics->count = 0;
#define LANE_ADD(name, unit, text)                                                                 \
    number_add(metrics, &(vmm_stat_description){ #name, VMM_UNIT_##unit, VMM_STAT_GAUGE, 0,        \
                                                 offsetof(struct monitor_lane, name), "", text });
    MONITOR_LANE_MAP(LANE_ADD)
}

uint64_t metric_value(const struct metric *metric, const void *record)
{
    uint64_t value;
    memcpy(&value, (const char *)record + metric->offset, sizeof value);
    return value;
}
