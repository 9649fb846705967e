/*
 * The kinds of work of the host driver: how each is submitted and how a worker runs it.
 *
 * Owns nothing. Called by: the driver table, any thread; work.c, whose workers run pieces without its lock.
 */
#define _GNU_SOURCE
#include "base/error.h"
#include "base/time.h"
#include "driver/host/host.h"
#include "driver/host/internal.h"
#include "driver/host/seen.h"

#include <inttypes.h>
#include <string.h>

/* ---- Running --------------------------------------------------------------------------------- */

static uint64_t memory_run(const struct host_piece *piece)
{
    void *place = vmm__host_pointer(piece->address);
    switch (piece->kind) {
    case HOST_PIECE_COPY:
        memmove(place, vmm__host_pointer(piece->from), piece->bytes);
        return 0;
    case HOST_PIECE_CLEAR:
        memset(place, (int)piece->word, piece->bytes);
        return 0;
    default:
        return vmm__host_pattern_pass(piece->address, piece->bytes, piece->word,
                                      piece->kind == HOST_PIECE_CHECK);
    }
}

static uint64_t memory_run_seen(const struct host_piece *piece)
{
    if (piece->kind == HOST_PIECE_COPY)
        host_range_see(piece->from, piece->bytes, false);
    host_range_see(piece->address, piece->bytes, piece->kind != HOST_PIECE_CHECK);
    host_unseen_begin();
    uint64_t mismatches = memory_run(piece);
    host_unseen_end();
    return mismatches;
}

uint64_t vmm__host_piece_run(const struct host_piece *piece)
{
    switch (piece->kind) {
    case HOST_PIECE_FILL:
    case HOST_PIECE_CHECK:
    case HOST_PIECE_COPY:
    case HOST_PIECE_CLEAR:
        return memory_run_seen(piece);
    case HOST_PIECE_KERNEL:
        piece->kernel(piece->context);
        return 0;
    case HOST_PIECE_DELAY:
        vmm__time_pause(piece->ns);
        return 0;
    case HOST_PIECE_WAIT:
        return 0;
    }
    return 0;
}

/* ---- Submission ------------------------------------------------------------------------------ */

static vmm_status submit(struct driver *driver, const struct host_piece *piece, vmm_stream name)
{
    struct host_work *work = &vmm__host_of(driver)->work;
    VMM_HOLD(&work->lock);
    return vmm__host_submit_locked(work, piece, name);
}

/* Refuses work on memory that is not accessible now: it would crash the process. */
static vmm_status access_check(struct driver *driver, const char *call, uint64_t address,
                               uint64_t bytes)
{
    if (vmm__host_memory_is_accessible(vmm__host_of(driver), address, bytes))
        return VMM_OK;
    return vmm__error(VMM_ERR_DRIVER, "%s(0x%" PRIx64 ", %" PRIu64 "): not mapped with access",
                      call, address, bytes);
}

static vmm_status pattern_submit(struct driver *driver, const char *call, enum host_piece_kind kind,
                                 uint64_t address, uint64_t bytes, uint32_t word, vmm_stream stream)
{
    struct host_piece piece = { .kind = kind, .word = word, .address = address, .bytes = bytes };
    vmm_status status = access_check(driver, call, address, bytes);
    return status == VMM_OK ? submit(driver, &piece, stream) : status;
}

vmm_status vmm__host_fill(struct driver *driver, uint64_t address, uint64_t bytes, uint32_t word,
                          vmm_stream stream)
{
    return pattern_submit(driver, "fill", HOST_PIECE_FILL, address, bytes, word, stream);
}

vmm_status vmm__host_check(struct driver *driver, uint64_t address, uint64_t bytes, uint32_t word,
                           vmm_stream stream)
{
    return pattern_submit(driver, "check", HOST_PIECE_CHECK, address, bytes, word, stream);
}

/* Blocks until the stream's work so far has finished. */
static void stream_finish_locked(struct host_work *work, vmm_stream name)
{
    VMM_ASSERT_HELD(&work->lock);
    struct host_stream *stream = host_stream_find(work, name);
    if (stream != NULL)
        vmm__host_wait_locked(work, (struct host_position){ stream, stream->submitted });
}

/* Submits a piece and waits for it: the program accesses this memory directly, without a stream. */
static vmm_status piece_finish_locked(struct host_work *work, const struct host_piece *piece,
                                      vmm_stream stream)
{
    vmm_status status = vmm__host_submit_locked(work, piece, stream);
    if (status == VMM_OK)
        stream_finish_locked(work, stream);
    return status;
}

vmm_status vmm__host_copy(struct driver *driver, uint64_t to, uint64_t from, uint64_t bytes,
                          vmm_stream stream)
{
    struct host_work *work = &vmm__host_of(driver)->work;
    struct host_piece piece = {
        .kind = HOST_PIECE_COPY, .address = to, .bytes = bytes, .from = from
    };
    vmm_status status = access_check(driver, "copy", from, bytes);
    if (status == VMM_OK)
        status = access_check(driver, "copy", to, bytes);
    if (status != VMM_OK)
        return status;
    VMM_HOLD(&work->lock);
    return piece_finish_locked(work, &piece, stream);
}

/* A stream under capture accepts no work; the work of all streams finishes first, because graphs that use this memory
 * may have been launched on any of them. */
vmm_status vmm__host_clear(struct driver *driver, uint64_t address, uint64_t bytes, uint8_t value,
                           vmm_stream stream)
{
    struct host_work *work = &vmm__host_of(driver)->work;
    struct host_piece piece = {
        .kind = HOST_PIECE_CLEAR, .word = value, .address = address, .bytes = bytes
    };
    vmm_status status = access_check(driver, "clear", address, bytes);
    if (status != VMM_OK)
        return status;
    vmm__mutex_lock(&work->lock);
    const struct host_stream *found = host_stream_find(work, stream);
    bool is_captured = found != NULL && found->soft.is_captured;
    if (is_captured)
        vmm__host_device_wait(work->soft);
    else
        status = piece_finish_locked(work, &piece, stream);
    vmm__mutex_unlock(&work->lock);
    if (is_captured)
        (void)vmm__host_piece_run(&piece);
    return status;
}

/* Refuses a read from a stream under capture. */
static vmm_status read_begin(struct host_work *work, vmm_stream name)
{
    VMM_HOLD(&work->lock);
    struct host_stream *stream = host_stream_find(work, name);
    vmm_status status =
        stream == NULL ? VMM_OK : vmm__soft_capture_break(work->soft, &stream->soft, "read");
    if (status == VMM_OK)
        stream_finish_locked(work, name);
    return status;
}

vmm_status vmm__host_read(struct driver *driver, const struct driver_piece *pieces, unsigned count,
                          vmm_stream stream)
{
    vmm_status status = read_begin(&vmm__host_of(driver)->work, stream);
    for (unsigned i = 0; i < count && status == VMM_OK; i++) {
        status = access_check(driver, "read", pieces[i].address, pieces[i].bytes);
        if (status == VMM_OK)
            memcpy(pieces[i].host, vmm__host_pointer(pieces[i].address), pieces[i].bytes);
    }
    return status;
}

/* Refuses pieces that are not accessible now, or whose host memory is not pinned, before it submits any. */
static vmm_status pieces_check(struct driver *driver, const char *call,
                               const struct driver_piece *pieces, unsigned count)
{
    struct host_driver *host = vmm__host_of(driver);
    vmm__mutex_lock(&host->memory_lock);
    vmm_status status = vmm__soft_pins_check(&host->soft, call, pieces, count);
    vmm__mutex_unlock(&host->memory_lock);
    for (unsigned i = 0; i < count && status == VMM_OK; i++)
        status = access_check(driver, call, pieces[i].address, pieces[i].bytes);
    return status;
}

static vmm_status pieces_transfer(struct driver *driver, const struct driver_piece *pieces,
                                  unsigned count, vmm_stream stream, bool is_save)
{
    vmm_status status = pieces_check(driver, is_save ? "save" : "load", pieces, count);
    for (unsigned i = 0; i < count && status == VMM_OK; i++) {
        uint64_t host = (uint64_t)(uintptr_t)pieces[i].host;
        struct host_piece piece = { .kind = HOST_PIECE_COPY,
                                    .address = is_save ? host : pieces[i].address,
                                    .bytes = pieces[i].bytes,
                                    .from = is_save ? pieces[i].address : host };
        status = submit(driver, &piece, stream);
    }
    return status;
}

vmm_status vmm__host_save(struct driver *driver, const struct driver_piece *pieces, unsigned count,
                          vmm_stream stream)
{
    return pieces_transfer(driver, pieces, count, stream, true);
}

vmm_status vmm__host_load(struct driver *driver, const struct driver_piece *pieces, unsigned count,
                          vmm_stream stream)
{
    return pieces_transfer(driver, pieces, count, stream, false);
}

vmm_status vmm__host_launch(struct driver *driver, void (*kernel)(void *context), void *context,
                            vmm_stream stream)
{
    struct host_piece piece = { .kind = HOST_PIECE_KERNEL, .kernel = kernel, .context = context };
    return submit(driver, &piece, stream);
}

vmm_status vmm__host_delay(struct driver *driver, uint64_t ns, vmm_stream stream)
{
    struct host_piece piece = { .kind = HOST_PIECE_DELAY, .ns = ns };
    return submit(driver, &piece, stream);
}
