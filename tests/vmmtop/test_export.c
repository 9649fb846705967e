/* The texts for people and programs, of a known process. */
#define _GNU_SOURCE
#include "segment_support.h"

#include "vmmtop/export.h"
#include "vmmtop/options.h"
#include "vmmtop/table.h"

#include <locale.h>
#include <stdlib.h>

static struct process process;
static struct processes processes = { .folder = "/folder", .items = &process, .count = 1 };
static char *text;

static int process_make(void **state)
{
    struct sample sample = sample_make();
    struct snapshot_error error;
    (void)state;
    process = (struct process){ .pid = 42, .age_seconds = 0.25 };
    (void)snapshot_make(&process.now, &sample, sizeof sample, &error);
    sample.head.time_ns -= 2000000000;
    sample.first.stats.allocations.allocated -= 500;
    sample.first.stats.driver_ns -= 1000000000;
    sample_seal(&sample);
    return snapshot_make(&process.before, &sample, sizeof sample, &error) != SNAPSHOT_OK;
}

static int process_end(void **state)
{
    (void)state;
    free(text);
    text = NULL;
    snapshot_free(&process.now);
    snapshot_free(&process.before);
    return 0;
}

#define EXPORT_TEST(name) TEST_BETWEEN(name, process_make, process_end)

/* Collects what is written. */
#define WRITTEN(call)                                                                              \
    do {                                                                                           \
        size_t bytes;                                                                              \
        free(text);                                                                                \
        FILE *out = open_memstream(&text, &bytes);                                                 \
        assert_non_null(out);                                                                      \
        call;                                                                                      \
        assert_int_equal(fclose(out), 0);                                                          \
    } while (0)

static void assert_contains(const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("no \"%s\" in:\n%s", part, text);
}

EXPORT_TEST(the_table_has_a_line_for_each_cache)
{
    WRITTEN(table_write_all(out, &processes));
    assert_contains("#     PID PROGRAM");
    assert_contains(">      42 a \"program\"       0 sim  64.0 MiB 40.0 MiB 16.0 MiB        -"
                    "       0      250        0    50%     0\n");
    assert_contains("      0        0        0     0%     0\n");
    processes.count = 0;
    WRITTEN(table_write_all(out, &processes));
    assert_contains("No process publishes in /folder. Start one with VMM_MONITOR=1.");
    processes.count = 1;
    process.age_seconds = 4;
    WRITTEN(table_write_all(out, &processes));
    assert_contains("!      42 a \"program\"");
    assert_contains("  silent\n");
}

/* The second cell of each line begins there: columns of the terminal, not bytes. */
EXPORT_TEST(names_take_columns)
{
    char *name = (char *)process.now.caches[0].pools[1].name;
    strcpy(name, "gr\xC3\xB6\xC3\x9F"
                 "e");
    assert_non_null(setlocale(LC_CTYPE, "C.UTF-8"));
    WRITTEN(table_write_process(out, &process));
    assert_contains("  gr\xC3\xB6\xC3\x9F"
                    "e                         0 B ");
    for (int i = 0; i < 20; i++)
        memcpy(name + 3 * i, "\xE6\xBC\xA2", 4); /* each two columns */
    WRITTEN(table_write_process(out, &process));
    assert_contains("\xE6\xBC\xA2\xE6\xBC\xA2      0 B ");
    assert_non_null(setlocale(LC_CTYPE, "C"));
    WRITTEN(table_write_process(out, &process));
}

EXPORT_TEST(a_process_fits_into_eighty_columns)
{
    WRITTEN(table_write_process(out, &process));
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1)
        assert_in_range(strcspn(line, "\n"), 1, 81); /* with its style */
}

EXPORT_TEST(one_process_shows_pools_and_streams)
{
    WRITTEN(table_write_process(out, &process));
    assert_contains("#42 a \"program\"   libvmmcache 0.2.0   published 0.2 s ago\n");
    assert_contains("cache 1: simulated H200, sim 0\n");
    assert_contains("allocations 1000 (250/s)");
    assert_contains("driver time 1.500 s");
    assert_contains("# POOL ");
    const char *most = strstr(text, "  0x2000 ");
    const char *least = strstr(text, "  default    ");
    assert_true(most != NULL && least != NULL);
    assert_true(most < strrchr(text, 'x')); /* the stream with most memory is first */
}

EXPORT_TEST(json_has_every_value)
{
    WRITTEN(export_json(out, &processes));
    assert_int_equal(strncmp(text, "{\"vmmtop\":\"", 11), 0);
    assert_contains("\"program\":\"a \\\"program\\\"\",");
    assert_contains("\"name\":\"weights\\\\\xC3\xA4?\"");
    for (unsigned i = 0; vmm_stat_describe(i) != NULL; i++) {
        const vmm_stat_description *stat = vmm_stat_describe(i);
        char key[64];
        (void)snprintf(key, sizeof key, "\"%s\":", stat->name);
        assert_int_equal(strstr(text, key) != NULL, stat->kind != VMM_STAT_SCAN);
    }
#define HAS_VALUE(name, unit, help) assert_contains("\"" #name "\":");
    MONITOR_LANE_MAP(HAS_VALUE)
    assert_contains("\"active_peak_bytes\":0,\"active_added_bytes\":0,\"active_removed_bytes\":0,");
    assert_contains("\"blocks\":10,\"blocks_peak\":0,\"allocations\":1000,\"frees\":990,");
    assert_contains("\"refused\":[],\"removed\":0,\"not_readable\":0}\n");
}

EXPORT_TEST(prometheus_has_every_value)
{
    WRITTEN(export_prometheus(out, &processes));
    assert_contains("# TYPE vmmcache_reserved_bytes gauge\n"
                    "vmmcache_reserved_bytes{pid=\"42\",segment=\"0\",cache=\"1\","
                    "program=\"a \\\"program\\\"\",device=\"0\"} 67108864\n");
    assert_contains("# TYPE vmmcache_allocations_total counter\n");
    assert_contains("# HELP vmmcache_blocks_peak Live blocks: peak.\n"
                    "# TYPE vmmcache_blocks_peak gauge\n");
    assert_contains("# TYPE vmmcache_places_max gauge\n");
    assert_contains("# HELP vmmcache_ooms_total Allocations that failed because memory ran out.\n");
    assert_contains("vmmcache_pool_asleep_bytes{");
    assert_null(strstr(text, "vmmcache_pool_ooms_total"));
    assert_contains("vmmcache_driver_seconds_total{");
    assert_contains("} 1.500000000\n");
    assert_contains("vmmcache_pool_limit_bytes{");
    assert_contains("stream=\"0x2000\",number=\"2\",pool=\"default\"} 3145728\n");
    assert_contains("vmmcache_published_age_seconds{");
    assert_contains("vmmcache_refused_segments 0\n");
}

/* ---- Options --------------------------------------------------------------------------------- */

static bool options_of(struct vmmtop_options *options, struct vmmtop_error *error, const char *line)
{
    static char words[256];
    char *arguments[16] = { "vmmtop" };
    int count = 1;
    (void)snprintf(words, sizeof words, "%s", line);
    for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " "))
        arguments[count++] = word;
    return vmmtop_options_parse(count, arguments, options, error);
}

static void options_refuse(const char *line, const char *why)
{
    struct vmmtop_options options;
    struct vmmtop_error error;
    assert_false(options_of(&options, &error, line));
    assert_string_equal(error.text, why);
}

TEST(options_are_parsed)
{
    struct vmmtop_options options;
    struct vmmtop_error error;
    (void)unsetenv("VMM_MONITOR");
    assert_true(options_of(&options, &error, ""));
    assert_int_equal(options.mode, MODE_SCREEN);
    assert_string_equal(options.folder, MONITOR_DIRECTORY);
    assert_int_equal(options.period_ms, 1000);
    assert_true(options_of(&options, &error, "--json 17 --dir /a --seconds 3"));
    assert_int_equal(options.mode, MODE_JSON);
    assert_int_equal(options.pid, 17);
    assert_string_equal(options.folder, "/a");
    assert_int_equal(options.period_ms, 3000);
    assert_true(options_of(&options, &error, "--prometheus :9400"));
    assert_int_equal(options.mode, MODE_PROMETHEUS);
    assert_string_equal(options.address, ":9400");
    assert_true(options_of(&options, &error, "-h"));
    assert_int_equal(options.mode, MODE_HELP);
    assert_int_equal(setenv("VMM_MONITOR", "/b", 1), 0);
    assert_true(options_of(&options, &error, "--once"));
    assert_string_equal(options.folder, "/b");
    (void)unsetenv("VMM_MONITOR");
}

TEST(wrong_options_are_named)
{
    options_refuse("--fast", "unknown option \"--fast\"");
    options_refuse("--seconds 0", "--seconds takes a number from 1 to 3600, not \"0\"");
    options_refuse("--seconds 1x", "--seconds takes a number from 1 to 3600, not \"1x\"");
    options_refuse("--dir", "a value is missing after \"--dir\"");
    options_refuse(
        "--json --once",
        "only one of --once, --json, --prometheus and --neighbours, not also \"--once\"");
    options_refuse("-- -5", "not the number of a process: \"-5\"");
    options_refuse("x", "not the number of a process: \"x\"");
    options_refuse("5 6", "only one process can be named, not also \"6\"");
    assert_int_equal(setenv("VMM_NEIGHBOURS_DIR", "b", 1), 0);
    options_refuse("--neighbours", "VMM_NEIGHBOURS_DIR does not begin with /: \"b\"");
    (void)unsetenv("VMM_NEIGHBOURS_DIR");
    options_refuse("7 --neighbours", "--neighbours shows all processes, and takes no \"7\"");
}
