/* Packed recordings: the text is that of a plain one, whatever libz does, and one without libz is refused. */
#define _GNU_SOURCE
#include "support/cache_support.h"
#include "support/trace_support.h"

#include "base/hostmem.h"
#include "trace/file_name.h"
#include "trace/lines.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINES = 20000, FLUSH_EVERY = 3001 };

/* ---- A libz that is missing ------------------------------------------------------------------ */

static bool is_libz_missing;

__attribute__((visibility("default"))) void *dlopen(const char *name, int flags)
{
    void *(*open)(const char *, int);
    if (is_libz_missing && name != NULL && strncmp(name, "libz.", 5) == 0)
        return NULL;
    void *found = dlsym(RTLD_NEXT, "dlopen");
    memcpy(&open, &found, sizeof open);
    return open(name, flags);
}

static vmm_cache *sim_create(void)
{
    vmm_config config = CONFIG(.driver = VMM_DRIVER_SIM);
    vmm_cache *cache;
    return vmm_create(&config, &cache) == VMM_OK ? cache : NULL;
}

static void expect_libz_named(const char *begin, const char *path)
{
    char line[300];
    (void)snprintf(line, sizeof line, "%s: %s needs libz.so.1: ", begin, path);
    assert_int_equal(strncmp(vmm_last_error(), line, strlen(line)), 0);
    assert_int_not_equal(access(path, F_OK), 0);
}

TEST(a_packed_recording_needs_libz)
{
    const char *path = trace_path_packed();
    vmm_cache *cache = sim_create();
    assert_non_null(cache);
    is_libz_missing = true;
    assert_int_equal(vmm_trace_start(cache, path, NULL), VMM_ERR_UNSUPPORTED);
    expect_libz_named("trace", path);
    assert_int_equal(setenv("VMM_TRACE", path, 1), 0);
    assert_null(sim_create());
    expect_libz_named("VMM_TRACE: trace", path);
    assert_int_equal(unsetenv("VMM_TRACE"), 0);
    is_libz_missing = false;
    assert_ok(vmm_trace_start(cache, path, NULL));
    assert_ok(vmm_destroy(cache));
    is_libz_missing = true;
    cache = sim_create();
    assert_non_null(cache);
    assert_ok(vmm_trace_start(cache, trace_path(), NULL)); /* a plain one does not */
    assert_ok(vmm_destroy(cache));
    is_libz_missing = false;
}

/* ---- Text ------------------------------------------------------------------------------------ */

static int compress_nothing(unsigned char *out, unsigned long *capacity, const unsigned char *text,
                            unsigned long bytes, int level)
{
    (void)out, (void)capacity, (void)text, (void)bytes, (void)level;
    return -4; /* no host memory */
}

/* Lines of any length; those of any letters do not become smaller. */
static char *line_write(char *at, uint64_t *seed, bool is_random)
{
    unsigned length = (unsigned)(random_next(seed) % (LINE_MOST - 1));
    for (unsigned i = 0; i < length; i++)
        *at++ = (char)(is_random ? 11 + random_next(seed) % 240 : 'x');
    *at++ = '\n';
    return at;
}

struct text {
    bool is_random;
    bool is_stored; /* libz fails */
    unsigned lines;
};

static void file_write(const char *path, struct text text)
{
    static struct lines lines;
    uint64_t seed = 5;
    assert_ok(vmm__lines_open(&lines, path));
    if (text.is_stored && lines.gzip != NULL)
        lines.gzip->compress = compress_nothing;
    for (unsigned i = 1; i <= text.lines; i++) {
        char *at = vmm__lines_begin(&lines);
        vmm__lines_end(&lines, line_write(at, &seed, text.is_random));
        if (i % FLUSH_EVERY == 0)
            vmm__lines_flush(&lines);
    }
    vmm__lines_close(&lines);
    assert_int_equal(lines.failure, 0);
}

static size_t text_read(const char *path, char *text, size_t most)
{
    FILE *file = trace_open(path);
    assert_non_null(file);
    size_t count = fread(text, 1, most, file);
    (void)fclose(file);
    assert_true(count < most);
    return count;
}

static void expect_same_text(struct text text)
{
    enum { MOST = LINES * LINE_MOST };
    char *texts[2] = { malloc(MOST), malloc(MOST) };
    size_t counts[2];
    assert_true(texts[0] != NULL && texts[1] != NULL);
    for (int i = 0; i < 2; i++) {
        const char *path = i == 0 ? trace_path() : trace_path_packed();
        file_write(path, text);
        counts[i] = text_read(path, texts[i], MOST);
    }
    assert_int_equal(counts[0], counts[1]);
    assert_memory_equal(texts[0], texts[1], counts[0]);
    free(texts[0]);
    free(texts[1]);
    assert_int_equal(vmm__host_outstanding(), 0);
}

TEST(a_packed_recording_has_the_text_of_a_plain_one)
{
    expect_same_text((struct text){ .lines = 0 });
    expect_same_text((struct text){ .lines = 1 });
    expect_same_text((struct text){ .lines = LINES });
}

TEST(text_that_does_not_become_smaller_is_packed)
{
    expect_same_text((struct text){ .lines = LINES, .is_random = true });
}

TEST(a_libz_without_host_memory_loses_no_text)
{
    expect_same_text((struct text){ .lines = LINES, .is_stored = true });
}

/* Of what is in the file, only the member that is cut is lost. */
TEST(a_cut_recording_has_its_whole_members)
{
    enum { MOST = LINES * LINE_MOST };
    char *text = malloc(MOST);
    const char *path = trace_path_packed();
    assert_non_null(text);
    file_write(path, (struct text){ .lines = LINES });
    size_t all = text_read(path, text, MOST);
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    assert_int_equal(ftruncate(fileno(file), ftell(file) - 5), 0);
    (void)fclose(file);
    size_t rest = text_read(path, text, MOST);
    assert_in_range(rest, all - LINES_BYTES, all);
    free(text);
}

/* ---- Names ----------------------------------------------------------------------------------- */

static void expect_name(const char *file, unsigned number, const char *wanted)
{
    char path[TRACE_PATH_BYTES];
    char expected[128];
    (void)snprintf(expected, sizeof expected, wanted, (long)getpid());
    assert_ok(vmm__trace_file_name(path, file, number));
    assert_string_equal(path, expected);
}

TEST(the_number_of_a_cache_comes_before_the_ending)
{
    expect_name("run.trace", 1, "run.trace");
    expect_name("run.trace", 2, "run.trace.2");
    expect_name("run.trace.gz", 1, "run.trace.gz");
    expect_name("run.trace.gz", 12, "run.trace.12.gz");
    expect_name("run.%p.trace.gz", 2, "run.%ld.trace.2.gz");
    expect_name("run.%p.gz", 1, "run.%ld.gz");
    expect_name("run.gz.trace", 2, "run.gz.trace.2");
    expect_name("%p", 3, "%ld.3");
}
