/*
 * Sequences of operations, in memory and in files.
 *
 * Owns: the operations of a sequence, until sequence_end(). May be called by: stress. Locks: none (one
 * thread).
 */
#ifndef STRESS_SEQUENCE_H
#define STRESS_SEQUENCE_H

#include "operation.h"

struct sequence {
    struct operation *operations;
    size_t count;
};

/* False: no memory. */
bool sequence_make(struct sequence *sequence, size_t count);
bool sequence_copy(struct sequence *copy, const struct sequence *sequence);
void sequence_end(struct sequence *sequence);

/* Takes `count` operations out, from `first` on. */
void sequence_cut(struct sequence *sequence, size_t first, size_t count);

/* Lines of text; or libFuzzer's bytes. False: *error (of `bytes` bytes) says what is wrong. */
bool sequence_read(struct sequence *sequence, const char *path, bool is_binary, char *error,
                   size_t bytes);

/* As lines of text; comment, which may be NULL, comes first. */
void sequence_write(const struct sequence *sequence, const char *comment, FILE *out);

#endif
