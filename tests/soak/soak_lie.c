/*
 * Lies: the soak's driver, or the soak itself, keeps something from the cache, which then does what it must
 * never do. The soak must find it: that shows that it looks. See soak.h.
 */
#include "soak.h"

#include <string.h>

static struct driver_ops lying_ops;
static const struct driver_ops *true_ops;
static uint64_t records;

static vmm_status query_lied(struct driver *driver, void *event)
{
    (void)driver;
    (void)event;
    return VMM_OK;
}

static vmm_status follow_lied(struct driver *driver, vmm_stream stream, void *event)
{
    (void)driver;
    (void)stream;
    (void)event;
    return VMM_OK;
}

static vmm_status device_lied(struct driver *driver)
{
    (void)driver;
    return VMM_OK;
}

/* Every other mark is an older one, or none. */
static vmm_status record_lied(struct driver *driver, void *event, vmm_stream stream)
{
    return ++records % 2 == 0 ? VMM_OK : true_ops->event_record(driver, event, stream);
}

bool soak_lie_read(const char *text, enum soak_lie *out)
{
    static const char *const names[] = {
        "none", "query", "follow", "device", "record", "use", "end"
    };
    for (unsigned lie = 0; lie < sizeof names / sizeof names[0]; lie++) {
        if (strcmp(text, names[lie]) == 0) {
            *out = (enum soak_lie)lie;
            return true;
        }
    }
    return false;
}

void soak_lie_begin(struct soak *soak)
{
    true_ops = soak->driver->ops;
    soak->ops = true_ops;
    lying_ops = *true_ops;
    if (soak->lie == LIE_QUERY)
        lying_ops.event_query = query_lied;
    if (soak->lie == LIE_FOLLOW)
        lying_ops.stream_wait = follow_lied;
    if (soak->lie == LIE_DEVICE)
        lying_ops.device_wait = device_lied;
    if (soak->lie == LIE_RECORD)
        lying_ops.event_record = record_lied;
    soak->driver->ops = &lying_ops;
}
