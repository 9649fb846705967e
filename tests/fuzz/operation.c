/* The language of random operations: see operation.h. */
#define _GNU_SOURCE
#include "operation.h"

#include "random.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)

enum { ARGUMENTS = 4, NUMBER = 3 }; /* a, b, c and the number */

struct operation_kind {
    const char *name;
    unsigned weight;
    const char *arguments[ARGUMENTS]; /* "": there is none */
    enum operand operand;
};

static const struct operation_kind kinds[] = {
#define OPERATION_KIND(name, weight, a, b, c, number, operand)                                     \
    { #name, weight, { a, b, c, number }, OPERAND_##operand },
    OPERATION_MAP(OPERATION_KIND)
#undef OPERATION_KIND
};

const char *operation_name(const struct operation *operation)
{
    return kinds[operation->code].name;
}

/* ---- Bytes ----------------------------------------------------------------------------------- */

/* Where sizes are treated differently, or must be refused. */
static const uint64_t edges[] = { 0,           1,           512,           513,      8 * KIB,
                                  8 * KIB + 1, 256 * KIB,   MIB,           MIB + 1,  2 * MIB - 1,
                                  2 * MIB,     2 * MIB + 1, 4 * MIB + 512, 24 * MIB, 64 * MIB + 1,
                                  256 * MIB };
static const uint64_t huge[] = {
    UINT64_MAX,           UINT64_MAX - 511,        UINT64_C(1) << 63,   UINT64_C(1) << 62,
    UINT64_C(1) << 45,    (UINT64_C(1) << 44) + 1, UINT64_C(1) << 44,   UINT64_C(1) << 43,
    UINT64_C(1) << 40,    UINT64_C(139) << 30,     UINT64_C(280) << 30, UINT64_C(1) << 41,
    UINT64_MAX - 2 * MIB, UINT64_C(200) << 30,     UINT64_MAX >> 1,     (UINT64_C(1) << 44) - 1
};

/* Half of a size is its class, the rest where in the class. */
static uint64_t size_decode(uint32_t word)
{
    static const uint64_t most[] = { 4 * KIB, 8 * KIB, 8 * KIB, 64 * KIB, 256 * KIB, MIB,     MIB,
                                     2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB, 32 * MIB,  64 * MIB };
    enum { CLASSES = sizeof most / sizeof most[0], HUGE_ONE_IN = 64 };
    uint32_t class_number = word >> 28;
    uint32_t rest = word & 0x0fffffff;
    if (class_number < CLASSES)
        return 1 + rest % most[class_number];
    if (class_number == CLASSES)
        return (1 + rest % 32) * 2 * MIB + (rest >> 8) % 3 * 512 - 512;
    if (class_number == CLASSES + 1 && rest % HUGE_ONE_IN == 0)
        return huge[(rest >> 8) % (sizeof huge / sizeof huge[0])];
    return edges[(rest >> 8) % (sizeof edges / sizeof edges[0])];
}

static uint64_t number_decode(enum operand operand, uint32_t word)
{
    switch (operand) {
    case OPERAND_SIZE:
        return size_decode(word);
    case OPERAND_COUNT: /* any order of size */
        return (word & 0xffff) >> (word >> 28);
    case OPERAND_TIME:
        return (word & 0xffffff) >> (word >> 28);
    case OPERAND_BITS:
        return word;
    default:
        return 0;
    }
}

struct operation operation_decode(const uint8_t bytes[OPERATION_BYTES])
{
    struct operation operation = { .code = bytes[0] % OPERATION_KINDS };
    const struct operation_kind *kind = &kinds[operation.code];
    uint32_t word;
    memcpy(&word, bytes + 4, sizeof word);
    operation.a = kind->arguments[0][0] != '\0' ? bytes[1] : 0;
    operation.b = kind->arguments[1][0] != '\0' ? bytes[2] : 0;
    operation.c = kind->arguments[2][0] != '\0' ? bytes[3] : 0;
    operation.number = number_decode(kind->operand, word);
    return operation;
}

/* ---- Seeds ----------------------------------------------------------------------------------- */

/*
 * What sequences of one seed have in common: some kinds of operations are left out, so that others come together
 * more often, and so are most slots and streams.
 */
struct mixture {
    unsigned weights[OPERATION_KINDS];
    unsigned sum;
    unsigned slots;
    unsigned streams;
    unsigned largest_class; /* of sizes */
};

static void mixture_draw(uint64_t *random, struct mixture *mixture)
{
    enum { LEFT_OUT_ONE_IN = 6 };
    mixture->sum = 0;
    for (unsigned code = 0; code < OPERATION_KINDS; code++) {
        bool stays = code == OPERATION_alloc || code == OPERATION_free;
        bool is_out = random_next(random) % LEFT_OUT_ONE_IN == 0 && !stays;
        mixture->weights[code] = is_out ? 0 : kinds[code].weight;
        mixture->sum += mixture->weights[code];
    }
    mixture->slots = 8U << random_next(random) % 6;
    mixture->streams = 1U << random_next(random) % 4;
    mixture->largest_class = (unsigned)random_between(random, 4, 15);
}

static uint8_t code_draw(uint64_t *random, const struct mixture *mixture)
{
    uint64_t left = random_next(random) % mixture->sum;
    uint8_t code = 0;
    while (left >= mixture->weights[code])
        left -= mixture->weights[code++];
    return code;
}

static struct operation operation_draw(uint64_t *random, const struct mixture *mixture)
{
    uint64_t drawn = random_next(random);
    uint8_t bytes[OPERATION_BYTES];
    memcpy(bytes, &drawn, sizeof bytes);
    bytes[0] = code_draw(random, mixture);
    const struct operation_kind *kind = &kinds[bytes[0]];
    if (kind->operand == OPERAND_SIZE)
        bytes[7] = (uint8_t)((bytes[7] >> 4) % (mixture->largest_class + 1) << 4 | (bytes[7] & 15));
    for (unsigned i = 0; i < NUMBER; i++) {
        if (strcmp(kind->arguments[i], "slot") == 0)
            bytes[1 + i] = (uint8_t)(bytes[1 + i] % mixture->slots);
        if (strcmp(kind->arguments[i], "stream") == 0)
            bytes[1 + i] = (uint8_t)(bytes[1 + i] % mixture->streams);
    }
    return operation_decode(bytes);
}

void operations_generate(uint64_t seed, struct operation *operations, size_t count)
{
    struct mixture mixture;
    uint64_t random = seed;
    mixture_draw(&random, &mixture);
    for (size_t i = 0; i < count; i++)
        operations[i] = operation_draw(&random, &mixture);
    if (count == 0)
        return;
    uint8_t bytes[OPERATION_BYTES];
    uint64_t drawn = random_next(&random);
    memcpy(bytes, &drawn, sizeof bytes);
    bytes[0] = OPERATION_create;
    operations[0] = operation_decode(bytes);
}

/* ---- Text ------------------------------------------------------------------------------------ */

static uint64_t argument_get(const struct operation *operation, unsigned argument)
{
    const uint64_t values[ARGUMENTS] = { operation->a, operation->b, operation->c,
                                         operation->number };
    return values[argument];
}

static bool argument_set(struct operation *operation, unsigned argument, uint64_t value)
{
    uint8_t *const small[NUMBER] = { &operation->a, &operation->b, &operation->c };
    if (argument == NUMBER)
        operation->number = value;
    else if (value <= UINT8_MAX)
        *small[argument] = (uint8_t)value;
    return argument == NUMBER || value <= UINT8_MAX;
}

void operation_print(const struct operation *operation, FILE *out)
{
    const struct operation_kind *kind = &kinds[operation->code];
    (void)fputs(kind->name, out);
    for (unsigned i = 0; i < ARGUMENTS; i++) {
        uint64_t value = argument_get(operation, i);
        if (kind->arguments[i][0] == '\0')
            continue;
        if (i == NUMBER && kind->operand == OPERAND_BITS)
            (void)fprintf(out, " %s=0x%" PRIx64, kind->arguments[i], value);
        else
            (void)fprintf(out, " %s=%" PRIu64, kind->arguments[i], value);
    }
    (void)fputc('\n', out);
}

/* `NAME=VALUE`; cuts the text apart. */
static bool argument_read(char *text, const struct operation_kind *kind,
                          struct operation *operation)
{
    char *value = strchr(text, '=');
    if (value == NULL)
        return false;
    *value++ = '\0';
    char *end;
    errno = 0;
    uint64_t number = strtoull(value, &end, 0);
    if (*value < '0' || *value > '9' || *end != '\0' || errno != 0)
        return false;
    for (unsigned i = 0; i < ARGUMENTS; i++) {
        if (kind->arguments[i][0] != '\0' && strcmp(kind->arguments[i], text) == 0)
            return argument_set(operation, i, number);
    }
    return false;
}

static bool code_read(const char *name, struct operation *operation)
{
    for (uint8_t code = 0; code < OPERATION_KINDS; code++) {
        operation->code = code;
        if (strcmp(kinds[code].name, name) == 0)
            return true;
    }
    return false;
}

bool operation_parse(const char *line, struct operation *operation, bool *is_empty)
{
    enum { LINE_BYTES = 256 };
    char text[LINE_BYTES];
    char *rest;
    size_t bytes = strcspn(line, "#\n");
    if (bytes >= sizeof text)
        return false;
    memcpy(text, line, bytes);
    text[bytes] = '\0';
    char *word = strtok_r(text, " \t\r", &rest);
    *is_empty = word == NULL;
    if (*is_empty)
        return true;
    *operation = (struct operation){ 0 };
    if (!code_read(word, operation))
        return false;
    while ((word = strtok_r(NULL, " \t\r", &rest)) != NULL) {
        if (!argument_read(word, &kinds[operation->code], operation))
            return false;
    }
    return true;
}
