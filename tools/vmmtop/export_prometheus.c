/* The text format of Prometheus: see export.h. */
#include "vmmtop/export.h"
#include "vmmtop/metric.h"

#include <inttypes.h>
#include <string.h>

static void text_write(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            (void)fputc('\\', out);
        (void)fputc(*text, out);
    }
}

static void label_write(FILE *out, const char *name, const char *text)
{
    (void)fprintf(out, ",%s=\"", name);
    text_write(out, text);
    (void)fputc('"', out);
}

/* The name of a metric. */
static void name_write(FILE *out, const char *prefix, const struct metric *metric)
{
    size_t length = strlen(metric->name);
    if (metric->unit == VMM_UNIT_NANOSECONDS)
        length -= strlen("_ns");
    (void)fprintf(out, "vmmcache_%s%.*s%s%s", prefix, (int)length, metric->name,
                  metric->unit == VMM_UNIT_NANOSECONDS ? "_seconds" : "",
                  metric->is_counter ? "_total" : "");
}

static void value_write(FILE *out, const struct metric *metric, const void *record)
{
    uint64_t value = metric_value(metric, record);
    if (metric->unit == VMM_UNIT_NANOSECONDS)
        (void)fprintf(out, " %.9f\n", (double)value / 1e9);
    else
        (void)fprintf(out, " %" PRIu64 "\n", value);
}

/* What the samples of one metric share. */
struct series {
    FILE *out;
    const char *prefix;
    const struct metric *metric;
};

static void sample_begin(const struct series *series, const struct process *process,
                         const struct snapshot_cache *cache)
{
    name_write(series->out, series->prefix, series->metric);
    (void)fprintf(series->out, "{pid=\"%" PRIu64 "\",segment=\"%" PRIu64 "\",cache=\"%" PRIu64 "\"",
                  process->pid, process->number, cache->cache->serial);
    label_write(series->out, "program", process->now.head->program);
    (void)fprintf(series->out, ",device=\"%" PRIu64 "\"", cache->cache->device);
}

static void sample_end(const struct series *series, const void *record)
{
    (void)fputc('}', series->out);
    value_write(series->out, series->metric, record);
}

typedef void (*samples_fn)(const struct series *series, const struct process *process,
                           const struct snapshot_cache *cache);

static void cache_samples(const struct series *series, const struct process *process,
                          const struct snapshot_cache *cache)
{
    sample_begin(series, process, cache);
    sample_end(series, &cache->cache->stats);
}

/* Two pools may have the same name, so their numbers are labels, too. */
static void pool_samples(const struct series *series, const struct process *process,
                         const struct snapshot_cache *cache)
{
    for (uint32_t i = 0; i < cache->cache->pools; i++) {
        sample_begin(series, process, cache);
        (void)fprintf(series->out, ",number=\"%u\"", i);
        label_write(series->out, "pool", cache->pools[i].name);
        sample_end(series, &cache->pools[i].stats);
    }
}

/* A stream may have ended, and another one may have its handle: a number tells them apart. */
static void lane_samples(const struct series *series, const struct process *process,
                         const struct snapshot_cache *cache)
{
    for (uint32_t i = 0; i < cache->cache->lanes; i++) {
        const struct monitor_lane *lane = &cache->lanes[i];
        sample_begin(series, process, cache);
        (void)fprintf(series->out, ",stream=\"0x%" PRIx64 "\",number=\"%u\"", lane->stream, i);
        label_write(series->out, "pool", cache->pools[lane->pool].name);
        sample_end(series, lane);
    }
}

static void metric_write(const struct series *series, const struct processes *processes,
                         samples_fn samples)
{
    (void)fputs("# HELP ", series->out);
    name_write(series->out, series->prefix, series->metric);
    (void)fprintf(series->out, " %s%s.\n# TYPE ", series->metric->text, series->metric->part);
    name_write(series->out, series->prefix, series->metric);
    (void)fputs(series->metric->is_counter ? " counter\n" : " gauge\n", series->out);
    for (unsigned i = 0; i < processes->count; i++) {
        const struct process *process = &processes->items[i];
        for (uint32_t j = 0; j < process->now.head->caches; j++)
            samples(series, process, &process->now.caches[j]);
    }
}

static void metrics_write(FILE *out, const struct processes *processes, const char *prefix,
                          const struct metrics *metrics, samples_fn samples)
{
    for (unsigned i = 0; i < metrics->count; i++)
        metric_write(&(struct series){ out, prefix, &metrics->items[i] }, processes, samples);
}

/* Of the processes, and of what was not shown. */
static void scan_write(FILE *out, const struct processes *processes)
{
    (void)fputs("# HELP vmmcache_published_age_seconds Time since the process published.\n"
                "# TYPE vmmcache_published_age_seconds gauge\n",
                out);
    for (unsigned i = 0; i < processes->count; i++) {
        const struct process *process = &processes->items[i];
        (void)fprintf(out,
                      "vmmcache_published_age_seconds{pid=\"%" PRIu64 "\",segment=\"%" PRIu64 "\"",
                      process->pid, process->number);
        label_write(out, "program", process->now.head->program);
        (void)fprintf(out, "} %.3f\n", process->age_seconds);
    }
    (void)fprintf(out,
                  "# HELP vmmcache_refused_segments Files that were not shown.\n"
                  "# TYPE vmmcache_refused_segments gauge\n"
                  "vmmcache_refused_segments %u\n",
                  processes->refused_count);
}

void export_prometheus(FILE *out, const struct processes *processes)
{
    struct metrics metrics;
    metrics_of_stats(&metrics, 0);
    metrics_write(out, processes, "", &metrics, cache_samples);
    metrics_of_stats(&metrics, 1);
    metrics_write(out, processes, "pool_", &metrics, pool_samples);
    metrics_of_lane(&metrics);
    metrics_write(out, processes, "stream_", &metrics, lane_samples);
    scan_write(out, processes);
}
