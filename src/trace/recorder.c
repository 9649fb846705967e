/* The recorder of a cache: see recorder.h. */
#define _GNU_SOURCE
#include "trace/recorder.h"
#include "base/fork.h"
#include "base/hostmem.h"
#include "base/list.h"
#include "base/time.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Half a second, so that a program that is killed loses less than a second also if the thread is late. */
enum { WRITE_MS = 500, NAP_NS = 50000 };

/* The clock of the kernel's tick: a clock that is exact costs several times as much as all else that a push does. */
uint64_t vmm__recorder_now_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * 1000000U + (uint64_t)now.tv_nsec / 1000U;
}

/* Writes what the ring holds now; drops it if no file is open. */
static void events_take_locked(struct recorder *recorder)
{
    const struct trace_event *event;
    uint64_t end = atomic_load_explicit(&recorder->ring.head, memory_order_acquire);
    bool is_open = atomic_load_explicit(&recorder->is_open, memory_order_relaxed);
    while (recorder->ring.tail < end && (event = vmm__ring_first(&recorder->ring)) != NULL) {
        if (is_open)
            vmm__writer_take(&recorder->writer, event);
        vmm__trace_event_drop(event);
        vmm__ring_release(&recorder->ring);
    }
    if (is_open)
        vmm__lines_flush(&recorder->writer.lines);
}

static void events_take(void *context)
{
    struct recorder *recorder = context;
    VMM_HOLD(&recorder->lock);
    events_take_locked(recorder);
}

/* ---- The end of the process ------------------------------------------------------------------ */

static struct mutex list_lock = VMM_MUTEX_INIT;
static struct recorder *recorders;

/* Those of the parent, and their files, are not the child's. */
VMM_FORK_CHILD static void child_begin(void)
{
    list_lock = (struct mutex)VMM_MUTEX_INIT;
    recorders = NULL;
}

static void list_add(struct recorder *recorder)
{
    VMM_HOLD(&list_lock);
    recorder->next = recorders;
    recorders = recorder;
}

static void list_remove(const struct recorder *recorder)
{
    VMM_HOLD(&list_lock);
    VMM_LIST_REMOVE(&recorders, recorder, next);
}

/* A program may exit without the end of its caches. Their recorders live on: other threads may be recording. */
static __attribute__((destructor)) void exit_write(void)
{
    VMM_HOLD(&list_lock);
    for (struct recorder *recorder = recorders; recorder != NULL; recorder = recorder->next)
        events_take(recorder);
}

/* ---- Begin and end --------------------------------------------------------------------------- */

vmm_status vmm__recorder_make(struct recorder **out)
{
    struct recorder *recorder = vmm__host_alloc(1, sizeof *recorder);
    if (recorder == NULL || !vmm__ring_init(&recorder->ring)) {
        vmm__host_free(recorder, sizeof *recorder);
        return vmm__error(VMM_ERR_HOST_OOM, "trace: no host memory for the recorder");
    }
    recorder->writer.lines.file = -1;
    vmm__mutex_init(&recorder->lock);
    vmm_status status = vmm__fork_watch(child_begin);
    if (status == VMM_OK)
        status = vmm__ticker_start(&recorder->ticker, WRITE_MS, events_take, recorder);
    if (status != VMM_OK) {
        vmm__recorder_free(recorder);
        return status;
    }
    list_add(recorder);
    *out = recorder;
    return VMM_OK;
}

void vmm__recorder_free(struct recorder *recorder)
{
    if (recorder == NULL)
        return;
    list_remove(recorder);
    vmm__ticker_stop(&recorder->ticker);
    events_take(recorder);
    vmm__mutex_fini(&recorder->lock);
    vmm__ring_fini(&recorder->ring);
    vmm__host_free(recorder, sizeof *recorder);
}

vmm_status vmm__recorder_open(struct recorder *recorder, const char *path,
                              struct writer_origin origin)
{
    origin.begin_us = vmm__recorder_now_us();
    VMM_HOLD(&recorder->lock);
    events_take_locked(recorder);
    vmm_status status = vmm__writer_open(&recorder->writer, path, &origin);
    if (status == VMM_OK)
        atomic_store_explicit(&recorder->is_open, true, memory_order_release);
    return status;
}

vmm_status vmm__recorder_close(struct recorder *recorder)
{
    struct writer *writer = &recorder->writer;
    uint64_t end = atomic_load_explicit(&recorder->ring.head, memory_order_acquire);
    VMM_HOLD(&recorder->lock);
    for (events_take_locked(recorder); recorder->ring.tail < end; events_take_locked(recorder))
        vmm__time_pause(NAP_NS); /* a push is under way */
    vmm__writer_close(writer);
    atomic_store_explicit(&recorder->is_open, false, memory_order_release);
    if (writer->lines.failure != 0)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "trace: the file is not complete: %s",
                          strerror(writer->lines.failure));
    if (writer->lost > 0)
        return vmm__error(VMM_ERR_HOST_OOM,
                          "trace: %llu events are missing: no host memory for them",
                          (unsigned long long)writer->lost);
    return VMM_OK;
}

struct ring_slot *vmm__recorder_wait(struct recorder *recorder)
{
    struct ring_slot *slot;
    while ((slot = vmm__ring_claim(&recorder->ring)) == NULL) {
        vmm__ticker_hurry(&recorder->ticker);
        vmm__time_pause(NAP_NS);
    }
    return slot;
}

void vmm__recorder_push_text(struct recorder *recorder, struct trace_event event, const char *text)
{
    struct trace_text *copy = vmm__host_alloc(1, sizeof *copy);
    if (copy != NULL) {
        (void)snprintf(copy->text, sizeof copy->text, "%s", text);
        vmm__line_make(copy->text);
    }
    event.attached = copy;
    vmm__recorder_push(recorder, event);
}
