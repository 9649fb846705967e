/* The closing table of a sweep: see point.h. */
#include "point.h"

#include <inttypes.h>

static bool is_swept(const struct sweep_order *order, unsigned call)
{
    switch (sweep_call_group(call)) {
    case GROUP_DRIVER:
        return order->kinds[KIND_DRIVER] || order->kinds[KIND_FOR_EVER] ||
               order->kinds[KIND_DOUBLE];
    case GROUP_MEMORY:
        return order->kinds[KIND_MEMORY] || order->kinds[KIND_MEMORY_FOR_EVER] ||
               order->kinds[KIND_DOUBLE];
    default:
        return order->kinds[KIND_SYSTEM] || order->kinds[KIND_SYSTEM_FOR_EVER];
    }
}

static void kinds_write(FILE *out, const struct sweep_order *order)
{
    (void)fprintf(out, "%-16s %12s %12s\n", "kind", "runs", "faults");
    for (int kind = 0; kind < KINDS; kind++) {
        if (order->kinds[kind])
            (void)fprintf(out, "%-16s %12" PRIu64 " %12" PRIu64 "\n",
                          sweep_kind_name((enum sweep_kind)kind), sweep_sums->children[kind],
                          sweep_sums->fired[kind]);
    }
}

static void call_write(FILE *out, unsigned call, unsigned *pairs, unsigned *hit)
{
    (void)fprintf(out, "%-16s", sweep_call_name(call));
    for (unsigned i = 0; i < sweep_code_count(call); i++) {
        uint64_t hits = sweep_sums->hits[call][i];
        (void)fprintf(out, "  %s %" PRIu64,
                      sweep_code_name(sweep_call_group(call), sweep_code(call, i)), hits);
        *pairs += 1;
        *hit += hits > 0;
    }
    (void)fprintf(out, "\n");
}

void table_write(FILE *out, const struct sweep_order *order, double seconds)
{
    unsigned pairs = 0;
    unsigned hit = 0;
    kinds_write(out, order);
    for (unsigned call = 0; call < SWEEP_CALLS; call++) {
        if (is_swept(order, call))
            call_write(out, call, &pairs, &hit);
    }
    (void)fprintf(out,
                  "stress_faults: %u of %u pairs of call and code, %" PRIu64
                  " operations after faults, %" PRIu64 " failures; %.1f s\n",
                  hit, pairs, sweep_sums->operations, sweep_sums->failures, seconds);
}
