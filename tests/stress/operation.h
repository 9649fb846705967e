/*
 * The language of operations: what one is, how it is drawn and how it is written.
 *
 * An operation is a record of fixed size that means something on its own, whatever came before: what cannot be
 * done is left out when it runs. So any part of a sequence is a sequence, which is what shortening one needs.
 * OPERATION_MAP is the only list of them; a new one needs a line here and a function operation_NAME().
 *
 * Three forms: struct operation; eight bytes, where each value is an operation (libFuzzer, drawn sequences); a line of
 * text, `NAME ARGUMENT=VALUE ...`, where # begins a comment (corpus and scenarios).
 *
 * May be called by: everything here. Locks: none (one thread).
 */
#ifndef STRESS_OPERATION_H
#define STRESS_OPERATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* What the number of an operation is, which decides how it is made of random bytes. */
enum operand { OPERAND_NONE, OPERAND_SIZE, OPERAND_COUNT, OPERAND_TIME, OPERAND_BITS };

/*
 * X(name, random, schedule, worker, a, b, c, number, operand): arguments that an operation does not take have no
 * name. Weights are shares of the operations that each front end draws: of random runs, of schedules without faults
 * and misuse, of workers that share a cache.
 */
#define OPERATION_MAP(X)                                                                           \
    X(create, 2, 2, 0, "memory", "footprint", "decay", "bits", BITS)                               \
    X(alloc, 400, 60, 60, "slot", "stream", "", "bytes", SIZE)                                     \
    X(free, 360, 40, 40, "slot", "", "", "", NONE)                                                 \
    X(toggle, 0, 600, 600, "slot", "stream", "", "bytes", SIZE)                                    \
    X(use, 80, 60, 10, "slot", "stream", "", "", NONE)                                             \
    X(share, 60, 160, 120, "slot", "stream", "write", "", NONE)                                    \
    X(read, 40, 40, 30, "slot", "stream", "", "", NONE)                                            \
    X(write, 30, 40, 30, "slot", "stream", "", "", NONE)                                           \
    X(lend, 20, 20, 10, "slot", "stream", "", "", NONE)                                            \
    X(pin, 10, 10, 8, "slot", "", "", "", NONE)                                                    \
    X(unpin, 8, 8, 8, "slot", "", "", "", NONE)                                                    \
    X(trim, 10, 3, 2, "", "", "", "keep", SIZE)                                                    \
    X(tick, 15, 6, 2, "", "", "", "", NONE)                                                        \
    X(wait, 5, 0, 0, "", "", "", "", NONE)                                                         \
    X(finish, 3, 0, 0, "", "", "", "", NONE)                                                       \
    X(lag, 8, 4, 0, "", "", "", "pieces", COUNT)                                                   \
    X(order, 8, 6, 0, "kind", "", "", "seed", BITS)                                                \
    X(delay, 6, 4, 0, "stream", "", "", "ns", TIME)                                                \
    X(clock, 10, 8, 0, "", "", "", "ns", TIME)                                                     \
    X(limit, 6, 0, 1, "", "", "", "bytes", SIZE)                                                   \
    X(pool_begin, 12, 4, 0, "pool", "streams", "", "", NONE)                                       \
    X(pool_end, 12, 6, 0, "pool", "", "", "", NONE)                                                \
    X(pool_release, 8, 4, 0, "pool", "", "", "", NONE)                                             \
    X(graph_begin, 24, 30, 4, "graph", "pool", "stream", "", NONE)                                 \
    X(graph_end, 12, 12, 8, "graph", "", "", "", NONE)                                             \
    X(graph_launch, 60, 60, 10, "graph", "stream", "", "", NONE)                                   \
    X(graph_release, 8, 8, 8, "graph", "", "", "", NONE)                                           \
    X(capture_begin, 6, 0, 0, "stream", "", "", "", NONE)                                          \
    X(capture_end, 12, 4, 0, "stream", "", "", "", NONE)                                           \
    X(fault, 10, 0, 0, "status", "for_ever", "", "call", COUNT)                                    \
    X(host_fault, 10, 0, 0, "", "", "", "call", COUNT)                                             \
    X(fault_end, 24, 0, 0, "", "", "", "", NONE)                                                   \
    X(stats, 12, 2, 1, "", "", "", "", NONE)                                                       \
    X(reset_peak, 3, 0, 0, "", "", "", "", NONE)                                                   \
    X(walk, 6, 1, 1, "", "", "", "stop", COUNT)                                                    \
    X(check, 4, 1, 0, "", "", "", "", NONE)                                                        \
    X(find, 20, 0, 16, "slot", "place", "", "bytes", SIZE)                                         \
    X(sizes, 6, 0, 1, "", "", "", "bytes", SIZE)                                                   \
    X(watch, 4, 0, 0, "on", "", "", "", NONE)                                                      \
    X(summary, 2, 0, 0, "", "", "", "", NONE)                                                      \
    X(device, 3, 0, 0, "", "", "", "", NONE)                                                       \
    X(log, 2, 0, 0, "", "", "", "", NONE)                                                          \
    X(wrong, 40, 0, 0, "call", "place", "slot", "bytes", SIZE)                                     \
    X(missing, 8, 0, 0, "call", "", "", "", NONE)                                                  \
    X(configure, 4, 0, 0, "field", "", "", "value", BITS)                                          \
    X(stream_end, 16, 40, 0, "stream", "silent", "", "", NONE)                                     \
    X(debug_check, 3, 0, 0, "", "", "", "", NONE)                                                  \
    X(misuse_write, 3, 0, 0, "", "", "", "", NONE)                                                 \
    X(compact, 5, 1, 0, "", "", "", "ms", COUNT)                                                   \
    X(pass, 0, 0, 40, "slot", "place", "", "", NONE)                                               \
    X(pool_create, 16, 6, 0, "pool", "", "", "options", BITS)                                      \
    X(pool_destroy, 8, 3, 0, "pool", "adopt", "", "", NONE)                                        \
    X(alloc_from, 80, 40, 0, "slot", "stream", "pool", "bytes", SIZE)                              \
    X(pool_push, 6, 2, 0, "pool", "", "", "", NONE)                                                \
    X(pool_pop, 10, 4, 0, "pool", "", "", "", NONE)                                                \
    X(pool_limit, 4, 0, 0, "pool", "", "", "bytes", SIZE)                                          \
    X(pool_trim, 4, 2, 0, "pool", "", "", "keep", SIZE)                                            \
    X(pool_retain, 3, 0, 0, "pool", "", "", "", NONE)                                              \
    X(pool_drop, 6, 0, 0, "pool", "", "", "", NONE)                                                \
    X(pool_place, 30, 10, 0, "slot", "", "", "", NONE)                                             \
    X(alloc_aligned, 30, 10, 10, "slot", "stream", "way", "bytes", SIZE)                           \
    X(reserve, 16, 6, 3, "slot", "stream", "way", "bytes", COUNT)                                  \
    X(commit, 50, 20, 10, "slot", "first", "units", "", NONE)                                      \
    X(decommit, 30, 12, 8, "slot", "first", "units", "", NONE)                                     \
    X(resize, 40, 16, 10, "slot", "", "", "bytes", SIZE)                                           \
    X(share_export, 16, 6, 0, "slot", "share", "", "", NONE)                                       \
    X(share_import, 24, 8, 0, "slot", "stream", "share", "way", COUNT)                             \
    X(share_close, 10, 4, 0, "share", "force", "", "", NONE)                                       \
    X(pool_sleep, 6, 2, 0, "pool", "mode", "", "", NONE)                                           \
    X(undeclared, 120, 160, 80, "slot", "user", "way", "ns", TIME)

enum operation_code {
#define OPERATION_ENUM(name, random, schedule, worker, a, b, c, number, operand) OPERATION_##name,
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

enum profile { PROFILE_RANDOM, PROFILE_SCHEDULE, PROFILE_WORKER, PROFILES };

/* How the operations of one sequence are drawn. */
struct mixture {
    uint64_t random; /* state */
    unsigned weights[OPERATION_KINDS];
    unsigned slots;
    unsigned streams;
    unsigned smallest; /* class of sizes, 0 to 15 */
    unsigned largest;
};

/* All operations of a profile; of random slots, streams and sizes. */
struct mixture mixture_make(uint64_t seed, enum profile profile);

/*
 * A mixture drawn from its seed: some kinds of operations are left out, so that others come together more often, and
 * so are most slots and streams.
 */
struct mixture mixture_draw(uint64_t seed, enum profile profile);

struct operation operation_draw(struct mixture *mixture);

/* The sequence of a seed. */
void operations_generate(uint64_t seed, enum profile profile, struct operation *operations,
                         size_t count);

/* Sets the member or the weight of a name in a text `NAME=VALUE`, or *seed, *count. False: there is no such name. */
bool mixture_set(struct mixture *mixture, size_t *count, const char *name, uint64_t value);

void operation_print(const struct operation *operation, FILE *out);

/*
 * A line of text. False: it is neither an operation nor empty. *count says how many operations it is, and one that is
 * more than the first is to be drawn from *mixture: `draw seed=S count=N [slots=N] [streams=N] [smallest=N] [largest=N]
 * [OPERATION=WEIGHT]...`.
 */
bool operation_parse(const char *line, struct operation *operation, struct mixture *mixture,
                     size_t *count);

#endif
