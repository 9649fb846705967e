/* Pinned ranges of host memory: see pins.h. */
#include "driver/pins.h"

#include "base/arith.h"
#include "base/error.h"

#include <inttypes.h>

static uint64_t address_of(const void *host)
{
    return (uint64_t)(uintptr_t)host;
}

static bool pin_overlaps(const struct pin *pin, uint64_t address, uint64_t bytes)
{
    return address < pin->address + pin->bytes && pin->address < address + bytes;
}

vmm_status vmm__pins_add(struct pins *pins, struct pin *pin, const void *host, uint64_t bytes)
{
    uint64_t end;
    const struct pin *at = pins->first;
    if (bytes == 0 || !vmm__add_checked(address_of(host), bytes, &end))
        return vmm__error(VMM_ERR_DRIVER, "pin(%p, %" PRIu64 "): not a range of memory", host,
                          bytes);
    while (at != NULL && !pin_overlaps(at, address_of(host), bytes))
        at = at->next;
    if (at != NULL)
        return vmm__error(VMM_ERR_DRIVER,
                          "pin(%p, %" PRIu64 "): overlaps %" PRIu64 " bytes at 0x%" PRIx64
                          " that are pinned",
                          host, bytes, at->bytes, at->address);
    *pin = (struct pin){ .next = pins->first, .address = address_of(host), .bytes = bytes };
    pins->first = pin;
    return VMM_OK;
}

struct pin *vmm__pins_take(struct pins *pins, const void *host, uint64_t bytes)
{
    struct pin **link = &pins->first;
    while (*link != NULL && (*link)->address != address_of(host))
        link = &(*link)->next;
    struct pin *found = *link;
    if (found == NULL || found->bytes != bytes) {
        (void)vmm__error(VMM_ERR_DRIVER, "unpin(%p, %" PRIu64 "): not exactly one pinned range",
                         host, bytes);
        return NULL;
    }
    *link = found->next;
    return found;
}

struct pin *vmm__pins_take_any(struct pins *pins)
{
    struct pin *first = pins->first;
    if (first != NULL)
        pins->first = first->next;
    return first;
}

struct pin *vmm__pins_find(const struct pins *pins, const void *host, uint64_t bytes)
{
    for (struct pin *pin = pins->first; pin != NULL; pin = pin->next) {
        uint64_t offset = address_of(host) - pin->address;
        if (offset < pin->bytes && bytes <= pin->bytes - offset)
            return pin;
    }
    return NULL;
}

vmm_status vmm__pins_check(const struct pins *pins, const char *call,
                           const struct driver_piece *pieces, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (vmm__pins_find(pins, pieces[i].host, pieces[i].bytes) == NULL)
            return vmm__error(VMM_ERR_DRIVER, "%s: %" PRIu64 " bytes at %p are not pinned", call,
                              pieces[i].bytes, pieces[i].host);
    }
    return VMM_OK;
}
