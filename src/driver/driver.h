/*
 * The driver: the only interface between the library and the device.
 *
 * A driver is a table of operations over one device. Three exist: `cuda` (a GPU through libcuda.so.1), `host` (ordinary
 * memory; kernels are host functions that run in stream order) and `sim` (no memory, only CUDA's rules and costs).
 * Callers use the vmm__driver_*() functions below, which count and time each call; they never call the table directly.
 *
 * Callers guarantee:
 *  P1. out-parameters are never NULL;
 *  P2. `address` and `bytes` of reserve, map, unmap and access are multiples of granule_bytes, > 0;
 *  P3. unmap and access cover whole mappings: one, or several that are adjacent;
 *  P4. map covers addresses that are reserved and not mapped, and names a whole handle;
 *  P5. address_free names exactly one reservation that contains no mapping;
 *  P6. release names a handle that was created and not yet released, with its size, and
 *      share_release one that was imported. Mappings outlive the release: the memory stays until
 *      the last mapping is unmapped;
 *  P7. share_export names a handle that was created with a reach, fabric_export one with
 *      VMM_SHARE_FABRIC, which is used only after fabric_check succeeded;
 *  P8. pin names memory of the program that is not pinned. unpin names exactly one pinned range,
 *      which no unfinished work uses. save and load get at least one piece; each lies in one
 *      pinned range, and the program leaves its bytes alone until the work has ended;
 *  P9. dmabuf_export covers mapped memory with access, and whole pages of the host.
 * host and sim refuse each breach, but an unpin during work, and record the use of an invalid handle; sim records that
 * unpin, too. cuda may simply fail; its unmap also succeeds where nothing is mapped.
 *
 * Every driver guarantees:
 *  D1. an operation that fails changes nothing. Exception: a failed clear, read, save or load may
 *      have submitted work, in stream order; after read returns, the driver no longer writes to
 *      host memory;
 *  D2. memory operations never wait for the device, except pin, unpin and fabric_check;
 *  D3. work on any stream can access memory that was created, mapped and given access;
 *  D4. if has_aliases, one handle can be mapped at several addresses at once. All of them show the
 *      same bytes in stream order, and unmapping one leaves the others as they are;
 *  D5. each failure has its own status: device memory (ERR_DEVICE_OOM; create, map, access,
 *      share_import, fabric_check and fabric_import only), addresses (ERR_ADDRESS_SPACE; reserve only), host memory
 *      (ERR_HOST_OOM), a lost context (ERR_LOST), a destroyed stream (ERR_INVALID_ARGUMENT; event_record, stream_wait,
 *      capturing and work; with cuda only if CUDA detects it), sharing without has_sharing (ERR_UNSUPPORTED; create,
 *      share_import, fabric_check and fabric_import only), a device out of reach (ERR_UNSUPPORTED; peers_check only),
 *      memory that has no dma-buf (ERR_UNSUPPORTED; dmabuf_export only), everything else (ERR_DRIVER). Each failure
 *      sets the vmm__error() line, which names the call and, for cuda, the native error code;
 *  D6. any thread may call any operation;
 *  D7. if has_sharing, an exported descriptor stands for the whole memory of one handle and for no
 *      other memory. It is closed on exec. share_import refuses a descriptor of anything else, and
 *      of another size. An imported handle shows the bytes that the exporter's handle shows, and
 *      its memory stays until it is released, whatever the exporter does. Processes order their
 *      work on it themselves. All of this holds for fabric handles, too, except that the driver may
 *      refuse one after the exporter's handle was released. A descriptor of dmabuf_export stands for the bytes of the
 *      range and keeps their memory, whatever becomes of the handles. It is closed on exec, too.
 *
 * The vmm__driver_*() functions add: after one call returns ERR_LOST, no later call reaches the driver except close and
 * clock. Each returns ERR_LOST with the line of the first failure, is not counted and does not wait. If accepts_release
 * is set, because memory outlives a lost context, unmap, release, share_release and address_free still reach the driver
 * until it refuses one of them; later ones get the same line. Owners therefore release resources without a check
 * whether the device is lost.
 *
 * Owns: nothing. May be called by: every module above. Depends on: base. Locks: those of each driver.
 */
#ifndef VMM_DRIVER_DRIVER_H
#define VMM_DRIVER_DRIVER_H

#include "base/stat.h"
#include "driver/lost.h"
#include "vmmcache/vmmcache.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct driver;

/* Handles with a meaning of their own in CUDA. */
#define STREAM_LEGACY     ((vmm_stream)(uintptr_t)1) /* CU_STREAM_LEGACY: the default stream */
#define STREAM_PER_THREAD ((vmm_stream)(uintptr_t)2) /* CU_STREAM_PER_THREAD */

/* A fabric handle: stands for memory on other machines, too, as far as NVLink reaches (CUmemFabricHandle). */
enum { DRIVER_FABRIC_BYTES = 64 };
struct driver_fabric {
    unsigned char bytes[DRIVER_FABRIC_BYTES];
};

/* A range of device memory, and the host memory that read, save and load copy it to or from. */
struct driver_piece {
    uint64_t address;
    uint64_t bytes;
    void *host;
};

/*
 * The operations: X(name, parameters, arguments). P is the first parameter and A the first argument, so that one map
 * declares, calls and lists the operations of the table, of each driver, and of the vmm__driver_*() functions. Each
 * driver has every operation. Sizes are in bytes. A stream is a CUstream for cuda; host and sim accept any value as a
 * stream name and know it from its first use until it is destroyed.
 *
 *   reserve      reserves addresses, aligned to the granule: at `hint` if that range is free and the driver supports
 *                hints, otherwise anywhere. `hint` is a multiple of the granule, or 0 for none. ERR_ADDRESS_SPACE if no
 *                range is available.
 *   create       physical memory. ERR_DEVICE_OOM if the device has none left. Only a handle with a reach can be
 *                exported; each call on one costs more, and host needs a file descriptor for it.
 *   map          the mapping is inaccessible until access().
 *   access       gives access to the device and to those of peer_devices. A mapping that has access can get it again.
 *   peers_check  whether other devices can access the device's memory: ERR_UNSUPPORTED names one that cannot, or does
 *                not exist. host, sim: all can.
 */
#define VMM_DRIVER_MEMORY_MAP(X, P, A)                                                             \
    X(reserve, (P, uint64_t bytes, uint64_t hint, uint64_t * address), (A, bytes, hint, address))  \
    X(address_free, (P, uint64_t address, uint64_t bytes), (A, address, bytes))                    \
    X(create, (P, uint64_t bytes, vmm_share_reach reach, uint64_t * handle),                       \
      (A, bytes, reach, handle))                                                                   \
    X(release, (P, uint64_t handle, uint64_t bytes), (A, handle, bytes))                           \
    X(map, (P, uint64_t address, uint64_t bytes, uint64_t handle), (A, address, bytes, handle))    \
    X(unmap, (P, uint64_t address, uint64_t bytes), (A, address, bytes))                           \
    X(access, (P, uint64_t address, uint64_t bytes), (A, address, bytes))                          \
    X(memory_info, (P, uint64_t * free_bytes, uint64_t * total_bytes),                             \
      (A, free_bytes, total_bytes))                                                                \
    X(peers_check, (P, uint64_t devices), (A, devices))

/*
 * Memory that processes share, and memory of the program.
 *
 *   share_export   a new descriptor, which the caller closes, also after it sent it to another process. The handle can
 *                  be exported again.
 *   share_import   a handle for the memory behind a descriptor, which stays the caller's. `bytes` is the size that the
 *                  exporter's handle has. The memory may be another device's if this device and its peers can access
 *                  it. It does not count as memory of this device. sim: only from a sim driver of the same process, and
 *                  while a handle for the memory exists.
 *   fabric_check   whether handles can be created with VMM_SHARE_FABRIC: ERR_UNSUPPORTED names the failed step. cuda
 *                  tries all steps with a granule, so ask seldom.
 *   fabric_export, fabric_import   the same as share_export and share_import. host: the importer is a process of the
 *                  same machine and user, and the exporter's handle exists.
 *   dmabuf_export  a descriptor, which the caller closes, of a range of addresses that may consist of several mappings.
 *                  cuda: a dma-buf. host: the file of a handle with a reach; the range must be a whole mapping of it.
 *                  sim has no memory: ERR_UNSUPPORTED.
 *   share_release  ends an imported handle, as release ends a created one.
 *   pin            lets copies between device and host memory run at full speed and without the host. Memory that is
 *                  pinned when the device is lost needs no unpin. sim knows the contents that save put into pinned
 *                  memory, until unpin; it does not see what the program writes.
 */
#define VMM_DRIVER_SHARE_MAP(X, P, A)                                                              \
    X(share_export, (P, uint64_t handle, int *descriptor), (A, handle, descriptor))                \
    X(share_import, (P, int descriptor, uint64_t bytes, uint64_t *handle),                         \
      (A, descriptor, bytes, handle))                                                              \
    X(fabric_check, (P), (A))                                                                      \
    X(fabric_export, (P, uint64_t handle, struct driver_fabric * fabric), (A, handle, fabric))     \
    X(fabric_import, (P, const struct driver_fabric *fabric, uint64_t bytes, uint64_t *handle),    \
      (A, fabric, bytes, handle))                                                                  \
    X(dmabuf_export, (P, uint64_t address, uint64_t bytes, int *descriptor),                       \
      (A, address, bytes, descriptor))                                                             \
    X(share_release, (P, uint64_t handle, uint64_t bytes), (A, handle, bytes))                     \
    X(pin, (P, void *host, uint64_t bytes), (A, host, bytes))                                      \
    X(unpin, (P, void *host, uint64_t bytes), (A, host, bytes))

/*
 * Events without timing, and streams.
 *
 *   clock_record   records an event of all work that was submitted before on any stream of the context, also on streams
 *                that the driver never saw or that were destroyed, and of the primary contexts of other devices that
 *                the process uses. Orders nothing: work that is submitted later does not wait for it. While a stream is
 *                being captured, VMM__PENDING, and the capture is spoiled: ask first. ERR_UNSUPPORTED without
 *   has_clock.
 *   event_query  VMM_OK or VMM__PENDING. An event that was never recorded counts as complete.
 *   event_wait   blocks the host.
 *   device_wait  waits for all work on all streams; blocks the host.
 *   capturing    whether any of the streams is being captured into a graph. Also true for the default stream while a
 *                stream that waits for it is being captured. Meanwhile the stream must not wait for events; an event
 *                recorded on it belongs to the capture and must never be queried or waited for. If the driver does not
 *                know one of them, and no other is being captured: ERR_INVALID_ARGUMENT.
 *   stream_create  the stream does not wait for the default stream, nor that one for it. It may get the handle of a
 *                destroyed one; host and sim always reuse the most recent.
 *   stream_destroy work of a destroyed stream still runs to its end.
 */
#define VMM_DRIVER_EVENT_MAP(X, P, A)                                                              \
    X(event_create, (P, void **event), (A, event))                                                 \
    X(event_destroy, (P, void *event), (A, event))                                                 \
    X(event_record, (P, void *event, vmm_stream stream), (A, event, stream))                       \
    X(clock_record, (P, void *event), (A, event))                                                  \
    X(event_query, (P, void *event), (A, event))                                                   \
    X(event_wait, (P, void *event), (A, event))                                                    \
    X(stream_wait, (P, vmm_stream stream, void *event), (A, stream, event))                        \
    X(device_wait, (P), (A))                                                                       \
    X(capturing, (P, const vmm_stream *streams, unsigned count, bool *is_capturing),               \
      (A, streams, count, is_capturing))                                                           \
    X(stream_create, (P, vmm_stream * stream), (A, stream))                                        \
    X(stream_destroy, (P, vmm_stream stream), (A, stream))

/*
 * Contents of memory, in stream order.
 *
 *   copy         from device to device. host: the bytes are written before the call returns, after all earlier work of
 *                the stream.
 *   clear        sets every byte of the range to `value`. On a stream under capture the clear becomes part of the
 *                graph. host: the bytes are written before the call returns, after all earlier work of the stream,
 *                during a capture after that of all streams; the program may then use them without the stream.
 *   read         reads ranges of device memory; blocks the host until the copies are complete. Not allowed on a stream
 *                under capture. sim knows the contents only of cleared memory; for other contents it returns bytes that
 *                are not 0 and have the upper bit clear. Where nothing is mapped, it leaves host memory as it is.
 *   save, load   copy ranges of device memory to pinned host memory, and back; neither waits for the copies. Not
 *                allowed on a stream under capture.
 */
#define VMM_DRIVER_CONTENTS_MAP(X, P, A)                                                           \
    X(copy, (P, uint64_t to, uint64_t from, uint64_t bytes, vmm_stream stream),                    \
      (A, to, from, bytes, stream))                                                                \
    X(clear, (P, uint64_t address, uint64_t bytes, uint8_t value, vmm_stream stream),              \
      (A, address, bytes, value, stream))                                                          \
    X(read, (P, const struct driver_piece *pieces, unsigned count, vmm_stream stream),             \
      (A, pieces, count, stream))                                                                  \
    X(save, (P, const struct driver_piece *pieces, unsigned count, vmm_stream stream),             \
      (A, pieces, count, stream))                                                                  \
    X(load, (P, const struct driver_piece *pieces, unsigned count, vmm_stream stream),             \
      (A, pieces, count, stream))

/*
 * Work for tests and tools, in stream order; the call returns before the work runs.
 *
 *   fill, check  fill writes a pattern derived from `word` and the place within the block; check compares, and adds
 *                each place that differs to the count of mismatches(). cuda processes every word; host processes one
 *                word in each 512 bytes (the smallest block) near a block's ends and in each 16 KiB between; sim has no
 *                memory and checks its shadow instead: which block was last filled there, that the addresses are
 *                mapped with access, and that the work is ordered after earlier work there.
 *   delay        work that takes `ns` nanoseconds of the driver's clock, measured from the end of the previous work on
 *                its stream. On sim it ends when the clock, the sum of modelled costs, reaches that time; work
 *                submitted later on any stream ends after it, as always on sim.
 */
#define VMM_DRIVER_WORK_MAP(X, P, A)                                                               \
    X(fill, (P, uint64_t address, uint64_t bytes, uint32_t word, vmm_stream stream),               \
      (A, address, bytes, word, stream))                                                           \
    X(check, (P, uint64_t address, uint64_t bytes, uint32_t word, vmm_stream stream),              \
      (A, address, bytes, word, stream))                                                           \
    X(delay, (P, uint64_t ns, vmm_stream stream), (A, ns, stream))

/*
 * Results and captures for tests and tools.
 *
 *   mismatches     waits for all work, then returns the number of mismatches since open.
 *   capture_begin  the graph is never launched. host and sim accept no work on a stream under capture.
 *   capture_end    fails if anything broke the capture.
 */
#define VMM_DRIVER_CAPTURE_MAP(X, P, A)                                                            \
    X(mismatches, (P, uint64_t * places), (A, places))                                             \
    X(capture_begin, (P, vmm_stream stream), (A, stream))                                          \
    X(capture_end, (P, vmm_stream stream), (A, stream))

/* The calls that are counted and timed, those that are not, and all. */
#define VMM_DRIVER_CALL_MAP(X, P, A)                                                               \
    VMM_DRIVER_MEMORY_MAP(X, P, A)                                                                 \
    VMM_DRIVER_SHARE_MAP(X, P, A)                                                                  \
    VMM_DRIVER_EVENT_MAP(X, P, A)                                                                  \
    VMM_DRIVER_CONTENTS_MAP(X, P, A)
#define VMM_DRIVER_TEST_MAP(X, P, A)                                                               \
    VMM_DRIVER_WORK_MAP(X, P, A)                                                                   \
    VMM_DRIVER_CAPTURE_MAP(X, P, A)
#define VMM_DRIVER_MAP(X, P, A)                                                                    \
    VMM_DRIVER_CALL_MAP(X, P, A)                                                                   \
    VMM_DRIVER_TEST_MAP(X, P, A)

enum driver_call {
#define DRIVER_CALL_ENUM(name, parameters, arguments) DRIVER_CALL_##name,
    VMM_DRIVER_CALL_MAP(DRIVER_CALL_ENUM, , )
#undef DRIVER_CALL_ENUM
        DRIVER_CALL_COUNT
};

/* The table of one driver. */
struct driver_ops {
    const char *name;

    /* Frees the driver and everything that it still owns. */
    void (*close)(struct driver *driver);

    /* sim: nanoseconds on the driver's clock, the sum of modelled costs. NULL: real time. */
    uint64_t (*clock)(struct driver *driver);

    /* ERR_INVALID_ARGUMENT if the stream belongs to a context whose work the driver cannot order: neither the device's
     * primary one nor a green one. Does not detect destroyed streams. NULL: the driver has no contexts. */
    vmm_status (*stream_check)(struct driver *driver, vmm_stream stream);

#define DRIVER_OP_MEMBER(name, parameters, arguments) vmm_status(*name) parameters;
    VMM_DRIVER_MAP(DRIVER_OP_MEMBER, struct driver *driver, )
#undef DRIVER_OP_MEMBER
};

/* Number of calls, failures and time for each kind of call. Any thread may add. */
struct driver_tally {
    _Atomic uint64_t calls;
    _Atomic uint64_t failures;
    _Atomic uint64_t host_ns; /* on the host's clock, which is the driver's except for sim */
};

enum { DRIVER_UUID_BYTES = 16 };

/* Each driver embeds this as its first member and fills in the first group during open. */
struct driver {
    const struct driver_ops *ops;
    uint64_t granule_bytes;
    uint64_t total_bytes; /* device memory */
    char device_name[96]; /* "NVIDIA H200", "host memory", "simulated H200" */
    char version[64];     /* driver version, or empty */
    bool is_plain;        /* each address has its own memory: see cuda/plain.c */
    bool has_aliases;     /* D4 holds; false if memory is plain */
    /* cuda: the failed step of the self-test and the reason, if D4 does not hold. */
    char alias_failure[360];
    bool has_clock;            /* clock_record works */
    char clock_failure[360];   /* the same as alias_failure, if it does not */
    bool has_sharing;          /* D7 holds; false if memory is plain */
    char sharing_failure[360]; /* the same as alias_failure, if D7 does not hold */
    /* Identifies the device, also to other processes. sim: the driver's name. host: that, or the numbers of the file
     * that processes share. */
    unsigned char uuid[DRIVER_UUID_BYTES];
    bool
        is_shared; /* other processes may have memory of the device, and no other device has its UUID */

    /* The other devices that get access, one bit each. Open sets it to those of the options that can have it; the
     * owner of the mappings may change it, once peers_check accepted the devices. */
    _Atomic uint64_t peer_devices;

    struct lost lost;
    /* The driver accepts releases although the device is lost; false after its first refusal. */
    _Atomic bool accepts_release;

    /* Maintained by the calls below. The outstanding counts must be zero after everything is released. */
    struct driver_tally tally[DRIVER_CALL_COUNT];
    struct counts counts;           /* of all calls; stalls: event_wait, device_wait and read */
    _Atomic uint64_t reservations;  /* outstanding */
    _Atomic uint64_t handles;       /* created and not released */
    _Atomic uint64_t created_bytes; /* total size of those handles */
    _Atomic uint64_t imports;       /* imported and not released */
    _Atomic uint64_t imported_bytes;
    _Atomic uint64_t mapped_bytes; /* outstanding */
    _Atomic uint64_t pinned_bytes; /* outstanding */
    _Atomic uint64_t events;       /* outstanding */
    _Atomic uint64_t streams;      /* outstanding */
};

/* ---- The three drivers: one exported getter each --------------------------------------------- */

/* Every driver calls init first in open, on a zeroed struct, and fini last in close. */
void vmm__driver_init(struct driver *driver, const struct driver_ops *ops);
void vmm__driver_fini(struct driver *driver);

struct driver_options {
    int device;            /* cuda: ordinal */
    uint64_t device_bytes; /* host, sim: capacity; 0: default (host: half of RAM; sim: 139 GiB) */
    uint64_t peer_devices; /* see vmm_config */
    const char *file;      /* host: see host/device.c; NULL: no other process uses the device */
    bool is_plain;         /* cuda: one allocation of twice device_bytes instead of mappings */
};

vmm_status vmm__driver_cuda_open(const struct driver_options *options, struct driver **out);
vmm_status vmm__driver_host_open(const struct driver_options *options, struct driver **out);
vmm_status vmm__driver_sim_open(const struct driver_options *options, struct driver **out);

/* Opens a driver of the kind. DEFAULT means cuda; returns ERR_NO_DEVICE with a line that names the other drivers if no
 * GPU is usable. */
vmm_status vmm__driver_open(vmm_driver_kind kind, const struct driver_options *options,
                            struct driver **out);
void vmm__driver_close(struct driver *driver);

/* Accepts "cuda", "host" and "sim"; returns false for any other text. */
bool vmm__driver_kind_parse(const char *text, vmm_driver_kind *out);

/* The bit of a device in a set of devices; 0: an ordinal that no set has. */
static inline uint64_t vmm__driver_device_bit(int ordinal)
{
    return ordinal >= 0 && ordinal < 64 ? UINT64_C(1) << ordinal : 0;
}

static inline uint64_t vmm__driver_peers(const struct driver *driver)
{
    return atomic_load_explicit(&driver->peer_devices, memory_order_relaxed);
}

static inline void vmm__driver_peers_set(struct driver *driver, uint64_t devices)
{
    atomic_store_explicit(&driver->peer_devices, devices, memory_order_relaxed);
}

static inline bool vmm__driver_is_lost(const struct driver *driver)
{
    return vmm__lost_is(&driver->lost);
}

/* ---- Calls ----------------------------------------------------------------------------------- */

#define DRIVER_OP_DECLARE(name, parameters, arguments) vmm_status vmm__driver_##name parameters;
VMM_DRIVER_MAP(DRIVER_OP_DECLARE, struct driver *driver, )
#undef DRIVER_OP_DECLARE

/* Whether a stream is being captured. */
static inline vmm_status vmm__driver_stream_capturing(struct driver *driver, vmm_stream stream,
                                                      bool *is_capturing)
{
    return vmm__driver_capturing(driver, &stream, 1, is_capturing);
}

/* Destroys a stream of the library's own: tries twice, because the driver may refuse once. */
vmm_status vmm__driver_stream_end(struct driver *driver, vmm_stream stream);

/* VMM_OK on a lost device, which runs no work. */
vmm_status vmm__driver_stream_check(struct driver *driver, vmm_stream stream);
/* ERR_UNSUPPORTED without has_sharing: `function` names the call that fails. */
vmm_status vmm__driver_sharing_check(const struct driver *driver, const char *function);
uint64_t vmm__driver_clock(struct driver *driver);

/* Totals over all kinds of calls. */
uint64_t vmm__driver_calls(const struct driver *driver, enum driver_call call);
uint64_t vmm__driver_clock_ns(const struct driver *driver); /* time in driver calls */
uint64_t vmm__driver_host_ns(const struct driver *driver);  /* the same on the host's clock */

#endif
