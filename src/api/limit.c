/*
 * The limit of a cache whose program sets none: VMM_LIMIT, then what MPS allows this process on the device. See
 * config.h.
 */
#include "api/config.h"
#include "base/error.h"
#include "base/size.h"
#include "base/variable.h"

#include <stdio.h>
#include <string.h>

/* A share of the memory that is free, which other processes do not hold, when the cache is created. */
#define FREE_SUFFIX "%free"

#define VMM_VARIABLE "VMM_LIMIT"
#define MPS_VARIABLE "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"

enum { TEXT_BYTES = 64, UUID_TEXT_BYTES = 41 };

/* ---- VMM_LIMIT ----------------------------------------------------------------------------- */

/* The number before FREE_SUFFIX, with a percent sign. False: the text has no such suffix. */
static bool free_share_cut(const char *text, char share[TEXT_BYTES])
{
    size_t length = strlen(text);
    size_t suffix = strlen(FREE_SUFFIX);
    if (length <= suffix || length >= TEXT_BYTES ||
        strcmp(text + length - suffix, FREE_SUFFIX) != 0)
        return false;
    (void)snprintf(share, TEXT_BYTES, "%.*s%%", (int)(length - suffix), text);
    return true;
}

/* Reads the whole that a share is a part of: the device's memory, or what is free of it. */
static vmm_status whole_read(struct driver *driver, bool is_of_free, uint64_t *whole)
{
    uint64_t total_bytes;
    *whole = driver->total_bytes;
    return is_of_free ? vmm__driver_memory_info(driver, whole, &total_bytes) : VMM_OK;
}

static vmm_status variable_read(struct driver *driver, const char *text, uint64_t *bytes)
{
    char share[TEXT_BYTES];
    uint64_t whole;
    bool is_of_free = free_share_cut(text, share);
    vmm_status status = whole_read(driver, is_of_free, &whole);
    if (status != VMM_OK)
        return status;
    bool is_read = vmm__size_or_share_parse(is_of_free ? share : text, whole, bytes);
    bool is_share = is_of_free || text[strlen(text) - 1] == '%';
    if (is_read && is_share && *bytes > whole)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "VMM_LIMIT=%.40s: more than 100%% of the %s",
                          text, is_of_free ? "free memory" : "device");
    if (!is_read || *bytes == 0)
        return vmm__error(
            VMM_ERR_INVALID_ARGUMENT,
            "VMM_LIMIT=%.40s: neither a size such as 8GiB nor a share such as 80%% or "
            "80%%free",
            text);
    return VMM_OK;
}

/* ---- MPS ----------------------------------------------------------------------------------- */

/* As MPS and nvidia-smi name a device: "GPU-" and the UUID. */
static void uuid_write(const unsigned char uuid[DRIVER_UUID_BYTES], char text[UUID_TEXT_BYTES])
{
    size_t length = (size_t)snprintf(text, UUID_TEXT_BYTES, "GPU");
    for (int i = 0; i < DRIVER_UUID_BYTES; i++) {
        bool begins_group = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
        length += (size_t)snprintf(text + length, UUID_TEXT_BYTES - length, "%s%02x",
                                   begins_group ? "-" : "", uuid[i]);
    }
}

/* "4G", also with a B behind it, which MPS accepts. */
static bool mps_size_parse(const char *text, size_t length, uint64_t *bytes)
{
    char size[TEXT_BYTES];
    bool has_b = length > 1 && text[length - 1] == 'B' && strchr("KMGT", text[length - 2]) != NULL;
    length -= has_b ? 1 : 0;
    if (length == 0 || length >= sizeof size)
        return false;
    (void)snprintf(size, sizeof size, "%.*s", (int)length, text);
    return vmm__size_parse(size, bytes) && *bytes > 0;
}

/* Whether the name before the `=` is that of the device. */
static bool mps_names(const char *name, size_t length, const char *ordinal, const char *uuid)
{
    return (strlen(ordinal) == length && memcmp(name, ordinal, length) == 0) ||
           (strlen(uuid) == length && memcmp(name, uuid, length) == 0);
}

uint64_t vmm__limit_of_mps(const char *text, int device,
                           const unsigned char uuid[DRIVER_UUID_BYTES])
{
    char ordinal[TEXT_BYTES];
    char uuid_text[UUID_TEXT_BYTES];
    (void)snprintf(ordinal, sizeof ordinal, "%d", device);
    uuid_write(uuid, uuid_text);
    while (*text != '\0') {
        size_t name = strcspn(text, "=,");
        size_t entry = strcspn(text, ",");
        uint64_t bytes;
        if (name < entry && mps_names(text, name, ordinal, uuid_text) &&
            mps_size_parse(text + name + 1, entry - name - 1, &bytes))
            return bytes;
        text += entry + (text[entry] == ',' ? 1 : 0);
    }
    return 0;
}

/* ---- Both ---------------------------------------------------------------------------------- */

const char *vmm__limit_variable(void)
{
    return vmm__variable(VMM_VARIABLE) != NULL ? VMM_VARIABLE : MPS_VARIABLE;
}

vmm_status vmm__config_limit(struct driver *driver, vmm_config *config)
{
    const char *limit = vmm__variable(VMM_VARIABLE);
    const char *mps = vmm__variable(MPS_VARIABLE);
    bool is_cuda = config->driver == VMM_DRIVER_DEFAULT || config->driver == VMM_DRIVER_CUDA;
    if (config->limit_bytes != 0)
        return VMM_OK;
    if (limit != NULL)
        return variable_read(driver, limit, &config->limit_bytes);
    if (mps != NULL && is_cuda)
        config->limit_bytes = vmm__limit_of_mps(mps, config->device, driver->uuid);
    return VMM_OK;
}
