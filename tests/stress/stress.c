/* Runs of operations: see stress.h. */
#include "stress.h"

#include "base/hostmem.h"
#include "driver/sim/sim.h"

/* ---- Runs ------------------------------------------------------------------------------------ */

static stress_step_fn on_step;
static void *on_step_context;

void stress_on_step(stress_step_fn step, void *context)
{
    on_step = step;
    on_step_context = context;
}

static void violations_verify(struct stress *stress)
{
    const char *report_text;
    if (stress->driver != NULL && stress->kind != VMM_DRIVER_CUDA &&
        vmm__soft_violations(stress->driver, &report_text) != 0)
        stress_trouble(stress, "violation: %s", report_text);
}

/* After a fault everything is as it should be. */
static void faults_verify(struct stress *stress)
{
    if (!stress->faults.has_fired || stress->cache == NULL)
        return;
    vmm_status status = vmm__cache_check(stress->cache);
    if (status != VMM_OK)
        stress_trouble(stress, "check: after a fault: %s", vmm_last_error());
    stress_blocks_verify(stress);
}

static void operation_verify(struct stress *stress)
{
    enum { VERIFY_EVERY = 16 };
    if (stress->shared != NULL)
        return;
    violations_verify(stress);
    faults_verify(stress);
    if (stress->cache == NULL || stress->checks_every == 0 ||
        stress->done % stress->checks_every != 0)
        return;
    if (stress->done % (VERIFY_EVERY * stress->checks_every) == 0)
        stress_verify(stress);
    else
        stress_stats_verify(stress);
}

void stress_operation(struct stress *stress, const struct operation *operation)
{
    static void (*const functions[])(struct stress *, const struct operation *) = {
#define OPERATION_FUNCTION(name, random, schedule, worker, a, b, c, number, operand)               \
    operation_##name,
        OPERATION_MAP(OPERATION_FUNCTION)
#undef OPERATION_FUNCTION
    };
    static const struct operation first = { .code = OPERATION_create };
    if (stress->cache == NULL && operation->code != OPERATION_create)
        stress_open(stress, &first);
    bool has_waited = operation->code == OPERATION_wait;
    stress->faults.has_fired = false;
    atomic_store_explicit(&stress->doing, operation_name(operation), memory_order_relaxed);
    if (stress->listing != NULL)
        operation_print(operation, stress->listing);
    if (!stress_is_troubled(stress))
        functions[operation->code](stress, operation);
    stress->has_waited = stress->has_waited && has_waited;
    stress->clock_ns += stress->clock_step_ns;
    stress->done++;
    stress->sums.operations++;
    operation_verify(stress);
}

void stress_begin(struct stress *stress)
{
    stress->trouble[0] = '\0';
    stress->driver = NULL;
    stress->cache = NULL;
    stress->faults = (struct stress_faults){ 0 };
    stress->clock_ns = 0;
    stress->clock_step_ns = 1000;
    stress->words = 0;
    stress->taking = OPERATION_SLOTS;
    (void)vmm__host_fail_at(0);
}

bool stress_run(struct stress *stress, const struct operation *operations, size_t count,
                size_t *failed_at)
{
    size_t index = 0;
    stress_begin(stress);
    for (; index < count && !stress_is_troubled(stress); index++) {
        if (on_step != NULL)
            on_step(on_step_context, index);
        stress_operation(stress, &operations[index]);
    }
    if (!stress_is_troubled(stress) && stress->cache != NULL)
        stress_verify(stress); /* a shortened sequence may fail before the next periodic one */
    bool is_well = !stress_is_troubled(stress);
    if (is_well && stress->cache != NULL) {
        stress_empty(stress);
        stress_close(stress);
    }
    stress_watch_end(stress);
    if (failed_at != NULL)
        *failed_at = is_well ? count : index - 1;
    return !stress_is_troubled(stress);
}

/* ---- Settings of the surroundings ------------------------------------------------------------ */

void operation_lag(struct stress *stress, const struct operation *operation)
{
    enum { LAG_MOST = 20000 };
    if (stress_is_sim(stress))
        vmm__sim_lag_set(stress->driver, operation->number % LAG_MOST);
}

void stress_order_set(struct stress *stress, unsigned kind, uint64_t seed)
{
    if (!stress_is_sim(stress))
        return;
    stress->order = order_make((enum order_kind)(kind % ORDER_KINDS), seed, stress->stream_count);
    order_begin(stress->driver, &stress->order);
}

/* One in eight: by lag again. */
void operation_order(struct stress *stress, const struct operation *operation)
{
    unsigned kind = operation->a % (ORDER_KINDS + 1);
    if (kind < ORDER_KINDS)
        stress_order_set(stress, kind, operation->number);
    else if (stress_is_sim(stress))
        order_begin(stress->driver, NULL);
}

void operation_clock(struct stress *stress, const struct operation *operation)
{
    stress->clock_ns += operation->number;
}

/*
 * Numbers of calls are small: most operations make none or few. Where live bytes move, a driver that refuses
 * everything from some moment on can leave them without an address, or a copy under way: docs/internals.md says so.
 */
void operation_fault(struct stress *stress, const struct operation *operation)
{
    enum { CALL_MOST = 64, FOR_EVER_ONE_IN = 4, LOST_ONE_IN = 16 };
    struct stress_faults *faults = &stress->faults;
    if (!stress_is_sim(stress))
        return;
    faults->driver_call = 1 + operation->number % CALL_MOST;
    faults->for_ever = operation->b % FOR_EVER_ONE_IN == 1 && stress->config.compaction != VMM_ON;
    faults->status = operation->a % 2 == 0 ? VMM_ERR_DRIVER : VMM_ERR_HOST_OOM;
    if (operation->a % LOST_ONE_IN == LOST_ONE_IN - 1)
        faults->status = VMM_ERR_LOST;
}

void operation_host_fault(struct stress *stress, const struct operation *operation)
{
    enum { CALL_MOST = 32 };
    stress->faults.host_call = 1 + operation->number % CALL_MOST;
}

void operation_fault_end(struct stress *stress, const struct operation *operation)
{
    (void)operation;
    stress->faults.driver_call = 0;
    stress->faults.host_call = 0;
}
