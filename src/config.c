/* Reading the configuration: see config.h. */
#define _GNU_SOURCE
#include "config.h"
#include "base/arith.h"
#include "base/error.h"
#include "base/size.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FOOTPRINT_MOST = 1000, WORDS_BYTES = 80 };

static bool is_zero(const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != 0)
            return false;
    }
    return true;
}

static vmm_status field_wrong(const char *field, long long value, const char *what)
{
    return vmm__error(VMM_ERR_INVALID_ARGUMENT, "config: %s is %lld, %s", field, value, what);
}

static vmm_status fields_check(const vmm_config *config)
{
    if (config->device < 0)
        return field_wrong("device", config->device, "not an ordinal");
    if ((int)config->driver < VMM_DRIVER_AUTO || (int)config->driver > VMM_DRIVER_SIM)
        return field_wrong("driver", (int)config->driver, "not a driver kind");
    if (config->no_caching != 0 && config->no_caching != 1)
        return field_wrong("no_caching", config->no_caching, "not 0 or 1");
    if (config->footprint_permille > FOOTPRINT_MOST &&
        config->footprint_permille != VMM_FOOTPRINT_ANY)
        return field_wrong("footprint_permille", config->footprint_permille,
                           "not 1 to 1000 or VMM_FOOTPRINT_ANY");
    if ((int)config->sharing < VMM_SHARING_FINISHED || (int)config->sharing > VMM_SHARING_WAIT)
        return field_wrong("sharing", (int)config->sharing, "not a way of sharing");
    if ((int)config->compaction < VMM_COMPACTION_OFF || (int)config->compaction > VMM_COMPACTION_ON)
        return field_wrong("compaction", (int)config->compaction, "not a kind of compaction");
    if (config->zero != 0 && config->zero != 1)
        return field_wrong("zero", config->zero, "not 0 or 1");
    if ((int)config->guard < VMM_GUARD_OFF || (int)config->guard > VMM_GUARD_STOP)
        return field_wrong("guard", (int)config->guard, "not a kind of guard");
    if (config->marks != 0 && config->marks != 1)
        return field_wrong("marks", config->marks, "not 0 or 1");
    if (config->decay_thread != 0 && config->decay_thread != 1)
        return field_wrong("decay_thread", config->decay_thread, "not 0 or 1");
    return VMM_OK;
}

vmm_status vmm__config_settle(const vmm_config *config)
{
    if (config->decay_thread == 1 && config->decay_ms == 0)
        return field_wrong("decay_thread", 1, "but decay_ms is 0: nothing would decay");
    if (config->marks == 1 && config->compaction != VMM_COMPACTION_OFF)
        return field_wrong("marks", 1, "but compaction is not off: marks do not move with bytes");
    if (config->marks == 1 && (config->zero != 0 || config->guard != VMM_GUARD_OFF))
        return field_wrong("marks", 1,
                           "but zero or guard is on: a tool would report what they write");
    return VMM_OK;
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
    return fields_check(out);
}

/* The environment's text for a field; NULL if it is not set, or empty. */
static const char *variable(const char *name)
{
    const char *text = secure_getenv(name);
    return text == NULL || *text == '\0' ? NULL : text;
}

/* Which of some words a variable says; `given`, the field's value, stands if it is set already. */
static vmm_status word_read(const char *name, const char *const *words, int given, int *out)
{
    const char *text = variable(name);
    *out = given;
    if (text == NULL || given != 0)
        return VMM_OK;
    for (int i = 0; words[i] != NULL; i++) {
        if (strcmp(text, words[i]) == 0) {
            *out = i;
            return VMM_OK;
        }
    }
    char known[WORDS_BYTES] = "";
    for (int i = 0; words[i] != NULL; i++)
        (void)snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s",
                       i == 0 ? "" : ", ", words[i]);
    return vmm__error(VMM_ERR_INVALID_ARGUMENT, "%s=%.40s: not one of the words that it knows: %s",
                      name, text, known);
}

static vmm_status number_read(const char *name, uint32_t most, uint32_t *field)
{
    const char *text = variable(name);
    if (text == NULL || *field != 0)
        return VMM_OK;
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || value > most)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "%s=%.40s: not a number from 0 to %lu", name,
                          text, (unsigned long)most);
    *field = (uint32_t)value;
    return VMM_OK;
}

static vmm_status footprint_read(vmm_config *config)
{
    const char *text = variable("VMM_FOOTPRINT");
    if (text != NULL && config->footprint_permille == 0 && strcmp(text, "any") == 0) {
        config->footprint_permille = VMM_FOOTPRINT_ANY;
        return VMM_OK;
    }
    return number_read("VMM_FOOTPRINT", FOOTPRINT_MOST, &config->footprint_permille);
}

static vmm_status choices_read(vmm_config *config)
{
    static const char *const no_caching[] = { "0", "1", NULL };
    static const char *const marks[] = { "0", "1", NULL };
    static const char *const sharing[] = { "finished", "wait", NULL };
    static const char *const compaction[] = { "off", "auto", "on", NULL };
    static const char *const zero[] = { "0", "1", NULL };
    static const char *const guard[] = { "off", "record", "on", "stop", NULL };
    int choice = 0;
    vmm_status status = word_read("VMM_NO_CACHING", no_caching, config->no_caching, &choice);
    if (status != VMM_OK)
        return status;
    config->no_caching = choice;
    status = word_read("VMM_MARKS", marks, config->marks, &choice);
    if (status != VMM_OK)
        return status;
    config->marks = choice;
    status = word_read("VMM_SHARING", sharing, (int)config->sharing, &choice);
    if (status != VMM_OK)
        return status;
    config->sharing = (vmm_sharing)choice;
    status = word_read("VMM_COMPACTION", compaction, (int)config->compaction, &choice);
    if (status != VMM_OK)
        return status;
    config->compaction = (vmm_compaction)choice;
    status = word_read("VMM_ZERO", zero, config->zero, &choice);
    if (status != VMM_OK)
        return status;
    config->zero = choice;
    status = word_read("VMM_GUARD", guard, (int)config->guard, &choice);
    if (status == VMM_OK)
        config->guard = (vmm_guard)choice;
    return status;
}

vmm_status vmm__config_environment(vmm_config *config)
{
    const char *driver = variable("VMM_DRIVER");
    if (driver != NULL && config->driver == VMM_DRIVER_AUTO &&
        !vmm__driver_kind_parse(driver, &config->driver))
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "VMM_DRIVER=%.40s: not one of auto, cuda, host, sim", driver);
    vmm_status status = choices_read(config);
    if (status == VMM_OK)
        status = footprint_read(config);
    if (status == VMM_OK)
        status = number_read("VMM_DECAY_MS", UINT32_MAX, &config->decay_ms);
    return status;
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
