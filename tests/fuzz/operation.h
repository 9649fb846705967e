/*
 * The language of random operations: what an operation is, and how it is written.
 *
 * An operation is a record of fixed size that means something on its own, whatever came before: what cannot be
 * done is left out when it runs. So any part of a sequence is a sequence, which is what shortening one needs.
 * OPERATION_MAP is the only list of them; a new one needs a line here and a function operation_NAME() in a file
 * of the engine.
 *
 * Three forms: struct operation; eight bytes, any value of which is an operation (libFuzzer, the random
 * driver); a line of text, `NAME ARGUMENT=VALUE ...`, in which # begins a comment (what is found is kept so).
 *
 * May be called by: everything here. Locks: none (one thread).
 */
#ifndef FUZZ_OPERATION_H
#define FUZZ_OPERATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* What the number of an operation is, which decides how it is made of random bytes. */
enum operand { OPERAND_NONE, OPERAND_SIZE, OPERAND_COUNT, OPERAND_TIME, OPERAND_BITS };

/*
 * X(name, weight, a, b, c, number, operand): arguments that an operation does not take have no name. Weights
 * are shares of the random driver's operations.
 */
#define OPERATION_MAP(X)                                                                           \
    X(create, 2, "memory", "footprint", "decay", "bits", BITS)                                     \
    X(alloc, 400, "slot", "stream", "", "bytes", SIZE)                                             \
    X(free, 360, "slot", "", "", "", NONE)                                                         \
    X(use, 80, "slot", "stream", "", "", NONE)                                                     \
    X(read, 40, "slot", "stream", "", "", NONE)                                                    \
    X(write, 30, "slot", "stream", "", "", NONE)                                                   \
    X(lend, 20, "slot", "stream", "", "", NONE)                                                    \
    X(pin, 10, "slot", "", "", "", NONE)                                                           \
    X(unpin, 8, "slot", "", "", "", NONE)                                                          \
    X(trim, 10, "", "", "", "keep", SIZE)                                                          \
    X(tick, 15, "", "", "", "", NONE)                                                              \
    X(wait, 5, "", "", "", "", NONE)                                                               \
    X(finish, 3, "", "", "", "", NONE)                                                             \
    X(lag, 8, "", "", "", "pieces", COUNT)                                                         \
    X(delay, 6, "stream", "", "", "ns", TIME)                                                      \
    X(clock, 10, "", "", "", "ns", TIME)                                                           \
    X(limit, 6, "", "", "", "bytes", SIZE)                                                         \
    X(pool_begin, 12, "pool", "streams", "", "", NONE)                                             \
    X(pool_end, 12, "pool", "", "", "", NONE)                                                      \
    X(pool_release, 8, "pool", "", "", "", NONE)                                                   \
    X(graph_begin, 24, "graph", "pool", "stream", "", NONE)                                        \
    X(graph_end, 12, "graph", "", "", "", NONE)                                                    \
    X(graph_launch, 60, "graph", "stream", "", "", NONE)                                           \
    X(graph_release, 8, "graph", "", "", "", NONE)                                                 \
    X(capture_begin, 6, "stream", "", "", "", NONE)                                                \
    X(capture_end, 12, "stream", "", "", "", NONE)                                                 \
    X(fault, 10, "status", "for_ever", "", "call", COUNT)                                          \
    X(host_fault, 10, "", "", "", "call", COUNT)                                                   \
    X(fault_end, 24, "", "", "", "", NONE)                                                         \
    X(stats, 12, "", "", "", "", NONE)                                                             \
    X(reset_peak, 3, "", "", "", "", NONE)                                                         \
    X(walk, 6, "", "", "", "stop", COUNT)                                                          \
    X(check, 4, "", "", "", "", NONE)                                                              \
    X(find, 20, "slot", "place", "", "bytes", SIZE)                                                \
    X(sizes, 6, "", "", "", "bytes", SIZE)                                                         \
    X(watch, 4, "on", "", "", "", NONE)                                                            \
    X(summary, 2, "", "", "", "", NONE)                                                            \
    X(device, 3, "", "", "", "", NONE)                                                             \
    X(log, 2, "", "", "", "", NONE)                                                                \
    X(wrong, 40, "call", "place", "slot", "bytes", SIZE)                                           \
    X(missing, 8, "call", "", "", "", NONE)                                                        \
    X(configure, 4, "field", "", "", "value", BITS)                                                \
    X(stream_end, 16, "stream", "silent", "", "", NONE)                                            \
    X(guard_check, 3, "", "", "", "", NONE)                                                        \
    X(misuse_write, 3, "", "", "", "", NONE)

enum operation_code {
#define OPERATION_ENUM(name, weight, a, b, c, number, operand) OPERATION_##name,
    OPERATION_MAP(OPERATION_ENUM)
#undef OPERATION_ENUM
        OPERATION_KINDS
};

struct operation {
    uint8_t code; /* < OPERATION_KINDS */
    uint8_t a;
    uint8_t b;
    uint8_t c;
    uint64_t number;
};

enum { OPERATION_BYTES = 8, OPERATION_SLOTS = 256 };

const char *operation_name(const struct operation *operation);

/* Eight bytes to an operation; all of them mean one. */
struct operation operation_decode(const uint8_t bytes[OPERATION_BYTES]);

/* The sequence of a seed. */
void operations_generate(uint64_t seed, struct operation *operations, size_t count);

void operation_print(const struct operation *operation, FILE *out);

/* A line of text. False: it is neither an operation nor empty; *is_empty: no operation either. */
bool operation_parse(const char *line, struct operation *operation, bool *is_empty);

#endif
