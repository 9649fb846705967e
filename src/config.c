/* Reading the configuration: see config.h. */
#define _GNU_SOURCE
#include "config.h"
#include "base/arith.h"
#include "base/error.h"
#include "base/size.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* No version will have a larger vmm_config: more is a struct_size that nobody set. */
enum { STRUCT_BYTES_MOST = 4096 };

static bool is_zero(const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != 0)
            return false;
    }
    return true;
}

vmm_status vmm__config_read(const vmm_config *config, vmm_config *out)
{
    *out = (vmm_config)VMM_CONFIG_INIT;
    if (config == NULL)
        return VMM_OK;
    size_t known = sizeof *out;
    if (config->struct_size < sizeof config->struct_size + sizeof config->device ||
        config->struct_size > STRUCT_BYTES_MOST)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "config: struct_size is %zu; use VMM_CONFIG_INIT", config->struct_size);
    if (config->struct_size > known &&
        !is_zero((const unsigned char *)config + known, config->struct_size - known))
        return vmm__error(VMM_ERR_UNSUPPORTED,
                          "config: a field beyond byte %zu is set that version %s does not know",
                          known, vmm_version());
    memcpy(out, config, vmm__min(known, config->struct_size));
    out->struct_size = known;
    if (out->device < 0)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "config: device is %d", out->device);
    if ((int)out->driver < VMM_DRIVER_AUTO || (int)out->driver > VMM_DRIVER_SIM)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "config: driver %d is not a driver kind",
                          (int)out->driver);
    if (out->no_caching != 0 && out->no_caching != 1)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "config: no_caching is %d, not 0 or 1",
                          out->no_caching);
    return VMM_OK;
}

vmm_status vmm__config_environment(vmm_config *config)
{
    const char *driver = secure_getenv("VMM_DRIVER");
    if (driver != NULL && *driver != '\0' && config->driver == VMM_DRIVER_AUTO &&
        !vmm__driver_kind_parse(driver, &config->driver))
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "VMM_DRIVER=%.40s: not one of auto, cuda, host, sim", driver);
    const char *no_caching = secure_getenv("VMM_NO_CACHING");
    if (no_caching == NULL || *no_caching == '\0' || config->no_caching)
        return VMM_OK;
    if (strcmp(no_caching, "0") != 0 && strcmp(no_caching, "1") != 0)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "VMM_NO_CACHING=%.40s: neither 0 nor 1",
                          no_caching);
    config->no_caching = *no_caching == '1';
    return VMM_OK;
}

vmm_status vmm__config_limit(uint64_t device_bytes, vmm_config *config)
{
    const char *limit = secure_getenv("VMM_LIMIT");
    if (limit == NULL || *limit == '\0' || config->limit_bytes != 0)
        return VMM_OK;
    if (!vmm__size_or_share_parse(limit, device_bytes, &config->limit_bytes) ||
        config->limit_bytes == 0)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "VMM_LIMIT=%.40s: neither a size such as 8GiB nor a share such as 80%%",
                          limit);
    return VMM_OK;
}

vmm_status vmm__config_log(struct vmm_cache *cache)
{
    const char *log = secure_getenv("VMM_LOG");
    if (log == NULL || *log == '\0' || cache->log != NULL)
        return VMM_OK;
    if (strcmp(log, "stderr") == 0) {
        cache->log_file = stderr;
        return VMM_OK;
    }
    cache->log_file = fopen(log, "ae");
    if (cache->log_file == NULL)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "VMM_LOG=%.200s: %s", log, strerror(errno));
    return VMM_OK;
}
