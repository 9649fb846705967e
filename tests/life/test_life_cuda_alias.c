/*
 * The cuda driver's self-test of one handle at two addresses: on devices that cannot do it a cache works all the
 * same, knows that it has no aliases, and says so in the log.
 */
#define _GNU_SOURCE
#include "life/cuda_support.h"

#include "cache/cache.h"

/* ---- Caches and their log ----------------------------------------------------------------------- */

/* Keeps the line about aliases. */
static void alias_line_keep(void *context, const char *line)
{
    char *kept = context;
    if (strstr(line, "two addresses") == NULL)
        return;
    CHILD_REQUIRES(kept[0] == '\0');
    (void)snprintf(kept, 512, "%s", line);
}

static vmm_status logged_cache_create(char line[512], vmm_config *config, vmm_cache **out)
{
    line[0] = '\0';
    config->driver = VMM_DRIVER_CUDA;
    config->arena_bytes = GIB;
    config->log = alias_line_keep;
    config->log_context = line;
    return vmm_create(config, out);
}

static void block_round_trip(vmm_cache *cache)
{
    void *block = NULL;
    CHILD_REQUIRES(vmm_alloc(cache, 3 * MIB, NULL, &block) == VMM_OK);
    CHILD_REQUIRES(vmm_free(cache, block) == VMM_OK);
}

/* Makes a cache and ends it; nothing of either, nor of the self-test, is left. */
static void alias_is_missing(const struct test_call *call)
{
    char line[512];
    vmm_cache *cache = NULL;
    vmm_config config = VMM_CONFIG_INIT;
    uint64_t host_bytes = vmm__host_outstanding();
    CHILD_REQUIRES(vmm_alloc(NULL, 1, NULL, NULL) != VMM_OK); /* leaves a line */
    char before[512];
    (void)snprintf(before, sizeof before, "%s", vmm_last_error());
    CHILD_REQUIRES(before[0] != '\0');
    CHILD_REQUIRES(logged_cache_create(line, &config, &cache) == VMM_OK);
    CHILD_REQUIRES(strcmp(vmm_last_error(), before) == 0);
    calls_succeed();
    step_is_told(call, "failed at ", line);
    CHILD_REQUIRES(strstr(line, "fake device 0 cannot map memory at two addresses") != NULL);
    CHILD_REQUIRES(!cache->driver->has_aliases);
    block_round_trip(cache);
    CHILD_REQUIRES(vmm_destroy(cache) == VMM_OK);
    nothing_is_left(host_bytes);
}

/* ---- Devices that can, and devices that lie ------------------------------------------------------ */

FAKE_TEST(a_device_with_aliases_is_known)
{
    char line[512];
    vmm_cache *cache = NULL;
    vmm_config config = VMM_CONFIG_INIT;
    CHILD_REQUIRES(logged_cache_create(line, &config, &cache) == VMM_OK);
    CHILD_REQUIRES(cache->driver->has_aliases && line[0] == '\0');
    CHILD_REQUIRES(vmm_destroy(cache) == VMM_OK);
    CHILD_REQUIRES(fake->taken(0) == 0);
}

struct lie {
    enum fake_alias alias;
    const char *step;
};

static void lying_device(void *context)
{
    const struct lie *lie = context;
    fake_open();
    fake->alias = lie->alias;
    alias_is_missing(&(struct test_call){ .call = "a lie", .step = lie->step });
    fake_check_misuses();
}

TEST(a_device_that_lies_about_aliases_is_found_out)
{
    static const struct lie lies[] = {
        { FAKE_ALIAS_REFUSED, "map" },
        { FAKE_ALIAS_OTHER_BYTES, "write and read" },
        { FAKE_ALIAS_BROKEN, "read after the unmap" },
    };
    for (unsigned i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct lie lie = lies[i];
        child_runs(lying_device, &lie);
    }
}

/* ---- Every call of that part fails in turn -------------------------------------------------------- */

/* The first calls of these names are those of the first mapping. */
static const struct test_call alias_calls[] = {
    { "cuMemAddressReserve", 2, "reserve" },
    { "cuMemMap", 2, "map" },
    { "cuMemSetAccess", 2, "set access" },
    { "cuMemsetD8Async", 2, "write and read" },
    { "cuMemcpyDtoHAsync_v2", 2, "write and read" },
    { "cuStreamSynchronize", 2, "write and read" },
    { "cuMemsetD8Async", 3, "write and read" },
    { "cuMemUnmap", 1, "unmap the first" },
    { "cuMemcpyDtoHAsync_v2", 3, "read after the unmap" },
    { "cuStreamSynchronize", 3, "read after the unmap" },
    { "cuMemUnmap", 2, "unmap the second" },
    { "cuMemAddressFree", 1, "address free" },
};

enum { ALIAS_CALLS = sizeof alias_calls / sizeof *alias_calls };

FAKE_TEST(a_refused_call_only_costs_the_aliases)
{
    static const int results[] = { CUDA_OOM, CUDA_NOT_SUPPORTED, CUDA_UNKNOWN };
    for (unsigned i = 0; i < ALIAS_CALLS; i++) {
        for (unsigned j = 0; j < sizeof results / sizeof *results; j++) {
            call_fail(&alias_calls[i], results[j]);
            alias_is_missing(&alias_calls[i]);
        }
    }
}

/* A device that is lost there is lost for vmm_create(), too. */
FAKE_TEST(a_device_that_is_lost_meanwhile_is_told)
{
    for (unsigned i = 0; i < ALIAS_CALLS; i++) {
        char line[512];
        vmm_cache *cache = NULL;
        vmm_config config = VMM_CONFIG_INIT;
        call_fail(&alias_calls[i], CUDA_ILLEGAL_ADDRESS);
        CHILD_REQUIRES(logged_cache_create(line, &config, &cache) == VMM_ERR_LOST && cache == NULL);
        CHILD_REQUIRES(strstr(vmm_last_error(), alias_calls[i].step) != NULL);
        calls_succeed();
        nothing_is_left(0);
    }
}

/* ---- Plain memory --------------------------------------------------------------------------------- */

CHILD_TEST(plain_memory_has_no_aliases)
{
    struct driver *driver = NULL;
    struct driver_options options = { .device_bytes = 64 * MIB, .is_plain = true };
    CHILD_REQUIRES(vmm__driver_cuda_open(&options, &driver) == VMM_OK);
    CHILD_REQUIRES(driver->is_plain && !driver->has_aliases);
    vmm__driver_close(driver);
}
