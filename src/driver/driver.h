/*
 * The driver: the one seam between the library and whatever provides memory.
 *
 * A driver is a table of operations over one device. Three exist: `cuda` (a GPU through
 * libcuda.so.1), `host` (ordinary memory, kernels are host functions run in stream order) and `sim`
 * (no memory at all, only rules and costs). Everybody above calls the vmm__driver_*() functions
 * below, which count and time each call; nobody calls the table directly.
 *
 * What every operation may rely on, because the callers promise it:
 *  P1. out-parameters are never NULL;
 *  P2. `address` and `bytes` of reserve, map, unmap, access are multiples of granule_bytes, > 0;
 *  P3. unmap and access cover whole mappings, one or several that touch each other;
 *  P4. map covers addresses that are reserved and not mapped, and names a whole handle;
 *  P5. address_free names exactly one reservation, with nothing mapped in it;
 *  P6. release names a handle that was created and not released, with the bytes it was created
 *      with. Mappings outlive it: the memory stays until the last of them is unmapped.
 * The sim driver refuses and records what breaks these promises; the others may simply fail.
 *
 * What every driver promises:
 *  D1. an operation that fails has changed nothing. Of clear and read work may be under way nevertheless, in
 *      order of the stream; but a read that has returned writes to the host no more;
 *  D2. none of the memory operations waits for the device;
 *  D3. memory that was created, mapped and given access can be touched by work on any stream;
 *  D4. one handle may be mapped at several addresses at once;
 *  D5. failures are told apart: device memory (ERR_DEVICE_OOM, of create, map and access only),
 *      addresses (ERR_ADDRESS_SPACE, of reserve only), host memory (ERR_HOST_OOM), a context that
 *      is gone (ERR_LOST), a stream that was destroyed (ERR_INVALID_ARGUMENT, of event_record, stream_wait,
 *      capturing and work; with cuda as far as CUDA notices), everything else (ERR_DRIVER); each
 *      leaves its line in vmm__error(), naming the call and, for cuda, the native code;
 *  D6. all operations may be called from any thread.
 *
 * What the vmm__driver_*() functions add: once a call has returned ERR_LOST none is passed on any more (but for
 * close and clock): each returns ERR_LOST with the line of the first, is not counted and does not wait. Where memory
 * outlives a lost context (takes_back) unmap, release and address_free are passed on until the first of them is
 * refused, with that line, too: whoever owns something gives it back without asking whether the device is lost.
 *
 * May be called by: memory, heap (events only), policy, report, tools. Depends on: base.
 */
#ifndef VMM_DRIVER_DRIVER_H
#define VMM_DRIVER_DRIVER_H

#include "driver/lost.h"
#include "vmmcache/vmmcache.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct driver;

/* X(name): kinds of calls that are counted and timed. */
#define VMM_DRIVER_CALL_MAP(X)                                                                     \
    X(reserve)                                                                                     \
    X(address_free)                                                                                \
    X(create)                                                                                      \
    X(release)                                                                                     \
    X(map)                                                                                         \
    X(unmap)                                                                                       \
    X(access)                                                                                      \
    X(memory_info)                                                                                 \
    X(event_create)                                                                                \
    X(event_destroy)                                                                               \
    X(event_record)                                                                                \
    X(event_query)                                                                                 \
    X(event_wait)                                                                                  \
    X(stream_wait)                                                                                 \
    X(device_wait)                                                                                 \
    X(capturing)                                                                                   \
    X(copy)                                                                                        \
    X(clear)                                                                                       \
    X(read)

enum driver_call {
#define DRIVER_CALL_ENUM(name) DRIVER_CALL_##name,
    VMM_DRIVER_CALL_MAP(DRIVER_CALL_ENUM)
#undef DRIVER_CALL_ENUM
        DRIVER_CALL_COUNT
};

/* Bytes of the device, and where on the host they are read to. */
struct driver_piece {
    uint64_t address;
    uint64_t bytes;
    void *to;
};

/*
 * The table. Filled in completely by each implementation; no slot is NULL. Sizes are bytes.
 * Streams are CUstreams for cuda; host and sim take any value as the name of a stream and know it
 * from its first use until it is destroyed.
 */
struct driver_ops {
    const char *name;

    /* Frees the driver itself and whatever is left in it. */
    void (*close)(struct driver *driver);

    /* Addresses: `bytes` of them, aligned to the granule. ERR_ADDRESS_SPACE when refused. */
    vmm_status (*reserve)(struct driver *driver, uint64_t bytes, uint64_t *address);
    vmm_status (*address_free)(struct driver *driver, uint64_t address, uint64_t bytes);

    /* Physical memory: ERR_DEVICE_OOM when there is none. */
    vmm_status (*create)(struct driver *driver, uint64_t bytes, uint64_t *handle);
    vmm_status (*release)(struct driver *driver, uint64_t handle, uint64_t bytes);

    /* Mappings. Fresh ones can be touched only after access. */
    vmm_status (*map)(struct driver *driver, uint64_t address, uint64_t bytes, uint64_t handle);
    vmm_status (*unmap)(struct driver *driver, uint64_t address, uint64_t bytes);
    vmm_status (*access)(struct driver *driver, uint64_t address, uint64_t bytes);

    vmm_status (*memory_info)(struct driver *driver, uint64_t *free_bytes, uint64_t *total_bytes);

    /* Events, without timing. event_query: VMM_OK or VMM_NOT_READY. event_wait blocks the host. An
     * event never recorded has passed. */
    vmm_status (*event_create)(struct driver *driver, void **event);
    vmm_status (*event_destroy)(struct driver *driver, void *event);
    vmm_status (*event_record)(struct driver *driver, void *event, vmm_stream stream);
    vmm_status (*event_query)(struct driver *driver, void *event);
    vmm_status (*event_wait)(struct driver *driver, void *event);
    vmm_status (*stream_wait)(struct driver *driver, vmm_stream stream, void *event);
    vmm_status (*device_wait)(struct driver *driver); /* all work on all streams; blocks the host */

    /* Whether the stream is being captured into a graph, or may not be asked because another one is.
     * It may then not be made to wait, and an event that is recorded on it tells nothing and may not be asked
     * or waited for, ever. */
    vmm_status (*capturing)(struct driver *driver, vmm_stream stream, bool *is_capturing);

    /* Device to device, in stream order. */
    vmm_status (*copy)(struct driver *driver, uint64_t to, uint64_t from, uint64_t bytes,
                       vmm_stream stream);

    /* Makes every byte of the range `value`, in stream order. On a stream that is being captured it becomes
     * part of the graph. */
    vmm_status (*clear)(struct driver *driver, uint64_t address, uint64_t bytes, uint8_t value,
                        vmm_stream stream);

    /* Reads pieces of device memory in stream order; blocks the host until that is done. Not for a stream that is
     * being captured. sim tells what was cleared; of other contents only that they are neither 0 nor
     * have the upper bit set. */
    vmm_status (*read)(struct driver *driver, const struct driver_piece *pieces, unsigned count,
                       vmm_stream stream);

    /* Nanoseconds of this driver's clock: real time, or for sim the sum of modelled costs. */
    uint64_t (*clock)(struct driver *driver);

    /*
     * Work for tests and tools, in stream order, returning before it has run. fill writes a
     * pattern made of `word` and the place within the block; check compares, and each place that
     * differs adds to what mismatches() reports. cuda does every word; host does one word in each
     * 512 bytes (the smallest block) near a block's ends and in each page between; sim has no
     * memory and checks its shadow instead: which block was last filled there, that the addresses
     * are mapped with access, and that the work is ordered after what others did there.
     */
    vmm_status (*fill)(struct driver *driver, uint64_t address, uint64_t bytes, uint32_t word,
                       vmm_stream stream);
    vmm_status (*check)(struct driver *driver, uint64_t address, uint64_t bytes, uint32_t word,
                        vmm_stream stream);
    /*
     * Work that does nothing for `ns` nanoseconds of the driver's clock, counted from when the work
     * before it on its stream has ended: work in flight of a known length. On sim it is over once
     * the clock, the sum of modelled costs, has come that far; work that was submitted later, on
     * whatever stream, then ends after it, as it always does there.
     */
    vmm_status (*delay)(struct driver *driver, uint64_t ns, vmm_stream stream);
    /* Waits for all work, then: places found different since open. */
    vmm_status (*mismatches)(struct driver *driver, uint64_t *places);

    /* Streams for tests and tools. The work of one that is destroyed still runs to its end; its handle may
     * come back as another stream's, and on host and sim the last one does. */
    vmm_status (*stream_create)(struct driver *driver, vmm_stream *stream);
    vmm_status (*stream_destroy)(struct driver *driver, vmm_stream stream);

    /* A capture for tests: nobody launches what was captured. capture_end fails if anything broke the
     * capture meanwhile. host and sim take no work on a stream that is being captured. */
    vmm_status (*capture_begin)(struct driver *driver, vmm_stream stream);
    vmm_status (*capture_end)(struct driver *driver, vmm_stream stream);
};

/* Calls, their failures and their time, by kind. Any thread may add. */
struct driver_tally {
    _Atomic uint64_t calls;
    _Atomic uint64_t failures;
    _Atomic uint64_t clock_ns; /* by the driver's clock */
    _Atomic uint64_t host_ns;  /* by the host's clock; equals clock_ns but for sim */
};

/* Every implementation embeds this as its first member and fills in the first group in open. */
struct driver {
    const struct driver_ops *ops;
    uint64_t granule_bytes;
    uint64_t total_bytes;    /* memory of the device */
    char device_name[96];    /* "NVIDIA H200", "host memory", "simulated H200" */
    char version[64];        /* driver version, or empty */
    bool clock_is_simulated; /* clock_ns differs from host_ns */
    bool is_plain;           /* each address has memory of its own: see cuda_plain.c */

    struct lost lost;
    _Atomic bool takes_back; /* memory, though the device is lost; false once it has refused to */

    /* Kept by the calls below. Outstanding figures are what a census must find at zero. */
    struct driver_tally tally[DRIVER_CALL_COUNT];
    _Atomic uint64_t stalls;        /* event_wait, device_wait and read calls */
    _Atomic uint64_t reservations;  /* outstanding */
    _Atomic uint64_t handles;       /* created and not released */
    _Atomic uint64_t created_bytes; /* of those handles */
    _Atomic uint64_t mapped_bytes;  /* outstanding */
    _Atomic uint64_t events;        /* outstanding */
};

/* ---- The three implementations: one exported getter each ----------------------------------- */

/* For them: the first step of open and the last of close, of a zeroed driver. */
void vmm__driver_init(struct driver *driver, const struct driver_ops *ops);
void vmm__driver_fini(struct driver *driver);

struct driver_options {
    int device;            /* cuda: ordinal */
    uint64_t device_bytes; /* host, sim: capacity; 0 = default (host: half of RAM; sim: 139 GiB) */
    uint64_t peer_devices; /* cuda: see vmm_config */
    bool is_plain;         /* cuda: one allocation instead of mappings, of twice device_bytes */
};

vmm_status vmm__driver_cuda_open(const struct driver_options *options, struct driver **out);
bool vmm__driver_cuda_is_built(void);
vmm_status vmm__driver_host_open(const struct driver_options *options, struct driver **out);
vmm_status vmm__driver_sim_open(const struct driver_options *options, struct driver **out);

/* Opens by kind. AUTO is cuda where it opens, else host. */
vmm_status vmm__driver_open(vmm_driver_kind kind, const struct driver_options *options,
                            struct driver **out);
void vmm__driver_close(struct driver *driver);

/* "auto", "cuda", "host" or "sim"; false for anything else. */
bool vmm__driver_kind_parse(const char *text, vmm_driver_kind *out);

static inline bool vmm__driver_is_lost(const struct driver *driver)
{
    return vmm__lost_is(&driver->lost);
}

/* ---- Calls, counted and timed ------------------------------------------------------------- */

vmm_status vmm__driver_reserve(struct driver *driver, uint64_t bytes, uint64_t *address);
vmm_status vmm__driver_address_free(struct driver *driver, uint64_t address, uint64_t bytes);
vmm_status vmm__driver_create(struct driver *driver, uint64_t bytes, uint64_t *handle);
vmm_status vmm__driver_release(struct driver *driver, uint64_t handle, uint64_t bytes);
vmm_status vmm__driver_map(struct driver *driver, uint64_t address, uint64_t bytes,
                           uint64_t handle);
vmm_status vmm__driver_unmap(struct driver *driver, uint64_t address, uint64_t bytes);
vmm_status vmm__driver_access(struct driver *driver, uint64_t address, uint64_t bytes);
vmm_status vmm__driver_memory_info(struct driver *driver, uint64_t *free_bytes,
                                   uint64_t *total_bytes);
vmm_status vmm__driver_event_create(struct driver *driver, void **event);
vmm_status vmm__driver_event_destroy(struct driver *driver, void *event);
vmm_status vmm__driver_event_record(struct driver *driver, void *event, vmm_stream stream);
vmm_status vmm__driver_event_query(struct driver *driver, void *event);
vmm_status vmm__driver_event_wait(struct driver *driver, void *event);
vmm_status vmm__driver_stream_wait(struct driver *driver, vmm_stream stream, void *event);
vmm_status vmm__driver_device_wait(struct driver *driver);
vmm_status vmm__driver_capturing(struct driver *driver, vmm_stream stream, bool *is_capturing);
vmm_status vmm__driver_copy(struct driver *driver, uint64_t to, uint64_t from, uint64_t bytes,
                            vmm_stream stream);
vmm_status vmm__driver_clear(struct driver *driver, uint64_t address, uint64_t bytes, uint8_t value,
                             vmm_stream stream);
vmm_status vmm__driver_read(struct driver *driver, const struct driver_piece *pieces,
                            unsigned count, vmm_stream stream);

/* Not counted: they belong to tests and tools, or cost nothing. */
uint64_t vmm__driver_clock(struct driver *driver);
vmm_status vmm__driver_fill(struct driver *driver, uint64_t address, uint64_t bytes, uint32_t word,
                            vmm_stream stream);
vmm_status vmm__driver_check(struct driver *driver, uint64_t address, uint64_t bytes, uint32_t word,
                             vmm_stream stream);
vmm_status vmm__driver_delay(struct driver *driver, uint64_t ns, vmm_stream stream);
vmm_status vmm__driver_mismatches(struct driver *driver, uint64_t *places);
vmm_status vmm__driver_stream_create(struct driver *driver, vmm_stream *stream);
vmm_status vmm__driver_stream_destroy(struct driver *driver, vmm_stream stream);
vmm_status vmm__driver_capture_begin(struct driver *driver, vmm_stream stream);
vmm_status vmm__driver_capture_end(struct driver *driver, vmm_stream stream);

/* Sums over all kinds of calls. */
uint64_t vmm__driver_calls(const struct driver *driver, enum driver_call call);
uint64_t vmm__driver_clock_ns(const struct driver *driver); /* spent in driver calls */
uint64_t vmm__driver_host_ns(const struct driver *driver);  /* the same, by the host's clock */

#endif
