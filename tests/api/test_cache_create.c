/* vmm_create and vmm_destroy by the public way: configuration, life, log, a cache without caching.
 */
#include "support/cache_support.h"
#include "support/folder_support.h"

#include "base/hostmem.h"

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define LARGE (8 * MIB)

static vmm_config chosen_config(void)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.driver = driver_choice_kind();
    if (config.driver != VMM_DRIVER_CUDA)
        config.device_bytes = CACHE_DEVICE;
    config.limit_bytes = CACHE_LIMIT;
    return config;
}

/* Nothing of the process is left behind by a cache's life. */
TEST(create_and_destroy_leave_nothing)
{
    vmm_config config = chosen_config();
    uint64_t host_bytes = vmm__host_outstanding();
    assert_ok(vmm_destroy(cache_with_config(&config)));
    int files = descriptors_open();
    for (int round = 0; round < 3; round++) {
        vmm_cache *cache = cache_with_config(&config);
        assert_int_equal(stats_of(cache).reserved_bytes.current, 0);
        assert_true(stats_of(cache).reserve_calls >= 1); /* one for each halving */
        for (size_t bytes = 1; bytes <= 16 * MIB; bytes *= 7)
            (void)block_in(cache, bytes, NULL);
        assert_ok(vmm_destroy(cache));
        assert_int_equal(vmm__host_outstanding(), host_bytes);
        assert_int_equal(descriptors_open(), files);
    }
}

TEST(a_missing_device_is_reported)
{
    vmm_config config = chosen_config();
    if (config.driver != VMM_DRIVER_CUDA)
        return; /* the other drivers accept any device */
    vmm_cache *cache;
    config.device = 4711;
    assert_status(vmm_create(&config, &cache), VMM_ERR_NO_DEVICE);
    assert_non_null(strstr(vmm_last_error(), "4711"));
}

TEST(arenas_of_any_size_are_created)
{
    static const uint64_t sizes[] = { 64 * MIB + 1,      4 * GIB,           TIB,
                                      UINT64_C(1) << 46, UINT64_C(1) << 50, UINT64_MAX };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        vmm_config config = chosen_config();
        config.arena_bytes = sizes[i];
        vmm_cache *cache = cache_with_config(&config);
        for (int block = 0; block < 4; block++)
            (void)block_in(cache, LARGE + (size_t)block, NULL);
        assert_ok(vmm_destroy(cache));
    }
}

/* Addresses that the process uses. */
static rlim_t address_bytes(void)
{
    unsigned long pages = 0;
    FILE *sizes = fopen("/proc/self/statm", "r");
    assert_non_null(sizes);
    assert_int_equal(fscanf(sizes, "%lu", &pages), 1);
    (void)fclose(sizes);
    return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

/* A multiple of the device's memory may be more than any number of bytes. */
TEST(a_device_of_any_size_gets_addresses)
{
    if (driver_choice_kind() != VMM_DRIVER_SIM)
        return;
    for (unsigned shift = 56; shift < 62; shift++) {
        vmm_config config = VMM_CONFIG_INIT;
        config.driver = VMM_DRIVER_SIM;
        config.device_bytes = UINT64_C(1) << shift;
        config.debug = VMM_DEBUG_ON;
        vmm_cache *cache = cache_with_config(&config);
        (void)block_in(cache, LARGE, NULL);
        assert_ok(vmm_destroy(cache));
    }
}

/* The cache asks for half as many addresses, and no line of that is left. */
TEST(refused_addresses_are_asked_for_by_halves)
{
    struct rlimit usual;
    vmm_config config = chosen_config();
    if (config.driver != VMM_DRIVER_HOST)
        return; /* no limit of the process bounds the others */
    config.device_bytes = 64 * GIB;
    assert_int_equal(getrlimit(RLIMIT_AS, &usual), 0);
    struct rlimit few = { .rlim_cur = address_bytes() + 160 * GIB, .rlim_max = usual.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_AS, &few), 0);
    assert_status(vmm_trim(NULL, 0, NULL), VMM_ERR_INVALID_ARGUMENT);
    vmm_cache *cache = NULL;
    vmm_status status = vmm_create(&config, &cache);
    assert_int_equal(setrlimit(RLIMIT_AS, &usual), 0);
    assert_int_equal(status, VMM_OK);
    assert_string_equal(vmm_last_error(), "vmm_trim: cache is NULL");
    (void)block_in(cache, LARGE, NULL);
    assert_ok(vmm_destroy(cache));
}

/* Also where it is less than the device's memory. */
TEST(no_more_addresses_than_allowed_are_used)
{
    vmm_config config = chosen_config();
    config.limit_bytes = 0;
    config.arena_bytes = 3 * LARGE + 1;
    vmm_cache *cache = cache_with_config(&config);
    vmm_status status = VMM_OK;
    int blocks = 0;
    for (void *block; blocks < 5 && status == VMM_OK; blocks += status == VMM_OK)
        status = vmm_alloc(cache, LARGE, NULL, &block);
    assert_int_equal(status, VMM_ERR_ADDRESS_SPACE);
    assert_in_range(blocks, 1, 3);
    assert_non_null(strstr(vmm_last_error(), "arena_bytes allows 26.0 MiB"));
    assert_ok(vmm_destroy(cache));
}

enum { CACHES = 64 };

/* Each with the addresses that a cache has by default. */
TEST(many_caches_live_at_once)
{
    static vmm_cache *caches[CACHES];
    vmm_config config = VMM_CONFIG_INIT;
    config.driver = driver_choice_kind();
    for (int i = 0; i < CACHES; i++) {
        caches[i] = cache_with_config(&config);
        (void)block_in(caches[i], LARGE, NULL);
        assert_int_equal(stats_of(caches[i]).reserve_calls, 1);
    }
    for (int i = 0; i < CACHES; i++)
        assert_ok(vmm_destroy(caches[i]));
}

/* Small blocks of many streams lie so that there is no room for a large one between them. */
TEST(a_cache_outgrows_its_first_addresses)
{
    enum { PLACES = 16 };
    vmm_config config = chosen_config();
    config.limit_bytes = 0;
    config.device_bytes = 64 * MIB;
    if (config.driver == VMM_DRIVER_CUDA)
        return; /* its device has as much memory as it has, and the first addresses go on for long */
    vmm_cache *cache = cache_with_config(&config);
    void *blocks[PLACES];
    for (int i = 0; i < PLACES; i++)
        assert_ok(vmm_alloc(cache, 2000, (vmm_stream)(uintptr_t)(0x101 + i), &blocks[i]));
    assert_int_equal(stats_of(cache).reserve_calls, 1);
    uint8_t *large = NULL;
    assert_ok(vmm_alloc(cache, 3 * LARGE, (vmm_stream)(uintptr_t)0x101, (void **)&large));
    assert_int_equal(stats_of(cache).reserve_calls, 2);
    if (config.driver == VMM_DRIVER_HOST)
        memset(large, 1, 3 * LARGE);
    assert_ok(vmm_free(cache, large));
    for (int i = 0; i < PLACES; i++)
        assert_ok(vmm_free(cache, blocks[i]));
    assert_ok(vmm_destroy(cache));
}

TEST(two_caches_share_no_memory)
{
    vmm_config config = chosen_config();
    config.limit_bytes = 32 * MIB;
    vmm_cache *first = cache_with_config(&config);
    vmm_cache *second = cache_with_config(&config);
    void *one = block_in(first, LARGE, NULL);
    void *two = block_in(second, LARGE, NULL);
    if (driver_choice_kind() != VMM_DRIVER_SIM) { /* each sim is a world of its own */
        assert_status(vmm_free(first, two), VMM_ERR_UNKNOWN_POINTER);
        assert_status(vmm_free(second, one), VMM_ERR_UNKNOWN_POINTER);
    }
    assert_ok(vmm_free(first, one));
    assert_ok(vmm_free(second, two));
    assert_ok(vmm_destroy(first));
    two = block_in(second, LARGE, NULL);
    assert_ok(vmm_destroy(second));
}

/* ---- Log --------------------------------------------------------------------------------------
 */

struct log_lines {
    int grow;
    int trim;
    int failure;
    int other;
};

static void line_counted(void *context, const char *line)
{
    struct log_lines *lines = context;
    if (strchr(line, '\n') != NULL)
        lines->other++;
    else if (strncmp(line, "grow: ", 6) == 0)
        lines->grow++;
    else if (strncmp(line, "trim: ", 6) == 0)
        lines->trim++;
    else if (strncmp(line, "alloc: needed ", 14) == 0)
        lines->failure++;
    else
        lines->other++;
}

TEST(the_log_gets_growth_trim_and_failure)
{
    struct log_lines lines = { 0 };
    vmm_config config = chosen_config();
    config.log = line_counted;
    config.log_context = &lines;
    vmm_cache *cache = cache_with_config(&config);
    void *block = block_in(cache, LARGE, NULL);
    assert_int_equal(lines.grow, 1);
    assert_ok(vmm_free(cache, block));
    assert_ok(vmm_trim(cache, 0, NULL));
    assert_int_equal(lines.trim, 1);
    assert_status(vmm_alloc(cache, CACHE_LIMIT + 1, NULL, &block), VMM_ERR_DEVICE_OOM);
    assert_int_equal(lines.failure, 1);
    assert_int_equal(lines.other, 0);
    assert_ok(vmm_log_write(cache, "%n, a line of the program's own"));
    assert_int_equal(lines.other, 1);
    assert_status(vmm_log_write(cache, NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_log_write(NULL, "line"), VMM_ERR_INVALID_ARGUMENT);
    assert_ok(vmm_destroy(cache));
}

/* A log function may use other caches. */
static void failure_made(void *context, const char *line)
{
    (void)context;
    (void)line;
    assert_status(vmm_log_write(NULL, "line"), VMM_ERR_INVALID_ARGUMENT);
}

TEST(a_log_function_does_not_change_the_line_of_a_call_that_fails)
{
    vmm_config config = chosen_config();
    config.log = failure_made;
    vmm_cache *cache = cache_with_config(&config);
    void *block;
    assert_status(vmm_alloc(cache, CACHE_LIMIT + 1, NULL, &block), VMM_ERR_DEVICE_OOM);
    assert_int_equal(strncmp(vmm_last_error(), "needed ", 7), 0);
    assert_ok(vmm_destroy(cache));
}

/* ---- A cache that does not cache ----------------------------------------------------------------
 */

TEST(without_caching_all_memory_is_released)
{
    vmm_config config = chosen_config();
    config.no_caching = 1;
    vmm_cache *cache = cache_with_config(&config);
    static const size_t sizes[] = { 0, 1, 512, 9000, MIB, LARGE, 20 * MIB + 1 };
    enum { SIZES = sizeof sizes / sizeof sizes[0] };
    void *blocks[SIZES];
    for (int i = 0; i < SIZES; i++)
        blocks[i] = block_in(cache, sizes[i], NULL);
    assert_ok(vmm__cache_check(cache));
    for (int i = 0; i < SIZES; i++) {
        uint64_t reserved = stats_of(cache).reserved_bytes.current;
        uint64_t address = (uintptr_t)blocks[(i * 3) % SIZES];
        assert_int_equal(address % (2 * MIB), 0);
        assert_ok(vmm_free(cache, blocks[(i * 3) % SIZES]));
        assert_true(stats_of(cache).reserved_bytes.current < reserved);
        assert_status(vmm_free(cache, blocks[(i * 3) % SIZES]), VMM_ERR_UNKNOWN_POINTER);
    }
    vmm_stats stats = stats_of(cache);
    assert_int_equal(stats.reserved_bytes.current, 0);
    assert_int_equal(stats.requested_bytes.current, 0);
    assert_int_equal(stats.create_calls, stats.release_calls);
    assert_ok(vmm_destroy(cache));
}

TEST(without_caching_the_limit_holds)
{
    vmm_config config = chosen_config();
    config.no_caching = 1;
    vmm_cache *cache = cache_with_config(&config);
    void *block = block_in(cache, CACHE_LIMIT, NULL);
    void *other;
    assert_status(vmm_alloc(cache, 1, NULL, &other), VMM_ERR_DEVICE_OOM);
    assert_status(vmm_alloc(cache, SIZE_MAX, NULL, &other), VMM_ERR_ADDRESS_SPACE);
    assert_ok(vmm_free(cache, block));
    block = block_in(cache, CACHE_LIMIT, NULL);
    assert_ok(vmm_record_stream(cache, block, NULL));
    assert_ok(vmm_destroy(cache));
}

/* ---- Names ------------------------------------------------------------------------------------
 */

TEST(built_drivers_are_reported)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.driver = VMM_DRIVER_CUDA;
    vmm_cache *cache = NULL;
    vmm_status status = vmm_create(&config, &cache);
    bool is_missing = status == VMM_ERR_UNSUPPORTED &&
                      strstr(vmm_last_error(), "this build has no CUDA driver") != NULL;
    assert_int_equal(vmm_has_driver(VMM_DRIVER_CUDA), !is_missing);
    assert_ok(vmm_destroy(cache));
    assert_int_equal(vmm_has_driver(VMM_DRIVER_DEFAULT), 1);
    assert_int_equal(vmm_has_driver(VMM_DRIVER_HOST), 1);
    assert_int_equal(vmm_has_driver(VMM_DRIVER_SIM), 1);
    assert_int_equal(vmm_has_driver((vmm_driver_kind)4), 0);
}

/* Without a tool that listens, blocks are as usual. The limit is the size of the simulated device. */
TEST(annotations_need_no_tool)
{
    vmm_config config = chosen_config();
    vmm_cache *cache = NULL;
    uint64_t free_bytes, total_bytes;
    if (config.driver == VMM_DRIVER_CUDA)
        return; /* the libcuda of the tests has no plain memory; tests/gpu has this for a GPU */
    config.nvtx = VMM_ON;
    config.device_bytes = 0;
    vmm_status status = vmm_create(&config, &cache);
    if (status == VMM_ERR_UNSUPPORTED) {
        assert_non_null(strstr(vmm_last_error(), "NVTX"));
        return; /* this build has no annotations */
    }
    assert_ok(status);
    assert_ok(vmm_device_memory(cache, &free_bytes, &total_bytes));
    assert_int_equal(total_bytes, CACHE_LIMIT);
    void *block = block_in(cache, 1000, NULL);
    assert_ok(vmm_free(cache, block));
    assert_status(vmm_free(cache, block), VMM_ERR_UNKNOWN_POINTER);
    assert_ok(vmm_destroy(cache));
}

TEST(the_version_is_the_header_s)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%d.%d.%d", VMM_VERSION_MAJOR, VMM_VERSION_MINOR,
                   VMM_VERSION_PATCH);
    assert_string_equal(vmm_version(), text);
}

DRIVER_MAIN(NULL, NULL)
