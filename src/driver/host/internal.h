/*
 * Shared by the files of the host driver only: ordinary memory behind the driver table.
 *
 *   host.c     opens and closes the driver; the table
 *   memory.c   the backing of soft.h: reserved addresses, mappings
 *   file.c     physical memory: one memfd, and its granules; the files of exportable handles
 *   device.c   a device that processes share
 *   share.c    exported and imported handles
 *   work.c     streams, their queues and the worker threads
 *   run.c      kinds of work: fill, check, copy, kernels, delay
 *   event.c    the backing of events, and blocking waits of host threads
 *   pattern.c  the memory patterns of fill and check
 *
 * Owns: nothing. May be called by: driver/host. Locks: memory_lock guards `file`, `device` and, but for its streams and
 * events, `soft`; work.lock guards these and everything in host_work and its streams. No thread holds both.
 */
#ifndef VMM_DRIVER_HOST_INTERNAL_H
#define VMM_DRIVER_HOST_INTERNAL_H

#include "base/mutex.h"
#include "driver/soft/soft.h"

#include <pthread.h>
#include <stddef.h>

enum {
    HOST_QUEUE_LIMIT = 4096, /* pending pieces on one stream; a further submission blocks */
    HOST_WORKER_LIMIT = 8
};

/* ---- file.c: physical memory ----------------------------------------------------------------- */

struct host_file {
    int descriptor;
    uint64_t granules;    /* for which it has room */
    unsigned char *taken; /* for each: 1 if a handle has it, else 0 */
    unsigned char *kept;  /* for each: 1 if it is free and has memory, else 0 */
    uint64_t kept_count;
};

struct host_handle {
    struct soft_handle soft; /* first */
    int descriptor;          /* of the file in which it lies: the driver's, or its own */
    uint64_t offset;         /* in that file */
};

/* The seals of the file of an exportable handle: its size never changes, so no access to its mappings can fail. */
#define HOST_SHARED_SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW)

vmm_status vmm__host_file_open(struct host_file *file, uint64_t device_bytes);
void vmm__host_file_close(struct host_file *file);

/* ---- device.c: a device that processes share -------------------------------------------------- */

struct host_device {
    int descriptor; /* -1: other processes have no memory of the device */
    uint64_t granules;
    bool *taken; /* for each: this driver has it */
};

/* Opens, or makes, the file of a device with the bytes that the driver has; if it exists, the driver gets the bytes of
 * the device. ERR_INVALID_ARGUMENT, ERR_HOST_OOM. */
vmm_status vmm__host_device_open(const char *path, struct driver *driver,
                                 struct host_device *device);

/* The following do nothing if the device is not shared. */
void vmm__host_device_close(struct host_device *device);

/* ERR_DEVICE_OOM if other processes have too much. */
vmm_status vmm__host_device_take(struct host_device *device, uint64_t bytes);
void vmm__host_device_give(struct host_device *device, uint64_t bytes);

/* ---- memory.c: addresses and mappings -------------------------------------------------------- */

/* The parts of the backing; waits release work.lock meanwhile. */
#define HOST_BACKING_DECLARE(type, name, parameters) type vmm__host_##name parameters;
SOFT_BACKING_MAP(HOST_BACKING_DECLARE)
#undef HOST_BACKING_DECLARE
extern const struct soft_backing vmm__host_backing;

struct host_driver;

/* True if work can access the whole range now. Memory outside of all reservations is the program's, such as that of a
 * source: it must be mapped. */
bool vmm__host_memory_is_accessible(struct host_driver *host, uint64_t address, uint64_t bytes);

/* ---- work.c: streams, queues, workers -------------------------------------------------------- */

enum host_piece_kind {
    HOST_PIECE_FILL,
    HOST_PIECE_CHECK,
    HOST_PIECE_COPY,
    HOST_PIECE_CLEAR,
    HOST_PIECE_KERNEL,
    HOST_PIECE_DELAY,
    HOST_PIECE_WAIT
};

/* A position in a stream's work: reached when `sequence` of its pieces have finished. */
struct host_position {
    struct host_stream *stream;
    uint64_t sequence;
};

struct host_piece {
    enum host_piece_kind kind;
    uint32_t word;
    uint64_t address;
    uint64_t bytes;
    union {
        uint64_t from;                 /* copy: source */
        uint64_t ns;                   /* delay: duration */
        void (*kernel)(void *);        /* kernel: called with `context` */
        struct host_position position; /* wait: the position to wait for */
    };
    void *context;
};

struct host_work {
    struct mutex lock;
    pthread_cond_t ready;        /* signals a new ready stream, or stopping */
    struct host_stream *streams; /* also those that wait to serve again */
    uint64_t stream_count;
    struct soft *soft; /* which has their names and captures, and the events */
    struct host_stream *ready_first;
    struct host_stream *ready_last;
    struct host_waiter *waiters; /* host threads that wait for a position */
    bool stopping;
    unsigned worker_count;
    pthread_t workers[HOST_WORKER_LIMIT];
};

/* Its record serves another stream once it was destroyed and its work has ended. An old position in it stays reached,
 * because its sequence goes on. */
struct host_stream {
    struct soft_stream soft; /* first */
    struct host_stream *next;
    struct host_stream *next_ready;
    struct host_stream *blocked; /* streams whose next piece waits for a position in this one */
    struct host_stream *next_blocked;
    uint64_t submitted; /* pieces; never reset */
    uint64_t finished;
    struct host_piece *queue; /* ring buffer; piece n is at n % capacity */
    uint64_t capacity;
};

void vmm__host_work_open(struct host_work *work, struct soft *soft);
void vmm__host_work_close(struct host_work *work);

/* Returns NULL if the name was never used or the stream was destroyed. */
static inline struct host_stream *host_stream_find(const struct host_work *work, vmm_stream name)
{
    return (struct host_stream *)soft_stream_find(&work->soft->streams, name);
}

/* Queues one piece. Blocks while the stream's queue is full, and releases the lock meanwhile. */
vmm_status vmm__host_submit_locked(struct host_work *work, const struct host_piece *piece,
                                   vmm_stream name);
/* The same without the checks, on a stream that is not under capture. */
vmm_status vmm__host_piece_queue_locked(struct host_work *work, const struct host_piece *piece,
                                        struct host_stream *stream);

/* ---- run.c: kinds of work -------------------------------------------------------------------- */

/* Runs a piece, other than a wait that is not reached. Returns the number of mismatches. Call without the lock. */
uint64_t vmm__host_piece_run(const struct host_piece *piece);

/* ---- event.c: events, blocking waits --------------------------------------------------------- */

/* Blocks until the position is reached; releases the lock meanwhile. */
void vmm__host_wait_locked(struct host_work *work, struct host_position position);

/* Wakes the host threads that wait for a position this stream has reached. */
void vmm__host_wake_locked(struct host_work *work, const struct host_stream *stream);

/* ---- pattern.c ------------------------------------------------------------------------------- */

/* Fills a block, or checks it. Returns the number of units that differ. */
uint64_t vmm__host_pattern_pass(uint64_t address, uint64_t bytes, uint32_t word, bool is_check);

/* ---- host.c ---------------------------------------------------------------------------------- */

struct host_driver {
    struct soft soft; /* first, so a struct driver * is also a struct host_driver * */
    struct mutex memory_lock;
    struct host_file file;
    struct host_device device;
    struct host_work work;
};

/* The operations of the table that run.c has, called without a lock; soft has the others. */
#define HOST_OP_DECLARE(name, parameters, arguments) vmm_status vmm__host_##name parameters;
VMM_DRIVER_CONTENTS_MAP(HOST_OP_DECLARE, struct driver *driver, )
VMM_DRIVER_WORK_MAP(HOST_OP_DECLARE, struct driver *driver, )
#undef HOST_OP_DECLARE

static inline void *vmm__host_pointer(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

static inline struct host_driver *vmm__host_of(struct driver *driver)
{
    return (struct host_driver *)driver;
}

static inline struct host_work *host_work_of(struct soft *soft)
{
    return &vmm__host_of(&soft->driver)->work;
}

static inline bool vmm__host_is_reached(struct host_position position)
{
    return position.stream->finished >= position.sequence;
}

#endif
