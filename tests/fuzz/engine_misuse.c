/* Wrong pointers, missing arguments, wrong settings: each a status, and nothing changed. See engine.h. */
#include "engine.h"

#include "base/hostmem.h"

#include <string.h>

/* ---- Wrong pointers -------------------------------------------------------------------------- */

/* In, beside or far from the last block of a slot. */
static uint64_t wrong_address(const struct engine *engine, const struct operation *operation)
{
    const struct model_block *block = &engine->model.blocks[operation->c];
    const uint64_t granule = engine->driver->granule_bytes;
    const uint64_t addresses[] = { block->address + 1,
                                   block->address + 512,
                                   block->address - 512,
                                   block->address + block->block_bytes,
                                   block->address + block->block_bytes / 2,
                                   block->address / granule * granule,
                                   block->address + granule,
                                   block->address,
                                   (uintptr_t)engine,
                                   (uintptr_t)engine->cache,
                                   operation->number,
                                   block->address + operation->number,
                                   UINT64_MAX,
                                   UINT64_MAX - 511,
                                   0 };
    return addresses[operation->b % (sizeof addresses / sizeof addresses[0])];
}

static vmm_status wrong_call(struct engine *engine, unsigned call, void *address)
{
    switch (call) {
    case 0:
        return vmm_free(engine->cache, address);
    case 1:
        return vmm_use(engine->cache, address, engine->streams[1]);
    case 2:
        return vmm_pin(engine->cache, address);
    default:
        return vmm_unpin(engine->cache, address);
    }
}

void operation_wrong(struct engine *engine, const struct operation *operation)
{
    static const char *const names[] = { "vmm_free of a wrong pointer",
                                         "vmm_use of a wrong pointer", "vmm_pin of a wrong pointer",
                                         "vmm_unpin of a wrong pointer" };
    unsigned call = operation->a % 4;
    engine_stream_renew(engine, 1);
    uint64_t address = wrong_address(engine, operation);
    if (model_start(&engine->model, address) != NULL)
        return;
    engine->sums.misuses++;
    engine_enter(engine);
    vmm_status status = wrong_call(engine, call, (void *)(uintptr_t)address);
    engine_leave(engine);
    bool is_nothing = address == 0 && call == 0;
    unsigned legal = is_nothing ? STATUS_BIT(OK) : STATUS_BIT(ERR_UNKNOWN_POINTER);
    (void)engine_expect(engine, names[call], status, legal, 0);
    if (status == VMM_ERR_UNKNOWN_POINTER)
        engine_misuse_noted(engine);
}

/* ---- Missing arguments ----------------------------------------------------------------------- */

static int item_ignored(void *context, const vmm_item *item)
{
    (void)context;
    (void)item;
    return 0;
}

/* Structures whose size nobody set. */
static void sizes_missing(struct engine *engine)
{
    vmm_stats stats = { .struct_size = 8 };
    vmm_item item = { .struct_size = 8 };
    (void)engine_expect(engine, "vmm_stats_get without a size",
                        vmm_stats_get(engine->cache, &stats), STATUS_BIT(ERR_INVALID_ARGUMENT), 0);
    (void)engine_expect(engine, "vmm_find without a size", vmm_find(engine->cache, NULL, &item),
                        STATUS_BIT(ERR_INVALID_ARGUMENT), 0);
    (void)engine_expect(engine, "vmm_find of nothing",
                        vmm_find(engine->cache, NULL, &(vmm_item)VMM_ITEM_INIT),
                        STATUS_BIT(ERR_UNKNOWN_POINTER), 0);
}

/* Calls that change memory. */
static vmm_status missing_memory_call(vmm_cache *cache, unsigned call)
{
    static const vmm_pool_id zeros = { 0, 0 };
    static const vmm_pool_id id = { 77, 77 };
    void *out;
    switch (call) {
    case 0:
        return vmm_alloc(NULL, 1, NULL, &out);
    case 1:
        return vmm_alloc(cache, 1, NULL, NULL);
    case 2:
        return vmm_free(NULL, &out);
    case 3:
        return vmm_use(NULL, &out, NULL);
    case 4:
        return vmm_pin(NULL, &out);
    case 5:
        return vmm_unpin(NULL, &out);
    case 6:
        return vmm_trim(NULL, 0, NULL);
    case 7:
        return vmm_tick(NULL);
    case 8:
        return vmm_wait(NULL);
    case 9:
        return vmm_limit_set(NULL, 0);
    case 10:
        return vmm_pool_begin(NULL, id, NULL, NULL);
    case 11:
        return vmm_pool_begin(cache, zeros, NULL, NULL);
    case 12:
        return vmm_pool_end(cache, zeros);
    case 13:
        return vmm_pool_end(cache, id);
    case 14:
        return vmm_pool_release(cache, zeros);
    case 15:
        return vmm_pool_release(cache, id);
    case 16:
        return vmm_stream_end(NULL, ENGINE_NO_STREAM);
    case 17:
        return vmm_stream_end(cache, NULL);
    default:
        return vmm_guard_check(NULL);
    }
}

static vmm_status missing_report_call(vmm_cache *cache, unsigned call)
{
    vmm_item item = VMM_ITEM_INIT;
    vmm_stats stats = VMM_STATS_INIT;
    uint64_t bytes;
    switch (call) {
    case 0:
        return vmm_stats_get(cache, NULL);
    case 1:
        return vmm_stats_get(NULL, &stats);
    case 2:
        return vmm_stats_reset_peak(NULL);
    case 3:
        return vmm_walk(cache, NULL, NULL);
    case 4:
        return vmm_walk(NULL, item_ignored, NULL);
    case 5:
        return vmm_find(cache, NULL, NULL);
    case 6:
        return vmm_find(NULL, NULL, &item);
    case 7:
        return vmm_summary_write(cache, NULL);
    case 8:
        return vmm_summary_write(NULL, stderr);
    case 9:
        return vmm_log_write(cache, NULL);
    case 10:
        return vmm_device_memory(cache, NULL, &bytes);
    case 11:
        return vmm_device_memory(cache, &bytes, NULL);
    case 12:
        return vmm_watch(NULL, NULL, NULL);
    case 13:
        return vmm_misuse_write(NULL, stderr);
    case 14:
        return vmm_misuse_write(cache, NULL);
    default:
        return vmm_create(NULL, NULL);
    }
}

void operation_missing(struct engine *engine, const struct operation *operation)
{
    enum { MEMORY_CALLS = 19, REPORT_CALLS = 16 };
    unsigned call = operation->a % (MEMORY_CALLS + REPORT_CALLS);
    engine->sums.misuses++;
    engine_enter(engine);
    vmm_status status = call < MEMORY_CALLS
                            ? missing_memory_call(engine->cache, call)
                            : missing_report_call(engine->cache, call - MEMORY_CALLS);
    engine_leave(engine);
    bool is_lost =
        status == VMM_ERR_LOST && engine->is_lost; /* looked at before other arguments are */
    if (status != VMM_ERR_INVALID_ARGUMENT && !is_lost)
        engine_trouble(engine, "missing argument %u: returned %s", call, vmm_status_name(status));
    if (vmm_block_bytes(NULL, 1) != 0 || vmm_destroy(NULL) != VMM_OK)
        engine_trouble(engine, "missing argument: something came of no cache");
    sizes_missing(engine);
}

/* ---- Wrong settings -------------------------------------------------------------------------- */

static void config_spoil(vmm_config *config, unsigned field, int value)
{
    switch (field) {
    case 0:
        config->struct_size = (unsigned)value % 12;
        break;
    case 1:
        config->struct_size = SIZE_MAX;
        break;
    case 2:
        config->device = -1 - value % 100;
        break;
    case 3:
        config->driver = (vmm_driver_kind)(4 + value);
        break;
    case 4:
        config->no_caching = 2 + value;
        break;
    case 5:
        config->footprint_permille = 1001 + (uint32_t)value;
        break;
    case 6:
        config->sharing = (vmm_sharing)(2 + value);
        break;
    case 7:
        config->compaction = (vmm_compaction)(3 + value);
        break;
    case 8:
        config->decay_thread = 2 + value;
        break;
    case 9:
        config->zero = 2 + value;
        break;
    case 10:
        config->guard = (vmm_guard)(4 + value);
        break;
    default:
        config->decay_thread = 1; /* and nothing to decay */
        break;
    }
}

void operation_configure(struct engine *engine, const struct operation *operation)
{
    enum { FIELDS = 12 };
    vmm_config config = VMM_CONFIG_INIT;
    vmm_cache *cache = NULL;
    uint64_t outstanding = vmm__host_outstanding();
    config.driver = VMM_DRIVER_SIM;
    config_spoil(&config, operation->a % FIELDS, (int)(operation->number & 0xffffff));
    engine->sums.misuses++;
    engine_enter(engine);
    vmm_status status = vmm_create(&config, &cache);
    engine_leave(engine);
    if (engine_expect(engine, "vmm_create with wrong settings", status,
                      STATUS_BIT(ERR_INVALID_ARGUMENT), 0) ||
        cache != NULL)
        engine_trouble(engine, "vmm_create: accepted wrong settings");
    if (vmm__host_outstanding() != outstanding)
        engine_trouble(engine, "vmm_create: left host memory");
}
