/*
 * What tests of guards share: a cache with one, functions that stacks name, work that writes where it must not.
 */
#ifndef VMM_GUARD_SUPPORT_H
#define VMM_GUARD_SUPPORT_H

#include "support/cache_support.h"

#include <string.h>

/* Begins the test's cache anew. */
void guard_begun(struct cache_test *test, vmm_guard guard, int zero);

/* Functions whose names must turn up in stories. */
VMM_API void *block_allocated_here(struct cache_test *test, size_t bytes, unsigned stream);
VMM_API vmm_status block_freed_here(struct cache_test *test, void *block);
VMM_API vmm_status block_misused_here(struct cache_test *test, void *block);

/* Work on a stream that writes bytes at an offset of a block. */
void bytes_written(struct cache_test *test, void *block, int64_t offset, size_t bytes,
                   unsigned stream);

/* Whether bytes of a block read as a value, after the work of the stream. */
bool bytes_are(struct cache_test *test, const void *block, size_t bytes, uint8_t value,
               unsigned stream);

/* The story of the last misuse, in memory that the next call uses again. */
const char *story_read(struct cache_test *test);

#define assert_text_has(text, part)                                                                \
    do {                                                                                           \
        const char *whole = (text);                                                                \
        if (strstr(whole, part) == NULL)                                                           \
            fail_msg("no '%s' in: %s", part, whole);                                               \
    } while (0)

#define assert_says(part) assert_text_has(vmm_last_error(), part)

#endif
