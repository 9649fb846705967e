/* Shared by the tests of guards: see guard_support.h. */
#include "guard_support.h"

enum { STORY_BYTES = 16384, READ_BYTES = 4096 };

void guard_begun(struct cache_test *test, vmm_guard guard, int zero)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.limit_bytes = CACHE_LIMIT;
    config.guard = guard;
    config.zero = zero;
    cache_restart(test, &config);
}

__attribute__((noinline)) void *block_allocated_here(struct cache_test *test, size_t bytes,
                                                     unsigned stream)
{
    void *block = NULL;
    assert_ok(vmm_alloc(test->cache, bytes, test->streams[stream], &block));
    return block;
}

/* The status passes through memory, so that the call is not the last thing that the function does. */
__attribute__((noinline)) vmm_status block_freed_here(struct cache_test *test, void *block)
{
    volatile vmm_status status = vmm_free(test->cache, block);
    return status;
}

__attribute__((noinline)) vmm_status block_misused_here(struct cache_test *test, void *block)
{
    volatile vmm_status status = vmm_free(test->cache, block);
    return status;
}

void bytes_written(struct cache_test *test, void *block, int64_t offset, size_t bytes,
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

const char *story_read(struct cache_test *test)
{
    static char text[STORY_BYTES];
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_ok(vmm_misuse_write(test->cache, file));
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    assert_int_equal(fclose(file), 0);
    return text;
}
