/* Names, uses and waits of blocks: see notes.h. */
#include "lane/notes.h"
#include "base/error.h"
#include "base/hostmem.h"

#include <stdio.h>

#define EPOCH_NONE UINT64_MAX

/* ---- Notes ---------------------------------------------------------------------------------- */

void vmm__notes_init(struct notes *notes, struct clock *clock)
{
    *notes = (struct notes){ .clock = clock, .newest_next = &notes->oldest };
}

static struct note *note_find(const struct notes *notes, uint64_t address)
{
    return (struct note *)vmm__map_find(&notes->map, address);
}

/* The uses of a live block; NULL: none. */
static struct use *uses_of(const struct notes *notes, uint64_t address)
{
    const struct note *note = note_find(notes, address);
    return note == NULL ? NULL : note->uses;
}

/* Finds the note of a block, or makes one. NULL without host memory. */
static struct note *note_take(struct notes *notes, uint64_t address)
{
    struct note *note = note_find(notes, address);
    if (note != NULL)
        return note;
    note = vmm__host_alloc(1, sizeof *note);
    if (note == NULL)
        return NULL;
    *note = (struct note){ .node.key = address };
    vmm__map_add(&notes->map, &note->node);
    return note;
}

static void use_free(struct notes *notes, struct use *use)
{
    vmm__event_drop(notes->clock->events, use->event);
    vmm__host_free(use, sizeof *use);
}

static void name_free(struct note *note)
{
    vmm__host_free(note->name, VMM_NAME_BYTES);
    note->name = NULL;
}

/* Frees a note that is neither in the map nor in the list. */
static void note_free(struct notes *notes, struct note *note)
{
    while (note->uses != NULL) {
        struct use *use = note->uses;
        note->uses = use->next;
        use_free(notes, use);
    }
    name_free(note);
    vmm__host_free(note, sizeof *note);
}

void vmm__notes_drop(struct notes *notes, uint64_t address)
{
    struct note *note = note_find(notes, address);
    if (note == NULL)
        return;
    vmm__map_remove(&notes->map, &note->node);
    note_free(notes, note);
}

/* Drops the note of a block if it says nothing. */
static void note_settle(struct notes *notes, uint64_t address)
{
    const struct note *note = note_find(notes, address);
    if (note != NULL && note->uses == NULL && note->name == NULL)
        vmm__notes_drop(notes, address);
}

void vmm__notes_move(struct notes *notes, uint64_t from, uint64_t to)
{
    struct note *note = note_find(notes, from);
    if (note == NULL)
        return;
    vmm__map_remove(&notes->map, &note->node);
    note->node.key = to;
    vmm__map_add(&notes->map, &note->node);
}

void vmm__notes_fini(struct notes *notes)
{
    const struct map_node *next;
    for (const struct map_node *node = vmm__map_next(&notes->map, NULL); node != NULL;
         node = next) {
        next = vmm__map_next(&notes->map, node);
        vmm__notes_drop(notes, node->key);
    }
    vmm__map_clear(&notes->map, NULL);
    while (notes->oldest != NULL) {
        struct note *note = notes->oldest;
        notes->oldest = note->next;
        note_free(notes, note);
    }
}

bool vmm__notes_has(const struct notes *notes, uint64_t address)
{
    return note_find(notes, address) != NULL;
}

bool vmm__notes_has_uses(const struct notes *notes, uint64_t address)
{
    return uses_of(notes, address) != NULL;
}

/* ---- Names ---------------------------------------------------------------------------------- */

static vmm_status name_set(struct notes *notes, uint64_t address, const char *text)
{
    struct note *note = note_take(notes, address);
    if (note != NULL && note->name == NULL)
        note->name = vmm__host_alloc(VMM_NAME_BYTES, 1);
    if (note == NULL || note->name == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "vmm_name: no host memory for the name");
    (void)snprintf(note->name, VMM_NAME_BYTES, "%s", text);
    vmm__line_make(note->name);
    return VMM_OK;
}

vmm_status vmm__notes_name(struct notes *notes, uint64_t address, const char *text)
{
    struct note *note = note_find(notes, address);
    vmm_status status = VMM_OK;
    if (text != NULL)
        status = name_set(notes, address, text);
    else if (note != NULL)
        name_free(note);
    note_settle(notes, address);
    return status;
}

void vmm__notes_name_read(const struct notes *notes, uint64_t address, char text[VMM_NAME_BYTES])
{
    const struct note *note = note_find(notes, address);
    bool is_named = note != NULL && note->name != NULL;
    (void)snprintf(text, VMM_NAME_BYTES, "%s", is_named ? note->name : "");
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

/* Replaces what an earlier record left: the new event or epoch is not earlier than it. ERR_LOST. */
static vmm_status use_record(const struct notes *notes, struct use *use)
{
    struct event *event = NULL;
    vmm_status status = VMM__PENDING;
    if (!use->waits_for_all && !user_has_ended(use))
        status = vmm__clock_mark(notes->clock, use->user.stream, use->user.ends, use->ends, &event);
    vmm__event_drop(notes->clock->events, use->event);
    use->event = event;
    use->epoch = vmm__clock_now(notes->clock);
    return status == VMM_ERR_LOST ? status : VMM_OK;
}

/* VMM_OK if the use has passed. */
static vmm_status use_query(const struct notes *notes, const struct use *use)
{
    if (use->event != NULL)
        return vmm__driver_event_query(notes->clock->driver, use->event->handle);
    return vmm__clock_query(notes->clock, use->epoch);
}

vmm_status vmm__notes_use(struct notes *notes, uint64_t address, struct user user)
{
    for (const struct use *use = uses_of(notes, address); use != NULL; use = use->next) {
        if (user_is(use, user))
            return VMM_OK;
    }
    struct use *use = vmm__host_alloc(1, sizeof *use);
    struct note *note = use == NULL ? NULL : note_take(notes, address);
    if (note == NULL) {
        vmm__host_free(use, sizeof *use);
        return vmm__error(VMM_ERR_HOST_OOM, "vmm_record_stream: no host memory for another use");
    }
    *use = (struct use){ .next = note->uses, .user = user, .epoch = EPOCH_NONE };
    use->ends = atomic_load_explicit(user.ends, memory_order_acquire);
    note->uses = use;
    return VMM_OK;
}

void vmm__notes_lend(struct notes *notes, uint64_t address, struct user user, bool waits_for_all)
{
    for (struct use *use = uses_of(notes, address); use != NULL; use = use->next) {
        use->is_borrower = user_is(use, user);
        use->waits_for_all = use->is_borrower && waits_for_all;
    }
}

bool vmm__notes_borrower(const struct notes *notes, uint64_t address, vmm_stream *stream,
                         bool *has_ended)
{
    const struct use *use = uses_of(notes, address);
    while (use != NULL && !use->is_borrower)
        use = use->next;
    if (use == NULL)
        return false;
    *stream = use->user.stream;
    *has_ended = user_has_ended(use);
    return true;
}

/* ---- Live blocks ----------------------------------------------------------------------------- */

/* False: the device is lost. */
static bool uses_record(const struct notes *notes, struct use *use)
{
    vmm_status status = VMM_OK;
    VMM_QUIET();
    for (; use != NULL && status == VMM_OK; use = use->next)
        status = use_record(notes, use);
    return status == VMM_OK;
}

void vmm__notes_record(struct notes *notes, uint64_t address)
{
    struct use *uses = uses_of(notes, address);
    if (uses != NULL)
        (void)uses_record(notes, uses);
}

bool vmm__notes_forget(struct notes *notes, uint64_t address)
{
    struct note *note = note_find(notes, address);
    struct use **link = note == NULL ? NULL : &note->uses;
    while (link != NULL && *link != NULL) {
        struct use *use = *link;
        if (use->epoch == EPOCH_NONE || use_query(notes, use) != VMM_OK) {
            link = &use->next;
            continue;
        }
        *link = use->next;
        use_free(notes, use);
    }
    return note == NULL || note->uses == NULL;
}

/* A stream that the driver does not know runs nothing that could come too early. */
static vmm_status use_follow(const struct notes *notes, const struct use *use, vmm_stream stream)
{
    vmm_status status = use->event != NULL
                            ? vmm__clock_event_follow(notes->clock, use->event, stream)
                            : vmm__clock_follow(notes->clock, use->epoch, stream);
    if (status == VMM__PENDING)
        status = use_query(notes, use);
    else if (status == VMM_ERR_INVALID_ARGUMENT)
        status = VMM_OK;
    if (status != VMM__PENDING)
        return status;
    return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                      "vmm_commit: other streams still use what vmm_decommit() took, and a capture "
                      "keeps stream %p from waiting for them",
                      stream);
}

vmm_status vmm__notes_follow(struct notes *notes, uint64_t address, vmm_stream stream)
{
    vmm_status status = VMM_OK;
    for (const struct use *use = uses_of(notes, address); use != NULL && status == VMM_OK;
         use = use->next) {
        if (use->epoch != EPOCH_NONE)
            status = use_follow(notes, use, stream);
    }
    return status;
}

/* ---- Freed blocks ---------------------------------------------------------------------------- */

bool vmm__notes_end(struct notes *notes, uint64_t address)
{
    struct note *note = note_find(notes, address);
    if (note == NULL)
        return false;
    vmm__map_remove(&notes->map, &note->node);
    /* a lost device runs no work, and its memory is never reused */
    if (note->uses == NULL || !uses_record(notes, note->uses)) {
        note_free(notes, note);
        return false;
    }
    name_free(note);
    note->next = NULL;
    *notes->newest_next = note;
    notes->newest_next = &note->next;
    return true;
}

/* The link to the wait of a block; its end, if there is none. */
static struct note **wait_find(struct notes *notes, uint64_t address)
{
    struct note **link = &notes->oldest;
    while (*link != NULL && (*link)->node.key != address)
        link = &(*link)->next;
    return link;
}

static void wait_remove(struct notes *notes, struct note **link)
{
    struct note *note = *link;
    *link = note->next;
    if (note->next == NULL)
        notes->newest_next = link;
    note_free(notes, note);
}

bool vmm__notes_is_waiting(struct notes *notes, uint64_t address)
{
    return *wait_find(notes, address) != NULL;
}

unsigned vmm__notes_streams(struct notes *notes, uint64_t address, vmm_stream *streams,
                            unsigned most)
{
    const struct note *note = *wait_find(notes, address);
    unsigned count = 0;
    for (const struct use *use = note == NULL ? NULL : note->uses; use != NULL; use = use->next) {
        if (count < most)
            streams[count] = use->user.stream;
        count++;
    }
    return count;
}

bool vmm__notes_wait_end(struct notes *notes, uint64_t address)
{
    struct note **link = wait_find(notes, address);
    if (*link == NULL)
        return false;
    wait_remove(notes, link);
    return true;
}

void vmm__notes_pass_begin(struct notes *notes, unsigned most, struct notes_pass *pass)
{
    pass->link = &notes->oldest;
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

static vmm_status pass_query(const struct notes *notes, const struct use *use,
                             struct notes_pass *pass)
{
    if (use_is_stuck(use, pass))
        return VMM__PENDING;
    vmm_status status = use_query(notes, use);
    if (status == VMM__PENDING && use->event == NULL)
        pass->stuck_epoch = use->epoch;
    else if (status == VMM__PENDING && pass->stuck_count < NOTES_STUCK)
        pass->stuck[pass->stuck_count++] = use->user.stream;
    return status;
}

/* Drops the uses that have passed. VMM_OK if all have. */
static vmm_status wait_poll(struct notes *notes, struct note *wait, struct notes_pass *pass)
{
    while (wait->uses != NULL) {
        struct use *use = wait->uses;
        vmm_status status = pass_query(notes, use, pass);
        if (status != VMM_OK)
            return status;
        wait->uses = use->next;
        use_free(notes, use);
    }
    return VMM_OK;
}

vmm_status vmm__notes_pass_next(struct notes *notes, struct notes_pass *pass, uint64_t *address)
{
    for (; *pass->link != NULL && pass->left > 0; pass->link = &(*pass->link)->next, pass->left--) {
        struct note *wait = *pass->link;
        vmm_status status = wait_poll(notes, wait, pass);
        if (status == VMM__PENDING)
            continue;
        if (status != VMM_OK)
            return status;
        *address = wait->node.key;
        wait_remove(notes, pass->link);
        return VMM_OK;
    }
    return VMM__NOTHING;
}

bool vmm__notes_oldest(const struct notes *notes, struct event **event, uint64_t *epoch)
{
    const struct note *wait = notes->oldest;
    while (wait != NULL && (wait->uses == NULL || wait->uses->event == NULL))
        wait = wait->next;
    if (wait == NULL)
        wait = notes->oldest;
    if (wait == NULL || wait->uses == NULL)
        return false;
    *event = wait->uses->event;
    *epoch = wait->uses->epoch;
    if (*event != NULL)
        vmm__event_hold(notes->clock->events, *event);
    return true;
}
