/*
 * A lower bound on memory for streams that never wait for each other: live bytes, and freed bytes
 * that work in flight may still use. No allocator needs less.
 *
 * A stream may use its own freed memory again at once, in stream order. So the bound counts memory,
 * not frees: at each moment, a stream needs the highest live bytes that it had since the oldest of
 * its work in flight was submitted. The bound is the sum over all streams.
 * Owns: nothing. May be called by: replayer, tests. Locks: none (one thread).
 */
#ifndef FRAGTEST_LOWER_BOUND_H
#define FRAGTEST_LOWER_BOUND_H

#include "fragtest/trace/trace.h"

/*
 * The most bytes needed at once in one pass of a trace whose work finishes `lag` operations after it was
 * submitted. Never less than the peak of live bytes; with lag 0, or one stream, exactly that. Takes
 * time in proportion to the operations. False: no host memory, and *peak_bytes as it was.
 */
bool lower_bound_find(const struct trace *trace, uint64_t lag, uint64_t *peak_bytes);

#endif
