/* Blocks used by other streams than their own: see uses.h. */
#include "heap/uses.h"
#include "base/error.h"
#include "base/hostmem.h"

static struct use **bucket_of(struct uses *uses, uint64_t address)
{
    return &uses->buckets[(address >> 9) * UINT64_C(0x9E3779B97F4A7C15) >> 56];
}

void vmm__uses_init(struct uses *uses)
{
    *uses = (struct uses){ .newest_next = &uses->oldest };
}

static void use_list_free(struct use *use)
{
    while (use != NULL) {
        struct use *next = use->next;
        vmm__host_free(use, sizeof *use);
        use = next;
    }
}

void vmm__uses_fini(struct uses *uses)
{
    for (int i = 0; uses->buckets != NULL && i < USE_BUCKETS; i++)
        use_list_free(uses->buckets[i]);
    vmm__host_free(uses->buckets, USE_BUCKETS * sizeof(struct use *));
    while (uses->oldest != NULL) {
        struct wait *wait = uses->oldest;
        uses->oldest = wait->next;
        use_list_free(wait->uses);
        vmm__host_free(wait, sizeof *wait);
    }
}

vmm_status vmm__uses_add(struct uses *uses, uint64_t address, struct timeline *timeline)
{
    if (uses->buckets == NULL)
        uses->buckets = vmm__host_alloc(USE_BUCKETS, sizeof *uses->buckets);
    if (uses->buckets == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "use: no host memory for the table of uses");
    struct use **bucket = bucket_of(uses, address);
    for (const struct use *use = *bucket; use != NULL; use = use->next) {
        if (use->address == address && use->timeline == timeline)
            return VMM_OK;
    }
    struct use *use = vmm__host_alloc(1, sizeof *use);
    if (use == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "use: no host memory for another use");
    *use = (struct use){ .next = *bucket, .address = address, .timeline = timeline };
    *bucket = use;
    uses->count++;
    return VMM_OK;
}

/* Puts a mark on the timeline of every use of a block; counts them. */
static vmm_status uses_mark(struct uses *uses, uint64_t address, uint64_t *count)
{
    *count = 0;
    for (struct use *use = *bucket_of(uses, address); use != NULL; use = use->next) {
        if (use->address != address)
            continue;
        use->epoch = vmm__timeline_now(use->timeline);
        vmm_status status = vmm__timeline_mark(use->timeline, use->epoch);
        if (status != VMM_OK)
            return status;
        (*count)++;
    }
    return VMM_OK;
}

/* Moves the uses of a block out of the table into a list. */
static struct use *uses_collect(struct uses *uses, uint64_t address)
{
    struct use *collected = NULL;
    struct use **link = bucket_of(uses, address);
    while (*link != NULL) {
        struct use *use = *link;
        if (use->address != address) {
            link = &use->next;
            continue;
        }
        *link = use->next;
        use->next = collected;
        collected = use;
        uses->count--;
    }
    return collected;
}

vmm_status vmm__uses_end(struct uses *uses, uint64_t address)
{
    if (uses->count == 0)
        return VMM_OK;
    uint64_t count;
    vmm_status status = uses_mark(uses, address, &count);
    if (status != VMM_OK || count == 0)
        return status;
    struct wait *wait = vmm__host_alloc(1, sizeof *wait);
    if (wait == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "free: no host memory for a block that must wait");
    wait->address = address;
    wait->uses = uses_collect(uses, address);
    *uses->newest_next = wait;
    uses->newest_next = &wait->next;
    return VMM_NOT_READY;
}

/* Drops the uses that have passed. */
static vmm_status wait_poll(struct wait *wait)
{
    while (wait->uses != NULL) {
        struct use *use = wait->uses;
        vmm_status status = vmm__timeline_query(use->timeline, use->epoch);
        if (status != VMM_OK)
            return status;
        wait->uses = use->next;
        vmm__host_free(use, sizeof *use);
    }
    return VMM_OK;
}

vmm_status vmm__uses_poll(struct uses *uses, unsigned most, uint64_t *address)
{
    struct wait **link = &uses->oldest;
    for (; *link != NULL && most > 0; link = &(*link)->next, most--) {
        struct wait *wait = *link;
        vmm_status status = wait_poll(wait);
        if (status == VMM_NOT_READY)
            continue;
        if (status != VMM_OK)
            return status;
        *address = wait->address;
        *link = wait->next;
        if (*link == NULL)
            uses->newest_next = link;
        vmm__host_free(wait, sizeof *wait);
        return VMM_OK;
    }
    return VMM_NOT_READY;
}

vmm_status vmm__uses_wait(struct uses *uses)
{
    if (uses->oldest == NULL)
        return VMM_NOT_READY;
    for (struct use *use = uses->oldest->uses; use != NULL; use = use->next) {
        vmm_status status = vmm__timeline_wait(use->timeline, use->epoch);
        if (status != VMM_OK)
            return status;
    }
    return VMM_OK;
}
