/*
 * Streams of the host driver, and the worker threads that run their work.
 *
 * Owns: the streams with their queues, and the worker threads, which start with the first work.
 * Invariants:
 *  1. a stream with pending work is in exactly one place: in the ready list, with one worker, or in
 *     the blocked list of the stream that its next piece waits for;
 *  2. therefore its pieces run one at a time, in submission order;
 *  3. a blocked stream occupies no worker, and waits only name earlier work. Therefore no cycle
 *     exists, some stream can always continue, and a submitter that waits for queue room gets it.
 * Called by: soft, run.c and event.c, any thread. work.lock guards everything.
 */
#define _GNU_SOURCE
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "driver/host/internal.h"

#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* ---- Streams --------------------------------------------------------------------------------- */

static uint64_t stream_pending(const struct host_stream *stream)
{
    return stream->submitted - stream->finished;
}

/* Returns the record of a destroyed stream without work, or NULL. */
static struct host_stream *stream_unused(const struct host_work *work)
{
    bool has_unnamed = work->stream_count > work->soft->streams.named.count;
    struct host_stream *stream = has_unnamed ? work->streams : NULL;
    while (stream != NULL && (stream->soft.is_named || stream_pending(stream) != 0))
        stream = stream->next;
    return stream;
}

vmm_status vmm__host_stream_new(struct soft *soft, vmm_stream name, struct soft_stream **out)
{
    struct host_work *work = host_work_of(soft);
    VMM_ASSERT_HELD(&work->lock);
    struct host_stream *stream = stream_unused(work);
    if (stream == NULL) {
        stream = vmm__host_alloc(1, sizeof *stream);
        if (stream == NULL)
            return vmm__error(VMM_ERR_HOST_OOM, "stream %p: out of host memory for its record",
                              name);
        stream->next = work->streams;
        work->streams = stream;
        work->stream_count++;
    }
    *out = &stream->soft;
    return VMM_OK;
}

/* ---- Workers --------------------------------------------------------------------------------- */

static void ready_push_locked(struct host_work *work, struct host_stream *stream)
{
    VMM_ASSERT_HELD(&work->lock);
    stream->next_ready = NULL;
    if (work->ready_first == NULL)
        work->ready_first = stream;
    else
        work->ready_last->next_ready = stream;
    work->ready_last = stream;
    pthread_cond_signal(&work->ready);
}

static struct host_stream *ready_pop_locked(struct host_work *work)
{
    VMM_ASSERT_HELD(&work->lock);
    struct host_stream *stream = work->ready_first;
    work->ready_first = stream->next_ready;
    return stream;
}

static struct host_piece *stream_next_piece(struct host_stream *stream)
{
    return &stream->queue[stream->finished % stream->capacity];
}

static bool piece_is_blocked(const struct host_piece *piece)
{
    return piece->kind == HOST_PIECE_WAIT && !vmm__host_is_reached(piece->position);
}

/* Moves the streams whose position is reached to the ready list; the others stay blocked. */
static void blocked_wake_locked(struct host_work *work, struct host_stream *stream)
{
    VMM_ASSERT_HELD(&work->lock);
    struct host_stream **link = &stream->blocked;
    while (*link != NULL) {
        struct host_stream *blocked = *link;
        if (piece_is_blocked(stream_next_piece(blocked))) {
            link = &blocked->next_blocked;
            continue;
        }
        *link = blocked->next_blocked;
        ready_push_locked(work, blocked);
    }
}

/* Runs the next piece of a stream, which is in no list on entry. Leaves the stream ready, blocked or without work. */
static void stream_step_locked(struct host_work *work, struct host_stream *stream)
{
    VMM_ASSERT_HELD(&work->lock);
    struct host_piece piece = *stream_next_piece(stream);
    if (piece_is_blocked(&piece)) {
        stream->next_blocked = piece.position.stream->blocked;
        piece.position.stream->blocked = stream;
        return;
    }
    vmm__mutex_unlock(&work->lock);
    uint64_t mismatches = vmm__host_piece_run(&piece);
    vmm__mutex_lock(&work->lock);
    if (mismatches != 0)
        vmm__soft_report_add(&work->soft->mismatches, mismatches, "%" PRIu64 " bytes at %#" PRIx64,
                             piece.bytes, piece.address);
    stream->finished++;
    blocked_wake_locked(work, stream);
    vmm__host_wake_locked(work, stream);
    if (stream_pending(stream) != 0)
        ready_push_locked(work, stream);
}

static void *worker_main(void *argument)
{
    struct host_work *work = argument;
    VMM_HOLD(&work->lock);
    while (work->ready_first != NULL || !work->stopping) {
        if (work->ready_first == NULL)
            (void)vmm__mutex_wait(&work->lock, &work->ready, NULL);
        else
            stream_step_locked(work, ready_pop_locked(work));
    }
    return NULL;
}

/* Blocks the program's signals on the workers, except synchronous faults. */
static void worker_signals_block(sigset_t *before)
{
    static const int faults[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE };
    sigset_t blocked;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, before);
}

static unsigned worker_count_choose(void)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return (unsigned)vmm__min(cores < 1 ? 1 : (uint64_t)cores, HOST_WORKER_LIMIT);
}

/* One worker is sufficient; failure to create more only reduces speed. */
static vmm_status workers_start_locked(struct host_work *work)
{
    VMM_ASSERT_HELD(&work->lock);
    if (work->worker_count != 0)
        return VMM_OK;
    int code = 0;
    sigset_t before;
    worker_signals_block(&before);
    for (unsigned goal = worker_count_choose(); code == 0 && work->worker_count < goal;) {
        code = pthread_create(&work->workers[work->worker_count], NULL, worker_main, work);
        work->worker_count += code == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (work->worker_count == 0)
        return vmm__error(VMM_ERR_DRIVER, "pthread_create: %s (%d); see RLIMIT_NPROC",
                          strerror(code), code);
    return VMM_OK;
}

/* ---- Submission ------------------------------------------------------------------------------ */

/* A piece keeps its number; its index in the ring depends on the capacity. */
static vmm_status queue_grow_locked(struct host_stream *stream)
{
    uint64_t capacity = stream->capacity == 0 ? 64 : stream->capacity * 2;
    struct host_piece *queue = vmm__host_alloc(capacity, sizeof *queue);
    if (queue == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "stream: out of host memory to queue work");
    for (uint64_t n = stream->finished; n < stream->submitted; n++)
        queue[n % capacity] = stream->queue[n % stream->capacity];
    vmm__host_free(stream->queue, stream->capacity * sizeof *stream->queue);
    stream->queue = queue;
    stream->capacity = capacity;
    return VMM_OK;
}

/* Makes room for one piece; blocks while the queue is at its limit. */
static vmm_status queue_room_locked(struct host_work *work, struct host_stream *stream)
{
    VMM_ASSERT_HELD(&work->lock);
    while (stream_pending(stream) >= HOST_QUEUE_LIMIT) {
        struct host_position half = { stream, stream->submitted - HOST_QUEUE_LIMIT / 2 };
        vmm__host_wait_locked(work, half);
    }
    if (stream_pending(stream) < stream->capacity)
        return VMM_OK;
    return queue_grow_locked(stream);
}

static void piece_push_locked(struct host_work *work, struct host_stream *stream,
                              const struct host_piece *piece)
{
    VMM_ASSERT_HELD(&work->lock);
    bool was_idle = stream_pending(stream) == 0;
    stream->queue[stream->submitted % stream->capacity] = *piece;
    stream->submitted++;
    if (was_idle)
        ready_push_locked(work, stream);
}

vmm_status vmm__host_piece_queue_locked(struct host_work *work, const struct host_piece *piece,
                                        struct host_stream *stream)
{
    VMM_ASSERT_HELD(&work->lock);
    vmm_status status = workers_start_locked(work);
    if (status == VMM_OK)
        status = queue_room_locked(work, stream);
    if (status == VMM_OK)
        piece_push_locked(work, stream, piece);
    return status;
}

vmm_status vmm__host_submit_locked(struct host_work *work, const struct host_piece *piece,
                                   vmm_stream name)
{
    VMM_ASSERT_HELD(&work->lock);
    struct soft_stream *stream;
    vmm_status status = vmm__soft_stream_use(work->soft, "work", name, &stream);
    if (status != VMM_OK)
        return status;
    return vmm__host_piece_queue_locked(work, piece, (struct host_stream *)stream);
}

/* ---- Open and close -------------------------------------------------------------------------- */

void vmm__host_work_open(struct host_work *work, struct soft *soft)
{
    work->soft = soft;
    vmm__mutex_init(&work->lock);
    work->ready = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
}

/* Runs pending work first. No other thread uses the driver now. */
void vmm__host_work_close(struct host_work *work)
{
    vmm__mutex_lock(&work->lock);
    work->stopping = true;
    pthread_cond_broadcast(&work->ready);
    vmm__mutex_unlock(&work->lock);
    for (unsigned i = 0; i < work->worker_count; i++)
        (void)pthread_join(work->workers[i], NULL);
    vmm__mutex_lock(&work->lock);
    vmm__soft_streams_close(work->soft);
    while (work->streams != NULL) {
        struct host_stream *stream = work->streams;
        work->streams = stream->next;
        vmm__host_free(stream->queue, stream->capacity * sizeof *stream->queue);
        vmm__host_free(stream, sizeof *stream);
    }
    vmm__mutex_unlock(&work->lock);
    (void)pthread_cond_destroy(&work->ready);
    vmm__mutex_fini(&work->lock);
}
