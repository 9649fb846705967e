/* Shortens a sequence that fails: see minimise.h. */
#include "minimise.h"

#include <string.h>

enum { KIND_BYTES = 48 };

/* How a sequence fails: the kind that the text of its trouble begins with. */
struct failure {
    enum child_outcome outcome;
    char kind[KIND_BYTES];
};

static void index_noted(void *context, size_t index)
{
    struct child_report *report = context;
    atomic_store_explicit(&report->index, index, memory_order_relaxed);
}

struct sequence_work {
    const struct sequence *sequence;
    enum control_kind control;
    vmm_driver_kind kind;
    bool is_listed;
};

static bool sequence_work(void *context, struct child_report *report)
{
    static struct stress stress;
    const struct sequence_work *work = context;
    stress.control.kind = work->control;
    stress.kind = work->kind;
    stress.stream_count = STRESS_STREAMS;
    stress.listing = work->is_listed ? stdout : NULL;
    (void)setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    stress_on_step(index_noted, report);
    bool is_well = stress_run(&stress, work->sequence->operations, work->sequence->count, NULL);
    report->sums = stress.sums;
    memcpy(report->trouble, stress.trouble, sizeof report->trouble);
    return is_well;
}

enum child_outcome sequence_run(struct minimise *minimise, const struct sequence *sequence,
                                bool is_quiet)
{
    struct sequence_work work = { .sequence = sequence,
                                  .control = minimise->control,
                                  .kind = minimise->kind,
                                  .is_listed = minimise->is_listed };
    struct child_job job = { .work = sequence_work,
                             .context = &work,
                             .patience_ms = minimise->patience_ms,
                             .is_quiet = is_quiet };
    minimise->tries++;
    return child_run(&job, minimise->report);
}

static struct failure failure_of(const struct child_report *report)
{
    struct failure failure = { .outcome = report->outcome };
    size_t bytes = strcspn(report->trouble, ":");
    bytes = bytes < KIND_BYTES ? bytes : KIND_BYTES - 1;
    memcpy(failure.kind, report->trouble, bytes);
    return failure;
}

static bool fails_alike(struct minimise *minimise, const struct sequence *sequence,
                        const struct failure *failure)
{
    if (sequence_run(minimise, sequence, true) != failure->outcome)
        return false;
    struct failure found = failure_of(minimise->report);
    return strcmp(found.kind, failure->kind) == 0;
}

/* What comes after the operation that showed the failure is not needed. */
static void tail_cut(struct minimise *minimise, struct sequence *sequence)
{
    size_t needed = (size_t)minimise->report->index + 1;
    if (needed < sequence->count)
        sequence->count = needed;
}

/* ---- Operations ------------------------------------------------------------------------------ */

/* Leaves out `count` operations if it fails without them, too. */
static bool part_cut(struct minimise *minimise, struct sequence *sequence, size_t first,
                     size_t count, const struct failure *failure)
{
    struct sequence shorter;
    if (!sequence_copy(&shorter, sequence))
        return false;
    sequence_cut(&shorter, first, count);
    bool fails = fails_alike(minimise, &shorter, failure);
    if (!fails) {
        sequence_end(&shorter);
        return false;
    }
    tail_cut(minimise, &shorter);
    sequence_end(sequence);
    *sequence = shorter;
    return true;
}

/* From the end on: later operations depend on earlier ones. */
static bool parts_cut(struct minimise *minimise, struct sequence *sequence, size_t part,
                      const struct failure *failure)
{
    bool any = false;
    size_t end = sequence->count;
    while (end > 0) {
        size_t first = end > part ? end - part : 0;
        any = part_cut(minimise, sequence, first, end - first, failure) || any;
        end = first < sequence->count ? first : sequence->count;
    }
    return any;
}

static void operations_cut(struct minimise *minimise, struct sequence *sequence,
                           const struct failure *failure)
{
    for (size_t part = sequence->count / 2; part > 1; part /= 2)
        (void)parts_cut(minimise, sequence, part, failure);
    while (parts_cut(minimise, sequence, 1, failure))
        continue;
}

/* ---- Arguments ------------------------------------------------------------------------------- */

static bool operation_replaced(struct minimise *minimise, struct sequence *sequence, size_t index,
                               struct operation simpler, const struct failure *failure)
{
    struct operation *operation = &sequence->operations[index];
    struct operation before = *operation;
    if (memcmp(&before, &simpler, sizeof before) == 0)
        return false;
    *operation = simpler;
    if (fails_alike(minimise, sequence, failure))
        return true;
    *operation = before;
    return false;
}

static void number_lowered(struct minimise *minimise, struct sequence *sequence, size_t index,
                           const struct failure *failure)
{
    struct operation simpler = sequence->operations[index];
    simpler.number = 0;
    (void)operation_replaced(minimise, sequence, index, simpler, failure);
    simpler = sequence->operations[index];
    while (simpler.number > 0) {
        simpler.number /= 2;
        if (!operation_replaced(minimise, sequence, index, simpler, failure))
            return;
    }
}

/* Single bits, where the number is a set of them. */
static void bits_lowered(struct minimise *minimise, struct sequence *sequence, size_t index,
                         const struct failure *failure)
{
    for (unsigned bit = 0; bit < 64; bit++) {
        struct operation simpler = sequence->operations[index];
        simpler.number &= ~(UINT64_C(1) << bit);
        (void)operation_replaced(minimise, sequence, index, simpler, failure);
    }
}

static void arguments_lowered(struct minimise *minimise, struct sequence *sequence,
                              const struct failure *failure)
{
    for (size_t index = 0; index < sequence->count; index++) {
        struct operation simpler = sequence->operations[index];
        simpler.a = 0;
        (void)operation_replaced(minimise, sequence, index, simpler, failure);
        simpler = sequence->operations[index];
        simpler.b = 0;
        (void)operation_replaced(minimise, sequence, index, simpler, failure);
        simpler = sequence->operations[index];
        simpler.c = 0;
        (void)operation_replaced(minimise, sequence, index, simpler, failure);
        number_lowered(minimise, sequence, index, failure);
        if (sequence->operations[index].code == OPERATION_create)
            bits_lowered(minimise, sequence, index, failure);
    }
}

bool sequence_minimise(struct minimise *minimise, struct sequence *sequence)
{
    if (sequence_run(minimise, sequence, true) == CHILD_WELL)
        return false;
    struct failure failure = failure_of(minimise->report);
    tail_cut(minimise, sequence);
    operations_cut(minimise, sequence, &failure);
    arguments_lowered(minimise, sequence, &failure);
    operations_cut(minimise, sequence, &failure);
    (void)sequence_run(minimise, sequence, true); /* the report is of the shortened sequence */
    return true;
}
