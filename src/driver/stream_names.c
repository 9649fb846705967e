/* Names of streams that were made and destroyed: see stream_names.h. */
#include "driver/stream_names.h"

#include "base/error.h"
#include "base/hostmem.h"

/* They count up from here, far from what tests make up themselves. */
#define FIRST_NAME UINT64_C(0x51a0000000000000)

vmm_stream vmm__stream_names_take(struct stream_names *names)
{
    if (names->gone_count > 0)
        return names->gone[--names->gone_count];
    return (vmm_stream)(uintptr_t)(FIRST_NAME + ++names->made);
}

bool vmm__stream_names_drop(struct stream_names *names, vmm_stream name)
{
    if (names->gone_count == names->gone_capacity) {
        uint32_t capacity = names->gone_capacity == 0 ? 8 : names->gone_capacity * 2;
        vmm_stream *gone = vmm__host_resize(names->gone, names->gone_capacity * sizeof *gone,
                                            capacity * sizeof *gone);
        if (gone == NULL)
            return false;
        names->gone = gone;
        names->gone_capacity = capacity;
    }
    names->gone[names->gone_count++] = name;
    return true;
}

vmm_status vmm__stream_names_check(const struct stream_names *names, const char *call,
                                   vmm_stream name)
{
    for (uint32_t i = 0; i < names->gone_count; i++) {
        if (names->gone[i] == name)
            return vmm__error(VMM_ERR_INVALID_ARGUMENT, "%s: stream %p was destroyed", call, name);
    }
    return VMM_OK;
}

void vmm__stream_names_fini(struct stream_names *names)
{
    vmm__host_free(names->gone, names->gone_capacity * sizeof *names->gone);
}
