/* Wrong pointers, missing arguments, wrong settings: each a status, and nothing changed. See stress.h. */
#include "stress.h"

#include "base/hostmem.h"

#include <string.h>

/* ---- Wrong pointers -------------------------------------------------------------------------- */

/* In, beside or far from the last block of a slot. */
static uint64_t wrong_address(const struct stress *stress, const struct operation *operation)
{
    const struct model_block *block = &stress->model.blocks[operation->c];
    const uint64_t granule = stress->driver->granule_bytes;
    const uint64_t addresses[] = { block->address + 1,
                                   block->address + 512,
                                   block->address - 512,
                                   block->address + block->block_bytes,
                                   block->address + block->block_bytes / 2,
                                   block->address / granule * granule,
                                   block->address + granule,
                                   block->address,
                                   (uintptr_t)stress,
                                   (uintptr_t)stress->cache,
                                   operation->number,
                                   block->address + operation->number,
                                   UINT64_MAX,
                                   UINT64_MAX - 511,
                                   0 };
    return addresses[operation->b % (sizeof addresses / sizeof addresses[0])];
}

static vmm_status wrong_call(struct stress *stress, unsigned call, void *address)
{
    switch (call) {
    case 0:
        return vmm_free(stress->cache, address);
    case 1:
        return vmm_record_stream(stress->cache, address, stress->streams[1]);
    case 2:
        return vmm_pin(stress->cache, address);
    default:
        return vmm_unpin(stress->cache, address);
    }
}

void operation_wrong(struct stress *stress, const struct operation *operation)
{
    static const char *const names[] = { "vmm_free of a wrong pointer",
                                         "vmm_record_stream of a wrong pointer",
                                         "vmm_pin of a wrong pointer",
                                         "vmm_unpin of a wrong pointer" };
    unsigned call = operation->a % 4;
    stress_stream_renew(stress, 1);
    uint64_t address = wrong_address(stress, operation);
    if (model_start(&stress->model, address) != NULL)
        return;
    stress->sums.misuses++;
    stress_enter(stress);
    vmm_status status = wrong_call(stress, call, (void *)(uintptr_t)address);
    stress_leave(stress);
    bool is_nothing = address == 0 && call == 0;
    unsigned legal = is_nothing ? STATUS_BIT(OK) : STATUS_BIT(ERR_UNKNOWN_POINTER);
    (void)stress_expect(stress, names[call], status, legal, 0);
    if (status == VMM_ERR_UNKNOWN_POINTER)
        stress_misuse_noted(stress);
}

/* ---- Missing arguments ----------------------------------------------------------------------- */

static int item_ignored(void *context, const vmm_item *item)
{
    (void)context;
    (void)item;
    return 0;
}

/* Structures with struct_size 0. */
static void sizes_missing(struct stress *stress)
{
    vmm_stats stats = { .struct_size = 8 };
    vmm_item item = { .struct_size = 8 };
    (void)stress_expect(stress, "vmm_stats_get without a size",
                        vmm_stats_get(stress->cache, &stats), STATUS_BIT(ERR_INVALID_ARGUMENT), 0);
    (void)stress_expect(stress, "vmm_find without a size", vmm_find(stress->cache, NULL, &item),
                        STATUS_BIT(ERR_INVALID_ARGUMENT), 0);
    (void)stress_expect(stress, "vmm_find of nothing",
                        vmm_find(stress->cache, NULL, &(vmm_item)VMM_ITEM_INIT),
                        STATUS_BIT(ERR_UNKNOWN_POINTER), 0);
}

/* X(call): in each, an argument is missing or invalid. */
#define MISSING_MAP(X)                                                                             \
    X(vmm_alloc(NULL, 1, NULL, &out))                                                              \
    X(vmm_alloc(cache, 1, NULL, NULL))                                                             \
    X(vmm_free(NULL, &out))                                                                        \
    X(vmm_record_stream(NULL, &out, NULL))                                                         \
    X(vmm_pin(NULL, &out))                                                                         \
    X(vmm_unpin(NULL, &out))                                                                       \
    X(vmm_trim(NULL, 0, NULL))                                                                     \
    X(vmm_compact(NULL, 0, NULL, NULL))                                                            \
    X(vmm_poll(NULL))                                                                              \
    X(vmm_wait(NULL))                                                                              \
    X(vmm_limit_set(NULL, 0))                                                                      \
    X(vmm_peers_add(NULL, 2))                                                                      \
    X(vmm_peers_get(cache, NULL))                                                                  \
    X(vmm_pool_create(cache, NULL, NULL))                                                          \
    X(vmm_pool_create(NULL, NULL, &pool))                                                          \
    X(vmm_alloc_from(pool, 1, NULL, &out))                                                         \
    X(vmm_pool_push(pool))                                                                         \
    X(vmm_pool_unroute(vmm_cache_pool(cache)))                                                     \
    X(vmm_pool_destroy(vmm_cache_pool(cache), 1))                                                  \
    X(vmm_stream_end(NULL, STRESS_NO_STREAM))                                                      \
    X(vmm_stream_end(cache, NULL))                                                                 \
    X(vmm_debug_check(NULL))                                                                       \
    X(vmm_stats_get(cache, NULL))                                                                  \
    X(vmm_stats_get(NULL, &stats))                                                                 \
    X(vmm_stats_reset_peak(NULL))                                                                  \
    X(vmm_walk(cache, NULL, NULL))                                                                 \
    X(vmm_walk(NULL, item_ignored, NULL))                                                          \
    X(vmm_find(cache, NULL, NULL))                                                                 \
    X(vmm_find(NULL, NULL, &item))                                                                 \
    X(vmm_summary_write(cache, NULL))                                                              \
    X(vmm_summary_write(NULL, stderr))                                                             \
    X(vmm_log_write(cache, NULL))                                                                  \
    X(vmm_device_memory(cache, NULL, &bytes))                                                      \
    X(vmm_device_memory(cache, &bytes, NULL))                                                      \
    X(vmm_listen(NULL, NULL, NULL))                                                                \
    X(vmm_debug_report(NULL, stderr))                                                              \
    X(vmm_debug_report(cache, NULL))                                                               \
    X(vmm_create(NULL, NULL))                                                                      \
    X(vmm_wait_stream(NULL, NULL))

enum {
#define MISSING_COUNT(call) +1
    MISSING_CALLS = MISSING_MAP(MISSING_COUNT)
#undef MISSING_COUNT
};

static vmm_status missing_call(vmm_cache *cache, unsigned number)
{
    vmm_pool *pool = NULL;
    vmm_item item = VMM_ITEM_INIT;
    vmm_stats stats = VMM_STATS_INIT;
    uint64_t bytes;
    void *out;
#define MISSING_TRY(call)                                                                          \
    if (number-- == 0)                                                                             \
        return call;
    MISSING_MAP(MISSING_TRY)
#undef MISSING_TRY
    return VMM_OK;
}

void operation_missing(struct stress *stress, const struct operation *operation)
{
    unsigned call = operation->a % MISSING_CALLS;
    stress->sums.misuses++;
    stress_enter(stress);
    vmm_status status = missing_call(stress->cache, call);
    stress_leave(stress);
    bool is_lost =
        status == VMM_ERR_LOST && stress->is_lost; /* looked at before other arguments are */
    if (status != VMM_ERR_INVALID_ARGUMENT && !is_lost)
        stress_trouble(stress, "missing argument %u: returned %s", call, vmm_status_name(status));
    if (vmm_block_bytes(NULL, 1) != 0 || vmm_destroy(NULL) != VMM_OK)
        stress_trouble(stress, "missing argument: something came of no cache");
    sizes_missing(stress);
}

/* ---- Wrong settings -------------------------------------------------------------------------- */

/* X(member, value): what no configuration may have. */
#define SPOIL_MAP(X)                                                                               \
    X(struct_size, (unsigned)value % 12)                                                           \
    X(struct_size, SIZE_MAX)                                                                       \
    X(device, -1 - value % 100)                                                                    \
    X(driver, (vmm_driver_kind)(100 + value))                                                      \
    X(no_caching, (vmm_switch)(100 + value))                                                       \
    X(footprint_permille, 1001 + (uint32_t)value)                                                  \
    X(reuse, (vmm_reuse)(100 + value))                                                             \
    X(compaction, (vmm_switch)(100 + value))                                                       \
    X(decay_thread, (vmm_switch)(100 + value))                                                     \
    X(zero, (vmm_switch)(100 + value))                                                             \
    X(debug, (vmm_debug_mode)(100 + value))                                                        \
    X(nvtx, (vmm_switch)(100 + value))                                                             \
    X(decay_thread, VMM_ON) /* and nothing to decay */

enum {
#define SPOIL_COUNT(member, value) +1
    SPOIL_FIELDS = SPOIL_MAP(SPOIL_COUNT)
#undef SPOIL_COUNT
};

static void config_spoil(vmm_config *config, unsigned number, int value)
{
#define SPOIL_TRY(member, wrong)                                                                   \
    if (number-- == 0)                                                                             \
        config->member = wrong;
    SPOIL_MAP(SPOIL_TRY)
#undef SPOIL_TRY
}

void operation_configure(struct stress *stress, const struct operation *operation)
{
    vmm_config config = VMM_CONFIG_INIT;
    vmm_cache *cache = NULL;
    config.driver = stress->kind;
    config_spoil(&config, operation->a % SPOIL_FIELDS, (int)(operation->number & 0xffffff));
    stress->sums.misuses++;
    stress_enter(stress);
    uint64_t outstanding = vmm__host_outstanding();
    vmm_status status = vmm_create(&config, &cache);
    bool has_left = vmm__host_outstanding() != outstanding;
    stress_leave(stress);
    if (stress_expect(stress, "vmm_create with wrong settings", status,
                      STATUS_BIT(ERR_INVALID_ARGUMENT), 0) ||
        cache != NULL)
        stress_trouble(stress, "vmm_create: accepted wrong settings");
    if (has_left)
        stress_trouble(stress, "vmm_create: left host memory");
}
