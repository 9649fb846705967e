/* Pinned memory of the drivers without a GPU: records of it only, to check P8. See soft.h, S4. */
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "driver/soft/soft.h"

#include <inttypes.h>

static uint64_t address_of(const void *host)
{
    return (uint64_t)(uintptr_t)host;
}

static bool pin_overlaps(const struct soft_pin *pin, uint64_t address, uint64_t bytes)
{
    return address < pin->address + pin->bytes && pin->address < address + bytes;
}

static vmm_status pin_check(const struct soft *soft, const void *host, uint64_t bytes)
{
    uint64_t end;
    const struct soft_pin *at = soft->pins;
    if (bytes == 0 || !vmm__add_checked(address_of(host), bytes, &end))
        return vmm__error(VMM_ERR_DRIVER, "pin(%p, %" PRIu64 "): not a range of memory", host,
                          bytes);
    while (at != NULL && !pin_overlaps(at, address_of(host), bytes))
        at = at->next;
    if (at == NULL)
        return VMM_OK;
    return vmm__error(VMM_ERR_DRIVER,
                      "pin(%p, %" PRIu64 "): overlaps %" PRIu64 " bytes at 0x%" PRIx64
                      " that are pinned",
                      host, bytes, at->bytes, at->address);
}

vmm_status vmm__soft_pin(struct soft *soft, void *host, uint64_t bytes)
{
    vmm_status status = pin_check(soft, host, bytes);
    if (status != VMM_OK)
        return status;
    struct soft_pin *pin = vmm__host_alloc(1, soft->backing->pin_bytes);
    if (pin == NULL)
        return vmm__soft_refuse(soft, VMM_ERR_HOST_OOM, "pin", bytes,
                                "out of host memory for its record");
    *pin = (struct soft_pin){ .next = soft->pins, .address = address_of(host), .bytes = bytes };
    soft->pins = pin;
    soft_charge(soft, DRIVER_CALL_pin, bytes, NULL);
    return VMM_OK;
}

static void pin_remove(struct soft *soft, struct soft_pin **link)
{
    struct soft_pin *pin = *link;
    *link = pin->next;
    if (soft->backing->pin_end != NULL)
        soft->backing->pin_end(soft, pin);
    vmm__host_free(pin, soft->backing->pin_bytes);
}

vmm_status vmm__soft_unpin(struct soft *soft, void *host, uint64_t bytes)
{
    struct soft_pin **link = &soft->pins;
    while (*link != NULL && (*link)->address != address_of(host))
        link = &(*link)->next;
    if (*link == NULL || (*link)->bytes != bytes)
        return vmm__error(VMM_ERR_DRIVER, "unpin(%p, %" PRIu64 "): not exactly one pinned range",
                          host, bytes);
    pin_remove(soft, link);
    soft_charge(soft, DRIVER_CALL_unpin, bytes, NULL);
    return VMM_OK;
}

struct soft_pin *vmm__soft_pin_find(const struct soft *soft, const void *host, uint64_t bytes)
{
    for (struct soft_pin *pin = soft->pins; pin != NULL; pin = pin->next) {
        uint64_t offset = address_of(host) - pin->address;
        if (offset < pin->bytes && bytes <= pin->bytes - offset)
            return pin;
    }
    return NULL;
}

vmm_status vmm__soft_pins_check(const struct soft *soft, const char *verb,
                                const struct driver_piece *pieces, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (vmm__soft_pin_find(soft, pieces[i].host, pieces[i].bytes) == NULL)
            return vmm__error(VMM_ERR_DRIVER, "%s: %s: %" PRIu64 " bytes at %p are not pinned",
                              soft->driver.ops->name, verb, pieces[i].bytes, pieces[i].host);
    }
    return VMM_OK;
}

void vmm__soft_pins_close(struct soft *soft)
{
    while (soft->pins != NULL)
        pin_remove(soft, &soft->pins);
}
