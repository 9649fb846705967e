/*
 * Arithmetic on sizes and addresses. Owns nothing, stores nothing.
 *
 * Alignments are powers of two. The checked forms return false instead of wrapping around.
 * May be called by: everything. Locks: none.
 */
#ifndef VMM_BASE_ARITH_H
#define VMM_BASE_ARITH_H

#include <stdbool.h>
#include <stdint.h>

/* No version will have a larger public struct: a larger struct_size was never set by the caller. */
enum { STRUCT_BYTES_MOST = 4096 };

static inline bool vmm__add_checked(uint64_t a, uint64_t b, uint64_t *sum)
{
    return !__builtin_add_overflow(a, b, sum);
}

static inline bool vmm__is_aligned(uint64_t value, uint64_t alignment)
{
    return (value & (alignment - 1)) == 0;
}

static inline uint64_t vmm__align_down(uint64_t value, uint64_t alignment)
{
    return value & ~(alignment - 1);
}

/* The caller knows that value + alignment does not wrap. */
static inline uint64_t vmm__align_up(uint64_t value, uint64_t alignment)
{
    return vmm__align_down(value + alignment - 1, alignment);
}

static inline bool vmm__align_up_checked(uint64_t value, uint64_t alignment, uint64_t *out)
{
    uint64_t sum;
    if (!vmm__add_checked(value, alignment - 1, &sum))
        return false;
    *out = vmm__align_down(sum, alignment);
    return true;
}

/* The least multiple of a unit, which is any number above 0, that is at least the value. */
static inline bool vmm__round_up_checked(uint64_t value, uint64_t unit, uint64_t *out)
{
    uint64_t rest = value % unit;
    return vmm__add_checked(value, rest == 0 ? 0 : unit - rest, out);
}

static inline uint64_t vmm__min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t vmm__max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Index of the highest set bit; value must not be 0. */
static inline unsigned vmm__log2(uint64_t value)
{
    return 63U - (unsigned)__builtin_clzll(value);
}

#endif
