/* Segments, page by page: see segment.h. */
#include "fragtest/policies/segment.h"

#include "base/error.h"

#include <stdlib.h>

struct segment *segment_create(struct driver *driver, uint64_t page_bytes, uint64_t pages,
                               vmm_status *status)
{
    struct segment *segment = calloc(1, sizeof(*segment) + pages * sizeof(segment->handles[0]));

    if (segment == NULL) {
        *status = vmm__error(VMM_ERR_HOST_OOM, "out of host memory for a segment");
        return NULL;
    }
    segment->page_bytes = page_bytes;
    segment->bytes = pages * page_bytes;
    *status = vmm__driver_reserve(driver, segment->bytes, 0, &segment->address);
    segment->place = segment->address;
    if (*status == VMM_OK)
        return segment;
    free(segment);
    return NULL;
}

vmm_status segment_destroy(struct driver *driver, struct segment *segment)
{
    vmm_status status = vmm__driver_address_free(driver, segment->address, segment->bytes);
    free(segment);
    return status;
}

static uint64_t *page_handle(struct segment *segment, uint64_t address)
{
    return &segment->handles[(address - segment->address) / segment->page_bytes];
}

vmm_status segment_unmap(struct driver *driver, struct segment *segment, uint64_t address,
                         uint64_t bytes)
{
    vmm_status first = VMM_OK;

    for (uint64_t at = address; at < address + bytes; at += segment->page_bytes) {
        vmm_status unmapped = vmm__driver_unmap(driver, at, segment->page_bytes);
        vmm_status released =
            vmm__driver_release(driver, *page_handle(segment, at), segment->page_bytes);
        if (first == VMM_OK)
            first = unmapped != VMM_OK ? unmapped : released;
    }
    return first;
}

static vmm_status page_map(struct driver *driver, struct segment *segment, uint64_t address)
{
    uint64_t *handle = page_handle(segment, address);
    vmm_status status = vmm__driver_create(driver, segment->page_bytes, false, handle);
    if (status != VMM_OK)
        return status;
    status = vmm__driver_map(driver, address, segment->page_bytes, *handle);
    if (status != VMM_OK)
        (void)vmm__driver_release(driver, *handle, segment->page_bytes);
    return status;
}

vmm_status segment_map(struct driver *driver, struct segment *segment, uint64_t address,
                       uint64_t bytes)
{
    vmm_status status = VMM_OK;
    uint64_t at = address;

    for (; at < address + bytes; at += segment->page_bytes) {
        status = page_map(driver, segment, at);
        if (status != VMM_OK)
            break;
    }
    if (status == VMM_OK)
        status = vmm__driver_access(driver, address, bytes);
    if (status != VMM_OK)
        (void)segment_unmap(driver, segment, address, at - address);
    return status;
}
