/* Pinned host memory, and copies to and from it, on the driver that the first argument names. */
#define _GNU_SOURCE
#include "support/driver_choice.h"
#include "support/driver_steps.h"

#include <string.h>
#include <sys/mman.h>

/* ---- Steps ----------------------------------------------------------------------------------- */

struct backup {
    unsigned char *host;
    uint64_t bytes;
};

static struct backup backup_open(struct driver *driver, uint64_t bytes)
{
    struct backup backup = { .bytes = bytes };
    backup.host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(backup.host, MAP_FAILED);
    assert_ok(vmm__driver_pin(driver, backup.host, bytes));
    return backup;
}

static void backup_close(struct driver *driver, const struct backup *backup)
{
    assert_ok(vmm__driver_device_wait(driver));
    assert_ok(vmm__driver_unpin(driver, backup->host, backup->bytes));
    assert_int_equal(munmap(backup->host, backup->bytes), 0);
}

static void range_save(struct driver *driver, uint64_t address, uint64_t bytes, void *host,
                       vmm_stream stream)
{
    const struct driver_piece piece = { address, bytes, host };
    assert_ok(vmm__driver_save(driver, &piece, 1, stream));
}

static void range_load(struct driver *driver, uint64_t address, uint64_t bytes, void *host,
                       vmm_stream stream)
{
    const struct driver_piece piece = { address, bytes, host };
    assert_ok(vmm__driver_load(driver, &piece, 1, stream));
}

/* ---- Contents ---------------------------------------------------------------------------------- */

DRIVER_TEST(saved_bytes_return)
{
    struct region region = region_open(driver, 2, 2);
    struct backup backup = backup_open(driver, region.bytes);
    memory_fill(driver, region.address, region.bytes, 1, NULL);
    range_save(driver, region.address, region.bytes, backup.host, NULL);
    memory_fill(driver, region.address, region.bytes, 2, NULL);
    range_load(driver, region.address, region.bytes, backup.host, NULL);
    memory_check(driver, region.address, region.bytes, 1, NULL);
    assert_int_equal(mismatches(driver), 0);
    backup_close(driver, &backup);
    region_close(driver, &region);
}

/* What sleep and wake do: the memory goes back meanwhile, the addresses stay. */
DRIVER_TEST(saved_bytes_survive_their_memory)
{
    uint64_t bytes = 4 * driver->granule_bytes;
    uint64_t handle;
    uint64_t address = memory_map(driver, bytes, &handle);
    struct backup backup = backup_open(driver, bytes);
    vmm_stream stream = stream_new(driver);
    for (uint32_t round = 0; round < 3; round++) {
        memory_fill(driver, address, bytes, round, stream);
        range_save(driver, address, bytes, backup.host, stream);
        assert_ok(vmm__driver_device_wait(driver));
        assert_ok(vmm__driver_unmap(driver, address, bytes));
        assert_ok(vmm__driver_release(driver, handle, bytes));
        handle = handle_create(driver, bytes);
        handle_map(driver, address, bytes, handle);
        range_load(driver, address, bytes, backup.host, stream);
        memory_check(driver, address, bytes, round, stream);
    }
    assert_int_equal(mismatches(driver), 0);
    backup_close(driver, &backup);
    assert_ok(vmm__driver_stream_destroy(driver, stream));
    assert_ok(vmm__driver_unmap(driver, address, bytes));
    assert_ok(vmm__driver_release(driver, handle, bytes));
    assert_ok(vmm__driver_address_free(driver, address, bytes));
}

/* Packs blocks with gaps between them, as a backup of live blocks does, and unpacks them in another order. */
DRIVER_TEST(pieces_go_where_they_are_sent)
{
    enum { PIECES = 5, PIECE_BYTES = 70 * 512 };
    struct region from = region_open(driver, 1, 1);
    struct region to = region_open(driver, 1, 1);
    struct backup backup = backup_open(driver, PIECES * PIECE_BYTES);
    struct driver_piece saved[PIECES];
    struct driver_piece loaded[PIECES];
    for (unsigned i = 0; i < PIECES; i++) {
        uint64_t address = from.address + i * 2 * PIECE_BYTES;
        memory_fill(driver, address, PIECE_BYTES, i, NULL);
        saved[i] = (struct driver_piece){ address, PIECE_BYTES, backup.host + i * PIECE_BYTES };
        loaded[i] = (struct driver_piece){ to.address + (PIECES - i) * 2 * PIECE_BYTES, PIECE_BYTES,
                                           saved[i].host };
    }
    assert_ok(vmm__driver_save(driver, saved, PIECES, NULL));
    assert_ok(vmm__driver_load(driver, loaded, PIECES, NULL));
    for (unsigned i = 0; i < PIECES; i++)
        memory_check(driver, loaded[i].address, PIECE_BYTES, i, NULL);
    assert_int_equal(mismatches(driver), 0);
    backup_close(driver, &backup);
    region_close(driver, &from);
    region_close(driver, &to);
}

DRIVER_TEST(bytes_that_were_not_loaded_are_missed)
{
    struct region region = region_open(driver, 2, 1);
    struct backup backup = backup_open(driver, region.bytes);
    memory_fill(driver, region.address, region.bytes, 1, NULL);
    range_save(driver, region.address, region.bytes, backup.host, NULL);
    memory_fill(driver, region.address, region.bytes, 2, NULL);
    range_load(driver, region.address, region.each, backup.host, NULL);
    memory_check(driver, region.address, region.bytes, 1, NULL);
    assert_true(mismatches(driver) > 0);
    backup_close(driver, &backup);
    region_close(driver, &region);
}

/* ---- Order ------------------------------------------------------------------------------------- */

DRIVER_TEST(copies_keep_the_order_of_their_streams)
{
    struct region region = region_open(driver, 1, 2);
    struct backup backup = backup_open(driver, region.bytes);
    vmm_stream saver = stream_new(driver);
    vmm_stream loader = stream_new(driver);
    void *event = event_new(driver);
    for (uint32_t round = 0; round < 20; round++) {
        memory_fill(driver, region.address, region.bytes, round, saver);
        range_save(driver, region.address, region.bytes, backup.host, saver);
        memory_fill(driver, region.address, region.bytes, 99, saver);
        stream_order_after(driver, loader, saver, event);
        range_load(driver, region.address, region.bytes, backup.host, loader);
        memory_check(driver, region.address, region.bytes, round, loader);
        stream_order_after(driver, saver, loader, event);
    }
    assert_int_equal(mismatches(driver), 0);
    backup_close(driver, &backup);
    assert_ok(vmm__driver_event_destroy(driver, event));
    assert_ok(vmm__driver_stream_destroy(driver, saver));
    assert_ok(vmm__driver_stream_destroy(driver, loader));
    region_close(driver, &region);
}

/* ---- Pinned memory ------------------------------------------------------------------------------- */

/* sim has no bytes to save. */
DRIVER_TEST(the_program_sees_and_replaces_saved_bytes)
{
    unsigned char found[512] = { 0 };
    struct region region = region_open(driver, 1, 1);
    struct backup backup = backup_open(driver, region.bytes);
    if (driver_choice_kind() != VMM_DRIVER_SIM) {
        const struct driver_piece piece = { region.address + 512, sizeof found, found };
        assert_ok(vmm__driver_clear(driver, region.address, region.bytes, 7, NULL));
        range_save(driver, region.address, region.bytes, backup.host, NULL);
        assert_ok(vmm__driver_device_wait(driver));
        for (uint64_t i = 0; i < region.bytes; i++)
            assert_int_equal(backup.host[i], 7);
        memset(backup.host, 9, region.bytes);
        range_load(driver, region.address, region.bytes, backup.host, NULL);
        assert_ok(vmm__driver_read(driver, &piece, 1, NULL));
        for (unsigned i = 0; i < sizeof found; i++)
            assert_int_equal(found[i], 9);
    }
    backup_close(driver, &backup);
    region_close(driver, &region);
}

DRIVER_TEST(memory_is_pinned_and_unpinned_once)
{
    struct backup backup = backup_open(driver, 4 * driver->granule_bytes);
    assert_int_equal(driver->pinned_bytes, backup.bytes);
    assert_status(vmm__driver_pin(driver, backup.host, backup.bytes), VMM_ERR_DRIVER);
    assert_true(vmm_last_error()[0] != 0);
    assert_int_equal(driver->pinned_bytes, backup.bytes);
    assert_ok(vmm__driver_unpin(driver, backup.host, backup.bytes));
    assert_status(vmm__driver_unpin(driver, backup.host, backup.bytes), VMM_ERR_DRIVER);
    assert_int_equal(driver->pinned_bytes, 0);
    assert_ok(vmm__driver_pin(driver, backup.host, backup.bytes));
    backup_close(driver, &backup);
}

DRIVER_TEST(created_streams_are_counted)
{
    vmm_stream streams[2] = { stream_new(driver), stream_new(driver) };
    assert_ptr_not_equal(streams[0], streams[1]);
    assert_int_equal(driver->streams, 2);
    assert_int_equal(vmm__driver_calls(driver, DRIVER_CALL_stream_create), 2);
    assert_ok(vmm__driver_stream_destroy(driver, streams[0]));
    assert_int_equal(driver->streams, 1);
    assert_ok(vmm__driver_stream_destroy(driver, streams[1]));
}

DRIVER_MAIN(NULL, NULL)
