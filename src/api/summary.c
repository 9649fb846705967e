/* vmm_summary_write(): a table of all statistics. */
#include "api/internal.h"
#include "base/error.h"
#include "base/size.h"

#include <stdio.h>
#include <string.h>

enum unit { UNIT_BYTES, UNIT_COUNT, UNIT_NANOSECONDS };
enum { CELL_BYTES = 32 };

static const char RULE[] =
    "+-----------------------+------------+------------+----------------+----------------+\n";

/* Writes at most ten characters for times of up to three years. */
static void time_write(char *cell, double ns)
{
    if (ns < 999.9995e6)
        (void)snprintf(cell, CELL_BYTES, "%.3f ms", ns / 1e6);
    else if (ns < 99999.995e9)
        (void)snprintf(cell, CELL_BYTES, "%.2f s", ns / 1e9);
    else
        (void)snprintf(cell, CELL_BYTES, "%.0f s", ns / 1e9);
}

static const char *cell_write(char *cell, enum unit unit, uint64_t value)
{
    if (unit == UNIT_BYTES)
        return vmm__size_write(cell, CELL_BYTES, value);
    if (unit == UNIT_NANOSECONDS)
        time_write(cell, (double)value);
    else
        (void)snprintf(cell, CELL_BYTES, "%llu", (unsigned long long)value);
    return cell;
}

static void stat_write(FILE *out, const char *label, enum unit unit, const vmm_stat *stat)
{
    char current[CELL_BYTES];
    char peak[CELL_BYTES];
    char allocated[CELL_BYTES];
    char freed[CELL_BYTES];
    (void)fprintf(out, "| %-21s | %10s | %10s | %14s | %14s |\n", label,
                  cell_write(current, unit, stat->current), cell_write(peak, unit, stat->peak),
                  cell_write(allocated, unit, stat->allocated),
                  cell_write(freed, unit, stat->freed));
}

static void count_write(FILE *out, const char *label, enum unit unit, uint64_t value)
{
    char cell[CELL_BYTES];
    (void)fprintf(out, "| %-21s | %10s | %*s |\n", label, cell_write(cell, unit, value), 44, "");
}

static void stats_write(FILE *out, const vmm_stats *stats)
{
    (void)fprintf(out, "%s| %-21s | %10s | %10s | %14s | %14s |\n%s", RULE, "statistic", "now",
                  "peak", "allocated", "freed", RULE);
#define SUMMARY_STAT(name, unit, kind, of, label, text)                                            \
    stat_write(out, label, UNIT_##unit, &stats->name);
    VMM_STAT_MAP(SUMMARY_STAT)
#undef SUMMARY_STAT
}

static void counts_write(FILE *out, const vmm_stats *stats)
{
    (void)fputs(RULE, out);
#define SUMMARY_VALUE(name, unit, kind, of, label, text)                                           \
    count_write(out, label, UNIT_##unit, stats->name);
    VMM_VALUE_MAP(SUMMARY_VALUE)
#undef SUMMARY_VALUE
    (void)fputs(RULE, out);
}

vmm_status vmm_summary_write(vmm_cache *cache, FILE *out)
{
    vmm_status status = vmm__api_admit(cache, "vmm_summary_write", out, "out");
    if (status != VMM_OK)
        return status;
    vmm_stats stats;
    vmm__stats_read(cache, &stats);
    const struct driver *driver = cache->driver;
    (void)fprintf(out, "libvmmcache %s on %s (%s driver%s%s)\n", vmm_version(), driver->device_name,
                  driver->ops->name, driver->version[0] != '\0' ? " " : "", driver->version);
    stats_write(out, &stats);
    counts_write(out, &stats);
    if (fflush(out) != 0 || ferror(out))
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "vmm_summary_write: cannot write to the file");
    return VMM_OK;
}
