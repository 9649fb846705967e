/* Faults: see fault.h. */
#include "fault.h"

#include "fragtest/trace/random.h"

const char *sweep_kind_name(enum sweep_kind kind)
{
    static const char *const names[KINDS] = { "driver",          "for-ever", "memory",
                                              "memory-for-ever", "double",   "system",
                                              "system-for-ever" };
    return names[kind];
}

bool sweep_kind_numbers(enum sweep_kind kind, enum sweep_group group)
{
    switch (kind) {
    case KIND_DRIVER:
    case KIND_FOR_EVER:
        return group == GROUP_DRIVER;
    case KIND_MEMORY:
    case KIND_MEMORY_FOR_EVER:
        return group == GROUP_MEMORY;
    case KIND_DOUBLE:
        return group != GROUP_SYSTEM;
    default:
        return false;
    }
}

uint64_t sweep_fault_draw(const struct sweep_fault *fault, uint64_t seed, uint64_t salt)
{
    uint64_t state = seed * 1000003 + fault->scenario;
    state = state * 1000003 + fault->number;
    state = state * 1000003 + fault->variant;
    state = state * 1000003 + salt;
    return random_next(&state);
}

void sweep_fault_write(const struct sweep_fault *fault, uint64_t seed, FILE *out)
{
    enum sweep_group group = sweep_call_group(fault->call);
    (void)fprintf(out, "  %s %s", sweep_call_name(fault->call),
                  sweep_code_name(group, fault->code));
    if (fault->second_code != 0)
        (void)fprintf(out, ", then %s %s", sweep_call_name(fault->second_call),
                      sweep_code_name(sweep_call_group(fault->second_call), fault->second_code));
    (void)fprintf(
        out, "; replay: stress_faults --seed %llu --kind %s --scenario %u --at %llu --variant %u\n",
        (unsigned long long)seed, sweep_kind_name(fault->kind), fault->scenario,
        (unsigned long long)fault->number, fault->variant);
}
