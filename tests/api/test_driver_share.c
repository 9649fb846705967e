/*
 * Handles that are exported and imported (driver.h, D7), on the driver that the first argument names.
 *
 * Run as `test_driver_share DRIVER import DESCRIPTOR` it is the importing process of a test: see child_run().
 */
#define _GNU_SOURCE
#include "support/driver_choice.h"
#include "support/driver_steps.h"

#include "base/hostmem.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXPORT_WORD = 17, ANSWER_WORD = 18 };

/* ---- Steps ----------------------------------------------------------------------------------- */

/* A mapped exportable handle and a descriptor of it. */
struct exported {
    uint64_t bytes;
    uint64_t handle;
    uint64_t address;
    int descriptor;
};

static struct exported exported_open(struct driver *driver, uint64_t granules)
{
    struct exported exported = { .bytes = granules * driver->granule_bytes };
    assert_true(driver->has_sharing);
    exported.address = address_reserve(driver, exported.bytes);
    assert_ok(vmm__driver_create(driver, exported.bytes, true, &exported.handle));
    handle_map(driver, exported.address, exported.bytes, exported.handle);
    assert_ok(vmm__driver_share_export(driver, exported.handle, &exported.descriptor));
    return exported;
}

static void exported_close(struct driver *driver, const struct exported *exported)
{
    assert_int_equal(close(exported->descriptor), 0);
    assert_ok(vmm__driver_device_wait(driver));
    assert_ok(vmm__driver_unmap(driver, exported->address, exported->bytes));
    assert_ok(vmm__driver_release(driver, exported->handle, exported->bytes));
    assert_ok(vmm__driver_address_free(driver, exported->address, exported->bytes));
}

struct imported {
    uint64_t bytes;
    uint64_t handle;
    uint64_t address;
};

static struct imported imported_open(struct driver *driver, int descriptor, uint64_t bytes)
{
    struct imported imported = { .bytes = bytes };
    assert_ok(vmm__driver_share_import(driver, descriptor, bytes, &imported.handle));
    imported.address = address_reserve(driver, bytes);
    handle_map(driver, imported.address, bytes, imported.handle);
    return imported;
}

static void imported_close(struct driver *driver, const struct imported *imported)
{
    assert_ok(vmm__driver_device_wait(driver));
    assert_ok(vmm__driver_unmap(driver, imported->address, imported->bytes));
    assert_ok(vmm__driver_share_release(driver, imported->handle, imported->bytes));
    assert_ok(vmm__driver_address_free(driver, imported->address, imported->bytes));
}

/* ---- The same memory --------------------------------------------------------------------------- */

DRIVER_TEST(an_import_shows_the_exporters_bytes)
{
    struct exported exported = exported_open(driver, 3);
    struct imported imported = imported_open(driver, exported.descriptor, exported.bytes);
    memory_fill(driver, exported.address, exported.bytes, 1, NULL);
    memory_check(driver, imported.address, imported.bytes, 1, NULL);
    memory_fill(driver, imported.address, imported.bytes, 2, NULL);
    memory_check(driver, exported.address, exported.bytes, 2, NULL);
    exported_close(driver, &exported);
    memory_check(driver, imported.address, imported.bytes, 2, NULL);
    assert_int_equal(mismatches(driver), 0);
    imported_close(driver, &imported);
}

DRIVER_TEST(another_driver_imports)
{
    struct driver *other = driver_choice_open(128 * MIB);
    assert_memory_equal(driver->uuid, other->uuid, sizeof driver->uuid);
    struct exported exported = exported_open(driver, 2);
    memory_fill(driver, exported.address, exported.bytes, 1, NULL);
    assert_ok(vmm__driver_device_wait(driver));
    struct imported imported = imported_open(other, exported.descriptor, exported.bytes);
    memory_check(other, imported.address, imported.bytes, 1, NULL);
    memory_fill(other, imported.address, imported.bytes, 2, NULL);
    assert_ok(vmm__driver_device_wait(other));
    memory_check(driver, exported.address, exported.bytes, 2, NULL);
    exported_close(driver, &exported);
    memory_check(other, imported.address, imported.bytes, 2, NULL);
    assert_int_equal(mismatches(driver) + mismatches(other), 0);
    imported_close(other, &imported);
    driver_choice_census_is_zero(other);
    vmm__driver_close(other);
}

DRIVER_TEST(an_import_outlives_its_release_while_it_is_mapped)
{
    struct exported exported = exported_open(driver, 1);
    struct imported imported = imported_open(driver, exported.descriptor, exported.bytes);
    assert_ok(vmm__driver_share_release(driver, imported.handle, imported.bytes));
    memory_fill(driver, exported.address, exported.bytes, 1, NULL);
    memory_check(driver, imported.address, imported.bytes, 1, NULL);
    assert_int_equal(mismatches(driver), 0);
    assert_ok(vmm__driver_unmap(driver, imported.address, imported.bytes));
    assert_ok(vmm__driver_address_free(driver, imported.address, imported.bytes));
    exported_close(driver, &exported);
}

DRIVER_TEST(a_handle_can_be_shared_often)
{
    enum { TIMES = 4 };
    struct exported exported = exported_open(driver, 1);
    struct imported imported[TIMES];
    for (int i = 0; i < TIMES; i++) {
        int descriptor;
        assert_ok(vmm__driver_share_export(driver, exported.handle, &descriptor));
        assert_int_not_equal(descriptor, exported.descriptor);
        imported[i] = imported_open(driver, descriptor, exported.bytes);
        assert_int_equal(close(descriptor), 0);
    }
    assert_int_equal(driver->imports, TIMES);
    memory_fill(driver, imported[0].address, exported.bytes, 5, NULL);
    for (int i = 1; i < TIMES; i++)
        memory_check(driver, imported[i].address, exported.bytes, 5, NULL);
    assert_int_equal(mismatches(driver), 0);
    for (int i = 0; i < TIMES; i++)
        imported_close(driver, &imported[i]);
    exported_close(driver, &exported);
}

/* ---- Fabric handles ------------------------------------------------------------------------------ */

/* A GPU that has none says so. */
static void fabric_needed(struct driver *driver)
{
    vmm_status status = vmm__driver_fabric_check(driver);
    if (driver_choice_kind() != VMM_DRIVER_CUDA || status == VMM_OK) {
        assert_status(status, VMM_OK);
        return;
    }
    assert_status(status, VMM_ERR_UNSUPPORTED);
    assert_non_null(strstr(vmm_last_error(), "has no fabric handles: '"));
    (void)fprintf(stderr, "skipped: %s\n", vmm_last_error());
    skip();
}

static void fabric_is_refused(struct driver *driver, const struct driver_fabric *fabric,
                              uint64_t bytes)
{
    uint64_t handle = 5;
    uint64_t host_bytes = vmm__host_outstanding();
    assert_status(vmm__driver_fabric_import(driver, fabric, bytes, &handle), VMM_ERR_DRIVER);
    assert_non_null(strstr(vmm_last_error(), "mport"));
    assert_int_equal(handle, 5);
    assert_int_equal(driver->imports + driver->imported_bytes, 0);
    assert_int_equal(vmm__host_outstanding(), host_bytes);
}

DRIVER_TEST(a_fabric_handle_shows_the_exporters_bytes)
{
    fabric_needed(driver);
    uint64_t bytes = 3 * driver->granule_bytes;
    uint64_t address = address_reserve(driver, bytes);
    uint64_t handle;
    struct driver_fabric fabric;
    struct imported imported = { .bytes = bytes, .address = address_reserve(driver, bytes) };
    assert_ok(vmm__driver_create(driver, bytes, VMM_SHARE_FABRIC, &handle));
    handle_map(driver, address, bytes, handle);
    assert_ok(vmm__driver_fabric_export(driver, handle, &fabric));
    fabric_is_refused(driver, &fabric, bytes - driver->granule_bytes);
    fabric_is_refused(driver, &(struct driver_fabric){ { 0 } }, bytes);
    assert_ok(vmm__driver_fabric_import(driver, &fabric, bytes, &imported.handle));
    handle_map(driver, imported.address, bytes, imported.handle);
    memory_fill(driver, address, bytes, 1, NULL);
    memory_check(driver, imported.address, bytes, 1, NULL);
    memory_fill(driver, imported.address, bytes, 2, NULL);
    memory_check(driver, address, bytes, 2, NULL);
    assert_int_equal(mismatches(driver), 0);
    imported_close(driver, &imported);
    assert_ok(vmm__driver_unmap(driver, address, bytes));
    assert_ok(vmm__driver_release(driver, handle, bytes));
    assert_ok(vmm__driver_address_free(driver, address, bytes));
}

/* ---- Accounting -------------------------------------------------------------------------------- */

static uint64_t free_bytes(struct driver *driver)
{
    uint64_t free_now;
    uint64_t total;
    assert_ok(vmm__driver_memory_info(driver, &free_now, &total));
    return free_now;
}

DRIVER_TEST(exportable_memory_counts_and_imported_memory_does_not)
{
    uint64_t before = free_bytes(driver);
    struct exported exported = exported_open(driver, 2);
    assert_int_equal(driver->created_bytes, exported.bytes);
    struct imported imported = imported_open(driver, exported.descriptor, exported.bytes);
    assert_int_equal(driver->created_bytes, exported.bytes);
    assert_int_equal(driver->handles, 1);
    assert_int_equal(driver->imports, 1);
    assert_int_equal(driver->imported_bytes, exported.bytes);
    if (driver_choice_kind() != VMM_DRIVER_CUDA) /* others use a GPU, too */
        assert_int_equal(free_bytes(driver), before - exported.bytes);
    imported_close(driver, &imported);
    exported_close(driver, &exported);
    if (driver_choice_kind() != VMM_DRIVER_CUDA)
        assert_int_equal(free_bytes(driver), before);
}

DRIVER_TEST(exportable_memory_can_run_out)
{
    uint64_t handle = 5;
    uint64_t beyond = (driver->total_bytes / driver->granule_bytes + 1) * driver->granule_bytes;
    assert_status(vmm__driver_create(driver, beyond, true, &handle), VMM_ERR_DEVICE_OOM);
    assert_int_equal(handle, 5);
    struct exported exported = exported_open(driver, 1);
    exported_close(driver, &exported);
}

DRIVER_TEST(exported_descriptors_are_closed_on_exec)
{
    struct exported exported = exported_open(driver, 1);
    assert_true((fcntl(exported.descriptor, F_GETFD) & FD_CLOEXEC) != 0);
    exported_close(driver, &exported);
}

/* ---- Refusals ---------------------------------------------------------------------------------- */

static void import_is_refused(struct driver *driver, int descriptor, uint64_t bytes)
{
    uint64_t handle = 5;
    uint64_t host_bytes = vmm__host_outstanding();
    assert_status(vmm__driver_share_import(driver, descriptor, bytes, &handle), VMM_ERR_DRIVER);
    assert_non_null(strstr(vmm_last_error(), "mport"));
    assert_null(strchr(vmm_last_error(), '\n'));
    assert_int_equal(handle, 5);
    assert_int_equal(driver->imports + driver->imported_bytes, 0);
    assert_int_equal(vmm__host_outstanding(), host_bytes);
}

DRIVER_TEST(another_size_is_refused)
{
    uint64_t granule = driver->granule_bytes;
    struct exported exported = exported_open(driver, 4);
    uint64_t reservations = driver->reservations;
    static const uint64_t wrong[] = { 1, 3, 5, 8 };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        import_is_refused(driver, exported.descriptor, wrong[i] * granule);
    assert_int_equal(driver->reservations, reservations);
    struct imported imported = imported_open(driver, exported.descriptor, exported.bytes);
    imported_close(driver, &imported);
    exported_close(driver, &exported);
}

static int file_of(int descriptor, uint64_t bytes)
{
    assert_true(descriptor >= 0);
    assert_int_equal(ftruncate(descriptor, (off_t)bytes), 0);
    return descriptor;
}

DRIVER_TEST(foreign_descriptors_are_refused)
{
    uint64_t bytes = driver->granule_bytes;
    char path[] = "test_driver_share.XXXXXX";
    int pipes[2];
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    const int foreign[] = { open("/dev/null", O_RDWR | O_CLOEXEC),
                            pipes[0],
                            pipes[1],
                            file_of(mkostemp(path, O_CLOEXEC), bytes),
                            file_of(memfd_create("foreign", MFD_CLOEXEC), bytes),
                            file_of(memfd_create("foreign", MFD_CLOEXEC | MFD_ALLOW_SEALING),
                                    bytes) };
    assert_int_equal(unlink(path), 0);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        import_is_refused(driver, foreign[i], bytes);
        assert_int_equal(close(foreign[i]), 0);
        import_is_refused(driver, foreign[i], bytes); /* no longer open */
    }
    import_is_refused(driver, -1, bytes);
}

/* ---- Two processes ----------------------------------------------------------------------------- */

enum { CHILD_GRANULES = 3, CHILD_REFUSED = 3 };

static vmm_status child_use(struct driver *driver, int descriptor, uint64_t *places)
{
    uint64_t bytes = CHILD_GRANULES * driver->granule_bytes;
    uint64_t handle;
    uint64_t address;
    vmm_status status = vmm__driver_share_import(driver, descriptor, bytes, &handle);
    if (status != VMM_OK)
        return status;
    status = vmm__driver_reserve(driver, bytes, 0, &address);
    status = status ? status : vmm__driver_map(driver, address, bytes, handle);
    status = status ? status : vmm__driver_access(driver, address, bytes);
    status = status ? status : vmm__driver_check(driver, address, bytes, EXPORT_WORD, NULL);
    status = status ? status : vmm__driver_fill(driver, address, bytes, ANSWER_WORD, NULL);
    status = status ? status : vmm__driver_mismatches(driver, places);
    status = status ? status : vmm__driver_unmap(driver, address, bytes);
    status = status ? status : vmm__driver_share_release(driver, handle, bytes);
    return status ? status : vmm__driver_address_free(driver, address, bytes);
}

/* Exits with 0 after it found the parent's word and wrote its answer, with CHILD_REFUSED if the import failed. */
static int child_run(int descriptor)
{
    uint64_t places = 0;
    struct driver *driver = driver_choice_open(128 * MIB);
    vmm_status status = child_use(driver, descriptor, &places);
    if (status != VMM_OK)
        (void)fprintf(stderr, "the importing process: %s\n", vmm_last_error());
    bool is_refused = status != VMM_OK && strstr(vmm_last_error(), "another process") != NULL;
    vmm__driver_close(driver);
    if (is_refused)
        return CHILD_REFUSED;
    return status == VMM_OK && places == 0 ? 0 : 1;
}

static const char *kind_name(void)
{
    static const char *const names[] = {
        [VMM_DRIVER_CUDA] = "cuda", [VMM_DRIVER_HOST] = "host", [VMM_DRIVER_SIM] = "sim"
    };
    return names[driver_choice_kind()];
}

static int child_wait(int descriptor)
{
    char number[16];
    int status;
    (void)snprintf(number, sizeof number, "%d", descriptor);
    pid_t child = fork();
    if (child == 0) {
        (void)fcntl(descriptor, F_SETFD, 0);
        (void)execl("/proc/self/exe", "test_driver_share", kind_name(), "import", number,
                    (char *)NULL);
        _exit(255);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

DRIVER_TEST(another_process_imports)
{
    struct exported exported = exported_open(driver, CHILD_GRANULES);
    memory_fill(driver, exported.address, exported.bytes, EXPORT_WORD, NULL);
    assert_ok(vmm__driver_device_wait(driver));
    bool is_sim = driver_choice_kind() == VMM_DRIVER_SIM;
    assert_int_equal(child_wait(exported.descriptor), is_sim ? CHILD_REFUSED : 0);
    memory_check(driver, exported.address, exported.bytes, is_sim ? EXPORT_WORD : ANSWER_WORD,
                 NULL);
    assert_int_equal(mismatches(driver), 0);
    exported_close(driver, &exported);
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[2], "import") == 0) {
        driver_choice_parse(argc, argv);
        return child_run(atoi(argv[3]));
    }
    driver_choice_read(argc, argv);
    return tests_run(NULL, NULL);
}
