/* Workloads in which everything fails once, one a run: see fault_support.h. */
#include "support/fault_support.h"

/* A test that fails must tell at which fault. */
static const struct fault *fault_under_way;

int fault_teardown(void **state)
{
    (void)state;
    const struct fault *fault = fault_under_way;
    (void)vmm__host_fail_at(0);
    if (fault != NULL)
        print_error("workload %u, driver call %llu (%s%s), allocation %llu\n", fault->workload,
                    (unsigned long long)fault->call, vmm_status_name(fault->status),
                    fault->for_ever ? ", for ever" : "", (unsigned long long)fault->allocation);
    fault_under_way = NULL;
    return 0;
}

static void fault_swept(struct fault fault)
{
    static struct fault kept;
    kept = fault;
    fault_under_way = &kept;
    (void)fault_run(&fault);
    fault_under_way = NULL;
}

static void calls_swept(unsigned workload, bool for_ever)
{
    static const vmm_status statuses[] = { VMM_ERR_DEVICE_OOM, VMM_ERR_DRIVER, VMM_ERR_LOST,
                                           VMM_ERR_ADDRESS_SPACE };
    /* Out of memory is what takes paths of its own; others are stopped by any status alike. */
    static const uint64_t strides[] = { 1, 2, 4, 4 };
    uint64_t calls = fault_run(&(struct fault){ .workload = workload });
    assert_true(calls > 250);
    unsigned most = workload == 0 ? 4 : 1; /* one workload with all statuses is enough */
    for (unsigned i = 0; i < most; i++) {
        uint64_t stride = strides[i] + (for_ever ? 1 : 0);
        for (uint64_t call = 1 + i; call <= calls; call += stride)
            fault_swept((struct fault){
                .workload = workload, .call = call, .status = statuses[i], .for_ever = for_ever });
    }
}

void fault_calls_swept(bool for_ever)
{
    for (unsigned i = 0; i < FAULT_WORKLOADS; i++)
        calls_swept(i, for_ever);
}

void fault_allocations_swept(void)
{
    for (unsigned i = 0; i < FAULT_WORKLOADS; i++) {
        uint64_t allocations =
            fault_run(&(struct fault){ .workload = i, .allocation = UINT64_MAX });
        assert_true(allocations > 100);
        for (uint64_t number = 1; number <= allocations; number++)
            fault_swept((struct fault){ .workload = i, .allocation = number });
    }
}
