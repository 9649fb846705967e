/* Configurations with a field out of range, or with the struct of another version. */
#include "negative.h"

#include "base/hostmem.h"

#include <limits.h>
#include <string.h>

/* Creates a second cache. A refusal allocates nothing and leaves the handle unchanged. */
static vmm_status create(struct stage *stage, const vmm_config *config)
{
    uint64_t host_bytes = vmm__host_outstanding();
    vmm_cache *cache = stage->cache;
    vmm_status status = vmm_create(config, &cache);
    if (status == VMM_OK)
        must(cache != stage->cache && vmm_destroy(cache) == VMM_OK);
    else
        must(cache == stage->cache);
    must(vmm__host_outstanding() == host_bytes);
    return status;
}

/* Encodes a field by its offset, and 32 bits of its value. */
#define FIELD(name)      ((uint64_t)offsetof(vmm_config, name) << 32)
#define SET(name, value) (FIELD(name) | (uint32_t)(value))

static vmm_status field_set(struct stage *stage, uint64_t value)
{
    vmm_config config = stage_config();
    uint32_t bits = (uint32_t)value;
    memcpy((char *)&config + (value >> 32), &bits, sizeof bits);
    return create(stage, &config);
}

static vmm_status field_fill(struct stage *stage, uint64_t value)
{
    vmm_config config = stage_config();
    memset((char *)&config + (value >> 32), 0xff, sizeof(uint64_t));
    return create(stage, &config);
}

static vmm_status size_set(struct stage *stage, uint64_t struct_size)
{
    vmm_config config = stage_config();
    config.struct_size = struct_size;
    return create(stage, &config);
}

/* The struct of a later version, whose new fields hold `tail`. */
static vmm_status create_newer(struct stage *stage, uint64_t tail)
{
    struct {
        vmm_config config;
        uint64_t tail[8];
    } later = { .config = stage_config(), .tail = { [7] = tail } };
    later.config.struct_size = sizeof later;
    return create(stage, &later.config);
}

static vmm_status create_newer_last_byte(struct stage *stage, uint64_t struct_size)
{
    _Alignas(vmm_config) unsigned char bytes[4096] = { 0 };
    vmm_config config = stage_config();
    config.struct_size = struct_size;
    memcpy(bytes, &config, sizeof config);
    bytes[struct_size - 1] = 1;
    return create(stage, (const vmm_config *)bytes);
}

/* The struct of every earlier version: all fields up to one of them. The bytes after it are not read. */
static vmm_status create_older(struct stage *stage, uint64_t value)
{
    (void)value;
    static const size_t sizes[] = {
        offsetof(vmm_config, device_bytes), offsetof(vmm_config, no_caching),
        offsetof(vmm_config, log),          offsetof(vmm_config, footprint_permille),
        offsetof(vmm_config, decay_ms),     offsetof(vmm_config, clock),
        offsetof(vmm_config, pressure),     offsetof(vmm_config, peer_devices),
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        vmm_config config;
        vmm_config whole = stage_config();
        memset(&config, 0xff, sizeof config);
        memcpy(&config, &whole, sizes[i] < sizeof whole ? sizes[i] : sizeof whole);
        config.struct_size = sizes[i];
        must_ok(create(stage, &config));
    }
    return VMM_OK;
}

static vmm_status create_filled(struct stage *stage, uint64_t byte)
{
    vmm_config config;
    memset(&config, (int)byte, sizeof config);
    return create(stage, &config);
}

static vmm_status create_filled_with_size(struct stage *stage, uint64_t byte)
{
    vmm_config config;
    memset(&config, (int)byte, sizeof config);
    config.struct_size = sizeof config;
    return create(stage, &config);
}

static vmm_status create_for_missing_device(struct stage *stage, uint64_t value)
{
    vmm_config config = stage_config();
    config.device = (int)value;
    vmm_status status = create(stage, &config);
    if (config.driver == VMM_DRIVER_CUDA) {
        must(status == VMM_ERR_NO_DEVICE && stage_error_says("2147483647"));
        return VMM_OK;
    }
    return status; /* the other drivers have any number of devices */
}

static vmm_status create_tiny(struct stage *stage, uint64_t value)
{
    vmm_config config = stage_config();
    config.limit_bytes = value;
    vmm_cache *cache = NULL;
    void *out = stage;
    must_be(VMM_ERR_INVALID_ARGUMENT, vmm_create(&config, &cache));
    must(cache == NULL && stage_error_says("config: limit_bytes: "));
    must(stage_error_says("the limit is 1 bytes, but the smallest chunk has"));
    config.limit_bytes = 0;
    config.arena_bytes = value;
    must_ok(vmm_create(&config, &cache));
    must_be(VMM_ERR_ADDRESS_SPACE, vmm_alloc(cache, UINT64_C(1) << 40, NULL, &out));
    must(out == stage && stage_error_says("arena"));
    must_ok(vmm_destroy(cache));
    return VMM_OK;
}

/* Device sizes that sim and host refuse; cuda ignores the field. */
static vmm_status create_device_bytes(struct stage *stage, uint64_t device_bytes)
{
    vmm_config config = stage_config();
    config.device_bytes = device_bytes;
    vmm_status status = create(stage, &config);
    if (config.driver == VMM_DRIVER_CUDA) {
        must(status == VMM_OK);
        return VMM_OK;
    }
    must(status == VMM_ERR_INVALID_ARGUMENT && stage_error_says("device_bytes"));
    return VMM_OK;
}

#define WRONG_FIELD(field, value)                                                                  \
    {                                                                                              \
#field " is " #value, NULL, field_set, SET(field, value), VMM_ERR_INVALID_ARGUMENT,        \
            "config: " #field " is ", false                                                        \
    }
#define FINE(name, call, value)                                                                    \
    {                                                                                              \
        name, NULL, call, value, VMM_OK, NULL, false                                               \
    }

static const struct negative_case cases[] = {
    WRONG_FIELD(device, -1),
    WRONG_FIELD(device, INT_MIN),
    WRONG_FIELD(driver, -1),
    WRONG("driver is 4", field_set, SET(driver, 4), "config: driver is 4,"),
    WRONG_FIELD(driver, INT_MAX),
    WRONG_FIELD(no_caching, 3),
    WRONG_FIELD(no_caching, -1),
    WRONG_FIELD(footprint_permille, 1001),
    WRONG_FIELD(footprint_permille, UINT32_MAX - 1),
    WRONG_FIELD(reuse, 4),
    WRONG_FIELD(clock_kind, 3),
    WRONG_FIELD(announces_captures, 3),
    WRONG_FIELD(neighbours, 3),
    WRONG_FIELD(neighbours_pressure, -1),
    WRONG_FIELD(neighbours_wait_ms, 60001),
    WRONG_FIELD(reuse, -1),
    WRONG_FIELD(compaction, 3),
    WRONG_FIELD(compaction, -1),
    WRONG_FIELD(decay_thread, 3),
    WRONG_FIELD(decay_thread, -1),
    WRONG("decay_thread without decay_ms", field_set, SET(decay_thread, 1), "decay_ms is 0"),
    WRONG_FIELD(zero, 3),
    WRONG_FIELD(debug, 5),
    WRONG("no_caching of another type", field_set, SET(no_caching, -1),
          "no_caching is -1, not a value of vmm_switch"),
    WRONG("struct_size 0", size_set, 0, "struct_size is 0; use VMM_CONFIG_INIT"),
    WRONG("struct_size 1", size_set, 1, "struct_size is 1;"),
    WRONG("struct_size 8", size_set, 8, "struct_size is 8;"),
    WRONG("struct_size 11", size_set, 11, "struct_size is 11;"),
    WRONG("struct_size 4097", size_set, 4097, "struct_size is 4097;"),
    WRONG("struct_size 100000", size_set, 100000, "struct_size is 100000;"),
    WRONG("struct_size SIZE_MAX / 2", size_set, SIZE_MAX / 2, "struct_size is "),
    WRONG("struct_size SIZE_MAX", size_set, SIZE_MAX, "struct_size is 18446744073709551615;"),
    WRONG("struct_size of an address", size_set, 0x7fff12345678, "struct_size is "),
    WRONG("all zeros", create_filled, 0, "struct_size is 0;"),
    WRONG("all ones", create_filled, 0xff, "struct_size is "),
    WRONG("all 0x5a", create_filled, 0x5a, "struct_size is "),
    WRONG("all ones except the size", create_filled_with_size, 0xff, "config: device is -1"),
    WRONG("all 0x5a except the size", create_filled_with_size, 0x5a, "config: driver is "),
    { "a later version, with a new field set", NULL, create_newer, 1, VMM_ERR_UNSUPPORTED,
      "does not know", false },
    { "a later version, with its last byte set", NULL, create_newer_last_byte, 4096,
      VMM_ERR_UNSUPPORTED, "does not know", false },
    FINE("a later version, with new fields zero", create_newer, 0),
    FINE("earlier versions", create_older, 0),
    FINE("all peers", field_fill, FIELD(peer_devices)),
    FINE("an arena of 2^64 - 1", field_fill, FIELD(arena_bytes)),
    FINE("a limit of 2^64 - 1", field_fill, FIELD(limit_bytes)),
    FINE("keep all idle memory", field_fill, FIELD(decay_keep_bytes)),
    FINE("decay_ms of 49 days", field_set, SET(decay_ms, UINT32_MAX)),
    FINE("limit and arena of 1 byte", create_tiny, 1),
    FINE("a device of 1 byte", create_device_bytes, 1),
    FINE("a device of 2^64 - 1", create_device_bytes, UINT64_MAX),
    FINE("device INT_MAX", create_for_missing_device, INT_MAX),
};

NEGATIVE_GROUP(negative_config, "configuration");
