/* Configuration, field by field: the bounds of each, and each from the environment, where a field that is set
 * counts for more. */
#define _GNU_SOURCE
#include "support/test_support.h"

#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int environment_cleared(void **state)
{
    (void)state;
    static const char *const names[] = { "VMM_DRIVER",  "VMM_NO_CACHING", "VMM_FOOTPRINT",
                                         "VMM_SHARING", "VMM_COMPACTION", "VMM_DECAY_MS",
                                         "VMM_LOG" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(unsetenv(names[i]), 0);
    return 0;
}

/* ---- Bounds --------------------------------------------------------------------------------- */

static void is_taken(const vmm_config *config)
{
    vmm_config out;
    assert_ok(vmm__config_read(config, &out));
    assert_memory_equal(&out, config, sizeof out);
}

static void is_refused(const vmm_config *config, const char *words)
{
    vmm_config out;
    assert_status(vmm__config_read(config, &out), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), words));
}

#define assert_bounds(type, field, least, most)                                                    \
    do {                                                                                           \
        vmm_config config = VMM_CONFIG_INIT;                                                       \
        config.field = (type)(least);                                                              \
        is_taken(&config);                                                                         \
        config.field = (type)(most);                                                               \
        is_taken(&config);                                                                         \
        config.field = (type)((most) + 1);                                                         \
        is_refused(&config, "config: " #field " is ");                                             \
        config.field = (type)((least)-1);                                                          \
        is_refused(&config, "config: " #field " is ");                                             \
    } while (0)

static void fields_have_bounds(void **state)
{
    (void)state;
    assert_bounds(vmm_driver_kind, driver, VMM_DRIVER_AUTO, VMM_DRIVER_SIM);
    assert_bounds(int, no_caching, 0, 1);
    assert_bounds(vmm_sharing, sharing, VMM_SHARING_FINISHED, VMM_SHARING_WAIT);
    assert_bounds(vmm_compaction, compaction, VMM_COMPACTION_OFF, VMM_COMPACTION_ON);
    assert_bounds(int, decay_thread, 0, 1);
}

static void a_footprint_is_a_share_or_any(void **state)
{
    (void)state;
    vmm_config config = VMM_CONFIG_INIT;
    config.footprint_permille = 1000;
    is_taken(&config);
    config.footprint_permille = VMM_FOOTPRINT_ANY;
    is_taken(&config);
    config.footprint_permille = 1001;
    is_refused(&config, "footprint_permille is 1001");
}

static void a_thread_needs_something_to_do(void **state)
{
    (void)state;
    vmm_config config = VMM_CONFIG_INIT;
    assert_ok(vmm__config_settle(&config));
    config.decay_thread = 1;
    assert_status(vmm__config_settle(&config), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "decay_ms is 0"));
    config.decay_ms = 1;
    assert_ok(vmm__config_settle(&config));
    config.decay_thread = 0;
    assert_ok(vmm__config_settle(&config));
}

/* Some bytes beyond what is known, none of them set, are no reason to refuse; one more than the most is. */
static void struct_sizes_end_at_a_page(void **state)
{
    (void)state;
    static union {
        vmm_config config;
        unsigned char bytes[4097];
    } in;
    in.config.struct_size = 4096;
    vmm_config out;
    assert_ok(vmm__config_read(&in.config, &out));
    in.bytes[4095] = 1;
    assert_status(vmm__config_read(&in.config, &out), VMM_ERR_UNSUPPORTED);
    in.bytes[4095] = 0;
    in.config.struct_size = 4097;
    assert_status(vmm__config_read(&in.config, &out), VMM_ERR_INVALID_ARGUMENT);
    in.config.struct_size = sizeof in.config.struct_size + sizeof in.config.device;
    assert_ok(vmm__config_read(&in.config, &out));
    in.config.struct_size--;
    assert_status(vmm__config_read(&in.config, &out), VMM_ERR_INVALID_ARGUMENT);
}

/* ---- Environment ------------------------------------------------------------------------------ */

static vmm_status environment_read(const char *name, const char *text, vmm_config *config)
{
    *config = (vmm_config)VMM_CONFIG_INIT;
    assert_int_equal(setenv(name, text, 1), 0);
    vmm_status status = vmm__config_environment(config);
    assert_int_equal(unsetenv(name), 0);
    return status;
}

static void is_nonsense(const char *name, const char *text)
{
    vmm_config config;
    char start[64];
    (void)snprintf(start, sizeof start, "%s=%s: ", name, text);
    assert_status(environment_read(name, text, &config), VMM_ERR_INVALID_ARGUMENT);
    assert_int_equal(strncmp(vmm_last_error(), start, strlen(start)), 0);
}

static void words_are_read(void **state)
{
    (void)state;
    vmm_config config;
    assert_ok(environment_read("VMM_SHARING", "finished", &config));
    assert_int_equal(config.sharing, VMM_SHARING_FINISHED);
    assert_ok(environment_read("VMM_SHARING", "wait", &config));
    assert_int_equal(config.sharing, VMM_SHARING_WAIT);
    assert_ok(environment_read("VMM_COMPACTION", "off", &config));
    assert_int_equal(config.compaction, VMM_COMPACTION_OFF);
    assert_ok(environment_read("VMM_COMPACTION", "auto", &config));
    assert_int_equal(config.compaction, VMM_COMPACTION_AUTO);
    assert_ok(environment_read("VMM_COMPACTION", "on", &config));
    assert_int_equal(config.compaction, VMM_COMPACTION_ON);
    is_nonsense("VMM_SHARING", "waits");
    is_nonsense("VMM_COMPACTION", "ON");
    is_nonsense("VMM_DRIVER", "gpu");
    is_nonsense("VMM_NO_CACHING", "2");
}

/* A message shows all words that a variable knows, and no more. */
static void a_wrong_word_is_told_the_right_ones(void **state)
{
    (void)state;
    is_nonsense("VMM_SHARING", "all");
    assert_non_null(strstr(vmm_last_error(), "knows: finished, wait"));
    assert_null(strstr(vmm_last_error(), "wait,"));
    is_nonsense("VMM_COMPACTION", "all");
    assert_non_null(strstr(vmm_last_error(), "knows: off, auto, on"));
}

static void numbers_are_read(void **state)
{
    (void)state;
    vmm_config config;
    assert_ok(environment_read("VMM_FOOTPRINT", "50", &config));
    assert_int_equal(config.footprint_permille, 50);
    assert_ok(environment_read("VMM_FOOTPRINT", "1000", &config));
    assert_int_equal(config.footprint_permille, 1000);
    assert_ok(environment_read("VMM_FOOTPRINT", "any", &config));
    assert_int_equal(config.footprint_permille, VMM_FOOTPRINT_ANY);
    assert_ok(environment_read("VMM_DECAY_MS", "0", &config));
    assert_int_equal(config.decay_ms, 0);
    assert_ok(environment_read("VMM_DECAY_MS", "4294967295", &config));
    assert_int_equal(config.decay_ms, UINT32_MAX);
    static const char *const wrong[] = { "-1",  " 1",  "1 ",   "+1",
                                         "ten", "1e3", "0x10", "99999999999999999999" };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        is_nonsense("VMM_FOOTPRINT", wrong[i]);
        is_nonsense("VMM_DECAY_MS", wrong[i]);
    }
    is_nonsense("VMM_FOOTPRINT", "1001");
    is_nonsense("VMM_FOOTPRINT", "anything");
    is_nonsense("VMM_DECAY_MS", "4294967296");
    is_nonsense("VMM_DECAY_MS", "9:");
}

static void what_is_set_counts_for_more(void **state)
{
    (void)state;
    static const char *const settings[][2] = {
        { "VMM_DRIVER", "sim" },     { "VMM_NO_CACHING", "nonsense" },
        { "VMM_FOOTPRINT", "any" },  { "VMM_SHARING", "nonsense" },
        { "VMM_COMPACTION", "off" }, { "VMM_DECAY_MS", "nonsense" }
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        assert_int_equal(setenv(settings[i][0], settings[i][1], 1), 0);
    vmm_config config = VMM_CONFIG_INIT;
    config.driver = VMM_DRIVER_HOST;
    config.no_caching = 1;
    config.footprint_permille = 7;
    config.sharing = VMM_SHARING_WAIT;
    config.compaction = VMM_COMPACTION_ON;
    config.decay_ms = 9;
    vmm_config given = config;
    assert_ok(vmm__config_environment(&config));
    assert_memory_equal(&config, &given, sizeof config);
    assert_int_equal(setenv("VMM_FOOTPRINT", "nonsense", 1), 0);
    assert_ok(vmm__config_environment(&config));
    assert_memory_equal(&config, &given, sizeof config);
}

/* ---- The log ---------------------------------------------------------------------------------- */

static unsigned lines;

static void line_counted(void *context, const char *line)
{
    lines += context == &lines && strncmp(line, "grow: ", 6) == 0;
}

/* What a cache that grows once writes to stderr meanwhile. */
static size_t stderr_of(const vmm_config *config, char *text, size_t size)
{
    int ends[2];
    vmm_cache *cache;
    void *block;
    assert_int_equal(pipe(ends), 0);
    int before = dup(STDERR_FILENO);
    assert_true(before >= 0 && dup2(ends[1], STDERR_FILENO) >= 0 && close(ends[1]) == 0);
    vmm_status status = vmm_create(config, &cache);
    if (status == VMM_OK)
        status = vmm_alloc(cache, 5 * MIB, NULL, &block);
    if (status == VMM_OK)
        status = vmm_destroy(cache);
    int restored = dup2(before, STDERR_FILENO);
    assert_true(restored >= 0 && close(before) == 0);
    assert_int_equal(status, VMM_OK);
    ssize_t bytes = read(ends[0], text, size - 1);
    assert_int_equal(close(ends[0]), 0);
    assert_true(bytes >= 0);
    text[bytes] = '\0';
    return (size_t)bytes;
}

static void the_log_goes_to_stderr(void **state)
{
    (void)state;
    vmm_config config = VMM_CONFIG_INIT;
    config.driver = VMM_DRIVER_SIM;
    char text[1024];
    assert_int_equal(stderr_of(&config, text, sizeof text), 0);
    assert_int_equal(setenv("VMM_LOG", "", 1), 0);
    assert_int_equal(stderr_of(&config, text, sizeof text), 0);
    assert_int_equal(setenv("VMM_LOG", "stderr", 1), 0);
    assert_true(stderr_of(&config, text, sizeof text) > 0);
    assert_int_equal(strncmp(text, "vmmcache: grow: ", 16), 0);
    assert_true(dprintf(STDERR_FILENO, "%s", "") == 0); /* it was not closed with the cache */
    lines = 0;
    config.log = line_counted;
    config.log_context = &lines;
    assert_int_equal(stderr_of(&config, text, sizeof text), 0);
    assert_int_equal(lines, 1);
}

int main(void)
{
#define CONFIG_TEST(name)                                                                          \
    cmocka_unit_test_setup_teardown(name, environment_cleared, environment_cleared)
    static const struct CMUnitTest tests[] = {
        CONFIG_TEST(fields_have_bounds),
        CONFIG_TEST(a_footprint_is_a_share_or_any),
        CONFIG_TEST(a_thread_needs_something_to_do),
        CONFIG_TEST(struct_sizes_end_at_a_page),
        CONFIG_TEST(words_are_read),
        CONFIG_TEST(a_wrong_word_is_told_the_right_ones),
        CONFIG_TEST(numbers_are_read),
        CONFIG_TEST(what_is_set_counts_for_more),
        CONFIG_TEST(the_log_goes_to_stderr),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
