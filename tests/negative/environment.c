/* Environment variables with invalid values: a one-line error names the variable and quotes the value. */
#define _GNU_SOURCE
#include "negative.h"

#include "base/hostmem.h"

#include <stdlib.h>
#include <string.h>

static const struct setting {
    const char *name;
    const char *text;
} settings[] = {
    { "VMM_DRIVER", "CUDA" },
    { "VMM_DRIVER", " sim" },
    { "VMM_DRIVER", "sim,host" },
    { "VMM_DRIVER", "%s%n%x" },
    { "VMM_LIMIT", "0" },
    { "VMM_LIMIT", "-1" },
    { "VMM_LIMIT", "8GB" },
    { "VMM_LIMIT", "1e9" },
    { "VMM_LIMIT", "0x10" },
    { "VMM_LIMIT", "99999999999999999999" },
    { "VMM_LIMIT", "16777216TiB" },
    { "VMM_LIMIT", "0%" },
    { "VMM_LIMIT", "nan" },
    { "VMM_LIMIT", "." },
    { "VMM_LIMIT", "%" },
    { "VMM_LIMIT", "8GiB\nVMM_DRIVER=cuda" },
    { "VMM_NO_CACHING", "2" },
    { "VMM_NO_CACHING", "yes" },
    { "VMM_FOOTPRINT", "1001" },
    { "VMM_FOOTPRINT", "-1" },
    { "VMM_FOOTPRINT", "ANY" },
    { "VMM_FOOTPRINT", "99999999999999999999999" },
    { "VMM_REUSE", "Wait" },
    { "VMM_COMPACTION", "yes" },
    { "VMM_DECAY_MS", "4294967296" },
    { "VMM_DECAY_MS", "1s" },
    { "VMM_DECAY_MS", "+1" },
    { "VMM_DECAY_MS", " 1" },
    { "VMM_LOG", "/" },
    { "VMM_LOG", "/no/such/folder/log" },
    { "VMM_LIMIT", "80" },
    { "VMM_TRACE", "/no/such/folder/trace" },
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

static vmm_status set_wrong_value(struct stage *stage, uint64_t index)
{
    const struct setting *setting = &settings[index];
    must(setenv(setting->name, setting->text, 1) == 0);
    vmm_status status = create(stage);
    must(stage_error_says(setting->name));
    must(unsetenv(setting->name) == 0);
    return status;
}

/* A very long value: the error is still one short line. */
static vmm_status set_long_value(struct stage *stage, uint64_t index)
{
    enum { BYTES = 100000 };
    char *text = malloc(BYTES + 1);
    must(text != NULL);
    memset(text, '9', BYTES);
    text[BYTES] = '\0';
    must(setenv(settings[index].name, text, 1) == 0);
    free(text);
    vmm_status status = create(stage);
    must(stage_error_says(settings[index].name) && strlen(vmm_last_error()) < 300);
    must(unsetenv(settings[index].name) == 0);
    return status;
}

#define WRONG_VALUE(name, index) WRONG(name, set_wrong_value, index, "VMM_")
#define LONG_VALUE(name, index)  WRONG(name, set_long_value, index, "9999")

static const struct negative_case cases[] = {
    WRONG_VALUE("VMM_DRIVER=CUDA", 0),
    WRONG_VALUE("VMM_DRIVER with a blank", 1),
    WRONG_VALUE("VMM_DRIVER, two", 2),
    WRONG_VALUE("VMM_DRIVER, a format", 3),
    WRONG_VALUE("VMM_LIMIT=0", 4),
    WRONG_VALUE("VMM_LIMIT=-1", 5),
    WRONG_VALUE("VMM_LIMIT=8GB", 6),
    WRONG_VALUE("VMM_LIMIT=1e9", 7),
    WRONG_VALUE("VMM_LIMIT=0x10", 8),
    WRONG_VALUE("VMM_LIMIT of 20 digits", 9),
    WRONG_VALUE("VMM_LIMIT=16777216TiB", 10),
    WRONG_VALUE("VMM_LIMIT=0%", 11),
    WRONG_VALUE("VMM_LIMIT=nan", 12),
    WRONG_VALUE("VMM_LIMIT=.", 13),
    WRONG_VALUE("VMM_LIMIT=%", 14),
    WRONG_VALUE("VMM_LIMIT of two lines", 15),
    WRONG_VALUE("VMM_NO_CACHING=2", 16),
    WRONG_VALUE("VMM_NO_CACHING=yes", 17),
    WRONG_VALUE("VMM_FOOTPRINT=1001", 18),
    WRONG_VALUE("VMM_FOOTPRINT=-1", 19),
    WRONG_VALUE("VMM_FOOTPRINT=ANY", 20),
    WRONG_VALUE("VMM_FOOTPRINT of 23 digits", 21),
    WRONG_VALUE("VMM_REUSE=Wait", 22),
    WRONG_VALUE("VMM_COMPACTION=yes", 23),
    WRONG_VALUE("VMM_DECAY_MS=2^32", 24),
    WRONG_VALUE("VMM_DECAY_MS=1s", 25),
    WRONG_VALUE("VMM_DECAY_MS=+1", 26),
    WRONG_VALUE("VMM_DECAY_MS with a blank", 27),
    WRONG_VALUE("VMM_LOG, a folder", 28),
    WRONG_VALUE("VMM_LOG in no folder", 29),
    WRONG_VALUE("VMM_LIMIT below one chunk", 30),
    WRONG_VALUE("VMM_TRACE in no folder", 31),
    LONG_VALUE("VMM_DRIVER of 100000 bytes", 0),
    LONG_VALUE("VMM_LIMIT of 100000 bytes", 4),
    LONG_VALUE("VMM_NO_CACHING of 100000 bytes", 16),
    LONG_VALUE("VMM_FOOTPRINT of 100000 bytes", 18),
    LONG_VALUE("VMM_REUSE of 100000 bytes", 22),
    LONG_VALUE("VMM_COMPACTION of 100000 bytes", 23),
    LONG_VALUE("VMM_DECAY_MS of 100000 bytes", 24),
    LONG_VALUE("VMM_LOG of 100000 bytes", 28),
};

NEGATIVE_GROUP(negative_environment, "environment");
