/* Uses of blocks by other streams: see notes.h. */
#include "lane/notes.h"
#include "base/error.h"
#include "base/hostmem.h"

#define EPOCH_NONE UINT64_MAX

/* Return a use of a block in the map, and its next one; NULL: none. */
static struct use *use_first(const struct notes *uses, uint64_t address)
{
    return (struct use *)vmm__map_find(&uses->map, address);
}

static struct use *use_next(const struct use *use)
{
    return (struct use *)vmm__map_find_next(&use->node);
}

/* Removes a use from the map. */
static void use_remove(struct notes *uses, struct use *use)
{
    vmm__map_remove(&uses->map, &use->node);
    atomic_fetch_sub_explicit(&uses->count, 1, memory_order_relaxed);
}

void vmm__notes_init(struct notes *uses, struct clock *clock)
{
    *uses = (struct notes){ .clock = clock, .newest_next = &uses->oldest };
}

static void use_free(struct notes *uses, struct use *use)
{
    vmm__event_drop(uses->clock->events, use->event);
    vmm__host_free(use, sizeof *use);
}

static void use_list_free(struct notes *uses, struct use *use)
{
    while (use != NULL) {
        struct use *next = use->next;
        use_free(uses, use);
        use = next;
    }
}

static void uses_forget_all(struct notes *uses)
{
    struct map_node *next;
    for (struct map_node *node = vmm__map_next(&uses->map, NULL); node != NULL; node = next) {
        next = vmm__map_next(&uses->map, node);
        use_remove(uses, (struct use *)node);
        use_free(uses, (struct use *)node);
    }
    vmm__map_clear(&uses->map, NULL);
}

void vmm__notes_fini(struct notes *uses)
{
    uses_forget_all(uses);
    while (uses->oldest != NULL) {
        struct wait *wait = uses->oldest;
        uses->oldest = wait->next;
        use_list_free(uses, wait->uses);
        vmm__host_free(wait, sizeof *wait);
    }
}

bool vmm__notes_has_uses(const struct notes *uses, uint64_t address)
{
    return vmm__notes_count(uses) != 0 && use_first(uses, address) != NULL;
}

/* ---- One use --------------------------------------------------------------------------------- */

static bool user_is(const struct use *use, struct user user)
{
    return use->user.stream == user.stream && use->user.ends == user.ends &&
           use->ends == atomic_load_explicit(user.ends, memory_order_acquire);
}

static bool user_has_ended(const struct use *use)
{
    return atomic_load_explicit(use->user.ends, memory_order_acquire) != use->ends;
}

/* Replaces what an earlier record left: the new event or epoch is not earlier than it. */
static vmm_status use_record(const struct notes *uses, struct use *use)
{
    struct error_line line;
    struct event *event = NULL;
    vmm_status status = VMM__PENDING;
    vmm__error_save(&line);
    if (!use->waits_for_all && !user_has_ended(use))
        status = vmm__clock_mark(uses->clock, use->user.stream, use->user.ends, use->ends, &event);
    vmm__event_drop(uses->clock->events, use->event);
    use->event = event;
    use->epoch = vmm__clock_now(uses->clock);
    if (status != VMM_ERR_LOST)
        vmm__error_restore(&line);
    return status == VMM_ERR_LOST ? status : VMM_OK;
}

/* VMM_OK if the use has passed. */
static vmm_status use_query(const struct notes *uses, const struct use *use)
{
    if (use->event != NULL)
        return vmm__driver_event_query(uses->clock->driver, use->event->handle);
    return vmm__clock_query(uses->clock, use->epoch);
}

vmm_status vmm__notes_use(struct notes *uses, uint64_t address, struct user user)
{
    for (const struct use *use = use_first(uses, address); use != NULL; use = use_next(use)) {
        if (user_is(use, user))
            return VMM_OK;
    }
    struct use *use = vmm__host_alloc(1, sizeof *use);
    if (use == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "vmm_record_stream: no host memory for another use");
    *use = (struct use){ .node.key = address, .user = user, .epoch = EPOCH_NONE };
    use->ends = atomic_load_explicit(user.ends, memory_order_acquire);
    vmm__map_add(&uses->map, &use->node);
    atomic_fetch_add_explicit(&uses->count, 1, memory_order_relaxed);
    return VMM_OK;
}

void vmm__notes_lend(struct notes *uses, uint64_t address, struct user user, bool waits_for_all)
{
    for (struct use *use = use_first(uses, address); use != NULL; use = use_next(use)) {
        use->is_borrower = user_is(use, user);
        use->waits_for_all = use->is_borrower && waits_for_all;
    }
}

bool vmm__notes_borrower(const struct notes *uses, uint64_t address, vmm_stream *stream,
                         bool *has_ended)
{
    const struct use *use = use_first(uses, address);
    while (use != NULL && !use->is_borrower)
        use = use_next(use);
    if (use == NULL)
        return false;
    *stream = use->user.stream;
    *has_ended = user_has_ended(use);
    return true;
}

/* ---- Live blocks ----------------------------------------------------------------------------- */

/* Records the uses of a block. ERR_LOST. */
static vmm_status uses_record(const struct notes *uses, uint64_t address)
{
    vmm_status status = VMM_OK;
    for (struct use *use = use_first(uses, address); use != NULL && status == VMM_OK;
         use = use_next(use))
        status = use_record(uses, use);
    return status;
}

void vmm__notes_record(struct notes *uses, uint64_t address)
{
    VMM_QUIET();
    if (vmm__notes_count(uses) != 0)
        (void)uses_record(uses, address);
}

bool vmm__notes_forget(struct notes *uses, uint64_t address)
{
    bool forgot_all = true;
    struct use *next;
    if (vmm__notes_count(uses) == 0)
        return true;
    for (struct use *use = use_first(uses, address); use != NULL; use = next) {
        next = use_next(use);
        if (use->epoch == EPOCH_NONE || use_query(uses, use) != VMM_OK) {
            forgot_all = false;
            continue;
        }
        use_remove(uses, use);
        use_free(uses, use);
    }
    return forgot_all;
}

/* A stream that the driver does not know runs nothing that could come too early. */
static vmm_status use_follow(const struct notes *uses, const struct use *use, vmm_stream stream)
{
    vmm_status status = use->event != NULL
                            ? vmm__clock_event_follow(uses->clock, use->event, stream)
                            : vmm__clock_follow(uses->clock, use->epoch, stream);
    if (status == VMM__PENDING)
        status = use_query(uses, use);
    else if (status == VMM_ERR_INVALID_ARGUMENT)
        status = VMM_OK;
    if (status != VMM__PENDING)
        return status;
    return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                      "vmm_commit: other streams still use what vmm_decommit() took, and a capture "
                      "keeps stream %p from waiting for them",
                      stream);
}

vmm_status vmm__notes_follow(struct notes *uses, uint64_t address, vmm_stream stream)
{
    vmm_status status = VMM_OK;
    if (vmm__notes_count(uses) == 0)
        return VMM_OK;
    for (const struct use *use = use_first(uses, address); use != NULL && status == VMM_OK;
         use = use_next(use)) {
        if (use->epoch != EPOCH_NONE)
            status = use_follow(uses, use, stream);
    }
    return status;
}

/* ---- Freed blocks ---------------------------------------------------------------------------- */

/* Removes the uses of a block from the map, into a list. */
static struct use *uses_collect(struct notes *uses, uint64_t address)
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

void vmm__notes_drop(struct notes *uses, uint64_t address)
{
    if (vmm__notes_count(uses) != 0)
        use_list_free(uses, uses_collect(uses, address));
}

void vmm__notes_move(struct notes *uses, uint64_t from, uint64_t to)
{
    struct use *use;
    while (vmm__notes_count(uses) != 0 && (use = use_first(uses, from)) != NULL) {
        vmm__map_remove(&uses->map, &use->node);
        use->node.key = to;
        vmm__map_add(&uses->map, &use->node);
    }
}

vmm_status vmm__notes_end(struct notes *uses, uint64_t address)
{
    if (!vmm__notes_has_uses(uses, address))
        return VMM_OK;
    struct error_line line;
    struct wait *wait = vmm__host_alloc(1, sizeof *wait);
    if (wait == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "vmm_free: no host memory for a block that must wait");
    vmm__error_save(&line);
    vmm_status status = uses_record(uses, address);
    struct use *collected = uses_collect(uses, address);
    if (status == VMM_ERR_LOST) { /* a lost device runs no work, and its memory is never reused */
        use_list_free(uses, collected);
        vmm__host_free(wait, sizeof *wait);
        vmm__error_restore(&line);
        return VMM_OK;
    }
    *wait = (struct wait){ .address = address, .uses = collected };
    *uses->newest_next = wait;
    uses->newest_next = &wait->next;
    return VMM__PENDING;
}

/* The link to the wait of a block; its end, if there is none. */
static struct wait **wait_find(struct notes *uses, uint64_t address)
{
    struct wait **link = &uses->oldest;
    while (*link != NULL && (*link)->address != address)
        link = &(*link)->next;
    return link;
}

/* Removes a wait whose uses are gone. */
static void wait_remove(struct notes *uses, struct wait **link)
{
    struct wait *wait = *link;
    *link = wait->next;
    if (wait->next == NULL)
        uses->newest_next = link;
    vmm__host_free(wait, sizeof *wait);
}

bool vmm__notes_is_waiting(struct notes *uses, uint64_t address)
{
    return *wait_find(uses, address) != NULL;
}

unsigned vmm__notes_streams(struct notes *uses, uint64_t address, vmm_stream *streams,
                            unsigned most)
{
    const struct wait *wait = *wait_find(uses, address);
    unsigned count = 0;
    for (const struct use *use = wait == NULL ? NULL : wait->uses; use != NULL; use = use->next) {
        if (count < most)
            streams[count] = use->user.stream;
        count++;
    }
    return count;
}

bool vmm__notes_wait_end(struct notes *uses, uint64_t address)
{
    struct wait **link = wait_find(uses, address);
    if (*link == NULL)
        return false;
    use_list_free(uses, (*link)->uses);
    wait_remove(uses, link);
    return true;
}

void vmm__notes_pass_begin(struct notes *uses, unsigned most, struct notes_pass *pass)
{
    pass->link = &uses->oldest;
    pass->left = most;
    pass->stuck_epoch = EPOCH_NONE;
    pass->stuck_count = 0;
}

/* Whether the pass already knows that a use is pending: events of one stream pass in order. */
static bool use_is_stuck(const struct use *use, const struct notes_pass *pass)
{
    if (use->event == NULL)
        return use->epoch >= pass->stuck_epoch;
    unsigned i = 0;
    while (i < pass->stuck_count && pass->stuck[i] != use->user.stream)
        i++;
    return i < pass->stuck_count;
}

static vmm_status pass_query(const struct notes *uses, const struct use *use,
                             struct notes_pass *pass)
{
    if (use_is_stuck(use, pass))
        return VMM__PENDING;
    vmm_status status = use_query(uses, use);
    if (status == VMM__PENDING && use->event == NULL)
        pass->stuck_epoch = use->epoch;
    else if (status == VMM__PENDING && pass->stuck_count < NOTES_STUCK)
        pass->stuck[pass->stuck_count++] = use->user.stream;
    return status;
}

/* Drops the uses that have passed. VMM_OK if all have. */
static vmm_status wait_poll(struct notes *uses, struct wait *wait, struct notes_pass *pass)
{
    while (wait->uses != NULL) {
        struct use *use = wait->uses;
        vmm_status status = pass_query(uses, use, pass);
        if (status != VMM_OK)
            return status;
        wait->uses = use->next;
        use_free(uses, use);
    }
    return VMM_OK;
}

vmm_status vmm__notes_pass_next(struct notes *uses, struct notes_pass *pass, uint64_t *address)
{
    for (; *pass->link != NULL && pass->left > 0; pass->link = &(*pass->link)->next, pass->left--) {
        struct wait *wait = *pass->link;
        vmm_status status = wait_poll(uses, wait, pass);
        if (status == VMM__PENDING)
            continue;
        if (status != VMM_OK)
            return status;
        *address = wait->address;
        wait_remove(uses, pass->link);
        return VMM_OK;
    }
    return VMM__NOTHING;
}

bool vmm__notes_oldest(const struct notes *uses, struct event **event, uint64_t *epoch)
{
    const struct wait *wait = uses->oldest;
    while (wait != NULL && (wait->uses == NULL || wait->uses->event == NULL))
        wait = wait->next;
    if (wait == NULL)
        wait = uses->oldest;
    if (wait == NULL || wait->uses == NULL)
        return false;
    *event = wait->uses->event;
    *epoch = wait->uses->epoch;
    if (*event != NULL)
        vmm__event_hold(uses->clock->events, *event);
    return true;
}
