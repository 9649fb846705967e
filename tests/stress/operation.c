/* The language of operations: see operation.h. */
#define _GNU_SOURCE
#include "operation.h"

#include "fragtest/trace/random.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)

enum { ARGUMENTS = 4, NUMBER = 3 }; /* a, b, c and the number */

struct operation_kind {
    const char *name;
    unsigned weights[PROFILES];
    const char *arguments[ARGUMENTS]; /* "": there is none */
    enum operand operand;
};

static const struct operation_kind kinds[] = {
#define OPERATION_KIND(name, random, schedule, worker, a, b, c, number, operand)                   \
    { #name, { random, schedule, worker }, { a, b, c, number }, OPERAND_##operand },
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

/* ---- Drawing --------------------------------------------------------------------------------- */

enum { SLOTS_MOST = OPERATION_SLOTS, STREAMS_MOST = 256, CLASS_MOST = 15 };

struct mixture mixture_make(uint64_t seed, enum profile profile)
{
    struct mixture mixture = {
        .random = seed, .slots = SLOTS_MOST, .streams = STREAMS_MOST, .largest = CLASS_MOST
    };
    for (unsigned code = 0; code < OPERATION_KINDS; code++)
        mixture.weights[code] = kinds[code].weights[profile];
    return mixture;
}

struct mixture mixture_draw(uint64_t seed, enum profile profile)
{
    enum { LEFT_OUT_ONE_IN = 6 };
    struct mixture mixture = mixture_make(seed, profile);
    for (unsigned code = 0; code < OPERATION_KINDS; code++) {
        bool stays = code <= OPERATION_toggle; /* caches, and blocks in them */
        if (random_next(&mixture.random) % LEFT_OUT_ONE_IN == 0 && !stays)
            mixture.weights[code] = 0;
    }
    mixture.slots = 8U << random_next(&mixture.random) % 6;
    mixture.streams = 1U << random_next(&mixture.random) % 4;
    mixture.largest = (unsigned)random_between(&mixture.random, 4, CLASS_MOST);
    return mixture;
}

static uint8_t code_draw(struct mixture *mixture)
{
    uint64_t sum = 0;
    uint8_t code = 0;
    for (unsigned i = 0; i < OPERATION_KINDS; i++)
        sum += mixture->weights[i];
    if (sum == 0)
        return OPERATION_alloc;
    uint64_t left = random_next(&mixture->random) % sum;
    while (left >= mixture->weights[code])
        left -= mixture->weights[code++];
    return code;
}

/* The upper half of a size's last byte is its class. */
static uint8_t class_set(const struct mixture *mixture, uint8_t drawn)
{
    unsigned classes = mixture->largest - mixture->smallest + 1;
    unsigned size_class = mixture->smallest + (drawn >> 4) % classes;
    return (uint8_t)(size_class << 4 | (drawn & 15));
}

struct operation operation_draw(struct mixture *mixture)
{
    uint64_t drawn = random_next(&mixture->random);
    uint8_t bytes[OPERATION_BYTES];
    memcpy(bytes, &drawn, sizeof bytes);
    bytes[0] = code_draw(mixture);
    const struct operation_kind *kind = &kinds[bytes[0]];
    if (kind->operand == OPERAND_SIZE)
        bytes[7] = class_set(mixture, bytes[7]);
    for (unsigned i = 0; i < NUMBER; i++) {
        if (strcmp(kind->arguments[i], "slot") == 0)
            bytes[1 + i] = (uint8_t)(bytes[1 + i] % mixture->slots);
        if (strcmp(kind->arguments[i], "stream") == 0)
            bytes[1 + i] = (uint8_t)(bytes[1 + i] % mixture->streams);
    }
    return operation_decode(bytes);
}

void operations_generate(uint64_t seed, enum profile profile, struct operation *operations,
                         size_t count)
{
    struct mixture mixture = mixture_draw(seed, profile);
    for (size_t i = 0; i < count; i++)
        operations[i] = operation_draw(&mixture);
    if (count == 0)
        return;
    memset(mixture.weights, 0, sizeof mixture.weights);
    mixture.weights[OPERATION_create] = 1;
    operations[0] = operation_draw(&mixture);
}

static bool code_read(const char *name, uint8_t *out)
{
    for (uint8_t code = 0; code < OPERATION_KINDS; code++) {
        *out = code;
        if (strcmp(kinds[code].name, name) == 0)
            return true;
    }
    return false;
}

bool mixture_set(struct mixture *mixture, size_t *count, const char *name, uint64_t value)
{
    uint8_t code;
    if (strcmp(name, "seed") == 0)
        mixture->random = value;
    else if (strcmp(name, "count") == 0)
        *count = (size_t)value;
    else if (strcmp(name, "slots") == 0)
        mixture->slots = value % SLOTS_MOST == 0 ? SLOTS_MOST : (unsigned)value % SLOTS_MOST;
    else if (strcmp(name, "streams") == 0)
        mixture->streams =
            value % STREAMS_MOST == 0 ? STREAMS_MOST : (unsigned)value % STREAMS_MOST;
    else if (strcmp(name, "smallest") == 0)
        mixture->smallest = (unsigned)value % (mixture->largest + 1);
    else if (strcmp(name, "largest") == 0)
        mixture->largest = (unsigned)value % (CLASS_MOST + 1);
    else if (code_read(name, &code))
        mixture->weights[code] = (unsigned)value;
    else
        return false;
    return true;
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

/* Cuts a text `NAME=VALUE` apart. */
static bool value_read(char *text, uint64_t *number)
{
    char *value = strchr(text, '=');
    if (value == NULL)
        return false;
    *value++ = '\0';
    char *end;
    errno = 0;
    *number = strtoull(value, &end, 0);
    return *value >= '0' && *value <= '9' && *end == '\0' && errno == 0;
}

static bool argument_read(char *text, struct operation *operation)
{
    const struct operation_kind *kind = &kinds[operation->code];
    uint64_t number;
    if (!value_read(text, &number))
        return false;
    for (unsigned i = 0; i < ARGUMENTS; i++) {
        if (kind->arguments[i][0] != '\0' && strcmp(kind->arguments[i], text) == 0)
            return argument_set(operation, i, number);
    }
    return false;
}

/* Scenarios come without the faults and the caches of random runs. */
static bool draw_read(char **rest, struct mixture *mixture, size_t *count)
{
    static const uint8_t without[] = { OPERATION_create, OPERATION_fault, OPERATION_host_fault,
                                       OPERATION_fault_end, OPERATION_configure };
    char *word;
    uint64_t number;
    *mixture = mixture_make(0, PROFILE_RANDOM);
    for (unsigned i = 0; i < sizeof without; i++)
        mixture->weights[without[i]] = 0;
    *count = 0;
    while ((word = strtok_r(NULL, " \t\r", rest)) != NULL) {
        if (!value_read(word, &number) || !mixture_set(mixture, count, word, number))
            return false;
    }
    return true;
}

bool operation_parse(const char *line, struct operation *operation, struct mixture *mixture,
                     size_t *count)
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
    *count = 0;
    if (word == NULL)
        return true;
    *operation = (struct operation){ 0 };
    if (strcmp(word, "draw") == 0) {
        bool is_read = draw_read(&rest, mixture, count);
        *operation = operation_draw(mixture);
        return is_read;
    }
    if (!code_read(word, &operation->code))
        return false;
    while ((word = strtok_r(NULL, " \t\r", &rest)) != NULL) {
        if (!argument_read(word, operation))
            return false;
    }
    *count = 1;
    return true;
}
