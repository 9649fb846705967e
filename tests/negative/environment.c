/* Environment variables with invalid values: a one-line error names the variable and quotes the value. */
#define _GNU_SOURCE
#include "negative.h"

#include "base/hostmem.h"

#include <stdlib.h>
#include <string.h>

struct setting {
    const char *name;
    const char *text;
};

static vmm_status create(struct stage *stage)
{
    static const char *const chosen[] = { "", "cuda", "host", "sim" };
    vmm_config config = stage_config();
    must(setenv("VMM_DRIVER", chosen[config.driver], 0) == 0);
    config.driver = VMM_DRIVER_DEFAULT;
    uint64_t host_bytes = vmm__host_outstanding();
    vmm_cache *cache = stage->cache;
    vmm_status status = vmm_create(&config, &cache);
    must(status != VMM_OK && cache == stage->cache);
    must(vmm__host_outstanding() == host_bytes);
    return status;
}

static vmm_status set_wrong_value(struct stage *stage, uint64_t value)
{
    const struct setting *setting = (const struct setting *)(uintptr_t)value;
    must(setenv(setting->name, setting->text, 1) == 0);
    vmm_status status = create(stage);
    must(stage_error_says(setting->name));
    must(strchr(setting->text, '\n') != NULL || stage_error_says(setting->text));
    must(unsetenv(setting->name) == 0);
    return status;
}

/* A very long value: the error is still one short line. */
static vmm_status set_long_value(struct stage *stage, uint64_t value)
{
    enum { BYTES = 100000 };
    const char *name = (const char *)(uintptr_t)value;
    char *text = malloc(BYTES + 1);
    must(text != NULL);
    memset(text, '9', BYTES);
    text[BYTES] = '\0';
    must(setenv(name, text, 1) == 0);
    free(text);
    vmm_status status = create(stage);
    must(stage_error_says(name) && strlen(vmm_last_error()) < 300);
    must(unsetenv(name) == 0);
    return status;
}

#define WRONG_VALUE(title, name, text)                                                             \
    WRONG(title, set_wrong_value, (uintptr_t) & ((const struct setting){ name, text }), "VMM_")
#define LONG_VALUE(name) WRONG(name " of 100000 bytes", set_long_value, (uintptr_t)name, "9999")

static const struct negative_case cases[] = {
    WRONG_VALUE("VMM_DRIVER=CUDA", "VMM_DRIVER", "CUDA"),
    WRONG_VALUE("VMM_DRIVER with a blank", "VMM_DRIVER", " sim"),
    WRONG_VALUE("VMM_DRIVER, two", "VMM_DRIVER", "sim,host"),
    WRONG_VALUE("VMM_DRIVER, a format", "VMM_DRIVER", "%s%n%x"),
    WRONG_VALUE("VMM_LIMIT=0", "VMM_LIMIT", "0"),
    WRONG_VALUE("VMM_LIMIT=-1", "VMM_LIMIT", "-1"),
    WRONG_VALUE("VMM_LIMIT=8GB", "VMM_LIMIT", "8GB"),
    WRONG_VALUE("VMM_LIMIT=1e9", "VMM_LIMIT", "1e9"),
    WRONG_VALUE("VMM_LIMIT=0x10", "VMM_LIMIT", "0x10"),
    WRONG_VALUE("VMM_LIMIT of 20 digits", "VMM_LIMIT", "99999999999999999999"),
    WRONG_VALUE("VMM_LIMIT=16777216TiB", "VMM_LIMIT", "16777216TiB"),
    WRONG_VALUE("VMM_LIMIT=0%", "VMM_LIMIT", "0%"),
    WRONG_VALUE("VMM_LIMIT=nan", "VMM_LIMIT", "nan"),
    WRONG_VALUE("VMM_LIMIT=.", "VMM_LIMIT", "."),
    WRONG_VALUE("VMM_LIMIT=%", "VMM_LIMIT", "%"),
    WRONG_VALUE("VMM_LIMIT of two lines", "VMM_LIMIT", "8GiB\nVMM_DRIVER=cuda"),
    WRONG_VALUE("VMM_NO_CACHING=2", "VMM_NO_CACHING", "2"),
    WRONG_VALUE("VMM_NO_CACHING=yes", "VMM_NO_CACHING", "yes"),
    WRONG_VALUE("VMM_FOOTPRINT=1001", "VMM_FOOTPRINT", "1001"),
    WRONG_VALUE("VMM_FOOTPRINT=-1", "VMM_FOOTPRINT", "-1"),
    WRONG_VALUE("VMM_FOOTPRINT=ANY", "VMM_FOOTPRINT", "ANY"),
    WRONG_VALUE("VMM_FOOTPRINT of 23 digits", "VMM_FOOTPRINT", "99999999999999999999999"),
    WRONG_VALUE("VMM_REUSE=Wait", "VMM_REUSE", "Wait"),
    WRONG_VALUE("VMM_COMPACTION=yes", "VMM_COMPACTION", "yes"),
    WRONG_VALUE("VMM_DECAY_MS=2^32", "VMM_DECAY_MS", "4294967296"),
    WRONG_VALUE("VMM_DECAY_MS=1s", "VMM_DECAY_MS", "1s"),
    WRONG_VALUE("VMM_DECAY_MS=+1", "VMM_DECAY_MS", "+1"),
    WRONG_VALUE("VMM_DECAY_MS with a blank", "VMM_DECAY_MS", " 1"),
    WRONG_VALUE("VMM_LOG, a folder", "VMM_LOG", "/"),
    WRONG_VALUE("VMM_LOG in no folder", "VMM_LOG", "/no/such/folder/log"),
    WRONG_VALUE("VMM_LIMIT below one chunk", "VMM_LIMIT", "80"),
    WRONG_VALUE("VMM_TRACE in no folder", "VMM_TRACE", "/no/such/folder/trace"),
    LONG_VALUE("VMM_DRIVER"),
    LONG_VALUE("VMM_LIMIT"),
    LONG_VALUE("VMM_NO_CACHING"),
    LONG_VALUE("VMM_FOOTPRINT"),
    LONG_VALUE("VMM_REUSE"),
    LONG_VALUE("VMM_COMPACTION"),
    LONG_VALUE("VMM_DECAY_MS"),
    LONG_VALUE("VMM_LOG"),
};

NEGATIVE_GROUP(negative_environment, "environment");
