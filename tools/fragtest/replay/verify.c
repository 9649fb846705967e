/* Checks around a replay: see verify.h. */
#include "fragtest/replay/verify.h"

#include "base/error.h"
#include "driver/sim/sim.h"
#include "fragtest/replay/replay.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t violations_now(struct driver *driver, const char **text)
{
    return replay_is_sim(driver) ? vmm__soft_violations(driver, text) : 0;
}

vmm_status verify_init(struct verify *verify, struct driver *driver, const uint64_t *bytes,
                       uint32_t block_count)
{
    *verify = (struct verify){ .driver = driver, .bytes = bytes };
    vmm_status status = vmm__driver_mismatches(driver, &verify->mismatches);
    if (status != VMM_OK)
        return status;
    verify->nodes = calloc(block_count, sizeof(*verify->nodes));
    if (verify->nodes == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "out of host memory for the checks");
    verify->violations = violations_now(driver, NULL);
    verify->handles = driver->handles;
    verify->reservations = driver->reservations;
    verify->mapped_bytes = driver->mapped_bytes;
    verify->events = driver->events;
    return VMM_OK;
}

void verify_fini(struct verify *verify)
{
    free(verify->nodes);
    *verify = (struct verify){ 0 };
}

void verify_alloc(struct verify *verify, uint32_t block, uint64_t address)
{
    uint64_t bytes = verify->bytes[block];
    const struct ordered_node *below = ordered_below(&verify->live, address + bytes, 0);
    struct ordered_node *node = &verify->nodes[block];

    if (below != NULL && below->major + verify->bytes[below->minor] > address)
        verify->overlaps++;
    node->major = address;
    node->minor = block;
    ordered_insert(&verify->live, node);
}

void verify_free(struct verify *verify, uint32_t block)
{
    ordered_remove(&verify->live, &verify->nodes[block]);
}

static bool nothing_is_left(const struct verify *verify)
{
    const struct driver *driver = verify->driver;
    return driver->handles == verify->handles && driver->reservations == verify->reservations &&
           driver->mapped_bytes == verify->mapped_bytes && driver->events == verify->events;
}

bool verify_end(struct verify *verify, char *text, size_t capacity)
{
    const char *report_text = "";
    uint64_t mismatches;

    if (vmm__driver_mismatches(verify->driver, &mismatches) != VMM_OK) {
        (void)snprintf(text, capacity, "verification failed: %s", vmm_last_error());
        return false;
    }
    mismatches -= verify->mismatches;
    uint64_t violations = violations_now(verify->driver, &report_text) - verify->violations;
    if (verify->overlaps > 0)
        (void)snprintf(text, capacity, "%" PRIu64 " blocks overlapped a live one",
                       verify->overlaps);
    else if (mismatches > 0)
        (void)snprintf(text, capacity, "%" PRIu64 " places did not hold what was written there",
                       mismatches);
    else if (violations > 0)
        (void)snprintf(text, capacity, "%" PRIu64 " violations of the driver's rules, first: %s",
                       violations, report_text);
    else if (!nothing_is_left(verify))
        (void)snprintf(text, capacity, "memory, addresses or events were left behind");
    else
        return true;
    return false;
}
