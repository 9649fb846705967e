/* The last events of one device: see history.h. */
#define _POSIX_C_SOURCE 200809L
#include "torch/history.h"
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"

#include <stddef.h>
#include <time.h>

enum { CAPACITY_FIRST = 1024, CANCELLED = -1 };

void vmm__history_init(struct history *history)
{
    vmm__mutex_init_ranked(&history->order, LOCK_RANK_CALL);
    vmm__mutex_init(&history->lock);
}

static void history_clear_locked(struct history *history)
{
    vmm__host_free(history->events, history->capacity * sizeof *history->events);
    vmm__live_map_clear(&history->live_map);
    history->events = NULL;
    history->capacity = history->most = history->pushed = history->latest_us = 0;
    history->is_open = false;
}

vmm_status vmm__history_prepare(struct history *history, uint64_t entries)
{
    uint64_t capacity = vmm__min(entries, CAPACITY_FIRST);
    vmm_torch_event *events = vmm__host_alloc(capacity, sizeof *events);
    if (events == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "no host memory for a history of %llu events",
                          (unsigned long long)capacity);
    vmm__mutex_lock(&history->lock);
    history_clear_locked(history);
    history->events = events;
    history->capacity = capacity;
    history->most = entries;
    vmm__mutex_unlock(&history->lock);
    return VMM_OK;
}

void vmm__history_open(struct history *history)
{
    vmm__mutex_lock(&history->lock);
    history->is_open = true;
    vmm__mutex_unlock(&history->lock);
}

void vmm__history_close(struct history *history)
{
    vmm__mutex_lock(&history->lock);
    history_clear_locked(history);
    vmm__mutex_unlock(&history->lock);
}

/* Called before the ring wraps for the first time, so that events keep their slots. If host memory runs out, the
 * ring keeps its size. */
static void ring_grow_locked(struct history *history)
{
    uint64_t capacity = vmm__min(history->capacity * 2, history->most);
    vmm_torch_event *events = NULL;
    if (capacity <= SIZE_MAX / sizeof *events)
        events = vmm__host_resize(history->events, history->capacity * sizeof *events,
                                  capacity * sizeof *events);
    if (events == NULL) {
        history->most = history->capacity;
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
    vmm__mutex_lock(&history->lock);
    uint64_t number = history->pushed;
    if (history->is_open) {
        if (number == history->capacity && number < history->most)
            ring_grow_locked(history);
        vmm_torch_event *slot = &history->events[number % history->capacity];
        *slot = *event;
        slot->time_us = history->latest_us = vmm__max(history->latest_us, time_now_us());
        history->pushed++;
    }
    vmm__mutex_unlock(&history->lock);
    return number;
}

void vmm__history_cancel(struct history *history, uint64_t number)
{
    vmm__mutex_lock(&history->lock);
    if (number < history->pushed && history->pushed - number <= history->capacity)
        history->events[number % history->capacity].action = CANCELLED;
    vmm__mutex_unlock(&history->lock);
}

bool vmm__history_recall(struct history *history, uint64_t address, struct live_map *out)
{
    vmm__mutex_lock(&history->lock);
    const struct live_map *entry = vmm__live_map_find(&history->live_map, address);
    if (entry != NULL)
        *out = *entry;
    vmm__mutex_unlock(&history->lock);
    return entry != NULL;
}

void vmm__history_learn(struct history *history, const struct live_map *entry)
{
    vmm__mutex_lock(&history->lock);
    if (history->capacity > 0)
        vmm__live_map_put(&history->live_map, entry);
    vmm__mutex_unlock(&history->lock);
}

void vmm__history_forget(struct history *history, uint64_t address)
{
    vmm__mutex_lock(&history->lock);
    vmm__live_map_remove(&history->live_map, address);
    vmm__mutex_unlock(&history->lock);
}

uint64_t vmm__history_length(struct history *history)
{
    vmm__mutex_lock(&history->lock);
    uint64_t length = history->pushed;
    vmm__mutex_unlock(&history->lock);
    return length;
}

static void events_copy_locked(const struct history *history, uint64_t end,
                               struct history_copy *copy)
{
    for (uint64_t number = copy->lost; number < end; number++) {
        const vmm_torch_event *event = &history->events[number % history->capacity];
        if (event->action != CANCELLED)
            copy->events[copy->count++] = *event;
    }
}

vmm_status vmm__history_copy(struct history *history, uint64_t end, struct history_copy *out)
{
    struct history_copy copy = { 0 };
    vmm__mutex_lock(&history->lock);
    end = vmm__min(end, history->pushed);
    copy.lost = vmm__min(end, history->pushed - vmm__min(history->pushed, history->capacity));
    copy.capacity = end - copy.lost;
    if (copy.capacity > 0)
        copy.events = vmm__host_alloc(copy.capacity, sizeof *copy.events);
    if (copy.events != NULL)
        events_copy_locked(history, end, &copy);
    vmm__mutex_unlock(&history->lock);
    if (copy.events == NULL && copy.capacity > 0)
        return vmm__error(VMM_ERR_HOST_OOM, "no host memory to copy %llu events",
                          (unsigned long long)copy.capacity);
    *out = copy;
    return VMM_OK;
}
