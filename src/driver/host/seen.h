/*
 * What ThreadSanitizer sees of the memory that a piece of work touches: END_BYTES at both ends, where blocks that
 * overlap must meet, and one word in each END_BYTES between. The sanitizer's record of memory is four times as large as
 * what it sees, and new after each map: when it saw all memory, tests with threads spent most of their time there.
 *
 * Owns: nothing. May be called by: run.c, pattern.c. Locks: none.
 */
#ifndef VMM_DRIVER_HOST_SEEN_H
#define VMM_DRIVER_HOST_SEEN_H

#include "base/sanitizer.h"

#include <stdbool.h>
#include <stdint.h>

/* For a function whose own reads and writes the sanitizer does not see; it sees those of the functions it calls. */
#define HOST_UNSEEN __attribute__((no_sanitize("thread")))

#ifdef VMM_THREAD_SANITIZER

/* The functions of the sanitizer, for which it has no header. */
void __tsan_read_range(void *address, unsigned long bytes);
void __tsan_write_range(void *address, unsigned long bytes);
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);

static inline void host_range_see(uint64_t address, uint64_t bytes, bool is_write)
{
    enum { END_BYTES = 16384, WORD_BYTES = 8 };
    for (uint64_t at = 0; at < bytes; at += END_BYTES) {
        uint64_t rest = bytes - at;
        bool is_end = at == 0 || rest <= 2 * END_BYTES;
        uint64_t most = is_end ? END_BYTES : WORD_BYTES;
        void *start = (void *)(uintptr_t)(address + at);
        if (is_write)
            __tsan_write_range(start, rest < most ? rest : most);
        else
            __tsan_read_range(start, rest < most ? rest : most);
    }
}

/* Between these two, the sanitizer sees nothing that this thread reads or writes. */
static inline void host_unseen_begin(void)
{
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}

static inline void host_unseen_end(void)
{
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}

#else

static inline void host_range_see(uint64_t address, uint64_t bytes, bool is_write)
{
    (void)address;
    (void)bytes;
    (void)is_write;
}

static inline void host_unseen_begin(void)
{
}

static inline void host_unseen_end(void)
{
}

#endif

#endif
