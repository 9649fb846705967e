/* Runs of operations, and what every call goes through: see engine.h. */
#include "engine.h"

#include "base/hostmem.h"
#include "driver/sim.h"

#include <stdarg.h>
#include <string.h>

/* ---- Troubles -------------------------------------------------------------------------------- */

void engine_trouble(struct engine *engine, const char *format, ...)
{
    if (engine_is_troubled(engine))
        return;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(engine->trouble, sizeof engine->trouble, format, arguments);
    va_end(arguments);
}

void engine_list(struct engine *engine, const char *format, ...)
{
    if (engine->listing == NULL)
        return;
    va_list arguments;
    va_start(arguments, format);
    (void)fputs("#   ", engine->listing);
    (void)vfprintf(engine->listing, format, arguments);
    (void)fputc('\n', engine->listing);
    va_end(arguments);
}

static void violations_verify(struct engine *engine)
{
    const char *story;
    if (engine->driver != NULL && vmm__sim_violations(engine->driver, &story) != 0)
        engine_trouble(engine, "violation: %s", story);
}

/* ---- Faults ---------------------------------------------------------------------------------- */

static void faults_arm(struct engine *engine)
{
    const struct engine_faults *faults = &engine->faults;
    if (faults->driver_call != 0 && engine->driver != NULL)
        vmm__sim_fail_at(engine->driver, faults->driver_call, faults->status, faults->for_ever);
    if (faults->host_call != 0)
        (void)vmm__host_fail_at(faults->host_call);
}

static void fault_note(struct engine *engine, vmm_status status)
{
    engine->faults.fired |= 1U << status;
    engine->was_hurt = true;
    engine->is_lost = engine->is_lost || status == VMM_ERR_LOST;
    engine->sums.faults++;
}

static void driver_fault_disarm(struct engine *engine)
{
    struct engine_faults *faults = &engine->faults;
    uint64_t calls = vmm__sim_calls(engine->driver);
    bool has_fired = vmm__sim_faults_fired(engine->driver) != 0;
    vmm__sim_fail_at(engine->driver, 0, VMM_OK, false);
    if (!has_fired) {
        faults->driver_call -= calls;
        return;
    }
    fault_note(engine, faults->status);
    faults->driver_call = faults->for_ever ? 1 : 0;
}

static void faults_disarm(struct engine *engine)
{
    struct engine_faults *faults = &engine->faults;
    if (faults->driver_call != 0 && engine->driver != NULL)
        driver_fault_disarm(engine);
    if (faults->host_call == 0)
        return;
    uint64_t calls = vmm__host_fail_at(0);
    if (calls < faults->host_call) {
        faults->host_call -= calls;
        return;
    }
    fault_note(engine, VMM_ERR_HOST_OOM);
    faults->host_call = 0;
}

void engine_enter(struct engine *engine)
{
    if (engine->faults.depth++ == 0)
        engine->faults.fired = 0;
    faults_arm(engine);
}

void engine_leave(struct engine *engine)
{
    faults_disarm(engine);
    engine->faults.depth--;
}

/* ---- Statuses -------------------------------------------------------------------------------- */

static void status_blame(struct engine *engine, const char *call, vmm_status status,
                         unsigned allowed)
{
    char names[TROUBLE_BYTES / 2] = "";
    for (unsigned i = 0; i <= VMM_ERR_INTERNAL; i++) {
        size_t used = strlen(names);
        if ((allowed >> i & 1) != 0)
            (void)snprintf(names + used, sizeof names - used, " %s",
                           vmm_status_name((vmm_status)i));
    }
    engine_trouble(engine, "%s: returned %s, allowed are%s; last error: %s", call,
                   vmm_status_name(status), names, vmm_last_error());
}

bool engine_expect(struct engine *engine, const char *call, vmm_status status, unsigned legal,
                   unsigned faulty)
{
    unsigned allowed = legal | (faulty & engine->faults.fired);
    if ((unsigned)status <= VMM_ERR_INTERNAL)
        engine_list(engine, "%s: %s%s", call, vmm_status_name(status),
                    engine->faults.fired != 0 ? ", after a fault" : "");
    if (engine->is_lost)
        allowed |= STATUS_BIT(ERR_LOST);
    if ((unsigned)status > VMM_ERR_INTERNAL || (allowed >> status & 1) == 0)
        status_blame(engine, call, status, allowed);
    else if (status != VMM_OK && (vmm_last_error()[0] == '\0' || strchr(vmm_last_error(), '\n')))
        engine_trouble(engine, "%s: a failure without a line of its own", call);
    return status == VMM_OK;
}

bool engine_call(struct engine *engine, const char *name, vmm_status (*call)(vmm_cache *cache))
{
    engine_enter(engine);
    vmm_status status = call(engine->cache);
    engine_leave(engine);
    return engine_expect(engine, name, status, STATUS_BIT(OK), STATUS_FAULTS);
}

void engine_expect_ok(struct engine *engine, const char *call, vmm_status status)
{
    bool is_lost =
        status == VMM_ERR_LOST && engine->is_lost; /* which refuses everybody everything */
    if (status != VMM_OK && !is_lost)
        engine_trouble(engine, "%s: %s: %s", call, vmm_status_name(status), vmm_last_error());
}

/* ---- Runs ------------------------------------------------------------------------------------ */

static engine_step_fn on_step;
static void *on_step_context;

void engine_on_step(engine_step_fn step, void *context)
{
    on_step = step;
    on_step_context = context;
}

static void operation_run(struct engine *engine, const struct operation *operation)
{
    enum { OPERATION_NS = 1000, VERIFY_EVERY = 16 };
    static void (*const functions[])(struct engine *, const struct operation *) = {
#define OPERATION_FUNCTION(name, weight, a, b, c, number, operand) operation_##name,
        OPERATION_MAP(OPERATION_FUNCTION)
#undef OPERATION_FUNCTION
    };
    static const struct operation first = { .code = OPERATION_create };
    if (engine->cache == NULL && operation->code != OPERATION_create)
        engine_open(engine, &first);
    bool has_waited = operation->code == OPERATION_wait;
    if (engine->listing != NULL)
        operation_print(operation, engine->listing);
    if (!engine_is_troubled(engine))
        functions[operation->code](engine, operation);
    engine->has_waited = engine->has_waited && has_waited;
    engine->clock_ns += OPERATION_NS;
    engine->done++;
    engine->sums.operations++;
    violations_verify(engine);
    if (engine->cache == NULL || engine->checks_every == 0 ||
        engine->done % engine->checks_every != 0)
        return;
    if (engine->done % (VERIFY_EVERY * engine->checks_every) == 0)
        engine_verify(engine);
    else
        engine_stats_verify(engine);
}

static void run_begin(struct engine *engine)
{
    engine->trouble[0] = '\0';
    engine->driver = NULL;
    engine->cache = NULL;
    engine->faults = (struct engine_faults){ 0 };
    engine->clock_ns = 0;
    engine->words = 0;
    engine->taking = OPERATION_SLOTS;
    (void)vmm__host_fail_at(0);
}

bool engine_run(struct engine *engine, const struct operation *operations, size_t count,
                size_t *failed_at)
{
    size_t index = 0;
    run_begin(engine);
    for (; index < count && !engine_is_troubled(engine); index++) {
        if (on_step != NULL)
            on_step(on_step_context, index);
        operation_run(engine, &operations[index]);
    }
    bool is_well = !engine_is_troubled(engine);
    if (is_well && engine->cache != NULL) {
        engine_empty(engine);
        engine_close(engine);
    }
    engine_watch_end(engine);
    if (failed_at != NULL)
        *failed_at = is_well ? count : index - 1;
    return !engine_is_troubled(engine);
}

/* ---- Settings of the surroundings ------------------------------------------------------------ */

void operation_lag(struct engine *engine, const struct operation *operation)
{
    enum { LAG_MOST = 20000 };
    vmm__sim_lag_set(engine->driver, operation->number % LAG_MOST);
}

void operation_clock(struct engine *engine, const struct operation *operation)
{
    engine->clock_ns += operation->number;
}

/*
 * Numbers of calls are small: most operations make none or few. Where live bytes move, a driver that refuses
 * everything from some moment on can leave them without an address, or a copy under way: docs/design.md says so.
 */
void operation_fault(struct engine *engine, const struct operation *operation)
{
    enum { CALL_MOST = 64, FOR_EVER_ONE_IN = 4, LOST_ONE_IN = 16 };
    struct engine_faults *faults = &engine->faults;
    faults->driver_call = 1 + operation->number % CALL_MOST;
    faults->for_ever =
        operation->b % FOR_EVER_ONE_IN == 1 && engine->config.compaction == VMM_COMPACTION_OFF;
    faults->status = operation->a % 2 == 0 ? VMM_ERR_DRIVER : VMM_ERR_HOST_OOM;
    if (operation->a % LOST_ONE_IN == LOST_ONE_IN - 1)
        faults->status = VMM_ERR_LOST;
}

void operation_host_fault(struct engine *engine, const struct operation *operation)
{
    enum { CALL_MOST = 32 };
    engine->faults.host_call = 1 + operation->number % CALL_MOST;
}

void operation_fault_end(struct engine *engine, const struct operation *operation)
{
    (void)operation;
    engine->faults.driver_call = 0;
    engine->faults.host_call = 0;
}
