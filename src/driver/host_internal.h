/*
 * The parts of the host driver, shared by its files only: ordinary memory of this machine behind
 * the driver table.
 *
 *   host.c          opens and closes the driver; the table
 *   host_file.c     physical memory: one memfd, and which extents of it are free
 *   host_address.c  reservations
 *   host_handle.c   handles; opens and closes all that has to do with memory
 *   host_mapping.c  mappings
 *   host_work.c     streams, their queues and the worker threads
 *   host_run.c      what work does: fill, check, copy, kernels, delay
 *   host_event.c    events, and waits of the host
 *   host_pattern.c  what fill and check do to memory
 *
 * Locks: memory.lock guards everything in host_memory (and its file), work.lock everything in
 * host_work, its streams and its events. Neither is taken while the other is held.
 */
#ifndef VMM_DRIVER_HOST_INTERNAL_H
#define VMM_DRIVER_HOST_INTERNAL_H

#include "driver/driver.h"
#include "driver/stream_names.h"

#include <pthread.h>
#include <stddef.h>

enum {
    HOST_GRANULE_BYTES = 2 << 20,
    HOST_QUEUE_LIMIT = 4096, /* pieces of work pending on one stream; submitting more blocks */
    HOST_WORKER_LIMIT = 8
};

/* ---- host_file.c: physical memory ----------------------------------------------------------- */

/* A run of granules of the file. */
struct host_extent {
    uint64_t first;
    uint64_t count;
};

struct host_file {
    int descriptor;
    uint64_t granules;
    uint64_t free_granules;
    struct host_extent *free; /* rising, never touching each other; room for the worst case */
    size_t free_count;
};

/* The extents that make up one handle. */
struct host_extents {
    struct host_extent *items;
    size_t count;
};

vmm_status vmm__host_file_open(struct host_file *file, uint64_t bytes);
void vmm__host_file_close(struct host_file *file);

/* Takes free granules and has the system provide their memory now. */
vmm_status vmm__host_file_take(struct host_file *file, uint64_t granules, struct host_extents *out);

/* Gives the memory back to the system and the granules to the free ones. */
void vmm__host_file_give(struct host_file *file, struct host_extents *extents);

/* ---- host_address.c: reservations ------------------------------------------------------------ */

struct host_reservation {
    struct host_reservation *next;
    uint64_t address;
    uint64_t bytes;
    uint64_t mappings;
    struct host_mapping **table; /* by granule */
};

struct host_memory;

/* NULL unless all of these bytes lie in one reservation. */
struct host_reservation *vmm__host_reservation_find_locked(const struct host_memory *memory,
                                                           uint64_t address, uint64_t bytes);
struct host_mapping **vmm__host_table_slot(const struct host_reservation *reservation,
                                           uint64_t address);

/* With the mappings in them forgotten before. */
void vmm__host_reservations_close(struct host_memory *memory);

/* Makes addresses of a reservation inaccessible again without ever giving them up. */
bool vmm__host_range_cover(uint64_t address, uint64_t bytes);

/* The status and the line for a failed call of the system on a range. */
vmm_status vmm__host_system_error(const char *call, uint64_t address, uint64_t bytes, int code);

vmm_status vmm__host_reserve(struct driver *driver, uint64_t bytes, uint64_t *address);
vmm_status vmm__host_address_free(struct driver *driver, uint64_t address, uint64_t bytes);

/* ---- host_handle.c: handles, memory as a whole ------------------------------------------------
 */

/* A slot of the table of handles. Its id is (generation, slot + 1), so that none comes twice. */
struct host_handle {
    uint64_t id; /* 0: the slot is free */
    uint64_t bytes;
    uint64_t mappings;
    uint64_t next_free;
    struct host_extents extents;
    bool released;
};

struct host_memory {
    pthread_mutex_t lock;
    struct host_file file;
    struct host_handle *handles; /* a slot for each granule: there cannot be more handles */
    uint64_t handles_used;       /* slots beyond were never used */
    uint64_t handle_free;        /* first of the slots to use again */
    uint64_t handle_generation;
    struct host_reservation *reservations;
};

vmm_status vmm__host_memory_open(struct host_memory *memory, uint64_t bytes);
void vmm__host_memory_close(struct host_memory *memory);

/* NULL unless it was created and not released. */
struct host_handle *vmm__host_handle_find_locked(const struct host_memory *memory, uint64_t id);

/* Gives the memory of a handle back if nothing refers to it any more. */
void vmm__host_handle_end_locked(struct host_memory *memory, struct host_handle *handle);

vmm_status vmm__host_create(struct driver *driver, uint64_t bytes, uint64_t *handle);
vmm_status vmm__host_release(struct driver *driver, uint64_t handle, uint64_t bytes);
vmm_status vmm__host_memory_info(struct driver *driver, uint64_t *free_bytes,
                                 uint64_t *total_bytes);

/* ---- host_mapping.c: mappings ------------------------------------------------------------------
 */

/* True if work may touch all of these bytes now. */
bool vmm__host_memory_is_accessible(struct host_memory *memory, uint64_t address, uint64_t bytes);

/* Forgets all that are left; the addresses are given up by vmm__host_reservations_close(). */
void vmm__host_mappings_close(struct host_memory *memory);

vmm_status vmm__host_map(struct driver *driver, uint64_t address, uint64_t bytes, uint64_t handle);
vmm_status vmm__host_unmap(struct driver *driver, uint64_t address, uint64_t bytes);
vmm_status vmm__host_access(struct driver *driver, uint64_t address, uint64_t bytes);

/* ---- host_work.c: streams, queues, workers --------------------------------------------------- */

enum host_piece_kind {
    HOST_PIECE_FILL,
    HOST_PIECE_CHECK,
    HOST_PIECE_COPY,
    HOST_PIECE_CLEAR,
    HOST_PIECE_KERNEL,
    HOST_PIECE_DELAY,
    HOST_PIECE_WAIT
};

/* A place in the work of a stream: reached when `sequence` pieces of it have finished. */
struct host_mark {
    struct host_stream *stream;
    uint64_t sequence;
};

struct host_piece {
    enum host_piece_kind kind;
    uint32_t word;
    uint64_t address;
    uint64_t bytes;
    union {
        uint64_t from;          /* copy */
        uint64_t ns;            /* delay */
        void (*kernel)(void *); /* kernel, with */
        struct host_mark mark;  /* wait */
    };
    void *context;
};

struct host_work {
    pthread_mutex_t lock;
    pthread_cond_t ready;        /* a stream was added to the ready ones, or stopping was set */
    struct host_stream *streams; /* all that are known or still referred to */
    struct stream_names names;
    struct host_stream *ready_first;
    struct host_stream *ready_last;
    struct host_waiter *waiters; /* host threads that wait for a mark */
    struct host_event *events;   /* all that were not destroyed */
    uint64_t mismatches;
    bool stopping;
    unsigned worker_count;
    pthread_t workers[HOST_WORKER_LIMIT];
};

/*
 * A stream stays while anything refers to it: its name (until stream_destroy), its own pending
 * work, events recorded on it, waits for it.
 */
struct host_stream {
    struct host_stream *next;
    struct host_stream *next_ready;
    struct host_stream *blocked; /* streams whose next piece waits for a mark of this one */
    struct host_stream *next_blocked;
    vmm_stream name;
    bool named; /* found by its name */
    bool is_captured;
    bool is_spoilt; /* something was done meanwhile that breaks a capture */
    unsigned references;
    uint64_t submitted; /* pieces, since the stream is known */
    uint64_t finished;
    struct host_piece *queue; /* a ring; piece number n is at n % capacity */
    uint64_t capacity;
};

vmm_status vmm__host_work_open(struct host_work *work);
void vmm__host_work_close(struct host_work *work);

/* Called for what would make a stream wait, wait for it or give it work: refused if it is being captured, and the
 * capture is lost. */
vmm_status vmm__host_capture_spoil_locked(struct host_stream *stream, const char *verb);

/* NULL if the name was never used, or the stream was destroyed. The reference belongs to the name. */
struct host_stream *vmm__host_stream_find_locked(struct host_work *work, vmm_stream name);
void vmm__host_stream_release_locked(struct host_work *work, struct host_stream *stream);

/* Queues one piece; may block, with the lock given up, until the stream's queue has room. */
vmm_status vmm__host_submit_locked(struct host_work *work, const struct host_piece *piece,
                                   vmm_stream name);

vmm_status vmm__host_stream_create(struct driver *driver, vmm_stream *stream);
vmm_status vmm__host_stream_destroy(struct driver *driver, vmm_stream stream);
vmm_status vmm__host_capturing(struct driver *driver, vmm_stream stream, bool *is_capturing);
vmm_status vmm__host_capture_begin(struct driver *driver, vmm_stream stream);
vmm_status vmm__host_capture_end(struct driver *driver, vmm_stream stream);

/* ---- host_run.c: what work does --------------------------------------------------------------- */

/* Runs a piece, which is not a wait any more; returns the places found different. Without the lock. */
uint64_t vmm__host_piece_run(const struct host_piece *piece);

vmm_status vmm__host_fill(struct driver *driver, uint64_t address, uint64_t bytes, uint32_t word,
                          vmm_stream stream);
vmm_status vmm__host_check(struct driver *driver, uint64_t address, uint64_t bytes, uint32_t word,
                           vmm_stream stream);
vmm_status vmm__host_copy(struct driver *driver, uint64_t to, uint64_t from, uint64_t bytes,
                          vmm_stream stream);
vmm_status vmm__host_clear(struct driver *driver, uint64_t address, uint64_t bytes, uint8_t value,
                           vmm_stream stream);
vmm_status vmm__host_read(struct driver *driver, const struct driver_piece *pieces, unsigned count,
                          vmm_stream stream);
vmm_status vmm__host_delay(struct driver *driver, uint64_t ns, vmm_stream stream);

/* ---- host_event.c: events, waits of the host ------------------------------------------------- */

/* Blocks until the mark is reached; gives the lock up meanwhile. */
void vmm__host_wait_locked(struct host_work *work, struct host_mark mark);

/* Wakes the host threads whose mark this stream has reached. */
void vmm__host_wake_locked(struct host_work *work, const struct host_stream *stream);

void vmm__host_events_close(struct host_work *work);

vmm_status vmm__host_event_create(struct driver *driver, void **event);
vmm_status vmm__host_event_destroy(struct driver *driver, void *event);
vmm_status vmm__host_event_record(struct driver *driver, void *event, vmm_stream stream);
vmm_status vmm__host_event_query(struct driver *driver, void *event);
vmm_status vmm__host_event_wait(struct driver *driver, void *event);
vmm_status vmm__host_stream_wait(struct driver *driver, vmm_stream stream, void *event);
vmm_status vmm__host_device_wait(struct driver *driver);
vmm_status vmm__host_mismatches(struct driver *driver, uint64_t *places);

/* ---- host_pattern.c -------------------------------------------------------------------------- */

void vmm__host_pattern_fill(uint64_t address, uint64_t bytes, uint32_t word);

/* Returns how many units differ. */
uint64_t vmm__host_pattern_check(uint64_t address, uint64_t bytes, uint32_t word);

/* ---- host.c ---------------------------------------------------------------------------------- */

struct host_driver {
    struct driver base;
    struct host_memory memory;
    struct host_work work;
};

static inline struct host_driver *vmm__host_of(struct driver *driver)
{
    return (struct host_driver *)driver;
}

static inline bool vmm__host_is_reached(struct host_mark mark)
{
    return mark.stream == NULL || mark.stream->finished >= mark.sequence;
}

#endif
