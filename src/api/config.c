/* Reads the configuration: see config.h. */
#define _GNU_SOURCE
#include "api/config.h"
#include "base/arith.h"
#include "base/error.h"
#include "base/size.h"
#include "base/variable.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { FOOTPRINT_MOST = 1000, WORDS_BYTES = 80 };

/* A claim that is longer is not believed: see cache/reclaim/answer.c. */
enum { NEIGHBOURS_WAIT_MS = 200, NEIGHBOURS_WAIT_MOST = 60000 };

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

/* The words of each variable. Word i selects the value i + 1, because 0 is the default. */
#define WORDS_MOST 5
static const char *const no_words[WORDS_MOST] = { NULL };
static const char *const switch_words[WORDS_MOST] = { "on", "off" };
static const char *const driver_words[WORDS_MOST] = { "cuda", "host", "sim" };
static const char *const reuse_words[WORDS_MOST] = { "any_use", "declared", "stream_wait" };
static const char *const clock_words[WORDS_MOST] = { "context", "streams" };
static const char *const debug_words[WORDS_MOST] = { "on", "off", "record", "stop" };

/* A field of an enumeration type with the values 0 to `most`. */
struct choice {
    const char *field;
    const char *type;
    size_t offset;
    int most;
    int otherwise;            /* the value if the environment does not set it */
    const char *variable;     /* NULL: none */
    const char *const *words; /* of the variable */
};

#define CHOICE(field, type, most, otherwise, variable, words)                                      \
    {                                                                                              \
#field, #type, offsetof(vmm_config, field), most, otherwise, variable, words               \
    }
#define SWITCH(field, variable, words) CHOICE(field, vmm_switch, VMM_OFF, VMM_OFF, variable, words)

/* Without VMM_DRIVER, the driver stays VMM_DRIVER_DEFAULT, so that vmm_create() can suggest the other drivers. */
static const struct choice choices[] = {
    CHOICE(driver, vmm_driver_kind, VMM_DRIVER_SIM, VMM_DRIVER_DEFAULT, "VMM_DRIVER", driver_words),
    SWITCH(no_caching, "VMM_NO_CACHING", switch_words),
    CHOICE(reuse, vmm_reuse, VMM_REUSE_STREAM_WAIT, VMM_REUSE_ANY_USE, "VMM_REUSE", reuse_words),
    SWITCH(compaction, "VMM_COMPACTION", switch_words),
    SWITCH(decay_thread, NULL, no_words),
    SWITCH(zero, "VMM_ZERO", switch_words),
    CHOICE(debug, vmm_debug_mode, VMM_DEBUG_STOP, VMM_DEBUG_OFF, "VMM_DEBUG", debug_words),
    SWITCH(nvtx, "VMM_NVTX", switch_words),
    SWITCH(shareable, "VMM_SHAREABLE", switch_words),
    CHOICE(views, vmm_switch, VMM_OFF, VMM_ON, "VMM_VIEWS", switch_words),
    CHOICE(clock_kind, vmm_clock_kind, VMM_CLOCK_STREAMS, VMM_CLOCK_CONTEXT, "VMM_CLOCK",
           clock_words),
    SWITCH(announces_captures, "VMM_ANNOUNCES_CAPTURES", switch_words),
    SWITCH(neighbours, "VMM_NEIGHBOURS", switch_words),
    SWITCH(neighbours_pressure, "VMM_NEIGHBOURS_PRESSURE", switch_words),
};
enum { CHOICES = sizeof choices / sizeof *choices };

static int choice_get(const vmm_config *config, const struct choice *choice)
{
    int value;
    memcpy(&value, (const char *)config + choice->offset, sizeof value);
    return value;
}

static void choice_set(vmm_config *config, const struct choice *choice, int value)
{
    memcpy((char *)config + choice->offset, &value, sizeof value);
}

static vmm_status fields_check(const vmm_config *config)
{
    if (config->device < 0)
        return field_wrong("device", config->device, "not an ordinal");
    for (int i = 0; i < CHOICES; i++) {
        int value = choice_get(config, &choices[i]);
        if (value < 0 || value > choices[i].most)
            return vmm__error(VMM_ERR_INVALID_ARGUMENT, "config: %s is %d, not a value of %s",
                              choices[i].field, value, choices[i].type);
    }
    if (config->footprint_permille > FOOTPRINT_MOST &&
        config->footprint_permille != VMM_FOOTPRINT_ANY)
        return field_wrong("footprint_permille", config->footprint_permille,
                           "not 0 to 1000 or VMM_FOOTPRINT_ANY");
    if (config->neighbours_wait_ms > NEIGHBOURS_WAIT_MOST)
        return field_wrong("neighbours_wait_ms", config->neighbours_wait_ms, "more than a minute");
    return VMM_OK;
}

/* Replaces values that mean "default" or "none" by the value in effect. */
static void defaults_fill(vmm_config *config)
{
    if (config->decay_ms == VMM_NO_DECAY)
        config->decay_ms = 0;
    if (config->decay_thread == VMM_DEFAULT && config->decay_ms != 0 && config->clock == NULL)
        config->decay_thread = VMM_ON;
    for (int i = 0; i < CHOICES; i++) {
        if (choice_get(config, &choices[i]) == 0)
            choice_set(config, &choices[i], choices[i].otherwise);
    }
    if (config->neighbours_wait_ms == 0)
        config->neighbours_wait_ms = NEIGHBOURS_WAIT_MS;
}

vmm_status vmm__config_settle(vmm_config *config)
{
    defaults_fill(config);
    if (config->decay_thread == VMM_ON && config->decay_ms == 0)
        return field_wrong("decay_thread", VMM_ON, "but decay_ms is 0: there is no decay");
    if (config->nvtx == VMM_ON && config->compaction != VMM_OFF)
        return field_wrong("nvtx", VMM_ON,
                           "but compaction is not off: NVTX cannot follow moved bytes");
    if (config->nvtx == VMM_ON && (config->zero == VMM_ON || config->debug != VMM_DEBUG_OFF))
        return field_wrong("nvtx", VMM_ON,
                           "but zero or debug is on: a tool would report their writes");
    return VMM_OK;
}

vmm_status vmm__options_read(const struct options_kind *kind, const void *options, void *out)
{
    size_t size;
    if (options == NULL)
        return VMM_OK;
    memcpy(&size, options, sizeof size);
    if (size < kind->least_bytes || size > STRUCT_BYTES_MOST)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "%s: struct_size is %zu; use %s", kind->what,
                          size, kind->init);
    if (size > kind->bytes &&
        !is_zero((const unsigned char *)options + kind->bytes, size - kind->bytes))
        return vmm__error(VMM_ERR_UNSUPPORTED,
                          "%s: a field after byte %zu is set, which version %s does not know",
                          kind->what, kind->bytes, vmm_version());
    memcpy(out, options, vmm__min(kind->bytes, size));
    memcpy(out, &kind->bytes, sizeof kind->bytes);
    return VMM_OK;
}

vmm_status vmm__config_read(const vmm_config *config, vmm_config *out)
{
    static const struct options_kind kind = { .what = "config",
                                              .init = "VMM_CONFIG_INIT",
                                              .least_bytes = offsetof(vmm_config, device) +
                                                             sizeof config->device,
                                              .bytes = sizeof *out };
    *out = (vmm_config)VMM_CONFIG_INIT;
    vmm_status status = vmm__options_read(&kind, config, out);
    return status == VMM_OK && config != NULL ? fields_check(out) : status;
}

/* Reads the variable of a field, if the program left the field at its default. */
static vmm_status choice_read(const struct choice *choice, vmm_config *config)
{
    const char *text = choice->variable == NULL ? NULL : vmm__variable(choice->variable);
    if (text == NULL || choice_get(config, choice) != 0)
        return VMM_OK;
    for (int i = 0; i < choice->most; i++) {
        if (vmm__variable_is(text, choice->words[i])) {
            choice_set(config, choice, i + 1);
            return VMM_OK;
        }
    }
    char known[WORDS_BYTES] = "";
    for (int i = 0; i < choice->most; i++)
        (void)snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s",
                       i == 0 ? "" : ", ", choice->words[i]);
    return vmm__error(VMM_ERR_INVALID_ARGUMENT, "%s=%.40s: not one of: %s", choice->variable, text,
                      known);
}

/* `others`: values besides numbers, as the error line names them. */
static vmm_status number_read(const char *name, uint32_t most, const char *others, uint32_t *field)
{
    const char *text = vmm__variable(name);
    if (text == NULL || *field != 0)
        return VMM_OK;
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || value > most)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "%s=%.40s: not a number from 0 to %lu%s", name,
                          text, (unsigned long)most, others);
    *field = (uint32_t)value;
    return VMM_OK;
}

static vmm_status footprint_read(vmm_config *config)
{
    const char *text = vmm__variable("VMM_FOOTPRINT");
    if (text != NULL && config->footprint_permille == 0 && strcmp(text, "any") == 0) {
        config->footprint_permille = VMM_FOOTPRINT_ANY;
        return VMM_OK;
    }
    return number_read("VMM_FOOTPRINT", FOOTPRINT_MOST, " or any", &config->footprint_permille);
}

/* Reads the variables of neighbours that are no switches. */
static vmm_status neighbours_read(vmm_config *config)
{
    const char *floor = vmm__variable("VMM_NEIGHBOURS_FLOOR");
    if (config->neighbours_name == NULL)
        config->neighbours_name = vmm__variable("VMM_NEIGHBOURS_NAME");
    if (floor != NULL && config->neighbours_floor_bytes == 0 &&
        !vmm__size_parse(floor, &config->neighbours_floor_bytes))
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "VMM_NEIGHBOURS_FLOOR=%.40s: not a size such as 8GiB", floor);
    vmm_status status =
        number_read("VMM_NEIGHBOURS_PRIORITY", UINT32_MAX, "", &config->neighbours_priority);
    if (status != VMM_OK)
        return status;
    return number_read("VMM_NEIGHBOURS_WAIT_MS", NEIGHBOURS_WAIT_MOST, "",
                       &config->neighbours_wait_ms);
}

vmm_status vmm__config_environment(vmm_config *config)
{
    vmm_status status = VMM_OK;
    for (int i = 0; i < CHOICES && status == VMM_OK; i++)
        status = choice_read(&choices[i], config);
    if (status == VMM_OK)
        status = footprint_read(config);
    if (status == VMM_OK)
        status = number_read("VMM_DECAY_MS", UINT32_MAX, "", &config->decay_ms);
    return status == VMM_OK ? neighbours_read(config) : status;
}

vmm_status vmm__config_log(struct vmm_cache *cache)
{
    const char *log = vmm__variable("VMM_LOG");
    if (log == NULL || cache->log != NULL)
        return VMM_OK;
    if (strcmp(log, "stderr") == 0) {
        cache->log_file = stderr;
        return VMM_OK;
    }
    cache->log_file = fopen(log, "ae");
    if (cache->log_file == NULL)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "VMM_LOG=%.200s: %s", log, strerror(errno));
    (void)setvbuf(cache->log_file, NULL, _IONBF, 0); /* a line that fails is not written again */
    return VMM_OK;
}
