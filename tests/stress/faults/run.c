/* Scenarios under faults: see run.h. */
#include "run.h"

#include "point.h"

#include <string.h>

enum {
    RUN_FURTHER = 1000, /* operations that must work after a fault */
    RUN_FAILING = 250   /* operations under faults that go on for ever */
};

struct scenario {
    bool is_host; /* through vmm_create(), as a program makes a cache */
    struct sequence sequence;
};

static struct scenario scenarios[SWEEP_SCENARIOS];
static unsigned count;

bool scenario_add(const char *path, bool is_host, char *error, size_t bytes)
{
    struct scenario *scenario = &scenarios[count];
    if (count == SWEEP_SCENARIOS) {
        (void)snprintf(error, bytes, "there are more than %d", SWEEP_SCENARIOS);
        return false;
    }
    scenario->is_host = is_host;
    if (!sequence_read(&scenario->sequence, path, false, error, bytes))
        return false;
    count++;
    return true;
}

unsigned scenario_count(void)
{
    return count;
}

bool scenario_is_host(unsigned scenario)
{
    return scenarios[scenario - 1].is_host;
}

/* ---- Points ---------------------------------------------------------------------------------- */

static unsigned statuses_take(bool *for_ever)
{
    sweep_sleep();
    *for_ever = sweep_goes_on();
    return sweep_statuses_take();
}

static const struct stress_points sim_points = { .begin = sweep_wake,
                                                 .end = statuses_take,
                                                 .may_fire = sweep_may_fire,
                                                 .heal = sweep_heal,
                                                 .open = sweep_shim };
static const struct stress_points host_points = { .begin = sweep_wake,
                                                  .end = statuses_take,
                                                  .may_fire = sweep_may_fire,
                                                  .heal = sweep_heal,
                                                  .covers_work = true };

/* ---- A run ----------------------------------------------------------------------------------- */

struct run {
    struct stress *stress;
    const struct scenario *scenario;
    size_t index;      /* of the next operation */
    uint64_t done;     /* operations */
    uint64_t end;      /* when so many are done */
    uint64_t fault_at; /* the operation with the first fault */
};

static void trouble_look(const struct run *run)
{
    if (stress_is_troubled(run->stress))
        sweep_broken("operation %llu: %s", (unsigned long long)run->done, run->stress->trouble);
}

/* The run goes on for so long after the last fault. */
static void end_move(struct run *run, uint64_t fired)
{
    if (sweep_fired() == fired)
        return;
    if (fired == 0)
        run->fault_at = run->done;
    if (!sweep_goes_on())
        run->end = run->done + RUN_FURTHER;
    else if (fired == 0)
        run->end = run->done + RUN_FAILING;
}

/* Whether work ends before the next operation. That of the host driver does, so that the calls are the same each time.
 * So do the copies of a relocation while faults go on: they refuse the wait for them, but a device finishes them. */
static bool work_ends(const struct run *run)
{
    bool has_copies = reach_relocated() && sweep_goes_on();
    return run->stress->cache != NULL && (run->scenario->is_host || has_copies);
}

/* The first operation makes the cache. */
static void operation_run(struct run *run)
{
    uint64_t fired = sweep_fired();
    const struct operation *operation = &run->scenario->sequence.operations[run->index];
    stress_operation(run->stress, operation);
    if (work_ends(run))
        stress_work_verify(run->stress);
    trouble_look(run);
    reach_note(run->stress, operation);
    run->done++;
    run->index = run->index + 1 < run->scenario->sequence.count ? run->index + 1 : 1;
    end_move(run, fired);
}

static void operations_run(struct run *run)
{
    do {
        operation_run(run);
    } while (run->done < run->end && run->stress->cache != NULL);
}

/* Half of the faults that go on for ever end after a while, and everything works again; the others meet the end of the
 * cache. */
static bool meets_end(const struct run *run)
{
    const struct sweep_fault *fault = sweep_fault();
    return run->stress->is_lost || (sweep_goes_on() && (fault->number + fault->variant) % 2 == 0);
}

static void run_end(struct run *run)
{
    if (!meets_end(run) && sweep_may_fire() && sweep_fault() != NULL) {
        sweep_heal();
        run->end = run->done + RUN_FURTHER;
        operations_run(run);
    }
    if (!meets_end(run))
        stress_empty(run->stress);
    trouble_look(run);
    stress_close(run->stress);
    trouble_look(run);
}

void scenario_run(unsigned scenario)
{
    static struct stress stress;
    struct run run = { .stress = &stress, .scenario = &scenarios[scenario - 1] };
    memset(&stress, 0, sizeof stress);
    stress.kind = run.scenario->is_host ? VMM_DRIVER_HOST : VMM_DRIVER_SIM;
    stress.stream_count = STRESS_STREAMS;
    stress.points = run.scenario->is_host ? &host_points : &sim_points;
    stress_begin(&stress);
    run.end = run.scenario->sequence.count;
    operations_run(&run);
    if (stress.cache != NULL)
        run_end(&run);
    else if (stress.driver != NULL)
        vmm__driver_close(stress.driver);
    stress_watch_end(&stress);
    sweep_child_end(run.done - run.fault_at);
}
