/*
 * Sizes as people read them, in three figures: tables compare what lies close together. (The
 * library's base/size.h reads sizes, and writes them in two.) Owns nothing.
 * May be called by: everything in fragtest.
 */
#ifndef FRAGTEST_SIZES_H
#define FRAGTEST_SIZES_H

#include <stdint.h>

struct size_text {
    char text[24];
};

/* Three figures and a unit: "1.61 GiB", "410 MiB", "512 B". */
struct size_text size_format(uint64_t bytes);

static inline double size_mib(uint64_t bytes)
{
    return (double)bytes / (double)(1ULL << 20);
}

#endif
