/* The environment variables of the library: the input is lines of the form NAME=TEXT. */
#include "parser.h"

#include "api/config.h"
#include "driver/sim/sim.h"

static const char *const names[] = { "VMM_DRIVER",     "VMM_LIMIT",
                                     "VMM_NO_CACHING", "VMM_REUSE",
                                     "VMM_COMPACTION", "VMM_FOOTPRINT",
                                     "VMM_DECAY_MS",   "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" };
enum { NAMES = sizeof names / sizeof names[0] };

/* Only the library's own: others' belong to this process. VMM_LOG names a file, and any name will do. */
static void line_set(char *line)
{
    for (int i = 0; i < NAMES; i++) {
        size_t length = strlen(names[i]);
        if (strncmp(line, names[i], length) == 0 && line[length] == '=')
            must(setenv(names[i], line + length + 1, 1) == 0);
    }
}

static void config_check(const vmm_config *config)
{
    must(config->driver >= VMM_DRIVER_DEFAULT && config->driver <= VMM_DRIVER_SIM);
    must((unsigned)config->no_caching <= VMM_OFF);
    must(config->footprint_permille <= 1000 || config->footprint_permille == VMM_FOOTPRINT_ANY);
    must((unsigned)config->reuse <= VMM_REUSE_STREAM_WAIT);
    must((unsigned)config->compaction <= VMM_OFF);
}

static void refusal_check(vmm_status status)
{
    must(status == VMM_ERR_INVALID_ARGUMENT && is_one_line(vmm_last_error()));
    bool is_named = false;
    for (int i = 0; i < NAMES; i++)
        is_named |= strncmp(vmm_last_error(), names[i], strlen(names[i])) == 0;
    must(is_named);
}

/* A device of 141 GiB, kept for all inputs. */
static struct driver *device(void)
{
    static struct driver *driver;
    struct driver_options options = { .device_bytes = UINT64_C(141) << 30 };
    if (driver == NULL)
        must(vmm__driver_sim_open(&options, &driver) == VMM_OK);
    return driver;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = text_of(data, bytes);
    char *rest = NULL;
    vmm_config config = VMM_CONFIG_INIT;
    for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
        line_set(line);
    vmm_status status = vmm__config_environment(&config);
    if (status == VMM_OK)
        status = vmm__config_limit(device(), &config);
    if (status == VMM_OK)
        config_check(&config);
    else
        refusal_check(status);
    for (int i = 0; i < NAMES; i++)
        must(unsetenv(names[i]) == 0);
    free(text);
    return 0;
}
