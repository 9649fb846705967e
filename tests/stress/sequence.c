/* Sequences of operations, in memory and in files: see sequence.h. */
#include "sequence.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool sequence_make(struct sequence *sequence, size_t count)
{
    sequence->operations = calloc(count + 1, sizeof *sequence->operations);
    sequence->count = sequence->operations == NULL ? 0 : count;
    return sequence->operations != NULL;
}

bool sequence_copy(struct sequence *copy, const struct sequence *sequence)
{
    if (!sequence_make(copy, sequence->count))
        return false;
    memcpy(copy->operations, sequence->operations, sequence->count * sizeof *copy->operations);
    return true;
}

void sequence_end(struct sequence *sequence)
{
    free(sequence->operations);
    *sequence = (struct sequence){ .operations = NULL };
}

void sequence_cut(struct sequence *sequence, size_t first, size_t count)
{
    size_t behind = sequence->count - first - count;
    memmove(&sequence->operations[first], &sequence->operations[first + count],
            behind * sizeof *sequence->operations);
    sequence->count -= count;
}

/* ---- Files ----------------------------------------------------------------------------------- */

static bool operation_add(struct sequence *sequence, size_t *capacity,
                          const struct operation *operation)
{
    if (sequence->count == *capacity) {
        size_t more = 2 * *capacity + 64;
        void *grown = realloc(sequence->operations, more * sizeof *sequence->operations);
        if (grown == NULL)
            return false;
        sequence->operations = grown;
        *capacity = more;
    }
    sequence->operations[sequence->count++] = *operation;
    return true;
}

static bool lines_read(struct sequence *sequence, FILE *in, char *error, size_t bytes)
{
    char line[512];
    size_t capacity = 0;
    for (unsigned number = 1; fgets(line, sizeof line, in) != NULL; number++) {
        struct operation operation;
        struct mixture mixture;
        size_t count;
        if (!operation_parse(line, &operation, &mixture, &count)) {
            (void)snprintf(error, bytes, "line %u is no operation", number);
            return false;
        }
        for (size_t i = 0; i < count; i++) {
            if (i > 0)
                operation = operation_draw(&mixture);
            if (!operation_add(sequence, &capacity, &operation)) {
                (void)snprintf(error, bytes, "no memory");
                return false;
            }
        }
    }
    return true;
}

static bool records_read(struct sequence *sequence, FILE *in, char *error, size_t bytes)
{
    uint8_t record[OPERATION_BYTES];
    size_t capacity = 0;
    while (fread(record, sizeof record, 1, in) == 1) {
        struct operation operation = operation_decode(record);
        if (!operation_add(sequence, &capacity, &operation)) {
            (void)snprintf(error, bytes, "no memory");
            return false;
        }
    }
    return true;
}

bool sequence_read(struct sequence *sequence, const char *path, bool is_binary, char *error,
                   size_t bytes)
{
    *sequence = (struct sequence){ .operations = NULL };
    FILE *in = fopen(path, "rbe");
    if (in == NULL) {
        (void)snprintf(error, bytes, "%s", strerror(errno));
        return false;
    }
    bool is_read = is_binary ? records_read(sequence, in, error, bytes)
                             : lines_read(sequence, in, error, bytes);
    (void)fclose(in);
    if (!is_read)
        sequence_end(sequence);
    return is_read;
}

void sequence_write(const struct sequence *sequence, const char *comment, FILE *out)
{
    if (comment != NULL)
        (void)fprintf(out, "# %s\n", comment);
    for (size_t i = 0; i < sequence->count; i++)
        operation_print(&sequence->operations[i], out);
}
