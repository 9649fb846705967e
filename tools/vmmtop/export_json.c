/* JSON: see export.h. */
#include "vmmtop/export.h"
#include "vmmtop/metric.h"

#include "text/json_string.h"
#include "vmmcache/vmmcache.h"

#include <inttypes.h>

static void text_field(FILE *out, const char *name, const char *text)
{
    (void)fprintf(out, "\"%s\":", name);
    json_string_write(out, text);
    (void)fputc(',', out);
}

static void values_write(FILE *out, const struct metrics *metrics, const void *record)
{
    for (unsigned i = 0; i < metrics->count; i++)
        (void)fprintf(out, "\"%s\":%" PRIu64 ",", metrics->items[i].name,
                      metric_value(&metrics->items[i], record));
}

static void stats_write(FILE *out, const vmm_stats *stats, int of_pool)
{
    struct metrics metrics;
    metrics_of_stats(&metrics, of_pool);
    values_write(out, &metrics, stats);
}

static void pool_write(FILE *out, const struct monitor_pool *pool)
{
    static const char *const phases[] = { "awake", "sleeping", "asleep", "waking", "offered" };
    bool has_phase = pool->phase < sizeof phases / sizeof *phases;
    (void)fputc('{', out);
    text_field(out, "name", pool->name);
    text_field(out, "kind", pool->is_graph ? "graph" : "general");
    text_field(out, "phase", has_phase ? phases[pool->phase] : "unknown");
    stats_write(out, &pool->stats, 1);
    (void)fprintf(out, "\"uses\":%" PRIu64 "}", pool->uses);
}

static void lane_write(FILE *out, const struct snapshot_cache *cache,
                       const struct monitor_lane *values)
{
    struct metrics metrics;
    metrics_of_lane(&metrics);
    (void)fputc('{', out);
    text_field(out, "pool", cache->pools[values->pool].name);
    values_write(out, &metrics, values);
    (void)fprintf(out, "\"stream\":\"0x%" PRIx64 "\"}", values->stream);
}

static void cache_write(FILE *out, const struct snapshot_cache *cache)
{
    const struct monitor_cache *values = cache->cache;
    (void)fprintf(out, "{\"serial\":%" PRIu64 ",\"device\":%" PRIu64 ",", values->serial,
                  values->device);
    text_field(out, "driver", values->driver);
    text_field(out, "device_name", values->device_name);
    (void)fprintf(out, "\"device_bytes\":%" PRIu64 ",", values->device_bytes);
    stats_write(out, &values->stats, 0);
    (void)fprintf(out, "\"pools_omitted\":%u,\"streams_omitted\":%u,\"pools\":[",
                  values->pools_omitted, values->lanes_omitted);
    for (uint32_t i = 0; i < values->pools; i++) {
        (void)fputs(i == 0 ? "" : ",", out);
        pool_write(out, &cache->pools[i]);
    }
    (void)fputs("],\"by_stream\":[", out);
    for (uint32_t i = 0; i < values->lanes; i++) {
        (void)fputs(i == 0 ? "" : ",", out);
        lane_write(out, cache, &cache->lanes[i]);
    }
    (void)fputs("]}", out);
}

static void process_write(FILE *out, const struct process *process)
{
    const struct monitor_head *head = process->now.head;
    (void)fprintf(out, "{\"pid\":%" PRIu64 ",\"segment\":%" PRIu64 ",", process->pid,
                  process->number);
    text_field(out, "program", head->program);
    text_field(out, "library", head->library);
    (void)fprintf(out, "\"sequence\":%" PRIu64 ",\"age_seconds\":%.3f,\"caches\":[", head->sequence,
                  process->age_seconds);
    for (uint32_t i = 0; i < head->caches; i++) {
        (void)fputs(i == 0 ? "" : ",", out);
        cache_write(out, &process->now.caches[i]);
    }
    (void)fputs("]}", out);
}

void export_json(FILE *out, const struct processes *processes)
{
    (void)fputc('{', out);
    text_field(out, "vmmtop", vmm_version());
    text_field(out, "folder", processes->folder);
    (void)fputs("\"processes\":[", out);
    for (unsigned i = 0; i < processes->count; i++) {
        (void)fputs(i == 0 ? "" : ",", out);
        process_write(out, &processes->items[i]);
    }
    (void)fputs("],\"refused\":[", out);
    for (unsigned i = 0; i < processes->refused_count; i++) {
        (void)fputs(i == 0 ? "{" : ",{", out);
        text_field(out, "file", processes->refused[i].file);
        (void)fputs("\"why\":", out);
        json_string_write(out, processes->refused[i].why);
        (void)fputc('}', out);
    }
    (void)fprintf(out, "],\"removed\":%u,\"not_readable\":%u}\n", processes->removed,
                  processes->foreign);
}
