/*
 * Times sharing between two processes, and looks for what it leaves behind.
 *
 *   share_cycles [--fabric] DRIVER [CYCLES [BYTES [EXPORTER_DEVICE IMPORTER_DEVICE]]]      DRIVER: host or cuda
 *
 * With --fabric the share goes through TCP, as fabric handles.
 *
 * A cycle: this process exports a block that it has filled and sends it; another process receives and imports it, and
 * checks its bytes with a kernel; both free it. Prints the time from before the export until that kernel has ended, how
 * much of it the driver's calls took, and whether the rest is within the bar. Then nothing may be left in either
 * process: no descriptor, no mapping, no imported handle, no host memory of the library, no block's worth of device
 * memory; or the exit status is 1.
 */
#define _GNU_SOURCE
#include "support/folder_support.h"
#include "support/tcp_support.h"

#include "base/hostmem.h"
#include "base/time.h"
#include "driver/driver.h"

#include "api/create_on.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FILL_WORD = 17, WARM_UP_CYCLES = 10, SKIPPED = 77 };

/* From the export to the first kernel on imported memory, beside the driver's own time. */
enum { BAR_NS = 1000000 };

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)fprintf(stderr, "share_cycles:%d: %s; last error: %s\n", __LINE__, #condition,   \
                          vmm_last_error());                                                       \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* ---- Both processes ------------------------------------------------------------------------ */

struct settings {
    bool is_fabric;
    const char *driver_name;
    uint64_t cycles;
    uint64_t bytes;
    int devices[2]; /* of the exporter and the importer */
};

struct process {
    struct driver *driver;
    vmm_cache *cache;
    int socket;
    /* What is there before the first counted cycle. */
    int descriptors;
    uint64_t mapped_bytes;
    uint64_t host_bytes;
    uint64_t free_bytes;
};

static struct process process_open(const struct settings *settings, int device, int socket)
{
    struct process process = { .socket = socket };
    struct driver_options options = { .device = device, .device_bytes = UINT64_C(1) << 30 };
    vmm_config config = VMM_CONFIG_INIT;
    vmm_driver_kind kind;
    REQUIRE(vmm__driver_kind_parse(settings->driver_name, &kind));
    if (vmm__driver_open(kind, &options, &process.driver) != VMM_OK) {
        (void)fprintf(stderr, "share_cycles: no device: %s\n", vmm_last_error());
        exit(getenv("VMM_REQUIRE_GPU") != NULL ? 1 : SKIPPED);
    }
    REQUIRE(vmm__cache_create_on(&config, process.driver, &process.cache) == VMM_OK);
    return process;
}

/* Releases all memory that may be released. */
static void process_settle(const struct process *process)
{
    REQUIRE(vmm_wait(process->cache) == VMM_OK);
    REQUIRE(vmm_trim(process->cache, 0, NULL) == VMM_OK);
}

static uint64_t free_bytes(const struct process *process)
{
    uint64_t free_now;
    uint64_t total;
    REQUIRE(vmm_device_memory(process->cache, &free_now, &total) == VMM_OK);
    return free_now;
}

static void process_note(struct process *process)
{
    process_settle(process);
    process->descriptors = descriptors_open();
    process->mapped_bytes = process->driver->mapped_bytes;
    process->host_bytes = vmm__host_outstanding();
    process->free_bytes = free_bytes(process);
}

/* Prints what differs from the note. Other programs, and the driver, may change the free memory of a GPU a little. */
static void process_compare(const struct process *process, const struct settings *settings,
                            const char *name)
{
    process_settle(process);
    int descriptors = descriptors_open() - process->descriptors;
    int64_t mapped = (int64_t)(process->driver->mapped_bytes - process->mapped_bytes);
    int64_t host = (int64_t)(vmm__host_outstanding() - process->host_bytes);
    int64_t taken = (int64_t)(process->free_bytes - free_bytes(process));
    bool is_clean = descriptors == 0 && mapped == 0 && process->driver->imports == 0 && host == 0 &&
                    taken < (int64_t)settings->bytes;
    (void)printf("%s: left after %" PRIu64 " cycles: %d descriptors, %" PRId64
                 " mapped bytes, %" PRIu64 " imported handles, %" PRId64
                 " bytes of host memory, %" PRId64 " bytes of the device: %s\n",
                 name, settings->cycles, descriptors, mapped, (uint64_t)process->driver->imports,
                 host, taken, is_clean ? "none, bar met" : "BAR NOT MET");
    (void)fflush(stdout);
    REQUIRE(is_clean);
}

static void process_close(const struct process *process)
{
    REQUIRE(vmm_destroy(process->cache) == VMM_OK);
    vmm__driver_close(process->driver);
}

static void number_send(int socket, uint64_t number)
{
    REQUIRE(send(socket, &number, sizeof number, MSG_NOSIGNAL) == (ssize_t)sizeof number);
}

static uint64_t number_receive(int socket)
{
    uint64_t number;
    REQUIRE(recv(socket, &number, sizeof number, MSG_WAITALL) == (ssize_t)sizeof number);
    return number;
}

/* ---- The importer -------------------------------------------------------------------------- */

/* Sends when the kernel ended, and the driver's time until its launch. */
static void import_cycle(const struct process *process, uint64_t bytes)
{
    vmm_share *share;
    void *block;
    uint64_t wrong;
    uint64_t before_ns = vmm__driver_host_ns(process->driver);
    REQUIRE(vmm_share_receive(process->socket, &share) == VMM_OK);
    REQUIRE(vmm_share_import(process->cache, share, NULL, &block) == VMM_OK);
    uint64_t driver_ns = vmm__driver_host_ns(process->driver) - before_ns;
    REQUIRE(vmm__driver_check(process->driver, (uint64_t)(uintptr_t)block, bytes, FILL_WORD,
                              NULL) == VMM_OK);
    REQUIRE(vmm__driver_mismatches(process->driver, &wrong) == VMM_OK);
    uint64_t end_ns = vmm__time_ns();
    REQUIRE(wrong == 0);
    REQUIRE(vmm_free(process->cache, block) == VMM_OK);
    REQUIRE(vmm_share_close(share, 0) == VMM_OK);
    number_send(process->socket, end_ns);
    number_send(process->socket, driver_ns);
}

static void importer_run(const struct settings *settings, int socket)
{
    struct process process = process_open(settings, settings->devices[1], socket);
    for (uint64_t i = 0; i < WARM_UP_CYCLES; i++)
        import_cycle(&process, settings->bytes);
    process_note(&process);
    for (uint64_t i = 0; i < settings->cycles; i++)
        import_cycle(&process, settings->bytes);
    process_compare(&process, settings, "importer");
    process_close(&process);
}

/* ---- The exporter -------------------------------------------------------------------------- */

struct times {
    uint64_t whole_ns;  /* from before the export until the kernel has ended */
    uint64_t driver_ns; /* of it, in driver calls of both processes */
};

static struct times export_cycle(const struct process *process, vmm_pool *pool, uint64_t bytes)
{
    vmm_share *share;
    void *block;
    uint64_t wrong;
    REQUIRE(vmm_alloc_from(pool, bytes, NULL, &block) == VMM_OK);
    REQUIRE(vmm__driver_fill(process->driver, (uint64_t)(uintptr_t)block, bytes, FILL_WORD, NULL) ==
            VMM_OK);
    REQUIRE(vmm__driver_mismatches(process->driver, &wrong) == VMM_OK); /* waits for the fill */
    uint64_t before_ns = vmm__driver_host_ns(process->driver);
    uint64_t start_ns = vmm__time_ns();
    REQUIRE(vmm_share_export(process->cache, block, &share) == VMM_OK);
    uint64_t driver_ns = vmm__driver_host_ns(process->driver) - before_ns;
    REQUIRE(vmm_share_send(share, process->socket) == VMM_OK);
    REQUIRE(vmm_free(process->cache, block) == VMM_OK);
    uint64_t end_ns = number_receive(process->socket);
    driver_ns += number_receive(process->socket);
    REQUIRE(vmm_share_close(share, 1) == VMM_OK);
    return (struct times){ .whole_ns = end_ns - start_ns, .driver_ns = driver_ns };
}

static int by_value(const void *a, const void *b)
{
    const uint64_t *left = a;
    const uint64_t *right = b;
    return *left < *right ? -1 : *left > *right;
}

/* Returns the median. */
static uint64_t row_print(const char *name, uint64_t *ns, uint64_t count)
{
    qsort(ns, count, sizeof *ns, by_value);
    (void)printf("%-28s %10.1f %10.1f %10.1f\n", name, (double)ns[count / 2] / 1e3,
                 (double)ns[count - 1 - count / 100] / 1e3, (double)ns[count - 1] / 1e3);
    return ns[count / 2];
}

static void times_print(const struct times *times, uint64_t count)
{
    uint64_t *ns = calloc(count, sizeof *ns);
    REQUIRE(ns != NULL);
    (void)printf("%-28s %10s %10s %10s\n", "microseconds", "median", "99 %", "most");
    for (uint64_t i = 0; i < count; i++)
        ns[i] = times[i].whole_ns;
    (void)row_print("export to first kernel's end", ns, count);
    for (uint64_t i = 0; i < count; i++)
        ns[i] = times[i].driver_ns;
    (void)row_print("of it in driver calls", ns, count);
    for (uint64_t i = 0; i < count; i++)
        ns[i] = times[i].whole_ns - times[i].driver_ns;
    uint64_t rest_ns = row_print("of it elsewhere", ns, count);
    (void)printf("bar: elsewhere <= %.1f us: median %.1f us: %s\n", BAR_NS / 1e3,
                 (double)rest_ns / 1e3, rest_ns <= BAR_NS ? "met" : "NOT MET");
    free(ns);
}

static void exporter_run(const struct settings *settings, int socket)
{
    struct process process = process_open(settings, settings->devices[0], socket);
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    vmm_pool *pool;
    struct times *times = calloc(settings->cycles, sizeof *times);
    options.shareable = settings->is_fabric ? VMM_SHARE_FABRIC : VMM_SHARE_MACHINE;
    REQUIRE(times != NULL);
    vmm_status status = vmm_pool_create(process.cache, &options, &pool);
    if (status == VMM_ERR_UNSUPPORTED) {
        (void)fprintf(stderr, "share_cycles: %s\n", vmm_last_error());
        exit(SKIPPED);
    }
    REQUIRE(status == VMM_OK);
    (void)printf("%s, exporter on device %d, importer on device %d, %" PRIu64 " cycles of %" PRIu64
                 " bytes\n",
                 process.driver->device_name, settings->devices[0], settings->devices[1],
                 settings->cycles, settings->bytes);
    (void)fflush(stdout);
    for (uint64_t i = 0; i < WARM_UP_CYCLES; i++)
        (void)export_cycle(&process, pool, settings->bytes);
    process_note(&process);
    for (uint64_t i = 0; i < settings->cycles; i++)
        times[i] = export_cycle(&process, pool, settings->bytes);
    times_print(times, settings->cycles);
    process_compare(&process, settings, "exporter");
    process_close(&process);
    free(times);
}

/* ---- Command line -------------------------------------------------------------------------- */

static uint64_t argument(int argc, char **argv, int index, uint64_t otherwise)
{
    return argc > index ? strtoull(argv[index], NULL, 0) : otherwise;
}

/* The importer is a process of its own from the start: CUDA does not survive fork(). */
int main(int argc, char **argv)
{
    int sockets[2];
    int status = 0;
    bool is_fabric = argc > 1 && strcmp(argv[1], "--fabric") == 0;
    argc -= is_fabric;
    argv += is_fabric;
    if (argc < 2) {
        (void)fprintf(stderr, "usage: share_cycles [--fabric] DRIVER [CYCLES [BYTES "
                              "[EXPORTER_DEVICE IMPORTER_DEVICE]]]\n");
        return 2;
    }
    struct settings settings = { .is_fabric = is_fabric,
                                 .driver_name = argv[1],
                                 .cycles = argument(argc, argv, 2, 10000),
                                 .bytes = argument(argc, argv, 3, 64 << 20),
                                 .devices = { (int)argument(argc, argv, 4, 0),
                                              (int)argument(argc, argv, 5, 0) } };
    REQUIRE(settings.cycles > 0 && settings.bytes > 0 && settings.bytes % 512 == 0);
    REQUIRE(is_fabric ? tcp_pair(sockets) : socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    pid_t importer = fork();
    REQUIRE(importer >= 0);
    (void)close(sockets[importer == 0 ? 0 : 1]);
    if (importer == 0) {
        importer_run(&settings, sockets[1]);
        return 0;
    }
    exporter_run(&settings, sockets[0]);
    REQUIRE(waitpid(importer, &status, 0) == importer);
    REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return 0;
}
