/*
 * Shared by the tests of debug mode: a cache in debug mode, functions whose names stacks contain, and work that writes
 * outside blocks.
 */
#ifndef VMM_DEBUG_SUPPORT_H
#define VMM_DEBUG_SUPPORT_H

#include "support/cache_support.h"

#include <string.h>

/* Creates the test's cache anew with these settings. */
void debug_restart(struct cache_test *test, vmm_debug_mode debug, int zero);

/* Functions whose names must appear in reports. */
VMM_API void *block_allocate_here(struct cache_test *test, size_t bytes, unsigned stream);
VMM_API vmm_status block_free_here(struct cache_test *test, void *block);
VMM_API vmm_status block_misuse_here(struct cache_test *test, void *block);

/* Work on a stream that writes bytes at an offset of a block. */
void bytes_write(struct cache_test *test, void *block, int64_t offset, size_t bytes,
                 unsigned stream);

/* Whether bytes of a block read as a value, after the work of the stream. */
bool bytes_are(struct cache_test *test, const void *block, size_t bytes, uint8_t value,
               unsigned stream);

/* Reads the report of the last misuse; valid until the next call. */
const char *report_read(struct cache_test *test);

#define assert_text_has(text, part)                                                                \
    do {                                                                                           \
        const char *whole = (text);                                                                \
        if (strstr(whole, part) == NULL)                                                           \
            fail_msg("no '%s' in: %s", part, whole);                                               \
    } while (0)

#define assert_says(part) assert_text_has(vmm_last_error(), part)

#endif
