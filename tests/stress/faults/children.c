/* The children of a sweep: one for each fault. See point.h. */
#include "point_internal.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    CHILD_SECONDS = 120, /* more is a hang */
    FAILURES_MOST = 20,
    SECOND_NEAR = 8, /* points after the first */
    SECOND_FAR = 400
};

static uint64_t number_of(enum sweep_kind kind)
{
    if (kind == KIND_DOUBLE)
        return sweep_points.driver_points + sweep_points.memory_points;
    return kind == KIND_MEMORY || kind == KIND_MEMORY_FOR_EVER ? sweep_points.memory_points
                                                               : sweep_points.driver_points;
}

/* Pairs are spread over all points alike. */
static unsigned variants_at(enum sweep_kind kind, unsigned call, uint64_t number)
{
    if (kind != KIND_DOUBLE)
        return sweep_code_count(call);
    uint64_t pairs = sweep_points.order.pairs;
    return (unsigned)(pairs * number / points_counted(sweep_points.scenario) -
                      pairs * (number - 1) / points_counted(sweep_points.scenario));
}

static void child_failed(const struct sweep_fault *fault, int status)
{
    sweep_sums->failures++;
    if (WIFSIGNALED(status)) {
        (void)fprintf(stderr, "stress_faults: a child died of signal %d%s\n", WTERMSIG(status),
                      WTERMSIG(status) == SIGALRM ? " (it hung)" : "");
        sweep_fault_write(fault, sweep_points.order.seed, stderr);
    }
    if (sweep_sums->failures >= FAILURES_MOST) {
        (void)fprintf(stderr, "stress_faults: %d failures are enough\n", FAILURES_MOST);
        _exit(1);
    }
}

static void child_begin(enum mode mode, const struct sweep_fault *fault)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)alarm(CHILD_SECONDS);
    sweep_points.mode = mode;
    sweep_points.fault = *fault;
    if (fault->number != 0)
        sweep_sums->children[fault->kind]++;
}

static void child_end_wait(pid_t child, const struct sweep_fault *fault)
{
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) {
        perror("stress_faults: no child");
        _exit(2);
    }
    if (status != 0)
        child_failed(fault, status);
}

/* True in the child. */
static bool child_made(const struct sweep_fault *fault)
{
    pid_t child = sweep_clone();
    if (child == 0) {
        child_begin(MODE_CHILD, fault);
        return true;
    }
    child_end_wait(child, fault);
    sweep_points.step(sweep_points.context);
    return false;
}

/* Half of the second faults hit what undoes the first. */
static void second_draw(struct sweep_fault *fault)
{
    uint64_t most =
        sweep_fault_draw(fault, sweep_points.order.seed, 1) % 2 == 0 ? SECOND_NEAR : SECOND_FAR;
    fault->second_in = 1 + sweep_fault_draw(fault, sweep_points.order.seed, 2) % most;
}

static void first_fire(unsigned call, int code)
{
    enum sweep_kind kind = sweep_points.fault.kind;
    sweep_points.goes_on = kind == KIND_FOR_EVER || kind == KIND_MEMORY_FOR_EVER;
    if (kind == KIND_DOUBLE)
        second_draw(&sweep_points.fault);
    point_hit(call, code);
}

static struct sweep_fault fault_at(enum sweep_kind kind, unsigned call, unsigned variant)
{
    struct sweep_fault fault = { .kind = kind,
                                 .scenario = sweep_points.scenario,
                                 .number = number_of(kind),
                                 .variant = variant,
                                 .call = call };
    unsigned codes = sweep_code_count(call);
    fault.code = sweep_code(
        call, kind == KIND_DOUBLE
                  ? (unsigned)(sweep_fault_draw(&fault, sweep_points.order.seed, 0) % codes)
                  : variant);
    return fault;
}

static bool is_ordered(const struct sweep_fault *fault)
{
    const struct sweep_order *order = &sweep_points.order;
    bool is_in_slice = sweep_points.children++ % order->slices == order->slice - 1;
    bool is_at = order->at == 0 || order->at == fault->number;
    return is_in_slice && is_at &&
           (order->variant == ALL_VARIANTS || order->variant == fault->variant);
}

/* True in a child, which has the fault. */
static bool kind_swept(enum sweep_kind kind, unsigned call)
{
    unsigned variants = variants_at(kind, call, number_of(kind));
    for (unsigned variant = 0; variant < variants; variant++) {
        struct sweep_fault fault = fault_at(kind, call, variant);
        if (is_ordered(&fault) && child_made(&fault))
            return true;
    }
    return false;
}

bool children_made(unsigned call, int *code)
{
    enum sweep_group group = sweep_call_group(call);
    for (int kind = 0; kind < KINDS; kind++) {
        if (!sweep_points.order.kinds[kind] || !sweep_kind_numbers((enum sweep_kind)kind, group) ||
            !kind_swept((enum sweep_kind)kind, call))
            continue;
        *code = sweep_points.fault.code;
        first_fire(call, *code);
        return true;
    }
    return false;
}

/* ---- Children on the host driver ------------------------------------------------------------- */

static void system_child(const struct sweep_fault *fault, void (*run)(unsigned scenario))
{
    (void)fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        child_begin(MODE_SYSTEM, fault);
        run(fault->scenario);
        sweep_broken("the scenario did not end");
    }
    child_end_wait(child, fault);
}

static void system_point_swept(struct sweep_fault *fault, void (*run)(unsigned scenario))
{
    for (fault->variant = 0; fault->variant < sweep_code_count(fault->call); fault->variant++) {
        fault->code = sweep_code(fault->call, fault->variant);
        if (is_ordered(fault))
            system_child(fault, run);
    }
}

void sweep_system(const struct sweep_order *order, unsigned scenario,
                  void (*run)(unsigned scenario),
                  void (*step)(void *context, uint64_t done, uint64_t total), void *context)
{
    points_begin(MODE_OFF, order, scenario);
    struct sweep_fault fault = { .kind = KIND_SYSTEM, .scenario = scenario };
    system_child(&fault, run); /* counts them */
    uint64_t count = sweep_sums->system_points;
    for (fault.number = 1; fault.number <= count; fault.number++) {
        fault.call = sweep_sums->system_calls[fault.number - 1];
        for (int kind = KIND_SYSTEM; kind <= KIND_SYSTEM_FOR_EVER; kind++) {
            fault.kind = (enum sweep_kind)kind;
            if (order->kinds[kind])
                system_point_swept(&fault, run);
        }
        step(context, fault.number, count);
    }
}
