/* What every call of the library goes through: faults, what it may return, what it must leave. See stress.h. */
#include "picture.h"
#include "stress.h"

#include "base/error.h"
#include "base/hostmem.h"
#include "cache/cache.h"
#include "driver/sim/sim.h"

#include <stdarg.h>
#include <string.h>

/* ---- Troubles -------------------------------------------------------------------------------- */

void stress_trouble(struct stress *stress, const char *format, ...)
{
    if (stress_is_troubled(stress))
        return;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(stress->trouble, sizeof stress->trouble, format, arguments);
    va_end(arguments);
}

void stress_list(struct stress *stress, const char *format, ...)
{
    if (stress->listing == NULL)
        return;
    va_list arguments;
    va_start(arguments, format);
    (void)fputs("#   ", stress->listing);
    (void)vfprintf(stress->listing, format, arguments);
    (void)fputc('\n', stress->listing);
    va_end(arguments);
}

/* ---- Faults ---------------------------------------------------------------------------------- */

static void faults_arm(struct stress *stress)
{
    const struct stress_faults *faults = &stress->faults;
    if (faults->driver_call != 0 && stress->driver != NULL)
        vmm__sim_fail_at(stress->driver, faults->driver_call, faults->status, faults->for_ever);
    if (faults->host_call != 0)
        (void)vmm__host_fail_at(faults->host_call);
}

static void faults_note(struct stress *stress, unsigned statuses)
{
    stress->faults.fired |= statuses;
    stress->faults.has_fired = true;
    stress->was_hurt = true;
    stress->is_lost = stress->is_lost || (statuses & STATUS_BIT(ERR_LOST)) != 0;
    stress->sums.faults++;
}

static void driver_fault_disarm(struct stress *stress)
{
    struct stress_faults *faults = &stress->faults;
    uint64_t calls = vmm__sim_calls(stress->driver);
    bool has_fired = vmm__sim_faults_fired(stress->driver) != 0;
    vmm__sim_fail_at(stress->driver, 0, VMM_OK, false);
    if (!has_fired) {
        faults->driver_call -= calls;
        return;
    }
    faults_note(stress, 1U << faults->status);
    faults->driver_call = faults->for_ever ? 1 : 0;
}

static void faults_disarm(struct stress *stress)
{
    struct stress_faults *faults = &stress->faults;
    if (faults->driver_call != 0 && stress->driver != NULL)
        driver_fault_disarm(stress);
    if (faults->host_call == 0)
        return;
    uint64_t calls = vmm__host_fail_at(0);
    if (calls < faults->host_call) {
        faults->host_call -= calls;
        return;
    }
    faults_note(stress, STATUS_BIT(ERR_HOST_OOM));
    faults->host_call = 0;
}

/* ---- Calls ----------------------------------------------------------------------------------- */

/* What the call under way found; workers have none. */
static struct picture before;

static bool fault_may_come(const struct stress *stress)
{
    return stress->points != NULL ? stress->points->may_fire() : stress->faults.driver_call != 0;
}

static void copies_note(struct stress *stress)
{
    stress->copies = vmm__driver_calls(stress->driver, DRIVER_CALL_copy);
    stress->failed_waits = stress->driver->tally[DRIVER_CALL_device_wait].failures;
}

/* Copies whose end the driver neither tells nor waits for may be under way still: the test waits. */
static void copies_wait(struct stress *stress)
{
    uint64_t copies = stress->copies;
    uint64_t failed_waits = stress->failed_waits;
    copies_note(stress);
    if (stress->copies > copies && stress->failed_waits > failed_waits && !stress->is_lost)
        stress_work_verify(stress);
}

/* What the call finds: no line of an error, and a cache that it may not change if it fails. */
static void call_begin(struct stress *stress)
{
    static const struct error_line empty;
    if (vmm_last_error()[0] != '\0')
        vmm__error_restore(&empty);
    stress->has_picture = stress->shared == NULL && stress->cache != NULL && fault_may_come(stress);
    if (stress->has_picture)
        picture_take(stress->cache, &before);
    if (stress->driver != NULL && stress->shared == NULL)
        copies_note(stress);
}

static void points_end(struct stress *stress)
{
    unsigned fired = stress->points->end(&stress->faults.for_ever);
    if (fired != 0)
        faults_note(stress, fired);
}

void stress_enter(struct stress *stress)
{
    if (stress->faults.depth++ == 0)
        stress->faults.fired = 0;
    call_begin(stress);
    control_enter(&stress->control, stress->driver, stress->cache);
    faults_arm(stress);
    if (stress->points != NULL)
        stress->points->begin();
}

void stress_leave(struct stress *stress)
{
    if (stress->points != NULL)
        points_end(stress);
    faults_disarm(stress);
    control_leave(&stress->control, stress->driver);
    stress->faults.depth--;
}

void stress_work_enter(struct stress *stress)
{
    if (stress->faults.depth == 0)
        stress->faults.fired = 0;
    if (stress->points != NULL && stress->points->covers_work)
        stress->points->begin();
}

bool stress_work_leave(struct stress *stress, const char *what, vmm_status status)
{
    bool covers_work = stress->points != NULL && stress->points->covers_work;
    if (covers_work)
        points_end(stress);
    if (covers_work && status != VMM_OK && stress->faults.fired != 0)
        return false;
    stress_expect_ok(stress, what, status);
    return status == VMM_OK;
}

/* The driver has not mapped again what it had mapped. */
static bool has_unmapped(const struct stress *stress)
{
    return stress->shared == NULL && stress->cache != NULL && stress->cache->vm.remap_pending > 0;
}

bool stress_is_unusable(const struct stress *stress)
{
    return stress->is_lost || has_unmapped(stress);
}

/* ---- Statuses -------------------------------------------------------------------------------- */

static void status_blame(struct stress *stress, const char *call, vmm_status status,
                         unsigned allowed)
{
    char names[TROUBLE_BYTES / 2] = "";
    for (unsigned i = 0; i <= STATUS_LAST; i++) {
        size_t used = strlen(names);
        if ((allowed >> i & 1) != 0)
            (void)snprintf(names + used, sizeof names - used, " %s",
                           vmm_status_name((vmm_status)i));
    }
    stress_trouble(stress, "%s: returned %s, allowed are%s; last error: %s", call,
                   vmm_status_name(status), names, vmm_last_error());
}

/* A call that failed has changed nothing that the program can see. */
static void unchanged_verify(struct stress *stress, const char *call, vmm_status status)
{
    static struct picture after;
    if (!stress->has_picture || stress->cache == NULL)
        return;
    picture_take(stress->cache, &after);
    bool may_undo = strcmp(call, "vmm_resize") == 0; /* a copy */
    const char *difference = picture_difference(&before, &after, may_undo);
    if (difference != NULL)
        stress_trouble(stress, "picture: %s: %s (%s), but %s", call, vmm_status_name(status),
                       vmm_last_error(), difference);
}

bool stress_expect(struct stress *stress, const char *call, vmm_status status, unsigned legal,
                   unsigned faulty)
{
    unsigned allowed = legal | (faulty & stress->faults.fired);
    if ((unsigned)status <= STATUS_LAST)
        stress_list(stress, "%s: %s%s%s%s", call, vmm_status_name(status),
                    stress->faults.fired != 0 ? ", after a fault" : "",
                    status != VMM_OK ? ": " : "", status != VMM_OK ? vmm_last_error() : "");
    if (stress->is_lost) /* a pool that slept then sleeps for ever */
        allowed |= STATUS_BIT(ERR_LOST) | STATUS_BIT(ERR_ASLEEP);
    if (has_unmapped(stress)) /* later calls report it, too */
        allowed |= faulty & STATUS_BIT(ERR_DRIVER);
    if ((unsigned)status > STATUS_LAST || (allowed >> status & 1) == 0)
        status_blame(stress, call, status, allowed);
    else if (status != VMM_OK && (vmm_last_error()[0] == '\0' || strchr(vmm_last_error(), '\n')))
        stress_trouble(stress, "%s: a failure without a line of its own", call);
    else if (status == VMM_OK && vmm_last_error()[0] != '\0')
        stress_trouble(stress, "%s: it succeeded, and left the line '%s'", call, vmm_last_error());
    if (status != VMM_OK)
        unchanged_verify(stress, call, status);
    if (stress->driver != NULL && stress->shared == NULL)
        copies_wait(stress);
    return status == VMM_OK;
}

bool stress_call(struct stress *stress, const char *name, vmm_status (*call)(vmm_cache *cache))
{
    stress_enter(stress);
    vmm_status status = call(stress->cache);
    stress_leave(stress);
    return stress_expect(stress, name, status, STATUS_BIT(OK), STATUS_FAULTS);
}

void stress_expect_ok(struct stress *stress, const char *call, vmm_status status)
{
    bool is_lost =
        status == VMM_ERR_LOST && stress->is_lost; /* which refuses everybody everything */
    if (status != VMM_OK && !is_lost)
        stress_trouble(stress, "%s: %s: %s", call, vmm_status_name(status), vmm_last_error());
}
