/*
 * What each public call must have done, and not done.
 *
 *  1. Its status is one that the header names for it; a failure leaves a line, a success does not
 *     touch it.
 *  2. It fails only because something was made to fail in it, with that status, or because memory or
 *     addresses are short.
 *  3. If it fails, nothing has changed that the program can see (see picture.h).
 *  4. After a fault, told or not, every invariant of the cache holds, and live blocks their bytes.
 */
#include "run.h"

#include "base/error.h"
#include "driver/sim.h"
#include "point.h"
#include "policy/cache.h"

void run_expect(struct run *run, const char *what, vmm_status status)
{
    if (status != VMM_OK)
        sweep_broken("operation %llu: %s: %s: %s", (unsigned long long)run->done, what,
                     vmm_status_name(status), vmm_last_error());
}

static void copies_note(struct run *run)
{
    run->call.copies = vmm__driver_calls(run->driver, DRIVER_CALL_copy);
    run->call.failed_waits = run->driver->tally[DRIVER_CALL_device_wait].failures;
}

static void work_wait(struct run *run)
{
    uint64_t places;
    sweep_sleep();
    run_expect(run, "mismatches", vmm__driver_mismatches(run->driver, &places));
    sweep_wake();
    if (places != 0)
        sweep_broken("operation %llu: %llu places differ: %s", (unsigned long long)run->done,
                     (unsigned long long)places,
                     run->chapter->is_host ? "" : vmm__sim_mismatch(run->driver));
}

/* Copies whose end the driver neither tells nor waits for may be under way still: the test waits. */
static void copies_wait(struct run *run)
{
    uint64_t copies = run->call.copies;
    uint64_t failed_waits = run->call.failed_waits;
    copies_note(run);
    if (run->call.copies > copies && run->call.failed_waits > failed_waits && !run->is_latched)
        work_wait(run);
}

void call_begin(struct run *run)
{
    static const struct error_line empty;
    vmm__error_restore(&empty);
    run->call.fired = sweep_fired();
    run->call.has_picture = run->cache != NULL && sweep_may_fire();
    if (run->driver != NULL)
        copies_note(run);
    if (run->call.has_picture)
        picture_take(run->cache, &run->call.picture);
}

void call_again(struct run *run, uint64_t fired)
{
    call_begin(run);
    run->call.fired = fired;
}

/* ---- What it returned -------------------------------------------------------------------------- */

static bool is_shortage(vmm_status status)
{
    return status == VMM_ERR_DEVICE_OOM || status == VMM_ERR_ADDRESS_SPACE;
}

static vmm_status settled(const struct sweep_fault *fault, unsigned call, int code)
{
    if (sweep_fault_is_system(fault))
        return VMM_OK;
    return sweep_call_group(call) == GROUP_DRIVER ? (vmm_status)code : VMM_ERR_HOST_OOM;
}

/* Whether the status is that of what was made to fail in the call. */
static bool is_of_fault(const struct run *run, vmm_status status)
{
    const struct sweep_fault *fault = sweep_fault();
    if (run->is_latched && status == VMM_ERR_LOST)
        return true;
    if (fault == NULL || sweep_fired() == run->call.fired)
        return false;
    return sweep_fault_is_system(fault) || status == settled(fault, fault->call, fault->code) ||
           (fault->second_code != 0 &&
            status == settled(fault, fault->second_call, fault->second_code));
}

static void status_look(const struct run *run, const char *call, unsigned documented,
                        vmm_status status)
{
    if (run->is_latched)
        documented |= STATUS_BIT(VMM_ERR_LOST); /* of any call: see its text */
    if ((STATUS_BIT(status) & documented) == 0)
        sweep_broken("operation %llu: %s: undocumented %s: %s", (unsigned long long)run->done, call,
                     vmm_status_name(status), vmm_last_error());
    if (vmm_last_error()[0] == '\0')
        sweep_broken("operation %llu: %s: %s without a line", (unsigned long long)run->done, call,
                     vmm_status_name(status));
    if (!is_shortage(status) && !is_of_fault(run, status))
        sweep_broken("operation %llu: %s: unexpected %s: %s", (unsigned long long)run->done, call,
                     vmm_status_name(status), vmm_last_error());
}

/* ---- What it left ------------------------------------------------------------------------------ */

static void nothing_changed(struct run *run, const char *call, vmm_status status)
{
    static struct picture after;
    if (!run->call.has_picture)
        return;
    picture_take(run->cache, &after);
    const char *difference = picture_difference(&run->call.picture, &after);
    if (difference != NULL)
        sweep_broken("operation %llu: %s: %s (%s), but %s", (unsigned long long)run->done, call,
                     vmm_status_name(status), vmm_last_error(), difference);
}

bool run_lost(struct run *run)
{
    uint64_t free_bytes;
    uint64_t total_bytes;
    struct error_line line;
    vmm__error_save(&line);
    sweep_sleep();
    vmm_status status = vmm__driver_memory_info(run->driver, &free_bytes, &total_bytes);
    sweep_wake();
    vmm__error_restore(&line);
    return status == VMM_ERR_LOST;
}

static void consistency_look(struct run *run, const char *call)
{
    sweep_sleep();
    vmm_status status = vmm__cache_check(run->cache);
    sweep_wake();
    if (status != VMM_OK)
        sweep_broken("operation %llu: after %s: %s", (unsigned long long)run->done, call,
                     vmm_last_error());
}

bool call_end(struct run *run, const char *call, unsigned documented, vmm_status status)
{
    bool has_fired = sweep_fired() > run->call.fired;
    if (has_fired && run->driver != NULL)
        run->is_latched = run_lost(run);
    if (status != VMM_OK)
        status_look(run, call, documented, status);
    else if (vmm_last_error()[0] != '\0')
        sweep_broken("operation %llu: %s succeeded, but left the line '%s'",
                     (unsigned long long)run->done, call, vmm_last_error());
    if (status != VMM_OK)
        nothing_changed(run, call, status);
    if (run->cache == NULL)
        return status == VMM_OK;
    if (status != VMM_OK)
        run->leaving = NULL;
    copies_wait(run);
    if (has_fired || status != VMM_OK)
        consistency_look(run, call);
    if (has_fired)
        blocks_verify(run);
    return status == VMM_OK;
}
