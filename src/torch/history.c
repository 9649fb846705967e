/* The last events of one device: see history.h. */
#define _POSIX_C_SOURCE 200809L
#include "torch/history.h"
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"

#include <stddef.h>
#include <time.h>

enum { CAPACITY_FIRST = 1024, CANCELLED = -1, BATCH_ENTRIES = 256 };

struct live_entry {
    struct map_node node; /* its key is the block's address */
    struct live_block block;
    uint64_t walk; /* the last one that has met it */
};

/* Entries are allocated in batches, so that a recorded call seldom needs host memory. */
struct live_batch {
    struct live_batch *next;
    struct live_entry entries[BATCH_ENTRIES];
};

static _Atomic(vmm_torch_stack_use_fn) stack_counter;
_Atomic uint64_t vmm__history_blocks;

/* ---- Copies of stacks ----------------------------------------------------------------------- */

void vmm__history_count_stacks_by(vmm_torch_stack_use_fn use)
{
    atomic_store_explicit(&stack_counter, use, memory_order_release);
}

static void stack_count(uint64_t stack, int change)
{
    vmm_torch_stack_use_fn use = atomic_load_explicit(&stack_counter, memory_order_acquire);
    if (stack != 0 && use != NULL)
        use(stack, change);
}

void vmm__history_stack_drop(uint64_t stack)
{
    stack_count(stack, -1);
}

/* ---- Live map ------------------------------------------------------------------------------- */

static struct live_entry *entry_find_locked(const struct history *history, uint64_t address)
{
    VMM_ASSERT_HELD(&history->lock);
    return (struct live_entry *)vmm__map_find(&history->live_map, address);
}

static void entry_drop_locked(struct history *history, struct live_entry *entry)
{
    VMM_ASSERT_HELD(&history->lock);
    entry->node.next = (struct map_node *)history->spare;
    history->spare = entry;
}

static void batch_add_locked(struct history *history)
{
    VMM_ASSERT_HELD(&history->lock);
    struct live_batch *batch = vmm__host_alloc(1, sizeof *batch);
    if (batch == NULL)
        return;
    batch->next = history->batches;
    history->batches = batch;
    for (int i = 0; i < BATCH_ENTRIES; i++)
        entry_drop_locked(history, &batch->entries[i]);
}

/* Adds an entry for an address. Returns NULL without host memory. */
static struct live_entry *entry_add_locked(struct history *history, uint64_t address)
{
    VMM_ASSERT_HELD(&history->lock);
    if (history->spare == NULL)
        batch_add_locked(history);
    struct live_entry *entry = history->spare;
    if (entry == NULL)
        return NULL;
    history->spare = (struct live_entry *)entry->node.next;
    *entry = (struct live_entry){ .node.key = address };
    vmm__map_add(&history->live_map, &entry->node);
    atomic_fetch_add_explicit(&vmm__history_blocks, 1, memory_order_relaxed);
    return entry;
}

static void entry_remove_locked(struct history *history, struct live_entry *entry)
{
    VMM_ASSERT_HELD(&history->lock);
    stack_count(entry->block.stack, -1);
    vmm__map_remove(&history->live_map, &entry->node);
    entry_drop_locked(history, entry);
    atomic_fetch_sub_explicit(&vmm__history_blocks, 1, memory_order_relaxed);
}

/* Frees what an empty map has. */
static void batches_free_locked(struct history *history)
{
    VMM_ASSERT_HELD(&history->lock);
    vmm__map_clear(&history->live_map, NULL);
    history->spare = NULL;
    while (history->batches != NULL) {
        struct live_batch *batch = history->batches;
        history->batches = batch->next;
        vmm__host_free(batch, sizeof *batch);
    }
}

void vmm__history_init(struct history *history)
{
    vmm__mutex_init_ranked(&history->order, LOCK_RANK_CALL);
    vmm__mutex_init(&history->lock);
}

static void ring_clear_locked(struct history *history)
{
    VMM_ASSERT_HELD(&history->lock);
    uint64_t count = vmm__min(history->pushed, history->capacity);
    for (uint64_t i = 0; i < count; i++)
        stack_count(history->events[i].stack, -1);
    vmm__host_free(history->events, history->capacity * sizeof *history->events);
    history->events = NULL;
    history->capacity = history->capacity_most = history->pushed = history->latest_us = 0;
    history->is_open = false;
}

/* Keeps blocks whose stacks are counted, or none: the stacks of others end with the recording. */
static void entries_settle_locked(struct history *history, bool are_counted)
{
    VMM_ASSERT_HELD(&history->lock);
    struct map_node *next = vmm__map_next(&history->live_map, NULL);
    while (next != NULL) {
        struct live_entry *entry = (struct live_entry *)next;
        next = vmm__map_next(&history->live_map, next);
        entry->block.told = 0;
        if (are_counted && entry->block.stack != 0)
            continue;
        entry_remove_locked(history, entry);
    }
    if (history->live_map.count == 0)
        batches_free_locked(history);
}

static void history_clear_locked(struct history *history)
{
    VMM_ASSERT_HELD(&history->lock);
    ring_clear_locked(history);
    entries_settle_locked(history,
                          atomic_load_explicit(&stack_counter, memory_order_acquire) != NULL);
}

vmm_status vmm__history_prepare(struct history *history, uint64_t entries)
{
    uint64_t capacity = vmm__min(entries, CAPACITY_FIRST);
    vmm_torch_event *events = vmm__host_alloc(capacity, sizeof *events);
    if (events == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "no host memory for a history of %llu events",
                          (unsigned long long)capacity);
    VMM_HOLD(&history->lock);
    history_clear_locked(history);
    history->events = events;
    history->capacity = capacity;
    history->capacity_most = entries;
    return VMM_OK;
}

void vmm__history_open(struct history *history)
{
    VMM_HOLD(&history->lock);
    history->is_open = true;
}

void vmm__history_close(struct history *history)
{
    VMM_HOLD(&history->lock);
    history_clear_locked(history);
}

/* Called before the ring wraps for the first time, so that events keep their slots. If host memory runs out, the
 * ring keeps its size. */
static void ring_grow_locked(struct history *history)
{
    VMM_ASSERT_HELD(&history->lock);
    uint64_t capacity = vmm__min(history->capacity * 2, history->capacity_most);
    vmm_torch_event *events = NULL;
    if (capacity <= SIZE_MAX / sizeof *events)
        events = vmm__host_resize(history->events, history->capacity * sizeof *events,
                                  capacity * sizeof *events);
    if (events == NULL) {
        history->capacity_most = history->capacity;
        return;
    }
    history->events = events;
    history->capacity = capacity;
}

static uint64_t time_now_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000U + (uint64_t)now.tv_nsec / 1000U;
}

uint64_t vmm__history_push(struct history *history, const vmm_torch_event *event)
{
    VMM_HOLD(&history->lock);
    uint64_t number = history->pushed;
    if (history->is_open) {
        if (number == history->capacity && number < history->capacity_most)
            ring_grow_locked(history);
        vmm_torch_event *slot = &history->events[number % history->capacity];
        if (number >= history->capacity)
            stack_count(slot->stack, -1);
        stack_count(event->stack, 1);
        *slot = *event;
        slot->time_us = history->latest_us = vmm__max(history->latest_us, time_now_us());
        history->pushed++;
    }
    return number;
}

/* No event has the number UINT64_MAX. */
static void event_cancel_locked(struct history *history, uint64_t number)
{
    VMM_ASSERT_HELD(&history->lock);
    if (number < history->pushed && history->pushed - number <= history->capacity)
        history->events[number % history->capacity].action = CANCELLED;
}

void vmm__history_cancel(struct history *history, uint64_t number)
{
    VMM_HOLD(&history->lock);
    event_cancel_locked(history, number);
}

bool vmm__history_recall(struct history *history, uint64_t address, struct live_block *out)
{
    VMM_HOLD(&history->lock);
    const struct live_entry *entry = entry_find_locked(history, address);
    if (entry != NULL)
        *out = entry->block;
    return entry != NULL;
}

static void entry_learn_locked(struct history *history, struct live_entry *entry,
                               const struct live_block *block)
{
    VMM_ASSERT_HELD(&history->lock);
    if (entry == NULL)
        entry = entry_add_locked(history, block->address);
    if (entry == NULL)
        return;
    stack_count(block->stack, 1); /* first: it may be the same stack */
    stack_count(entry->block.stack, -1);
    event_cancel_locked(history, entry->block.told - 1);
    entry->block = *block;
    entry->walk = history->walks;
}

void vmm__history_learn(struct history *history, const struct live_block *block)
{
    VMM_HOLD(&history->lock);
    struct live_entry *entry = entry_find_locked(history, block->address);
    if (history->capacity > 0)
        entry_learn_locked(history, entry, block);
    else if (entry != NULL)
        entry_remove_locked(history, entry);
}

void vmm__history_forget(struct history *history, uint64_t address)
{
    VMM_HOLD(&history->lock);
    struct live_entry *entry = entry_find_locked(history, address);
    if (entry != NULL)
        entry_remove_locked(history, entry);
    if (history->live_map.count == 0 && history->capacity == 0)
        batches_free_locked(history);
}

void vmm__history_forget_all(struct history *history)
{
    VMM_HOLD(&history->lock);
    entries_settle_locked(history, false);
}

uint64_t vmm__history_walk_begin(struct history *history)
{
    VMM_HOLD(&history->lock);
    history->walks++;
    return history->pushed;
}

bool vmm__history_walk_meet(struct history *history, uint64_t address, struct live_block *out)
{
    VMM_HOLD(&history->lock);
    struct live_entry *entry = entry_find_locked(history, address);
    if (entry != NULL) {
        entry->walk = history->walks;
        *out = entry->block;
    }
    return entry != NULL;
}

void vmm__history_walk_end(struct history *history)
{
    VMM_HOLD(&history->lock);
    struct map_node *next = vmm__map_next(&history->live_map, NULL);
    while (next != NULL) {
        struct live_entry *entry = (struct live_entry *)next;
        next = vmm__map_next(&history->live_map, next);
        if (entry->walk == history->walks)
            continue;
        event_cancel_locked(history, entry->block.told - 1);
        entry_remove_locked(history, entry);
    }
}

uint64_t vmm__history_length(struct history *history)
{
    VMM_HOLD(&history->lock);
    return history->pushed;
}

static void events_copy_locked(const struct history *history, uint64_t end,
                               struct history_copy *copy)
{
    VMM_ASSERT_HELD(&history->lock);
    for (uint64_t number = copy->lost; number < end; number++) {
        const vmm_torch_event *event = &history->events[number % history->capacity];
        if (event->action != CANCELLED)
            copy->events[copy->count++] = *event;
    }
}

vmm_status vmm__history_copy(struct history *history, uint64_t end, struct history_copy *out)
{
    struct history_copy copy = { 0 };
    VMM_HOLD(&history->lock);
    end = vmm__min(end, history->pushed);
    copy.lost = vmm__min(end, history->pushed - vmm__min(history->pushed, history->capacity));
    copy.capacity = end - copy.lost;
    if (copy.capacity > 0)
        copy.events = vmm__host_alloc(copy.capacity, sizeof *copy.events);
    if (copy.events != NULL)
        events_copy_locked(history, end, &copy);
    if (copy.events == NULL && copy.capacity > 0)
        return vmm__error(VMM_ERR_HOST_OOM, "no host memory to copy %llu events",
                          (unsigned long long)copy.capacity);
    *out = copy;
    return VMM_OK;
}
