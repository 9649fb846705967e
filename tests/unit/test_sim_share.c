/* Memory that sim drivers share: records of exported handles, contents, and what is refused. */
#define _GNU_SOURCE
#include "life/child.h"
#include "support/sim_support.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

static uint64_t exportable_map(struct driver *driver, uint64_t *handle)
{
    uint64_t address = address_reserve(driver, GRANULE);
    assert_ok(vmm__driver_create(driver, GRANULE, true, handle));
    handle_map(driver, address, GRANULE, *handle);
    return address;
}

static int exported(struct driver *driver, uint64_t handle)
{
    int descriptor;
    assert_ok(vmm__driver_share_export(driver, handle, &descriptor));
    return descriptor;
}

static uint64_t imported_map(struct driver *driver, int descriptor, uint64_t *import)
{
    uint64_t address = address_reserve(driver, GRANULE);
    assert_ok(vmm__driver_share_import(driver, descriptor, GRANULE, import));
    handle_map(driver, address, GRANULE, *import);
    return address;
}

/* Maps memory of one driver in another. */
static uint64_t alias_map(struct driver *exporter, uint64_t handle, struct driver *importer)
{
    uint64_t import;
    int file = exported(exporter, handle);
    uint64_t address = imported_map(importer, file, &import);
    assert_int_equal(close(file), 0);
    return address;
}

static struct driver *driver_new(void)
{
    struct driver_options options = { 0 };
    struct driver *driver;
    assert_ok(vmm__driver_sim_open(&options, &driver));
    return driver;
}

/* ---- Refusals ---------------------------------------------------------------------------------- */

SIM_TEST(only_exportable_handles_are_exported)
{
    int descriptor = 5;
    uint64_t plain = handle_create(driver, GRANULE);
    uint64_t handle;
    uint64_t import;
    (void)exportable_map(driver, &handle);
    int file = exported(driver, handle);
    assert_ok(vmm__driver_share_import(driver, file, GRANULE, &import));
    assert_refused(vmm__driver_share_export(driver, plain, &descriptor), VMM_ERR_DRIVER,
                   "not created as exportable");
    assert_refused(vmm__driver_share_export(driver, import, &descriptor), VMM_ERR_DRIVER,
                   "not created as exportable");
    assert_int_equal(descriptor, 5);
    sim_assert_clean(driver);
    assert_refused(vmm__driver_share_export(driver, 77, &descriptor), VMM_ERR_DRIVER,
                   "not a handle");
    sim_assert_violations(driver, 1, "share export of handle 0x4d");
    assert_int_equal(close(file), 0);
}

SIM_TEST(nothing_has_a_dma_buf)
{
    int descriptor = 5;
    uint64_t handle;
    uint64_t address = exportable_map(driver, &handle);
    assert_refused(vmm__driver_dmabuf_export(driver, address, GRANULE, &descriptor),
                   VMM_ERR_UNSUPPORTED, "addresses have no memory");
    assert_refused(vmm__driver_dmabuf_export(driver, 4096, GRANULE, &descriptor), VMM_ERR_DRIVER,
                   "not mapped with access");
    assert_int_equal(descriptor, 5);
}

SIM_TEST(only_handles_that_reach_so_far_have_fabric_handles)
{
    struct driver_fabric fabric;
    uint64_t narrow;
    uint64_t wide;
    uint64_t import;
    assert_ok(vmm__driver_create(driver, GRANULE, VMM_SHARE_MACHINE, &narrow));
    assert_ok(vmm__driver_create(driver, GRANULE, VMM_SHARE_FABRIC, &wide));
    assert_ok(vmm__driver_fabric_export(driver, wide, &fabric));
    assert_ok(vmm__driver_fabric_import(driver, &fabric, GRANULE, &import));
    assert_refused(vmm__driver_fabric_export(driver, narrow, &fabric), VMM_ERR_DRIVER,
                   "not created as exportable");
    assert_refused(vmm__driver_fabric_export(driver, import, &fabric), VMM_ERR_DRIVER,
                   "not created as exportable");
    assert_refused(vmm__driver_fabric_import(driver, &fabric, 2 * GRANULE, &import), VMM_ERR_DRIVER,
                   "not 4194304");
    assert_ok(vmm__driver_share_release(driver, import, GRANULE));
    assert_ok(vmm__driver_release(driver, wide, GRANULE));
    assert_refused(vmm__driver_fabric_import(driver, &fabric, GRANULE, &import), VMM_ERR_DRIVER,
                   "no longer exists");
    fabric.bytes[0] ^= 1;
    assert_refused(vmm__driver_fabric_import(driver, &fabric, GRANULE, &import), VMM_ERR_DRIVER,
                   "not one that a sim driver exports");
}

SIM_TEST(each_kind_of_handle_has_its_release)
{
    uint64_t handle;
    uint64_t import;
    (void)exportable_map(driver, &handle);
    int file = exported(driver, handle);
    assert_ok(vmm__driver_share_import(driver, file, GRANULE, &import));
    assert_int_equal(close(file), 0);
    assert_refused(vmm__driver_release(driver, import, GRANULE), VMM_ERR_DRIVER, "it was imported");
    assert_refused(vmm__driver_share_release(driver, handle, GRANULE), VMM_ERR_DRIVER,
                   "it was created");
    assert_refused(vmm__driver_share_release(driver, import, 2 * GRANULE), VMM_ERR_DRIVER,
                   "it was imported");
    assert_ok(vmm__driver_share_release(driver, import, GRANULE));
    assert_ok(vmm__driver_release(driver, handle, GRANULE));
}

SIM_TEST(memory_that_no_longer_exists_is_refused)
{
    uint64_t handle;
    uint64_t import = 5;
    assert_ok(vmm__driver_create(driver, GRANULE, true, &handle));
    int file = exported(driver, handle);
    assert_ok(vmm__driver_release(driver, handle, GRANULE));
    assert_refused(vmm__driver_share_import(driver, file, GRANULE, &import), VMM_ERR_DRIVER,
                   "no longer exists");
    assert_int_equal(import, 5);
    assert_int_equal(close(file), 0);
}

/* With vm.memfd_noexec the kernel adds a seal to every memory file. Kernels before 6.3 have neither. */
enum { NOEXEC_SEAL = 8 };

static int file_make(unsigned flags)
{
    int file = memfd_create("forged", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
    return file >= 0 ? file : memfd_create("forged", MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

/* Copies a record to a new file with one byte changed (none: from its end on), sealed or not. */
static int record_copy(int file, off_t changed, bool is_sealed, unsigned flags)
{
    unsigned char record[256];
    ssize_t bytes = pread(file, record, sizeof record, 0);
    assert_true(bytes > 0 && bytes < (ssize_t)sizeof record);
    record[changed] ^= 1;
    int copy = file_make(flags);
    assert_int_equal(write(copy, record, (size_t)bytes), bytes);
    if (is_sealed)
        assert_int_equal(fcntl(copy, F_ADD_SEALS, fcntl(file, F_GET_SEALS)), 0);
    return copy;
}

SIM_TEST(forged_records_are_refused)
{
    enum { MAGIC = 0, PROCESS = 16, ID = 24, BYTES = 32, END = 40 };
    static const struct {
        off_t changed;
        bool is_sealed;
        const char *reason;
    } forgeries[] = {
        { END, false, "not one that a sim driver exports" },
        { MAGIC, true, "not one that a sim driver exports" },
        { PROCESS, true, "comes from another process" },
        { ID, true, "no longer exists" },
        { BYTES, true, "not 2097152" },
    };
    uint64_t handle;
    uint64_t import = 5;
    (void)exportable_map(driver, &handle);
    int file = exported(driver, handle);
    for (size_t i = 0; i < sizeof forgeries / sizeof *forgeries; i++) {
        int copy = record_copy(file, forgeries[i].changed, forgeries[i].is_sealed, 0);
        assert_refused(vmm__driver_share_import(driver, copy, GRANULE, &import), VMM_ERR_DRIVER,
                       forgeries[i].reason);
        assert_int_equal(close(copy), 0);
    }
    static const unsigned flags[] = { 0, NOEXEC_SEAL };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        int copy = record_copy(file, END, true, flags[i]);
        assert_ok(vmm__driver_share_import(driver, copy, GRANULE, &import));
        assert_int_equal(close(copy), 0);
    }
    assert_int_equal(close(file), 0);
}

/* A record cannot be changed, so it never names other memory than at its export. */
SIM_TEST(records_are_sealed)
{
    uint64_t handle;
    (void)exportable_map(driver, &handle);
    int file = exported(driver, handle);
    assert_int_equal(pwrite(file, "x", 1, 0), -1);
    assert_int_equal(ftruncate(file, 0), -1);
    assert_int_equal(close(file), 0);
}

/* ---- Contents ---------------------------------------------------------------------------------- */

SIM_TEST(work_through_an_import_is_checked_for_races)
{
    uint64_t handle;
    uint64_t address = exportable_map(driver, &handle);
    uint64_t other = alias_map(driver, handle, driver);
    memory_fill(driver, address, GRANULE, 1, STREAM(1));
    memory_fill(driver, other, GRANULE, 2, STREAM(2));
    sim_assert_violations(driver, 1, "races");
}

/* The epochs of drivers cannot be compared: two streams of two drivers are never said to race. */
SIM_TEST(another_driver_sees_the_contents_without_their_users)
{
    uint64_t handle;
    struct driver *other = driver_new();
    uint64_t address = exportable_map(driver, &handle);
    uint64_t far = alias_map(driver, handle, other);
    for (uint32_t round = 0; round < 40; round++) { /* with more and more streams */
        struct driver *writer = round % 2 == 0 ? driver : other;
        struct driver *reader = round % 2 == 0 ? other : driver;
        memory_fill(writer, round % 2 == 0 ? address : far, GRANULE, round, STREAM(round));
        memory_check(reader, round % 2 == 0 ? far : address, GRANULE, round, STREAM(round + 100));
        assert_int_equal(mismatches(reader), 0);
    }
    memory_check(other, far, GRANULE, 7, STREAM(1));
    assert_true(mismatches(other) > 0);
    sim_assert_clean(driver);
    sim_assert_clean(other);
    vmm__driver_close(other);
}

/* A driver that takes the place of a closed one in host memory must not take over its epochs. */
SIM_TEST(a_closed_driver_leaves_contents_only)
{
    uint64_t handle;
    uint64_t import;
    uint64_t address = exportable_map(driver, &handle);
    int file = exported(driver, handle);
    memory_fill(driver, address, GRANULE, 99, NULL);
    for (uint32_t round = 0; round < 3; round++) {
        struct driver *other = driver_new();
        vmm__sim_lag_set(other, 100);
        uint64_t far = imported_map(other, file, &import);
        memory_check(other, far, GRANULE, round == 0 ? 99 : round - 1, STREAM(round));
        memory_fill(other, far, GRANULE, round, STREAM(round));
        assert_int_equal(mismatches(other), 0);
        sim_assert_clean(other);
        vmm__driver_close(other);
    }
    memory_check(driver, address, GRANULE, 2, NULL);
    assert_int_equal(mismatches(driver), 0);
    assert_int_equal(close(file), 0);
}

/* The exporter may close first. */
SIM_TEST(an_import_outlives_the_exporter)
{
    uint64_t handle;
    uint64_t import;
    struct driver *exporter = driver_new();
    uint64_t address = exportable_map(exporter, &handle);
    memory_fill(exporter, address, GRANULE, 4, NULL);
    int file = exported(exporter, handle);
    uint64_t far = imported_map(driver, file, &import);
    vmm__driver_close(exporter);
    memory_check(driver, far, GRANULE, 4, NULL);
    assert_int_equal(mismatches(driver), 0);
    assert_int_equal(vmm__sim_census(driver).physical_bytes, 0); /* it is another device's */
    assert_int_equal(close(file), 0);
}

struct thread_task {
    struct driver *driver;
    uint64_t address;
    vmm_status status;
};

static void *thread_main(void *context)
{
    struct thread_task *task = context;
    for (uint32_t round = 0; round < 500 && task->status == VMM_OK; round++) {
        uint64_t import = 0;
        uint64_t handle = 0;
        int file = -1;
        vmm_status status = vmm__driver_fill(task->driver, task->address, 4096, round, NULL);
        status =
            status ? status : vmm__driver_check(task->driver, task->address, 4096, round, NULL);
        status = status ? status : vmm__driver_create(task->driver, GRANULE, true, &handle);
        status = status ? status : vmm__driver_share_export(task->driver, handle, &file);
        status = status ? status : vmm__driver_share_import(task->driver, file, GRANULE, &import);
        status = status ? status : vmm__driver_share_release(task->driver, import, GRANULE);
        task->status = status ? status : vmm__driver_release(task->driver, handle, GRANULE);
        (void)close(file);
    }
    return NULL;
}

/* Each driver has its own half of the shared memory. */
SIM_TEST(drivers_on_two_threads_share)
{
    uint64_t handle;
    pthread_t thread;
    struct driver *other = driver_new();
    uint64_t address = exportable_map(driver, &handle);
    uint64_t far = alias_map(driver, handle, other);
    struct thread_task tasks[] = { { .driver = driver, .address = address },
                                   { .driver = other, .address = far + GRANULE / 2 } };
    assert_int_equal(pthread_create(&thread, NULL, thread_main, &tasks[1]), 0);
    (void)thread_main(&tasks[0]);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_ok(tasks[0].status);
    assert_ok(tasks[1].status);
    assert_int_equal(mismatches(driver) + mismatches(other), 0);
    sim_assert_clean(driver);
    vmm__driver_close(other);
}

/* ---- Other processes, and host memory ------------------------------------------------------------ */

struct fork_scene {
    int file;
};

/* A child of fork() has the parent's records in its memory, but not the parent's memory. */
static void child_imports(void *context)
{
    const struct fork_scene *scene = context;
    struct driver_options options = { 0 };
    struct driver *driver;
    uint64_t handle;
    uint64_t import;
    int own;
    CHILD_REQUIRES(vmm__driver_sim_open(&options, &driver) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_share_import(driver, scene->file, GRANULE, &import) ==
                   VMM_ERR_DRIVER);
    CHILD_REQUIRES(strstr(vmm_last_error(), "another process") != NULL);
    CHILD_REQUIRES(vmm__driver_create(driver, GRANULE, true, &handle) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_share_export(driver, handle, &own) == VMM_OK);
    CHILD_REQUIRES(vmm__driver_share_import(driver, own, GRANULE, &import) == VMM_OK);
    vmm__driver_close(driver);
}

SIM_TEST(a_forked_child_is_another_process)
{
    uint64_t handle;
    (void)exportable_map(driver, &handle);
    struct fork_scene scene = { exported(driver, handle) };
    child_runs(child_imports, &scene);
    assert_int_equal(close(scene.file), 0);
}

SIM_TEST(without_host_memory_nothing_is_shared)
{
    uint64_t handle = 5;
    uint64_t import = 5;
    for (uint64_t number = 1; handle == 5; number++) {
        (void)vmm__host_fail_at(number);
        vmm_status status = vmm__driver_create(driver, GRANULE, true, &handle);
        (void)vmm__host_fail_at(0);
        assert_status(status, handle == 5 ? VMM_ERR_HOST_OOM : VMM_OK);
        assert_true(number > 2 || handle == 5); /* the handle and its memory */
    }
    int file = exported(driver, handle);
    (void)vmm__host_fail_at(1);
    assert_refused(vmm__driver_share_import(driver, file, GRANULE, &import), VMM_ERR_HOST_OOM,
                   "share import");
    (void)vmm__host_fail_at(0);
    assert_int_equal(import, 5);
    assert_int_equal(close(file), 0);
}
