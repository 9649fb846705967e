/* Uses of blocks by other streams: see uses.h. */
#include "lane/uses.h"
#include "base/error.h"
#include "base/hostmem.h"

/* Return a use of a block in the map, and its next one; NULL: none. */
static struct use *use_first(const struct uses *uses, uint64_t address)
{
    return (struct use *)vmm__map_find(&uses->map, address);
}

static struct use *use_next(const struct use *use)
{
    return (struct use *)vmm__map_find_next(&use->node);
}

/* Removes a use from the map. */
static void use_remove(struct uses *uses, struct use *use)
{
    vmm__map_remove(&uses->map, &use->node);
    atomic_fetch_sub_explicit(&uses->count, 1, memory_order_relaxed);
}

void vmm__uses_init(struct uses *uses)
{
    *uses = (struct uses){ .newest_next = &uses->oldest };
}

static void use_free(struct use *use)
{
    vmm__timeline_forget(use->timeline);
    vmm__host_free(use, sizeof *use);
}

/* Frees the record only: at the end of the cache the timelines may no longer exist. */
static void use_drop(struct map_node *node)
{
    vmm__host_free(node, sizeof(struct use));
}

static void use_forget(struct map_node *node)
{
    use_free((struct use *)node);
}

static void use_list_free(struct use *use)
{
    while (use != NULL) {
        struct use *next = use->next;
        use_drop(&use->node);
        use = next;
    }
}

void vmm__uses_fini(struct uses *uses)
{
    vmm__map_clear(&uses->map, use_drop);
    while (uses->oldest != NULL) {
        struct wait *wait = uses->oldest;
        uses->oldest = wait->next;
        use_list_free(wait->uses);
        vmm__host_free(wait, sizeof *wait);
    }
}

bool vmm__uses_has(const struct uses *uses, uint64_t address)
{
    return vmm__uses_count(uses) != 0 && use_first(uses, address) != NULL;
}

void vmm__uses_forget_all(struct uses *uses)
{
    vmm__map_clear(&uses->map, use_forget);
    atomic_store_explicit(&uses->count, 0, memory_order_relaxed);
}

vmm_status vmm__uses_waits(const struct uses *uses, uint64_t address, struct limbo_wait **waits)
{
    struct limbo_wait *made = NULL;
    struct limbo_wait **last = &made;
    for (const struct use *use = use_first(uses, address); use != NULL; use = use_next(use)) {
        struct limbo_wait *wait = vmm__host_alloc(1, sizeof *wait);
        if (wait == NULL) {
            vmm__limbo_waits_free(made, true);
            return vmm__error(VMM_ERR_HOST_OOM, "uses: no host memory for a chunk that must wait");
        }
        *wait = (struct limbo_wait){ .timeline = use->timeline,
                                     .epoch = vmm__timeline_now(use->timeline) };
        vmm__timeline_refer(use->timeline);
        *last = wait;
        last = &wait->next;
    }
    *last = *waits;
    *waits = made;
    return VMM_OK;
}

vmm_status vmm__uses_add(struct uses *uses, uint64_t address, struct timeline *timeline)
{
    for (const struct use *use = use_first(uses, address); use != NULL; use = use_next(use)) {
        if (use->timeline == timeline)
            return VMM_OK;
    }
    struct use *use = vmm__host_alloc(1, sizeof *use);
    if (use == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "vmm_record_stream: no host memory for another use");
    *use = (struct use){ .node.key = address, .timeline = timeline };
    vmm__timeline_refer(timeline);
    vmm__map_add(&uses->map, &use->node);
    atomic_fetch_add_explicit(&uses->count, 1, memory_order_relaxed);
    return VMM_OK;
}

void vmm__uses_lend(struct uses *uses, uint64_t address, const struct timeline *timeline)
{
    for (struct use *use = use_first(uses, address); use != NULL; use = use_next(use))
        use->is_borrower = use->timeline == timeline;
}

const struct timeline *vmm__uses_borrower(const struct uses *uses, uint64_t address)
{
    const struct use *use = use_first(uses, address);
    while (use != NULL && !use->is_borrower)
        use = use_next(use);
    return use == NULL ? NULL : use->timeline;
}

/* Records an event for every use of a block, and counts the uses. */
static vmm_status uses_record(struct uses *uses, uint64_t address, uint64_t *count)
{
    *count = 0;
    for (struct use *use = use_first(uses, address); use != NULL; use = use_next(use)) {
        use->epoch = vmm__timeline_now(use->timeline);
        vmm_status status = vmm__timeline_record(use->timeline, use->epoch);
        /* The event of a capturing stream is recorded later. */
        if (status != VMM_OK && status != VMM__PENDING)
            return status;
        (*count)++;
    }
    return VMM_OK;
}

/* Removes the uses of a block from the map, into a list. */
static struct use *uses_collect(struct uses *uses, uint64_t address)
{
    struct use *collected = NULL;
    struct use *use;
    while ((use = use_first(uses, address)) != NULL) {
        use_remove(uses, use);
        use->next = collected;
        collected = use;
    }
    return collected;
}

vmm_status vmm__uses_end(struct uses *uses, uint64_t address)
{
    if (vmm__uses_count(uses) == 0)
        return VMM_OK;
    uint64_t count;
    struct error_line line;
    vmm__error_save(&line);
    vmm_status status = uses_record(uses, address, &count);
    if (status == VMM_ERR_LOST) { /* a lost device runs no work, and its memory is never reused */
        use_list_free(uses_collect(uses, address));
        vmm__error_restore(&line);
        return VMM_OK;
    }
    if (status != VMM_OK || count == 0)
        return status;
    struct wait *wait = vmm__host_alloc(1, sizeof *wait);
    if (wait == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "vmm_free: no host memory for a block that must wait");
    wait->address = address;
    wait->uses = uses_collect(uses, address);
    *uses->newest_next = wait;
    uses->newest_next = &wait->next;
    return VMM__PENDING;
}

bool vmm__uses_is_waiting(const struct uses *uses, uint64_t address)
{
    const struct wait *wait = uses->oldest;
    while (wait != NULL && wait->address != address)
        wait = wait->next;
    return wait != NULL;
}

void vmm__uses_stamp(struct uses *uses, uint64_t address)
{
    if (vmm__uses_count(uses) == 0)
        return;
    for (struct use *use = use_first(uses, address); use != NULL; use = use_next(use))
        use->epoch = vmm__timeline_now(use->timeline);
}

bool vmm__uses_forget(struct uses *uses, uint64_t address)
{
    if (vmm__uses_count(uses) == 0)
        return true;
    bool forgot_all = true;
    struct use *next;
    for (struct use *use = use_first(uses, address); use != NULL; use = next) {
        next = use_next(use);
        if (vmm__timeline_query(use->timeline, use->epoch) != VMM_OK) {
            forgot_all = false;
            continue;
        }
        use_remove(uses, use);
        use_free(use);
    }
    return forgot_all;
}

void vmm__uses_pass_begin(struct uses *uses, unsigned most, struct uses_pass *pass)
{
    pass->link = &uses->oldest;
    pass->left = most;
    pass->stuck_count = 0;
}

/* Queries a timeline, unless this pass already knows that the epoch is pending. */
static vmm_status use_query(const struct use *use, struct uses_pass *pass)
{
    for (unsigned i = 0; i < pass->stuck_count; i++) {
        if (pass->stuck[i].timeline == use->timeline && pass->stuck[i].epoch <= use->epoch)
            return VMM__PENDING;
    }
    vmm_status status = vmm__timeline_query(use->timeline, use->epoch);
    if (status == VMM__PENDING && pass->stuck_count < USES_STUCK)
        pass->stuck[pass->stuck_count++] = *use;
    return status;
}

/* Drops the uses that have passed. VMM_OK if all have. */
static vmm_status wait_poll(struct wait *wait, struct uses_pass *pass)
{
    while (wait->uses != NULL) {
        struct use *use = wait->uses;
        vmm_status status = use_query(use, pass);
        if (status != VMM_OK)
            return status;
        wait->uses = use->next;
        use_free(use);
    }
    return VMM_OK;
}

vmm_status vmm__uses_pass_next(struct uses *uses, struct uses_pass *pass, uint64_t *address)
{
    for (; *pass->link != NULL && pass->left > 0; pass->link = &(*pass->link)->next, pass->left--) {
        struct wait *wait = *pass->link;
        vmm_status status = wait_poll(wait, pass);
        if (status == VMM__PENDING)
            continue;
        if (status != VMM_OK)
            return status;
        *address = wait->address;
        *pass->link = wait->next;
        if (wait->next == NULL)
            uses->newest_next = pass->link;
        vmm__host_free(wait, sizeof *wait);
        return VMM_OK;
    }
    return VMM__NOTHING;
}

/* Whether the streams of all its uses can finish: no stream is capturing. */
static bool wait_can_finish(const struct wait *wait)
{
    const struct use *use = wait->uses;
    while (use != NULL && vmm__timeline_record(use->timeline, use->epoch) != VMM__PENDING)
        use = use->next;
    return use == NULL;
}

bool vmm__uses_oldest(const struct uses *uses, struct timeline **timeline, uint64_t *epoch)
{
    const struct wait *wait = uses->oldest;
    while (wait != NULL && !wait_can_finish(wait))
        wait = wait->next;
    if (wait == NULL || wait->uses == NULL)
        return false;
    *timeline = wait->uses->timeline;
    *epoch = wait->uses->epoch;
    return true;
}
