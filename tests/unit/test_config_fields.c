/* The fields of the configuration: bounds, environment variables, and fields that override the environment. */
#define _GNU_SOURCE
#include "support/config_support.h"
#include "support/made_support.h"

#include <stdio.h>

/* ---- Bounds --------------------------------------------------------------------------------- */

static void check_accepted(const vmm_config *config)
{
    vmm_config out;
    assert_ok(vmm__config_read(config, &out));
    assert_memory_equal(&out, config, sizeof out);
}

static void check_refused(const vmm_config *config, const char *words)
{
    vmm_config out;
    assert_status(vmm__config_read(config, &out), VMM_ERR_INVALID_ARGUMENT);
    assert_names(words);
}

#define assert_bounds(type, field, least, most)                                                    \
    do {                                                                                           \
        vmm_config config = VMM_CONFIG_INIT;                                                       \
        config.field = (type)(least);                                                              \
        check_accepted(&config);                                                                   \
        config.field = (type)(most);                                                               \
        check_accepted(&config);                                                                   \
        config.field = (type)((most) + 1);                                                         \
        check_refused(&config, "config: " #field " is ");                                          \
        config.field = (type)((least)-1);                                                          \
        check_refused(&config, "config: " #field " is ");                                          \
    } while (0)

CONFIG_TEST(fields_have_bounds)
{
    assert_bounds(vmm_driver_kind, driver, VMM_DRIVER_DEFAULT, VMM_DRIVER_SIM);
    assert_bounds(vmm_switch, no_caching, VMM_DEFAULT, VMM_OFF);
    assert_bounds(vmm_reuse, reuse, VMM_REUSE_DEFAULT, VMM_REUSE_STREAM_WAIT);
    assert_bounds(vmm_switch, compaction, VMM_DEFAULT, VMM_OFF);
    assert_bounds(vmm_switch, decay_thread, VMM_DEFAULT, VMM_OFF);
    assert_bounds(vmm_switch, zero, VMM_DEFAULT, VMM_OFF);
    assert_bounds(vmm_debug_mode, debug, VMM_DEBUG_DEFAULT, VMM_DEBUG_STOP);
    assert_bounds(vmm_switch, nvtx, VMM_DEFAULT, VMM_OFF);
    assert_bounds(vmm_switch, shareable, VMM_DEFAULT, VMM_OFF);
}

CONFIG_TEST(footprint_is_permille_or_any)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.footprint_permille = 1000;
    check_accepted(&config);
    config.footprint_permille = VMM_FOOTPRINT_ANY;
    check_accepted(&config);
    config.footprint_permille = 1001;
    check_refused(&config, "footprint_permille is 1001, not 0 to 1000 or VMM_FOOTPRINT_ANY");
}

CONFIG_TEST(a_wait_of_0_for_neighbours_is_the_default)
{
    vmm_config config = VMM_CONFIG_INIT;
    variable_set("VMM_NEIGHBOURS_WAIT_MS", "0");
    assert_ok(vmm__config_environment(&config));
    assert_ok(vmm__config_settle(&config));
    assert_int_equal(config.neighbours_wait_ms, 200);
    assert_int_equal(unsetenv("VMM_NEIGHBOURS_WAIT_MS"), 0);
}

CONFIG_TEST(decay_thread_needs_decay)
{
    vmm_config config = VMM_CONFIG_INIT;
    assert_ok(vmm__config_settle(&config));
    config.decay_thread = 1;
    assert_status(vmm__config_settle(&config), VMM_ERR_INVALID_ARGUMENT);
    assert_names("decay_ms is 0");
    config.decay_ms = 1;
    assert_ok(vmm__config_settle(&config));
    config.decay_thread = 0;
    assert_ok(vmm__config_settle(&config));
}

static uint64_t clock_stand(void *context)
{
    (void)context;
    return 0;
}

/* A program with a clock of its own says when time passes, and polls. */
CONFIG_TEST(decay_has_a_thread_unless_the_program_says_no)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.decay_ms = 1;
    assert_ok(vmm__config_settle(&config));
    assert_int_equal(config.decay_thread, VMM_ON);
    config.decay_thread = VMM_OFF;
    assert_ok(vmm__config_settle(&config));
    assert_int_equal(config.decay_thread, VMM_OFF);
    config.decay_thread = VMM_DEFAULT;
    config.clock = clock_stand;
    assert_ok(vmm__config_settle(&config));
    assert_int_equal(config.decay_thread, VMM_OFF);
    config.decay_thread = VMM_ON;
    assert_ok(vmm__config_settle(&config));
    assert_int_equal(config.decay_thread, VMM_ON);
    config = (vmm_config)VMM_CONFIG_INIT;
    config.decay_ms = VMM_NO_DECAY;
    assert_ok(vmm__config_settle(&config));
    assert_int_equal(config.decay_thread, VMM_OFF);
}

/* NVTX cannot follow bytes that move, and a tool would report what these write. */
CONFIG_TEST(nvtx_excludes_what_moves_or_writes)
{
    static const struct {
        vmm_switch compaction;
        vmm_switch zero;
        vmm_debug_mode debug;
        const char *words;
    } cases[] = {
        { VMM_OFF, VMM_OFF, VMM_DEBUG_OFF, NULL },
        { VMM_ON, VMM_OFF, VMM_DEBUG_OFF, "compaction is not off" },
        { VMM_OFF, VMM_ON, VMM_DEBUG_OFF, "zero or debug is on" },
        { VMM_OFF, VMM_OFF, VMM_DEBUG_RECORD, "zero or debug is on" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vmm_config config = VMM_CONFIG_INIT;
        config.nvtx = VMM_ON;
        config.compaction = cases[i].compaction;
        config.zero = cases[i].zero;
        config.debug = cases[i].debug;
        vmm_status wanted = cases[i].words == NULL ? VMM_OK : VMM_ERR_INVALID_ARGUMENT;
        assert_status(vmm__config_settle(&config), wanted);
        if (cases[i].words != NULL)
            assert_non_null(strstr(vmm_last_error(), cases[i].words));
    }
}

/* Unknown fields are accepted if they are zero and struct_size is at most a page. */
CONFIG_TEST(struct_sizes_are_at_most_a_page)
{
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
    variable_set(name, text);
    vmm_status status = vmm__config_environment(config);
    assert_int_equal(unsetenv(name), 0);
    return status;
}

static void check_variable_refused(const char *name, const char *text)
{
    vmm_config config;
    char start[64];
    (void)snprintf(start, sizeof start, "%s=%s: ", name, text);
    assert_status(environment_read(name, text, &config), VMM_ERR_INVALID_ARGUMENT);
    assert_int_equal(strncmp(vmm_last_error(), start, strlen(start)), 0);
}

CONFIG_TEST(variables_accept_words)
{
    vmm_config config;
    assert_ok(environment_read("VMM_REUSE", "any_use", &config));
    assert_int_equal(config.reuse, VMM_REUSE_ANY_USE);
    assert_ok(environment_read("VMM_REUSE", "stream_wait", &config));
    assert_int_equal(config.reuse, VMM_REUSE_STREAM_WAIT);
    assert_ok(environment_read("VMM_COMPACTION", "off", &config));
    assert_int_equal(config.compaction, VMM_OFF);
    assert_ok(environment_read("VMM_COMPACTION", "on", &config));
    assert_int_equal(config.compaction, VMM_ON);
    check_variable_refused("VMM_REUSE", "waits");
    check_variable_refused("VMM_COMPACTION", "ON");
    check_variable_refused("VMM_COMPACTION", "auto");
    check_variable_refused("VMM_DRIVER", "gpu");
    check_variable_refused("VMM_NO_CACHING", "2");
}

/* The message lists exactly the words of the variable. */
CONFIG_TEST(errors_list_the_known_words)
{
    check_variable_refused("VMM_REUSE", "all");
    assert_names("not one of: any_use, declared, stream_wait");
    assert_null(strstr(vmm_last_error(), "wait,"));
    check_variable_refused("VMM_COMPACTION", "all");
    assert_names("not one of: on, off");
}

CONFIG_TEST(variables_accept_numbers)
{
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
        check_variable_refused("VMM_FOOTPRINT", wrong[i]);
        check_variable_refused("VMM_DECAY_MS", wrong[i]);
    }
    check_variable_refused("VMM_FOOTPRINT", "1001");
    check_variable_refused("VMM_FOOTPRINT", "anything");
    check_variable_refused("VMM_DECAY_MS", "4294967296");
    check_variable_refused("VMM_DECAY_MS", "9:");
}

CONFIG_TEST(variables_describe_a_neighbour)
{
    vmm_config config;
    assert_ok(environment_read("VMM_NEIGHBOURS_FLOOR", "8MiB", &config));
    assert_int_equal(config.neighbours_floor_bytes, 8 << 20);
    assert_ok(environment_read("VMM_NEIGHBOURS_PRIORITY", "4294967295", &config));
    assert_int_equal(config.neighbours_priority, UINT32_MAX);
    assert_ok(environment_read("VMM_NEIGHBOURS_WAIT_MS", "60000", &config));
    assert_int_equal(config.neighbours_wait_ms, 60000);
    assert_ok(environment_read("VMM_NEIGHBOURS_NAME", "trainer", &config));
    assert_string_equal(config.neighbours_name, "trainer");
    check_variable_refused("VMM_NEIGHBOURS_FLOOR", "8 apples");
    check_variable_refused("VMM_NEIGHBOURS_PRIORITY", "-1");
    check_variable_refused("VMM_NEIGHBOURS_PRIORITY", "4294967296");
    check_variable_refused("VMM_NEIGHBOURS_WAIT_MS", "60001");
}

CONFIG_TEST(fields_override_the_environment)
{
    static const char *const settings[][2] = {
        { "VMM_DRIVER", "sim" },     { "VMM_NO_CACHING", "nonsense" },
        { "VMM_FOOTPRINT", "any" },  { "VMM_REUSE", "nonsense" },
        { "VMM_COMPACTION", "off" }, { "VMM_DECAY_MS", "nonsense" }
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        variable_set(settings[i][0], settings[i][1]);
    vmm_config config = CONFIG(.driver = VMM_DRIVER_HOST, .no_caching = 1, .footprint_permille = 7,
                               .reuse = VMM_REUSE_STREAM_WAIT, .compaction = VMM_ON, .decay_ms = 9);
    vmm_config given = config;
    assert_ok(vmm__config_environment(&config));
    assert_memory_equal(&config, &given, sizeof config);
    config.compaction = VMM_OFF;
    variable_set("VMM_COMPACTION", "on");
    assert_ok(vmm__config_environment(&config));
    assert_int_equal(config.compaction, VMM_OFF);
    given = config;
    variable_set("VMM_FOOTPRINT", "nonsense");
    assert_ok(vmm__config_environment(&config));
    assert_memory_equal(&config, &given, sizeof config);
}

static const char *const loud[][2] = {
    { "VMM_NO_CACHING", "1" },  { "VMM_REUSE", "stream_wait" }, { "VMM_COMPACTION", "on" },
    { "VMM_ZERO", "1" },        { "VMM_DEBUG", "on" },          { "VMM_NVTX", "1" },
    { "VMM_FOOTPRINT", "any" }, { "VMM_DECAY_MS", "1" },        { "VMM_LIMIT", "4MiB" },
    { "VMM_SHAREABLE", "1" },   { "VMM_VIEWS", "0" },
};

static vmm_config quiet_config(void)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.driver = VMM_DRIVER_SIM;
    config.no_caching = VMM_OFF;
    config.reuse = VMM_REUSE_ANY_USE;
    config.compaction = VMM_OFF;
    config.zero = VMM_OFF;
    config.debug = VMM_DEBUG_OFF;
    config.nvtx = VMM_OFF;
    config.shareable = VMM_OFF;
    config.views = VMM_ON;
    config.footprint_permille = 10;
    config.decay_ms = VMM_NO_DECAY;
    config.limit_bytes = VMM_NO_LIMIT;
    return config;
}

/* A field overrides its variable, also where it asks for less. */
CONFIG_TEST(explicit_off_overrides_the_environment)
{
    for (size_t i = 0; i < sizeof loud / sizeof *loud; i++)
        variable_set(loud[i][0], loud[i][1]);
    vmm_config config = quiet_config();
    vmm_config given = config;
    assert_ok(vmm__config_environment(&config));
    assert_ok(vmm__config_limit(NULL, &config));
    assert_memory_equal(&config, &given, sizeof config);
    vmm_cache *cache = cache_with_config(&config);
    assert_false(cache->no_caching);
    assert_int_equal(cache->reuse, VMM_REUSE_ANY_USE);
    assert_int_equal(cache->compaction, VMM_OFF);
    assert_null(cache->debug);
    assert_null(cache->nvtx);
    assert_false(cache->vm.is_exportable);
    assert_true(cache->has_views);
    assert_int_equal(cache->footprint_permille, 10);
    assert_int_equal(cache->vm.limit_bytes, 0);
    assert_int_equal(cache->decay.period_ns, 0);
    assert_ok(vmm_destroy(cache));
}

/* Without a field and a variable, all but views is off. */
CONFIG_TEST(defaults_are_off)
{
    vmm_config config = VMM_CONFIG_INIT;
    vmm_config quiet = quiet_config();
    assert_ok(vmm__config_settle(&config));
    assert_ok(vmm__config_settle(&quiet));
    assert_int_equal(config.no_caching, quiet.no_caching);
    assert_int_equal(config.reuse, quiet.reuse);
    assert_int_equal(config.compaction, quiet.compaction);
    assert_int_equal(config.zero, quiet.zero);
    assert_int_equal(config.debug, quiet.debug);
    assert_int_equal(config.nvtx, quiet.nvtx);
    assert_int_equal(config.shareable, quiet.shareable);
    assert_int_equal(config.views, quiet.views);
    assert_int_equal(config.decay_thread, VMM_OFF);
    assert_int_equal(config.decay_ms, quiet.decay_ms);
}

/* ---- The log ---------------------------------------------------------------------------------- */

static unsigned lines;

static void line_count(void *context, const char *line)
{
    lines += context == &lines && strncmp(line, "grow: ", 6) == 0;
}

/* Returns what a cache that grows once writes to stderr. */
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

CONFIG_TEST(log_writes_to_stderr)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.driver = VMM_DRIVER_SIM;
    char text[1024];
    assert_int_equal(stderr_of(&config, text, sizeof text), 0);
    variable_set("VMM_LOG", "");
    assert_int_equal(stderr_of(&config, text, sizeof text), 0);
    variable_set("VMM_LOG", "stderr");
    assert_true(stderr_of(&config, text, sizeof text) > 0);
    assert_int_equal(strncmp(text, "vmmcache: grow: ", 16), 0);
    assert_true(dprintf(STDERR_FILENO, "%s", "") == 0); /* vmm_destroy() did not close it */
    lines = 0;
    config.log = line_count;
    config.log_context = &lines;
    assert_int_equal(stderr_of(&config, text, sizeof text), 0);
    assert_int_equal(lines, 1);
}
