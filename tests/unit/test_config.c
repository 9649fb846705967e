/* Configuration: fields, callers of other versions, and every environment variable. */
#define _GNU_SOURCE
#include "support/config_support.h"
#include "support/file_limit_support.h"
#include "support/made_support.h"

#include "driver/sim/sim.h"

#include <pthread.h>
#include <sys/stat.h>

CONFIG_TEST(null_selects_all_defaults)
{
    vmm_config out;
    memset(&out, 0x5a, sizeof out);
    assert_ok(vmm__config_read(NULL, &out));
    vmm_config zero = VMM_CONFIG_INIT;
    assert_memory_equal(&out, &zero, sizeof out);
}

/* A caller of an older version has fewer fields; the others are zero. */
CONFIG_TEST(callers_of_older_versions_are_accepted)
{
    vmm_config in;
    memset(&in, 0x5a, sizeof in);
    in.struct_size = offsetof(vmm_config, driver);
    in.device = 3;
    vmm_config out;
    assert_ok(vmm__config_read(&in, &out));
    assert_int_equal(out.device, 3);
    assert_int_equal(out.driver, VMM_DRIVER_DEFAULT);
    assert_int_equal(out.limit_bytes, 0);
    assert_int_equal(out.no_caching, 0);
    assert_null((void *)(uintptr_t)out.log);
    assert_int_equal(out.struct_size, sizeof out);
}

CONFIG_TEST(callers_of_newer_versions_are_accepted_if_new_fields_are_zero)
{
    struct {
        vmm_config config;
        uint64_t later_field;
    } in = { .config = { .struct_size = sizeof in, .limit_bytes = 77 } };
    vmm_config out;
    assert_ok(vmm__config_read(&in.config, &out));
    assert_int_equal(out.limit_bytes, 77);
    in.later_field = UINT64_C(1) << 56;
    assert_status(vmm__config_read(&in.config, &out), VMM_ERR_UNSUPPORTED);
}

/* ---- Environment ------------------------------------------------------------------------------ */

static vmm_status environment_read(vmm_config *config)
{
    *config = (vmm_config)VMM_CONFIG_INIT;
    return vmm__config_environment(config);
}

CONFIG_TEST(environment_sets_the_driver)
{
    static const char *const names[] = { "", "cuda", "host", "sim" };
    vmm_config config;
    for (int kind = 0; kind < 4; kind++) {
        variable_set("VMM_DRIVER", names[kind]);
        assert_ok(environment_read(&config));
        assert_int_equal(config.driver, kind);
    }
    variable_set("VMM_DRIVER", "host");
    config = (vmm_config)VMM_CONFIG_INIT;
    config.driver = VMM_DRIVER_SIM;
    assert_ok(vmm__config_environment(&config));
    assert_int_equal(config.driver, VMM_DRIVER_SIM);
    variable_set("VMM_DRIVER", "");
    assert_ok(environment_read(&config));
    assert_int_equal(config.driver, VMM_DRIVER_DEFAULT);
    static const char *const wrong[] = { "CUDA", "gpu", " sim", "sim ", "0", "auto" };
    for (int i = 0; i < 6; i++) {
        variable_set("VMM_DRIVER", wrong[i]);
        assert_status(environment_read(&config), VMM_ERR_INVALID_ARGUMENT);
        assert_names("VMM_DRIVER=");
    }
}

CONFIG_TEST(environment_disables_caching)
{
    vmm_config config;
    static const char *const good[] = { "0", "1", "" };
    static const vmm_switch wanted[] = { VMM_OFF, VMM_ON, VMM_DEFAULT };
    for (int i = 0; i < 3; i++) {
        variable_set("VMM_NO_CACHING", good[i]);
        assert_ok(environment_read(&config));
        assert_int_equal(config.no_caching, wanted[i]);
    }
    static const char *const wrong[] = { "yes", "2", "01", "-1", "true" };
    for (int i = 0; i < 5; i++) {
        variable_set("VMM_NO_CACHING", wrong[i]);
        assert_status(environment_read(&config), VMM_ERR_INVALID_ARGUMENT);
        assert_names("VMM_NO_CACHING=");
    }
}

CONFIG_TEST(environment_sets_zero_and_debug)
{
    static const char *const words[] = { "on", "off", "record", "stop" };
    vmm_config config;
    for (int i = 0; i < 4; i++) {
        variable_set("VMM_DEBUG", words[i]);
        variable_set("VMM_ZERO", i == 2 ? "1" : "0");
        assert_ok(environment_read(&config));
        assert_int_equal(config.debug, VMM_DEBUG_ON + i);
        assert_int_equal(config.zero, i == 2 ? VMM_ON : VMM_OFF);
    }
    variable_set("VMM_ZERO", "2");
    assert_status(environment_read(&config), VMM_ERR_INVALID_ARGUMENT);
    assert_names("VMM_ZERO=2");
    variable_set("VMM_ZERO", "on");
    variable_set("VMM_DEBUG", "1");
    assert_ok(environment_read(&config));
    assert_int_equal(config.debug, VMM_DEBUG_ON);
    assert_int_equal(config.zero, VMM_ON);
    variable_set("VMM_ZERO", "off");
    variable_set("VMM_DEBUG", "2");
    assert_status(environment_read(&config), VMM_ERR_INVALID_ARGUMENT);
    assert_names("VMM_DEBUG=2: not one of: on, off, record, stop");
}

#define MPS_LIMIT "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"

static uint64_t others_handle; /* what another user holds of the device */

/* A device of 80 GiB; 60 GiB are free. */
static struct driver *device_open(void)
{
    struct driver_options options = { .device_bytes = 80 * GIB };
    struct driver *driver;
    assert_ok(vmm__driver_sim_open(&options, &driver));
    assert_ok(vmm__driver_create(driver, 20 * GIB, false, &others_handle));
    return driver;
}

static void device_close(struct driver *driver)
{
    assert_ok(vmm__driver_release(driver, others_handle, 20 * GIB));
    vmm__driver_close(driver);
}

CONFIG_TEST(environment_sets_the_limit)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = { { "8GiB", 8 * GIB },     { "1.5G", 3 * GIB / 2 }, { "50%", 40 * GIB },
                 { "100%", 80 * GIB },    { "4096", 4096 },        { "", 0 },
                 { "50%free", 30 * GIB }, { "100%free", 60 * GIB } };
    struct driver *driver = device_open();
    for (unsigned i = 0; i < sizeof good / sizeof *good; i++) {
        vmm_config config = VMM_CONFIG_INIT;
        variable_set("VMM_LIMIT", good[i].text);
        assert_ok(vmm__config_limit(driver, &config));
        assert_int_equal(config.limit_bytes, good[i].bytes);
    }
    static const char *const wrong[] = { "0",     "0%",     "lots",     "8GB",      "-1",
                                         "8 GiB", "1e9",    "100 %",    "120%",     "100.1%",
                                         "%free", "0%free", "101%free", "8GiBfree", "50%Free" };
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        vmm_config config = VMM_CONFIG_INIT;
        variable_set("VMM_LIMIT", wrong[i]);
        assert_status(vmm__config_limit(driver, &config), VMM_ERR_INVALID_ARGUMENT);
        assert_names("VMM_LIMIT=");
        config.limit_bytes = 5;
        assert_ok(vmm__config_limit(driver, &config));
        assert_int_equal(config.limit_bytes, 5);
    }
    device_close(driver);
}

CONFIG_TEST(mps_sets_the_limit_of_a_device)
{
    static const unsigned char uuid[DRIVER_UUID_BYTES] = { 0x7c, 0xe2, 0x3c, 0xd8, 0x5c, 0x91,
                                                           0x34, 0xd5, 0x9f, 0x1b, 0xda, 0x8d,
                                                           0x6a, 0x4a, 0xd1, 0xa5 };
    static const struct {
        const char *text;
        uint64_t bytes;
    } texts[] = { { "0=4G,1=2G", 2 * GIB },
                  { "1=512M", 512 * MIB },
                  { "1=512MB,0=1G", 512 * MIB },
                  { "GPU-7ce23cd8-5c91-34d5-9f1b-da8d6a4ad1a5=3G", 3 * GIB },
                  { "11=4G,1=2G", 2 * GIB },
                  { "0=4G", 0 },
                  { "1=", 0 },
                  { "1=lots,1=2G", 2 * GIB },
                  { "1=0G", 0 },
                  { "1", 0 },
                  { "=4G,,1=1G,", GIB },
                  { "", 0 } };
    for (unsigned i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_int_equal(vmm__limit_of_mps(texts[i].text, 1, uuid), texts[i].bytes);
}

/* The program's own limit comes first, then VMM_LIMIT; MPS has no say on other drivers. */
CONFIG_TEST(limits_have_an_order)
{
    struct driver *driver = device_open();
    vmm_config config = CONFIG(.driver = VMM_DRIVER_CUDA);
    variable_set(MPS_LIMIT, "0=4G");
    assert_ok(vmm__config_limit(driver, &config));
    assert_int_equal(config.limit_bytes, 4 * GIB);
    config = CONFIG(.driver = VMM_DRIVER_SIM);
    assert_ok(vmm__config_limit(driver, &config));
    assert_int_equal(config.limit_bytes, 0);
    config = CONFIG(.limit_bytes = VMM_NO_LIMIT);
    assert_ok(vmm__config_limit(driver, &config));
    assert_int_equal(config.limit_bytes, VMM_NO_LIMIT);
    variable_set("VMM_LIMIT", "6GiB");
    config = CONFIG(.device = 0);
    assert_ok(vmm__config_limit(driver, &config));
    assert_int_equal(config.limit_bytes, 6 * GIB);
    assert_int_equal(unsetenv(MPS_LIMIT), 0);
    device_close(driver);
}

CONFIG_TEST(a_share_of_free_memory_needs_the_driver)
{
    struct driver *driver = device_open();
    vmm_config config = VMM_CONFIG_INIT;
    variable_set("VMM_LIMIT", "50%free");
    vmm__sim_fail_at(driver, 1, VMM_ERR_DRIVER, false);
    assert_status(vmm__config_limit(driver, &config), VMM_ERR_DRIVER);
    assert_int_equal(config.limit_bytes, 0);
    device_close(driver);
}

/* Creates a cache of the sim driver with vmm_create(), which reads the environment. */
static vmm_status sim_create_by_environment(vmm_cache **cache)
{
    variable_set("VMM_DRIVER", "sim");
    return vmm_create(NULL, cache);
}

struct log_file {
    char path[32];
    int file;
};

/* An empty file, which VMM_LOG names. */
static struct log_file log_file_make(void)
{
    struct log_file log = { .path = "/tmp/vmm-log-XXXXXX" };
    log.file = mkstemp(log.path);
    assert_true(log.file >= 0);
    variable_set("VMM_LOG", log.path);
    return log;
}

static off_t log_file_bytes(const struct log_file *log)
{
    struct stat about;
    assert_int_equal(fstat(log->file, &about), 0);
    return about.st_size;
}

static void log_file_end(const struct log_file *log)
{
    assert_int_equal(close(log->file), 0);
    assert_int_equal(unlink(log->path), 0);
}

CONFIG_TEST(log_appends_to_a_file)
{
    struct log_file log = log_file_make();
    for (int round = 0; round < 2; round++) {
        vmm_cache *cache;
        assert_ok(sim_create_by_environment(&cache));
        (void)block_in(cache, 5 * MIB, NULL);
        assert_ok(vmm_destroy(cache));
    }
    char text[4096] = "";
    ssize_t bytes = read(log.file, text, sizeof text - 1);
    assert_true(bytes > 0);
    char *second = strstr(text + 1, "vmmcache: grow: ");
    assert_int_equal(strncmp(text, "vmmcache: grow: ", 16), 0);
    assert_non_null(second); /* appended */
    assert_int_equal(second[-1], '\n');
    log_file_end(&log);
}

/* A write there would end the process by a signal. */
CONFIG_TEST(log_stops_at_the_limit_of_files)
{
    struct log_file log = log_file_make();
    vmm_cache *cache;
    file_limit_set(100);
    assert_ok(sim_create_by_environment(&cache));
    for (int i = 0; i < 20; i++)
        (void)block_in(cache, 5 * MIB, NULL);
    assert_ok(vmm_destroy(cache));
    file_limit_set(RLIM_INFINITY);
    assert_in_range(log_file_bytes(&log), 20, 100);
    log_file_end(&log);
}

enum { LOGGING_THREADS = 4, LOGGED_LINES = 200, LOGGING_ROUNDS = 8 };

static void *lines_log(void *cache)
{
    for (int i = 0; i < LOGGED_LINES; i++)
        assert_ok(vmm_log_write(cache, "a line of a thread that logs beside others"));
    return NULL;
}

/* Threads that log reach the limit together, and the process goes on. */
CONFIG_TEST(threads_log_up_to_the_limit_of_files)
{
    enum { LIMIT = 20000 };
    struct log_file log = log_file_make();
    vmm_cache *cache;
    assert_ok(sim_create_by_environment(&cache));
    file_limit_set(LIMIT);
    for (int round = 0; round < LOGGING_ROUNDS; round++) {
        pthread_t threads[LOGGING_THREADS];
        assert_int_equal(ftruncate(log.file, round), 0);
        for (int i = 0; i < LOGGING_THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, lines_log, cache), 0);
        for (int i = 0; i < LOGGING_THREADS; i++)
            assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(log_file_bytes(&log), LIMIT);
    }
    file_limit_set(RLIM_INFINITY);
    assert_ok(vmm_destroy(cache));
    log_file_end(&log);
}
