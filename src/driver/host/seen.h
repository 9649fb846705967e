/*
 * What ThreadSanitizer sees of the memory that a piece of work touches: both ends of it, where blocks that overlap
 * must meet, and one word in each such length between. Its own record is four times as large as what it sees, and new
 * after each map: with all of the memory, most of the time of tests with threads went there.
 *
 * Owns: nothing. May be called by: run.c, pattern.c. Locks: none.
 */
#ifndef VMM_DRIVER_HOST_SEEN_H
#define VMM_DRIVER_HOST_SEEN_H

#include "base/sanitizer.h"

#include <stdbool.h>
#include <stdint.h>

/* Of a function whose reads and writes it does not see, but those of functions that it calls. */
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

/* Between these, it sees nothing that this thread reads or writes. */
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
