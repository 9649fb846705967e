/* The tables of vmmtop: see table.h. */
#include "vmmtop/table.h"

#include "base/size.h"
#include "text/utf8.h"
#include "vmmcache/vmmcache.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SILENT_SECONDS = 3 }; /* several times MONITOR_PERIOD_MS */
enum { PROGRAM_COLUMNS = 16, NAME_COLUMNS = 24 };

struct short_text {
    char text[24];
};

static struct short_text size_text(uint64_t bytes)
{
    struct short_text size;
    (void)vmm__size_write(size.text, sizeof size.text, bytes);
    return size;
}

/* A name in a column of a table: cut, or filled up with blanks. Bytes are not columns. */
struct name_text {
    char text[MONITOR_NAME_BYTES + NAME_COLUMNS];
};

static struct name_text name_text(const char *name, int columns)
{
    struct name_text cell;
    int used;
    size_t bytes = utf8_fit(name, strlen(name), columns, &used);
    memcpy(cell.text, name, bytes);
    memset(cell.text + bytes, ' ', (size_t)(columns - used));
    cell.text[bytes + (size_t)(columns - used)] = '\0';
    return cell;
}

static struct short_text limit_text(uint64_t bytes)
{
    struct short_text none = { "-" };
    return bytes == 0 ? none : size_text(bytes);
}

/* "-": unknown. */
static struct short_text rate_text(double rate)
{
    struct short_text text = { "-" };
    if (rate >= 1e6)
        (void)snprintf(text.text, sizeof text.text, "%.1f M", rate / 1e6);
    else if (rate >= 1e4)
        (void)snprintf(text.text, sizeof text.text, "%.1f k", rate / 1e3);
    else if (rate >= 0)
        (void)snprintf(text.text, sizeof text.text, rate < 10 && rate > 0 ? "%.1f" : "%.0f", rate);
    return text;
}

static uint64_t difference(uint64_t all, uint64_t part)
{
    return all > part ? all - part : 0;
}

static uint64_t free_bytes(const vmm_stats *memory)
{
    return difference(memory->reserved_bytes.current,
                      memory->active_bytes.current + memory->limbo_bytes);
}

static const struct monitor_cache *cache_before(const struct process *process,
                                                const struct snapshot_cache *now)
{
    const struct snapshot_cache *before = snapshot_find(&process->before, now->cache->serial);
    return before == NULL ? now->cache : before->cache;
}

/* The rate of a member of a cache. */
#define CACHE_RATE(process, now, member)                                                           \
    process_rate(process, (now)->cache->member, cache_before(process, now)->member)

/* ---- All processes -------------------------------------------------------------------------- */

static void cache_line(FILE *out, const struct process *process, const struct snapshot_cache *cache)
{
    const vmm_stats *memory = &cache->cache->stats;
    double busy = CACHE_RATE(process, cache, stats.driver_ns) / 1e7;
    char driver[8] = "-";
    if (busy >= 0)
        (void)snprintf(driver, sizeof driver, "%.0f%%", busy > 100 ? 100 : busy);
    bool is_silent = process->age_seconds > SILENT_SECONDS;
    (void)fprintf(out,
                  "%c%8" PRIu64 " %s %2" PRIu64 " %-4.4s %8s %8s %8s %8s %7" PRIu32
                  " %8s %8s %6s %5" PRIu64 "%s\n",
                  is_silent ? TABLE_SILENT : TABLE_PROCESS, process->pid,
                  name_text(process->now.head->program, PROGRAM_COLUMNS).text, cache->cache->device,
                  cache->cache->driver, size_text(memory->reserved_bytes.current).text,
                  size_text(memory->allocated_bytes.current).text,
                  size_text(free_bytes(memory)).text, limit_text(memory->limit_bytes).text,
                  (uint32_t)cache->cache->stats.streams,
                  rate_text(CACHE_RATE(process, cache, stats.allocations.allocated)).text,
                  rate_text(CACHE_RATE(process, cache, stats.driver_calls)).text, driver,
                  cache->cache->stats.ooms, is_silent ? "  silent" : "");
}

void table_write_all(FILE *out, const struct processes *processes)
{
    unsigned lines = 0;
    (void)fprintf(out, "%c%8s %-16s %2s %-4s %8s %8s %8s %8s %7s %8s %8s %6s %5s\n", TABLE_TITLE,
                  "PID", "PROGRAM", "DV", "KIND", "RESERVED", "LIVE", "FREE", "LIMIT", "STREAMS",
                  "ALLOC/s", "CALLS/s", "DRIVER", "OOM");
    for (unsigned i = 0; i < processes->count; i++) {
        const struct process *process = &processes->items[i];
        for (uint32_t j = 0; j < process->now.head->caches; j++, lines++)
            cache_line(out, process, &process->now.caches[j]);
    }
    if (lines == 0)
        (void)fprintf(out, "%cNo process publishes in %s. Start one with VMM_MONITOR=1.\n",
                      TABLE_TEXT, processes->folder);
}

/* ---- One process ---------------------------------------------------------------------------- */

static void pool_line(FILE *out, const struct monitor_pool *pool)
{
    static const char *const phases[] = { "", "  falls asleep", "  asleep", "  wakes",
                                          "  offered" };
    bool has_phase = pool->phase < sizeof phases / sizeof *phases;
    const vmm_stats *memory = &pool->stats;
    (void)fprintf(
        out, "%c %s %8s %8s %8s %8s %8s %8" PRIu64 "%s%s%s\n", TABLE_TEXT,
        name_text(pool->name, NAME_COLUMNS).text, size_text(memory->reserved_bytes.current).text,
        size_text(memory->allocated_bytes.current).text, size_text(free_bytes(memory)).text,
        size_text(memory->active_bytes.peak).text, limit_text(memory->limit_bytes).text,
        memory->allocations.current, pool->is_graph ? "  graph" : "",
        has_phase ? phases[pool->phase] : "  ?", pool->uses > pool->is_graph ? "  retained" : "");
}

static void pools_write(FILE *out, const struct snapshot_cache *cache)
{
    (void)fprintf(out, "%c %-24s %8s %8s %8s %8s %8s %8s\n", TABLE_TITLE, "POOL", "RESERVED",
                  "LIVE", "FREE", "PEAK", "LIMIT", "BLOCKS");
    for (uint32_t i = 0; i < cache->cache->pools; i++)
        pool_line(out, &cache->pools[i]);
    if (cache->cache->pools_omitted > 0)
        (void)fprintf(out, "%c and %u more\n", TABLE_TEXT, cache->cache->pools_omitted);
}

static uint64_t lane_bytes(const struct monitor_lane *lane)
{
    uint64_t used = lane->allocated_bytes + lane->waiting_bytes;
    return lane->reserved_bytes > used ? lane->reserved_bytes : used;
}

/* The one with more memory first. */
static int lanes_compare(const void *left, const void *right)
{
    uint64_t a = lane_bytes(*(const struct monitor_lane *const *)left);
    uint64_t b = lane_bytes(*(const struct monitor_lane *const *)right);
    return (a < b) - (a > b);
}

static void lane_line(FILE *out, const struct snapshot_cache *cache,
                      const struct monitor_lane *lane)
{
    char stream[24] = "default";
    if (lane->stream != 0)
        (void)snprintf(stream, sizeof stream, "0x%" PRIx64, lane->stream);
    uint64_t used = lane->allocated_bytes + lane->waiting_bytes;
    (void)fprintf(out, "%c %-18s %8s %8s %8s %8s %8" PRIu64 "  %s\n", TABLE_TEXT, stream,
                  size_text(lane->reserved_bytes).text, size_text(lane->allocated_bytes).text,
                  size_text(difference(lane->reserved_bytes, used)).text,
                  size_text(lane->waiting_bytes).text, lane->blocks, cache->pools[lane->pool].name);
}

static void lanes_write(FILE *out, const struct snapshot_cache *cache)
{
    uint32_t count = cache->cache->lanes;
    const struct monitor_lane **lanes = calloc((size_t)count + 1, sizeof *lanes);
    if (count == 0 || lanes == NULL) {
        free(lanes);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        lanes[i] = &cache->lanes[i];
    qsort(lanes, count, sizeof *lanes, lanes_compare);
    (void)fprintf(out, "%c %-18s %8s %8s %8s %8s %8s  %s\n", TABLE_TITLE, "STREAM", "RESERVED",
                  "LIVE", "FREE", "IN USE", "BLOCKS", "POOL");
    for (uint32_t i = 0; i < count; i++)
        lane_line(out, cache, lanes[i]);
    if (cache->cache->lanes_omitted > 0)
        (void)fprintf(out, "%c and %u more\n", TABLE_TEXT, cache->cache->lanes_omitted);
    free(lanes);
}

static void memory_write(FILE *out, const struct snapshot_cache *now)
{
    const struct monitor_cache *cache = now->cache;
    const vmm_stats *memory = &cache->stats;
    (void)fprintf(out, "%c reserved %s (peak %s)   live %s in %" PRIu64 " blocks   free %s\n",
                  TABLE_TEXT, size_text(memory->reserved_bytes.current).text,
                  size_text(memory->reserved_bytes.peak).text,
                  size_text(memory->allocated_bytes.current).text, memory->allocations.current,
                  size_text(free_bytes(memory)).text);
    (void)fprintf(out, "%c active %s (peak %s)   limbo %s   asleep %s   limit %s\n", TABLE_TEXT,
                  size_text(memory->active_bytes.current).text,
                  size_text(memory->active_bytes.peak).text, size_text(memory->limbo_bytes).text,
                  size_text(memory->asleep_bytes).text, limit_text(memory->limit_bytes).text);
    (void)fprintf(out, "%c device %s   chunks %" PRIu64 "   views: %" PRIu64 " places, %s\n",
                  TABLE_TEXT, size_text(cache->device_bytes).text, memory->chunks.current,
                  memory->places, size_text(memory->view_bytes).text);
}

/* A total, and its rate. */
static void counter_write(FILE *out, const char *name, uint64_t value, double rate)
{
    (void)fprintf(out, "   %s %" PRIu64 " (%s/s)", name, value, rate_text(rate).text);
}

#define COUNTER_WRITE(out, name, process, now, member)                                             \
    counter_write(out, name, (now)->cache->member, CACHE_RATE(process, now, member))

static void counters_write(FILE *out, const struct process *process,
                           const struct snapshot_cache *now)
{
    (void)fputc(TABLE_TEXT, out);
    COUNTER_WRITE(out, "allocations", process, now, stats.allocations.allocated);
    COUNTER_WRITE(out, "frees", process, now, stats.allocations.freed);
    (void)fprintf(out, "\n%c", TABLE_TEXT);
    COUNTER_WRITE(out, "retries", process, now, stats.retries);
    COUNTER_WRITE(out, "out of memory", process, now, stats.ooms);
    COUNTER_WRITE(out, "stitches", process, now, stats.stitches);
    (void)fprintf(out, "\n%c", TABLE_TEXT);
    COUNTER_WRITE(out, "stalls", process, now, stats.stalls);
    COUNTER_WRITE(out, "stream waits", process, now, stats.stream_waits);
    (void)fprintf(out, "\n%c", TABLE_TEXT);
    COUNTER_WRITE(out, "create", process, now, stats.create_calls);
    COUNTER_WRITE(out, "map", process, now, stats.map_calls);
    COUNTER_WRITE(out, "access", process, now, stats.access_calls);
    (void)fprintf(out, "\n%c", TABLE_TEXT);
    COUNTER_WRITE(out, "unmap", process, now, stats.unmap_calls);
    COUNTER_WRITE(out, "release", process, now, stats.release_calls);
    (void)fprintf(out, "\n%c", TABLE_TEXT);
    COUNTER_WRITE(out, "driver calls", process, now, stats.driver_calls);
    (void)fprintf(out, "   driver time %.3f s\n", (double)now->cache->stats.driver_ns / 1e9);
}

void table_write_process(FILE *out, const struct process *process)
{
    const struct monitor_head *head = process->now.head;
    (void)fprintf(out, "%c%" PRIu64 " %s   libvmmcache %s   published %.1f s ago%s\n", TABLE_TITLE,
                  process->pid, head->program, head->library, process->age_seconds,
                  process->age_seconds > SILENT_SECONDS ? ": silent" : "");
    for (uint32_t i = 0; i < head->caches; i++) {
        const struct snapshot_cache *cache = &process->now.caches[i];
        (void)fprintf(out, "%c\n%ccache %" PRIu64 ": %s, %s %" PRIu64 "\n", TABLE_TEXT, TABLE_TITLE,
                      cache->cache->serial, cache->cache->device_name, cache->cache->driver,
                      cache->cache->device);
        memory_write(out, cache);
        counters_write(out, process, cache);
        pools_write(out, cache);
        lanes_write(out, cache);
    }
}

void table_write_notes(FILE *out, const struct processes *processes)
{
    for (unsigned i = 0; i < processes->refused_count; i++)
        (void)fprintf(out, "%crefused %s: %s\n", TABLE_TEXT, processes->refused[i].file,
                      processes->refused[i].why);
    if (processes->removed > 0)
        (void)fprintf(out, "%cremoved: %u left by processes that have ended\n", TABLE_TEXT,
                      processes->removed);
    if (processes->foreign > 0)
        (void)fprintf(out, "%cnot readable: %u of other users\n", TABLE_TEXT, processes->foreign);
}
