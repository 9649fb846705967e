/* The driver's clear and read, on the driver that the first argument names. */
#include "support/driver_choice.h"
#include "support/driver_steps.h"

static struct driver *driver;

static bool bytes_equal(uint64_t address, uint64_t bytes, uint8_t value, vmm_stream stream)
{
    static unsigned char found[1 << 16];
    assert_true(bytes <= sizeof found);
    struct driver_piece pieces[] = {
        { address, bytes / 2, found }, { address + bytes / 2, bytes - bytes / 2, found + bytes / 2 }
    };
    assert_ok(vmm__driver_read(driver, pieces, 2, stream));
    for (uint64_t i = 0; i < bytes; i++) {
        if (found[i] != value)
            return false;
    }
    return true;
}

TEST(read_returns_cleared_bytes)
{
    struct region region = region_open(driver, 2, 1);
    uint64_t middle = region.address + region.each;
    assert_ok(vmm__driver_clear(driver, region.address, region.bytes, 0xA5, NULL));
    assert_ok(vmm__driver_clear(driver, middle - 3, 7, 0, NULL));
    assert_true(bytes_equal(middle - 3, 7, 0, NULL));
    assert_true(bytes_equal(middle - 10000, 10000 - 3, 0xA5, NULL));
    assert_true(bytes_equal(middle + 4, 10001, 0xA5, NULL));
    assert_false(bytes_equal(middle - 4, 2, 0, NULL));
    region_close(driver, &region);
}

/* Clears run in stream order, before and after other work. */
TEST(clears_run_in_stream_order)
{
    struct region region = region_open(driver, 1, 4);
    vmm_stream stream = stream_new(driver);
    assert_ok(vmm__driver_delay(driver, 3000000, stream));
    assert_ok(vmm__driver_clear(driver, region.address, region.bytes, 9, stream));
    memory_fill(driver, region.address, region.bytes, 5, stream);
    memory_check(driver, region.address, region.bytes, 5, stream);
    assert_ok(vmm__driver_clear(driver, region.address, region.bytes, 0, stream));
    assert_true(bytes_equal(region.address + region.bytes - 60000, 60000, 0, stream));
    assert_int_equal(mismatches(driver), 0);
    memory_check(driver, region.address, region.bytes, 5, stream);
    assert_int_not_equal(mismatches(driver), 0);
    assert_ok(vmm__driver_stream_destroy(driver, stream));
    region_close(driver, &region);
}

TEST(copies_contain_cleared_bytes)
{
    struct region region = region_open(driver, 1, 2);
    uint64_t half = region.bytes / 2;
    assert_ok(vmm__driver_clear(driver, region.address, half, 0xE0, NULL));
    assert_ok(vmm__driver_copy(driver, region.address + half, region.address, half, NULL));
    assert_true(bytes_equal(region.address + half + 12345, 50000, 0xE0, NULL));
    region_close(driver, &region);
}

/* A captured stream accepts clears without an end of the capture. The test does not read from it. */
TEST(captured_streams_accept_clears)
{
    struct region region = region_open(driver, 1, 1);
    vmm_stream stream = stream_new(driver);
    assert_ok(vmm__driver_capture_begin(driver, stream));
    assert_ok(vmm__driver_clear(driver, region.address, region.bytes, 0, stream));
    assert_ok(vmm__driver_capture_end(driver, stream));
    assert_ok(vmm__driver_stream_destroy(driver, stream));
    region_close(driver, &region);
}

int main(int argc, char **argv)
{
    driver_choice_read(argc, argv);
    driver = driver_choice_open(128 * MIB);
    int failed = tests_run(NULL, NULL);
    vmm__driver_close(driver);
    return failed;
}
