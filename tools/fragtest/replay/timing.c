/* Measures what a policy's calls take: see timing.h. */
#include "fragtest/replay/timing.h"

#include "base/time.h"

/* The middle of many readings: what two clock readings in a row see between them. */
static uint64_t clock_cost(void)
{
    enum { READINGS = 101 };
    uint64_t low = UINT64_MAX;
    uint64_t sum = 0;

    for (int i = 0; i < READINGS; i++) {
        uint64_t start = vmm__time_ns();
        uint64_t ns = vmm__time_ns() - start;
        low = ns < low ? ns : low;
        sum += ns;
    }
    uint64_t mean = sum / READINGS;
    return mean < 2 * low ? mean : low;
}

void timing_begin(struct timing *timing, struct driver *driver)
{
    *timing = (struct timing){ .driver = driver, .clock_ns = clock_cost() };
    for (unsigned i = 0; i < DRIVER_CALL_COUNT; i++)
        timing->calls[i] = vmm__driver_calls(driver, (enum driver_call)i);
    timing->stalls = driver->counts.stalls;
}

void timing_pass(struct timing *timing)
{
    timing->policy_ns = 0;
    timing->driver_ns = vmm__driver_clock_ns(timing->driver) - timing->waits_driver_ns;
    timing->host_ns = vmm__driver_host_ns(timing->driver) - timing->waits_host_ns;
}

void timing_call(struct timing *timing, uint64_t start_ns)
{
    uint64_t ns = vmm__time_ns() - start_ns;
    timing->policy_ns += ns > timing->clock_ns ? ns - timing->clock_ns : 0;
}

vmm_status timing_settle(struct timing *timing)
{
    uint64_t driver_ns = vmm__driver_clock_ns(timing->driver);
    uint64_t host_ns = vmm__driver_host_ns(timing->driver);
    vmm_status status = vmm__driver_device_wait(timing->driver);

    timing->waits++;
    timing->waits_driver_ns += vmm__driver_clock_ns(timing->driver) - driver_ns;
    timing->waits_host_ns += vmm__driver_host_ns(timing->driver) - host_ns;
    return status;
}

uint64_t timing_pass_driver_ns(const struct timing *timing)
{
    return vmm__driver_clock_ns(timing->driver) - timing->waits_driver_ns - timing->driver_ns;
}

double timing_pass_ns(const struct timing *timing)
{
    uint64_t host_ns =
        vmm__driver_host_ns(timing->driver) - timing->waits_host_ns - timing->host_ns;
    double ns = (double)timing->policy_ns - (double)host_ns + (double)timing_pass_driver_ns(timing);
    return ns > 0 ? ns : 0;
}

uint64_t timing_calls(const struct timing *timing, enum driver_call call)
{
    uint64_t own = call == DRIVER_CALL_device_wait ? timing->waits : 0;
    return vmm__driver_calls(timing->driver, call) - timing->calls[call] - own;
}

uint64_t timing_stalls(const struct timing *timing)
{
    return timing->driver->counts.stalls - timing->stalls - timing->waits;
}
