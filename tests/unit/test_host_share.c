/* Exportable handles and pinned memory of the host driver: files, limits, order, and what is refused. */
#define _GNU_SOURCE
#include "support/folder_support.h"
#include "support/host_support.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t exportable_create(struct driver *driver, uint64_t bytes)
{
    uint64_t handle;
    assert_ok(vmm__driver_create(driver, bytes, true, &handle));
    return handle;
}

static int exported(struct driver *driver, uint64_t handle)
{
    int descriptor;
    assert_ok(vmm__driver_share_export(driver, handle, &descriptor));
    return descriptor;
}

/* ---- Files --------------------------------------------------------------------------------------- */

/* A process that gets the descriptor sees the handle's bytes and no others. */
HOST_TEST(a_file_holds_one_handle)
{
    uint64_t neighbour = memory_map(driver, GRANULE, NULL);
    uint64_t handle = exportable_create(driver, 2 * GRANULE);
    uint64_t address = address_reserve(driver, 2 * GRANULE);
    handle_map(driver, address, 2 * GRANULE, handle);
    *word_at(neighbour) = 1;
    *word_at(address) = 2;
    *word_at(address + GRANULE) = 3;
    int file = exported(driver, handle);
    struct stat found;
    uint64_t words[2];
    assert_int_equal(fstat(file, &found), 0);
    assert_int_equal(found.st_size, 2 * GRANULE);
    assert_int_equal(pread(file, &words[0], sizeof words[0], 0), sizeof words[0]);
    assert_int_equal(pread(file, &words[1], sizeof words[1], GRANULE), sizeof words[1]);
    assert_int_equal(words[0], 2);
    assert_int_equal(words[1], 3);
    assert_int_equal(close(file), 0);
}

HOST_TEST(a_file_cannot_be_cut)
{
    int file = exported(driver, exportable_create(driver, GRANULE));
    assert_int_equal(ftruncate(file, GRANULE / 2), -1);
    assert_int_equal(ftruncate(file, 2 * GRANULE), -1);
    assert_int_equal(fcntl(file, F_ADD_SEALS, F_SEAL_WRITE), -1);
    assert_int_equal(close(file), 0);
}

HOST_TEST(memory_goes_with_the_last_user)
{
    uint64_t handle = exportable_create(driver, GRANULE);
    uint64_t address = address_reserve(driver, GRANULE);
    uint64_t import;
    int file = exported(driver, handle);
    assert_ok(vmm__driver_share_import(driver, file, GRANULE, &import));
    assert_int_equal(pwrite(file, "mark", 4, 0), 4);
    assert_int_equal(close(file), 0);
    assert_ok(vmm__driver_release(driver, handle, GRANULE));
    handle_map(driver, address, GRANULE, import);
    assert_memory_equal((const void *)(uintptr_t)address, "mark", 4);
    assert_ok(vmm__driver_share_release(driver, import, GRANULE));
    assert_memory_equal((const void *)(uintptr_t)address, "mark", 4);
    assert_ok(vmm__driver_unmap(driver, address, GRANULE));
    for (uint64_t i = 0; i < 64; i++) /* all granules are free again */
        (void)handle_create(driver, GRANULE);
}

/* ---- Descriptors of addresses -------------------------------------------------------------------- */

static void dmabuf_is_refused(struct driver *driver, uint64_t address, uint64_t bytes,
                              vmm_status status)
{
    int descriptor = 5;
    assert_status(vmm__driver_dmabuf_export(driver, address, bytes, &descriptor), status);
    assert_non_null(strstr(vmm_last_error(), "dma-buf export of "));
    assert_int_equal(descriptor, 5);
}

HOST_TEST(addresses_of_one_whole_exportable_handle_have_a_descriptor)
{
    int descriptor;
    uint64_t word;
    uint64_t plain = memory_map(driver, 2 * GRANULE, NULL);
    uint64_t address = address_reserve(driver, 4 * GRANULE);
    handle_map(driver, address, 2 * GRANULE, exportable_create(driver, 2 * GRANULE));
    assert_ok(vmm__driver_map(driver, address + 2 * GRANULE, GRANULE,
                              exportable_create(driver, GRANULE)));
    *word_at(address) = 9;
    assert_ok(vmm__driver_dmabuf_export(driver, address, 2 * GRANULE, &descriptor));
    assert_int_equal(pread(descriptor, &word, sizeof word, 0), sizeof word);
    assert_int_equal(word, 9);
    assert_int_equal(close(descriptor), 0);
    dmabuf_is_refused(driver, address, GRANULE, VMM_ERR_UNSUPPORTED);
    dmabuf_is_refused(driver, address + GRANULE, GRANULE, VMM_ERR_UNSUPPORTED);
    dmabuf_is_refused(driver, address, 3 * GRANULE, VMM_ERR_UNSUPPORTED);
    dmabuf_is_refused(driver, plain, 2 * GRANULE, VMM_ERR_UNSUPPORTED);
    dmabuf_is_refused(driver, address + 2 * GRANULE, GRANULE, VMM_ERR_DRIVER); /* no access yet */
    dmabuf_is_refused(driver, address + 3 * GRANULE, GRANULE, VMM_ERR_DRIVER);
    dmabuf_is_refused(driver, 4096, GRANULE, VMM_ERR_DRIVER);
}

/* ---- Refusals ------------------------------------------------------------------------------------ */

/* The descriptor's number is used again for memory of another handle. */
HOST_TEST(a_fabric_handle_names_one_file_only)
{
    struct driver_fabric fabric;
    struct driver_fabric next;
    uint64_t handle;
    uint64_t import = 5;
    int before = descriptors_open();
    assert_ok(vmm__driver_create(driver, GRANULE, VMM_SHARE_FABRIC, &handle));
    assert_ok(vmm__driver_fabric_export(driver, handle, &fabric));
    assert_ok(vmm__driver_release(driver, handle, GRANULE));
    assert_status(vmm__driver_fabric_import(driver, &fabric, GRANULE, &import), VMM_ERR_DRIVER);
    assert_non_null(strstr(vmm_last_error(), "open(/proc/"));
    assert_ok(vmm__driver_create(driver, GRANULE, VMM_SHARE_FABRIC, &handle));
    assert_ok(vmm__driver_fabric_export(driver, handle, &next));
    assert_status(vmm__driver_fabric_import(driver, &fabric, GRANULE, &import), VMM_ERR_DRIVER);
    assert_non_null(strstr(vmm_last_error(), "no longer exists"));
    assert_int_equal(import, 5);
    assert_status(vmm__driver_fabric_import(driver, &next, 2 * GRANULE, &import), VMM_ERR_DRIVER);
    assert_ok(vmm__driver_fabric_import(driver, &next, GRANULE, &import));
    assert_ok(vmm__driver_share_release(driver, import, GRANULE));
    assert_ok(vmm__driver_release(driver, handle, GRANULE));
    assert_int_equal(descriptors_open(), before);
}

/* With vm.memfd_noexec the kernel adds a seal to every memory file. Kernels before 6.3 have neither. */
HOST_TEST(a_file_with_the_seal_of_the_system_is_accepted)
{
    enum { NOEXEC_SEAL = 8 };
    uint64_t import;
    int file = memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING | NOEXEC_SEAL);
    if (file < 0)
        file = memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(file, GRANULE), 0);
    assert_int_equal(fcntl(file, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW), 0);
    assert_ok(vmm__driver_share_import(driver, file, GRANULE, &import));
    assert_ok(vmm__driver_share_release(driver, import, GRANULE));
    assert_int_equal(close(file), 0);
}

HOST_TEST(a_file_that_cannot_be_written_is_refused)
{
    char path[64];
    uint64_t import = 5;
    int file = exported(driver, exportable_create(driver, GRANULE));
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    int read_only = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(read_only >= 0);
    assert_status(vmm__driver_share_import(driver, read_only, GRANULE, &import), VMM_ERR_DRIVER);
    assert_status(vmm__driver_share_import(driver, file, 0, &import), VMM_ERR_DRIVER);
    assert_status(vmm__driver_share_import(driver, file, GRANULE / 2, &import), VMM_ERR_DRIVER);
    assert_int_equal(import, 5);
    assert_int_equal(close(read_only), 0);
    assert_int_equal(close(file), 0);
}

/* Each call that opens a file, without a descriptor left. */
HOST_TEST(missing_descriptors_change_nothing)
{
    struct rlimit before;
    uint64_t free_before;
    uint64_t free_after;
    uint64_t total;
    uint64_t out = 5;
    int descriptor = 5;
    uint64_t handle = exportable_create(driver, GRANULE);
    int file = exported(driver, handle);
    assert_ok(vmm__driver_memory_info(driver, &free_before, &total));
    uint64_t host_bytes = vmm__host_outstanding();
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct rlimit none = { 0, before.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    vmm_status created = vmm__driver_create(driver, GRANULE, true, &out);
    vmm_status exports = vmm__driver_share_export(driver, handle, &descriptor);
    vmm_status imports = vmm__driver_share_import(driver, file, GRANULE, &out);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_status(created, VMM_ERR_DRIVER);
    assert_status(exports, VMM_ERR_DRIVER);
    assert_status(imports, VMM_ERR_DRIVER);
    assert_ok(vmm__driver_memory_info(driver, &free_after, &total));
    assert_int_equal(free_after, free_before);
    assert_int_equal(vmm__host_outstanding(), host_bytes);
    assert_int_equal(out, 5);
    assert_int_equal(descriptor, 5);
    assert_int_equal(close(file), 0);
}

HOST_TEST(without_host_memory_nothing_is_shared_or_pinned)
{
    uint64_t handle = 5;
    uint64_t import = 5;
    unsigned char byte;
    for (uint64_t number = 1; handle == 5; number++) {
        (void)vmm__host_fail_at(number);
        vmm_status status = vmm__driver_create(driver, GRANULE, true, &handle);
        (void)vmm__host_fail_at(0);
        assert_status(status, handle == 5 ? VMM_ERR_HOST_OOM : VMM_OK);
        assert_true(number > 1 || handle == 5); /* the handle */
    }
    int file = exported(driver, handle);
    (void)vmm__host_fail_at(1);
    assert_status(vmm__driver_share_import(driver, file, GRANULE, &import), VMM_ERR_HOST_OOM);
    (void)vmm__host_fail_at(1);
    assert_status(vmm__driver_pin(driver, &byte, sizeof byte), VMM_ERR_HOST_OOM);
    (void)vmm__host_fail_at(0);
    assert_int_equal(import, 5);
    assert_int_equal(close(file), 0);
}

/* ---- Copies -------------------------------------------------------------------------------------- */

HOST_TEST(a_copy_runs_in_stream_order_and_nobody_waits)
{
    static unsigned char host[4096];
    uint64_t address = memory_map(driver, GRANULE, NULL);
    const struct driver_piece piece = { address, sizeof host, host };
    void *event = event_new(driver);
    assert_ok(vmm__driver_pin(driver, host, sizeof host));
    assert_ok(vmm__driver_delay(driver, 200000000, STREAM(1)));
    assert_ok(vmm__driver_save(driver, &piece, 1, STREAM(1)));
    assert_ok(vmm__driver_event_record(driver, event, STREAM(1)));
    assert_status(vmm__driver_event_query(driver, event), VMM__PENDING);
    *word_at(address) = 77; /* the copy has not begun */
    assert_ok(vmm__driver_event_wait(driver, event));
    assert_int_equal(host[0], 77);
    assert_ok(vmm__driver_unpin(driver, host, sizeof host));
}

HOST_TEST(copies_require_pinned_and_accessible_memory)
{
    static unsigned char host[8192];
    uint64_t good = memory_map(driver, GRANULE, NULL);
    uint64_t bad = address_reserve(driver, GRANULE);
    assert_ok(vmm__driver_pin(driver, host, 4096));
    const struct driver_piece wrong[][2] = {
        { { good, 4096, host }, { good, 4096, host + 4096 } },
        { { good, 4096, host }, { good, 4096, host + 1 } },
        { { good, 4096, host }, { bad, 4096, host } },
        { { good, 4096, host }, { good + GRANULE - 512, 4096, host } },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_status(vmm__driver_save(driver, wrong[i], 2, NULL), VMM_ERR_DRIVER);
        assert_status(vmm__driver_load(driver, wrong[i], 2, NULL), VMM_ERR_DRIVER);
    }
    assert_ok(vmm__driver_save(driver, wrong[0], 1, NULL));
    assert_ok(vmm__driver_capture_begin(driver, STREAM(1)));
    assert_status(vmm__driver_save(driver, wrong[0], 1, STREAM(1)), VMM_ERR_DRIVER);
    assert_status(vmm__driver_capture_end(driver, STREAM(1)), VMM_ERR_DRIVER);
    assert_ok(vmm__driver_device_wait(driver));
}
