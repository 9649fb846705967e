/* A vmm_config of any bytes and any struct_size. */
#include "parser.h"

#include "api/config.h"

/* As much as the size says is there, or the size says less. */
static void size_fit(uint8_t *bytes, size_t count)
{
    size_t struct_size;
    memcpy(&struct_size, bytes, sizeof struct_size);
    if (struct_size > count && struct_size <= 4096) {
        struct_size = count;
        memcpy(bytes, &struct_size, sizeof struct_size);
    }
}

static void config_check(const vmm_config *config)
{
    must(config->struct_size == sizeof *config);
    must(config->device >= 0);
    must(config->driver >= VMM_DRIVER_DEFAULT && config->driver <= VMM_DRIVER_SIM);
    must((unsigned)config->no_caching <= VMM_OFF && (unsigned)config->zero <= VMM_OFF);
    must(config->footprint_permille <= 1000 || config->footprint_permille == VMM_FOOTPRINT_ANY);
    must((unsigned)config->reuse <= VMM_REUSE_STREAM_WAIT);
    must((unsigned)config->compaction <= VMM_OFF);
    must((unsigned)config->debug <= VMM_DEBUG_STOP && (unsigned)config->nvtx <= VMM_OFF);
    must((unsigned)config->decay_thread <= VMM_OFF);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    vmm_config out;
    if (bytes < sizeof(size_t))
        return 0;
    uint8_t *copy = malloc(bytes); /* aligned, and no longer than it is */
    must(copy != NULL);
    memcpy(copy, data, bytes);
    size_fit(copy, bytes);
    vmm_status status = vmm__config_read((const vmm_config *)copy, &out);
    if (status == VMM_OK)
        config_check(&out);
    else
        must((status == VMM_ERR_INVALID_ARGUMENT || status == VMM_ERR_UNSUPPORTED) &&
             strncmp(vmm_last_error(), "config: ", 8) == 0 && is_one_line(vmm_last_error()));
    free(copy);
    return 0;
}
