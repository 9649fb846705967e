/* What a policy's calls take: see bill.h. */
#include "bill.h"

#include "base/clock.h"

/* The middle of many readings: what two clock readings in a row see between them. */
static uint64_t clock_cost(void)
{
    enum { READINGS = 101 };
    uint64_t low = UINT64_MAX;
    uint64_t sum = 0;

    for (int i = 0; i < READINGS; i++) {
        uint64_t start = vmm__clock_ns();
        uint64_t ns = vmm__clock_ns() - start;
        low = ns < low ? ns : low;
        sum += ns;
    }
    uint64_t mean = sum / READINGS;
    return mean < 2 * low ? mean : low;
}

void bill_begin(struct bill *bill, struct driver *driver)
{
    *bill = (struct bill){ .driver = driver, .clock_ns = clock_cost() };
    for (unsigned i = 0; i < DRIVER_CALL_COUNT; i++)
        bill->calls[i] = vmm__driver_calls(driver, (enum driver_call)i);
    bill->stalls = driver->stalls;
}

void bill_pass(struct bill *bill)
{
    bill->policy_ns = 0;
    bill->driver_ns = vmm__driver_clock_ns(bill->driver) - bill->waits_driver_ns;
    bill->host_ns = vmm__driver_host_ns(bill->driver) - bill->waits_host_ns;
}

void bill_call(struct bill *bill, uint64_t start_ns)
{
    uint64_t ns = vmm__clock_ns() - start_ns;
    bill->policy_ns += ns > bill->clock_ns ? ns - bill->clock_ns : 0;
}

vmm_status bill_settle(struct bill *bill)
{
    uint64_t driver_ns = vmm__driver_clock_ns(bill->driver);
    uint64_t host_ns = vmm__driver_host_ns(bill->driver);
    vmm_status status = vmm__driver_device_wait(bill->driver);

    bill->waits++;
    bill->waits_driver_ns += vmm__driver_clock_ns(bill->driver) - driver_ns;
    bill->waits_host_ns += vmm__driver_host_ns(bill->driver) - host_ns;
    return status;
}

uint64_t bill_pass_driver_ns(const struct bill *bill)
{
    return vmm__driver_clock_ns(bill->driver) - bill->waits_driver_ns - bill->driver_ns;
}

double bill_pass_ns(const struct bill *bill)
{
    uint64_t host_ns = vmm__driver_host_ns(bill->driver) - bill->waits_host_ns - bill->host_ns;
    double ns = (double)bill->policy_ns - (double)host_ns + (double)bill_pass_driver_ns(bill);
    return ns > 0 ? ns : 0;
}

uint64_t bill_calls(const struct bill *bill, enum driver_call call)
{
    uint64_t own = call == DRIVER_CALL_device_wait ? bill->waits : 0;
    return vmm__driver_calls(bill->driver, call) - bill->calls[call] - own;
}

uint64_t bill_stalls(const struct bill *bill)
{
    return bill->driver->stalls - bill->stalls - bill->waits;
}
