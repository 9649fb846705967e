/* What can be made to fail: see calls.h. */
#include "calls.h"

#include <errno.h>

struct call_row {
    const char *name;
    int codes[SWEEP_CODES]; /* 0 ends them */
};

/* Any call can find the context gone, host memory out, or something else wrong. */
#define DRIVER_CALL_ROW(name, ...)                                                                 \
    [DRIVER_CALL_##                                                                                \
        name] = { #name, { VMM_ERR_DRIVER, VMM_ERR_HOST_OOM, VMM_ERR_LOST, __VA_ARGS__ } }
#define PLAIN_ROW(name)     DRIVER_CALL_ROW(name, 0),
#define CALL_ROW(name, ...) [SWEEP_CALL_##name] = { #name, { __VA_ARGS__ } },

static const struct call_row calls[SWEEP_CALLS] = {
    DRIVER_CALL_ROW(reserve, VMM_ERR_ADDRESS_SPACE),
    DRIVER_CALL_ROW(address_free, 0),
    DRIVER_CALL_ROW(create, VMM_ERR_DEVICE_OOM),
    DRIVER_CALL_ROW(release, 0),
    DRIVER_CALL_ROW(map, VMM_ERR_DEVICE_OOM),
    DRIVER_CALL_ROW(unmap, 0),
    DRIVER_CALL_ROW(access, VMM_ERR_DEVICE_OOM),
    DRIVER_CALL_ROW(memory_info, 0),
    DRIVER_CALL_ROW(peers_check, VMM_ERR_UNSUPPORTED),
    DRIVER_CALL_ROW(share_export, 0),
    DRIVER_CALL_ROW(share_import, VMM_ERR_DEVICE_OOM),
    DRIVER_CALL_ROW(fabric_check, VMM_ERR_UNSUPPORTED),
    DRIVER_CALL_ROW(fabric_export, 0),
    DRIVER_CALL_ROW(fabric_import, VMM_ERR_DEVICE_OOM),
    DRIVER_CALL_ROW(dmabuf_export, VMM_ERR_UNSUPPORTED),
    DRIVER_CALL_ROW(share_release, 0),
    DRIVER_CALL_ROW(pin, 0),
    DRIVER_CALL_ROW(unpin, 0),
    DRIVER_CALL_ROW(event_create, 0),
    DRIVER_CALL_ROW(event_destroy, 0),
    DRIVER_CALL_ROW(event_record, 0),
    DRIVER_CALL_ROW(clock_record, VMM__PENDING),
    DRIVER_CALL_ROW(event_query, VMM__PENDING),
    DRIVER_CALL_ROW(event_wait, 0),
    DRIVER_CALL_ROW(stream_wait, 0),
    DRIVER_CALL_ROW(device_wait, 0),
    DRIVER_CALL_ROW(capturing, 0),
    DRIVER_CALL_ROW(stream_create, 0),
    DRIVER_CALL_ROW(stream_destroy, 0),
    DRIVER_CALL_ROW(copy, 0),
    DRIVER_CALL_ROW(clear, 0),
    DRIVER_CALL_ROW(read, 0),
    DRIVER_CALL_ROW(save, 0),
    DRIVER_CALL_ROW(load, 0),
    SWEEP_MEMORY_MAP(CALL_ROW) SWEEP_SYSTEM_MAP(CALL_ROW)
};

static const struct {
    const char *name;
    int code;
} errors[] = {
    { "ENOMEM", ENOMEM }, { "EAGAIN", EAGAIN },   { "ENFILE", ENFILE },
    { "EINVAL", EINVAL }, { "EACCES", EACCES },   { "EMFILE", EMFILE },
    { "ENOSYS", ENOSYS }, { "EFBIG", EFBIG },     { "EPERM", EPERM },
    { "EINTR", EINTR },   { "ENOSPC", ENOSPC },   { "EOPNOTSUPP", EOPNOTSUPP },
    { "EPIPE", EPIPE },   { "ENOBUFS", ENOBUFS }, { "ECONNRESET", ECONNRESET },
};

enum { ERRORS = sizeof errors / sizeof errors[0] };

enum sweep_group sweep_call_group(unsigned call)
{
    if (call < DRIVER_CALL_COUNT)
        return GROUP_DRIVER;
    return call <= SWEEP_CALL_LAST_MEMORY ? GROUP_MEMORY : GROUP_SYSTEM;
}

const char *sweep_call_name(unsigned call)
{
    return calls[call].name;
}

unsigned sweep_code_count(unsigned call)
{
    unsigned count = 0;
    while (count < SWEEP_CODES && calls[call].codes[count] != 0)
        count++;
    return count;
}

int sweep_code(unsigned call, unsigned index)
{
    return calls[call].codes[index];
}

unsigned sweep_code_index(unsigned call, int code)
{
    unsigned count = sweep_code_count(call);
    unsigned index = 0;
    while (index < count && calls[call].codes[index] != code)
        index++;
    return index < count ? index : SWEEP_CODES;
}

const char *sweep_code_name(enum sweep_group group, int code)
{
    if (group == GROUP_DRIVER)
        return vmm_status_name((vmm_status)code);
    for (unsigned i = 0; i < ERRORS; i++) {
        if (errors[i].code == code)
            return errors[i].name;
    }
    return "?";
}
