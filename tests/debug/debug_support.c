/* Shared by the tests of debug mode: see debug_support.h. */
#include "debug_support.h"

enum { REPORT_BYTES = 16384, READ_BYTES = 4096 };

void debug_restart(struct cache_test *test, vmm_debug_mode debug, int zero)
{
    cache_restart_with(test, .limit_bytes = CACHE_LIMIT, .debug = debug, .zero = (vmm_switch)zero);
}

__attribute__((noinline)) void *block_allocate_here(struct cache_test *test, size_t bytes,
                                                    unsigned stream)
{
    void *block = NULL;
    assert_ok(vmm_alloc(test->cache, bytes, test->streams[stream], &block));
    return block;
}

/* Storing the status after the call keeps the call from being a tail call, which would hide this function. */
__attribute__((noinline)) vmm_status block_free_here(struct cache_test *test, void *block)
{
    volatile vmm_status status = vmm_free(test->cache, block);
    return status;
}

__attribute__((noinline)) vmm_status block_misuse_here(struct cache_test *test, void *block)
{
    volatile vmm_status status = vmm_free(test->cache, block);
    return status;
}

void bytes_write(struct cache_test *test, void *block, int64_t offset, size_t bytes,
                 unsigned stream)
{
    uint64_t address = (uintptr_t)block + (uint64_t)offset;
    assert_ok(vmm__driver_clear(test->driver, address, bytes, 0x11, test->streams[stream]));
}

bool bytes_are(struct cache_test *test, const void *block, size_t bytes, uint8_t value,
               unsigned stream)
{
    unsigned char found[READ_BYTES];
    for (size_t done = 0; done < bytes; done += READ_BYTES) {
        size_t part = bytes - done < READ_BYTES ? bytes - done : READ_BYTES;
        struct driver_piece piece = { (uintptr_t)block + done, part, found };
        assert_ok(vmm__driver_read(test->driver, &piece, 1, test->streams[stream]));
        for (size_t i = 0; i < part; i++) {
            if (found[i] != value)
                return false;
        }
    }
    return true;
}

const char *report_read(struct cache_test *test)
{
    static char text[REPORT_BYTES];
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_ok(vmm_debug_report(test->cache, file));
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    assert_int_equal(fclose(file), 0);
    return text;
}
