/* Points, and what fails at them in a child: see point.h. */
#include "point_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <unistd.h>

struct sweep_sums *sweep_sums;
struct points sweep_points;

/* Of the driver and of memory, in each scenario, as counted. */
static uint64_t pair_points[SWEEP_SCENARIOS + 1];

/* Statuses that a library call may return after the fault; a system call allows any error of the system. */
static unsigned statuses_of(unsigned call, int code)
{
    switch (sweep_call_group(call)) {
    case GROUP_DRIVER:
        return code == (int)VMM__PENDING ? 0 : 1U << code; /* no public call returns that outcome */
    case GROUP_MEMORY:
        return 1U << VMM_ERR_HOST_OOM;
    default:
        return 1U << VMM_ERR_DRIVER | 1U << VMM_ERR_HOST_OOM | 1U << VMM_ERR_DEVICE_OOM |
               1U << VMM_ERR_ADDRESS_SPACE | 1U << VMM_ERR_INVALID_ARGUMENT;
    }
}

unsigned sweep_statuses_take(void)
{
    unsigned statuses = sweep_points.statuses;
    sweep_points.statuses = 0;
    return statuses;
}

void point_hit(unsigned call, int code)
{
    sweep_points.fired++;
    sweep_points.statuses |= statuses_of(call, code);
    sweep_sums->fired[sweep_points.fault.kind]++;
    sweep_sums->hits[call][sweep_code_index(call, code)]++;
}

uint64_t points_counted(unsigned scenario)
{
    return pair_points[scenario];
}

/* ---- The child --------------------------------------------------------------------------------- */

static bool second_fires(unsigned call, int *code)
{
    struct sweep_fault *fault = &sweep_points.fault;
    if (fault->second_in == 0 || --fault->second_in != 0)
        return false;
    *code = sweep_code(call, (unsigned)(sweep_fault_draw(fault, sweep_points.order.seed, 3) %
                                        sweep_code_count(call)));
    fault->second_call = call;
    fault->second_code = *code;
    point_hit(call, *code);
    return true;
}

static bool point_in_child(unsigned call, int *code)
{
    enum sweep_kind kind = sweep_points.fault.kind;
    if (kind == KIND_DOUBLE && sweep_call_group(call) != GROUP_SYSTEM)
        return second_fires(call, code);
    if (!sweep_points.goes_on || !sweep_kind_numbers(kind, sweep_call_group(call)) ||
        sweep_code_index(call, sweep_points.fault.code) == SWEEP_CODES)
        return false;
    *code = sweep_points.fault.code;
    point_hit(call, *code);
    return true;
}

/* The library repeats a call that was interrupted, so EINTR must not go on for ever. */
static void system_fire(unsigned call, int *code)
{
    struct sweep_fault *fault = &sweep_points.fault;
    fault->call = call;
    fault->code = *code = sweep_code(call, fault->variant);
    sweep_points.goes_on = fault->kind == KIND_SYSTEM_FOR_EVER && *code != EINTR;
    point_hit(call, *code);
}

static bool point_of_system(unsigned call, int *code)
{
    struct sweep_fault *fault = &sweep_points.fault;
    if (sweep_call_group(call) != GROUP_SYSTEM)
        return false;
    if (fault->number == 0 && sweep_points.system_points < SWEEP_SYSTEM_POINTS)
        sweep_sums->system_calls[sweep_points.system_points] = (uint8_t)call;
    sweep_points.system_points++;
    bool is_due =
        sweep_points.goes_on ? call == fault->call : sweep_points.system_points == fault->number;
    if (!is_due || fault->variant >= sweep_code_count(call))
        return false;
    system_fire(call, code);
    return true;
}

/* ---- Points ------------------------------------------------------------------------------------ */

void sweep_sleep(void)
{
    sweep_points.asleep++;
}

void sweep_wake(void)
{
    sweep_points.asleep--;
}

static void point_count(unsigned call)
{
    enum sweep_group group = sweep_call_group(call);
    sweep_points.driver_points += group == GROUP_DRIVER;
    sweep_points.memory_points += group == GROUP_MEMORY;
    if (sweep_points.mode != MODE_COUNT)
        return;
    for (int kind = 0; kind < KINDS; kind++) {
        if (sweep_points.order.kinds[kind] && kind != KIND_DOUBLE &&
            sweep_kind_numbers((enum sweep_kind)kind, group))
            sweep_points.children += sweep_code_count(call);
    }
}

bool sweep_point(unsigned call, int *code)
{
    if (sweep_points.mode == MODE_OFF || sweep_points.asleep > 0 ||
        !pthread_equal(sweep_points.thread, pthread_self()))
        return false;
    if (sweep_points.mode == MODE_CHILD)
        return point_in_child(call, code);
    if (sweep_points.mode == MODE_SYSTEM)
        return point_of_system(call, code);
    point_count(call);
    return sweep_points.mode == MODE_SWEEP && children_made(call, code);
}

uint64_t sweep_fired(void)
{
    return sweep_points.fired;
}

const struct sweep_fault *sweep_fault(void)
{
    return sweep_points.fired > 0 ? &sweep_points.fault : NULL;
}

bool sweep_may_fire(void)
{
    switch (sweep_points.mode) {
    case MODE_SWEEP:
        return true;
    case MODE_CHILD:
        return sweep_points.goes_on || sweep_points.fault.second_in > 0;
    case MODE_SYSTEM:
        return sweep_points.goes_on || (sweep_points.fired == 0 && sweep_points.fault.number != 0);
    default:
        return false;
    }
}

bool sweep_has_clones(void)
{
    return sweep_points.mode == MODE_COUNT || sweep_points.mode == MODE_SWEEP ||
           sweep_points.mode == MODE_CHILD;
}

bool sweep_goes_on(void)
{
    return sweep_points.goes_on;
}

void sweep_heal(void)
{
    sweep_points.goes_on = false;
    sweep_points.fault.second_in = 0;
}

void sweep_child_end(uint64_t operations)
{
    if (sweep_points.mode != MODE_CHILD && sweep_points.mode != MODE_SYSTEM)
        return;
    sweep_sums->operations += operations;
    if (sweep_points.mode == MODE_SYSTEM && sweep_points.fault.number == 0)
        sweep_sums->system_points = sweep_points.system_points < SWEEP_SYSTEM_POINTS
                                        ? sweep_points.system_points
                                        : SWEEP_SYSTEM_POINTS;
    (void)fflush(NULL);
    _exit(0);
}

void sweep_broken(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)fprintf(stderr, "\nstress_faults: ");
    (void)vfprintf(stderr, format, arguments);
    (void)fprintf(stderr, "\n");
    va_end(arguments);
    if (sweep_points.fired > 0)
        sweep_fault_write(&sweep_points.fault, sweep_points.order.seed, stderr);
    (void)fflush(NULL);
    _exit(1);
}

/* ---- For the command ------------------------------------------------------------------------- */

void points_begin(enum mode mode, const struct sweep_order *order, unsigned scenario)
{
    sweep_points = (struct points){
        .mode = mode, .asleep = 1, .thread = pthread_self(), .order = *order, .scenario = scenario
    };
}

void sweep_count_begin(const struct sweep_order *order, unsigned scenario)
{
    points_begin(MODE_COUNT, order, scenario);
}

uint64_t sweep_count_end(void)
{
    uint64_t pairs = sweep_points.order.kinds[KIND_DOUBLE] ? sweep_points.order.pairs : 0;
    pair_points[sweep_points.scenario] = sweep_points.driver_points + sweep_points.memory_points;
    sweep_points.mode = MODE_OFF;
    return (sweep_points.children + pairs) / sweep_points.order.slices;
}

void sweep_begin(const struct sweep_order *order, unsigned scenario, void (*step)(void *context),
                 void *context)
{
    points_begin(MODE_SWEEP, order, scenario);
    sweep_points.step = step;
    sweep_points.context = context;
}

bool sweep_counts(void)
{
    return sweep_points.mode == MODE_COUNT;
}

void sweep_end(void)
{
    sweep_points.mode = MODE_OFF;
}
