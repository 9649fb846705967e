/*
 * Built-in workloads: see workload.h. Peaks lie between 1 and 2 GiB, so that they run on the host
 * driver of an ordinary machine too; alternate has 12 GiB.
 */
#include "fragtest/trace/workload.h"

#include "base/size.h"
#include "fragtest/trace/random.h"

#include <string.h>

#define KIB (1ULL << 10)
#define MIB (1ULL << 20)

/* A trace in the making; after the first refusal nothing more is added. */
struct maker {
    struct trace *trace;
    uint64_t seed;
    uint64_t bytes; /* the size in the name; 0: none */
    bool ok;
};

static uint32_t maker_alloc(struct maker *maker, uint64_t bytes, uint64_t stream)
{
    uint32_t block = 0;
    maker->ok = maker->ok && trace_add_alloc(maker->trace, bytes, stream, &block) == NULL;
    return block;
}

static void maker_free(struct maker *maker, uint32_t block)
{
    maker->ok = maker->ok && trace_add_free(maker->trace, block) == NULL;
}

#define LAYERS      24U
#define PER_LAYER   6U
#define TRAIN_STEPS 60U

/* Activations of one layer grow with the tokens of the step, in parts of a full step. */
static uint64_t activation_bytes(unsigned part, uint64_t tokens)
{
    static const uint64_t bytes_per_token[PER_LAYER] = { 4096, 12288, 4096, 512, 16384, 64 };
    return bytes_per_token[part] * tokens;
}

static void train_layer_backward(struct maker *maker, const uint32_t *activations, uint64_t tokens)
{
    uint32_t gradient = maker_alloc(maker, activation_bytes(1, tokens), 0);

    for (unsigned part = PER_LAYER; part-- > 0;)
        maker_free(maker, activations[part]);
    maker_free(maker, gradient);
}

/* Forwards through all layers keeping what the way back needs, then backwards giving it up. */
static void train_step(struct maker *maker, uint64_t tokens)
{
    uint32_t activations[LAYERS][PER_LAYER];

    for (unsigned layer = 0; layer < LAYERS; layer++) {
        uint32_t scratch = maker_alloc(maker, activation_bytes(4, tokens) / 2, 0);
        for (unsigned part = 0; part < PER_LAYER; part++)
            activations[layer][part] = maker_alloc(maker, activation_bytes(part, tokens), 0);
        maker_free(maker, scratch);
    }
    uint32_t logits = maker_alloc(maker, tokens * 64 * KIB, 0);
    for (unsigned layer = LAYERS; layer-- > 0;)
        train_layer_backward(maker, activations[layer], tokens);
    maker_free(maker, logits);
}

static void weights_make(struct maker *maker)
{
    for (unsigned layer = 0; layer < LAYERS; layer++) {
        (void)maker_alloc(maker, 12 * MIB, 0);
        (void)maker_alloc(maker, 4 * KIB, 0);
    }
}

static void steady_make(struct maker *maker)
{
    weights_make(maker);
    for (unsigned step = 0; step < TRAIN_STEPS; step++)
        train_step(maker, 1024);
}

static void varlen_make(struct maker *maker)
{
    weights_make(maker);
    for (unsigned step = 0; step < TRAIN_STEPS; step++)
        train_step(maker, random_between(&maker->seed, 100, 1200));
}

#define SESSIONS       48U
#define SERVING_ROUNDS 4000U

struct session {
    uint32_t cache;
    uint64_t tokens; /* 0: not running */
};

/* A session's cache grows as frameworks grow it: a longer one is made, then the old one goes. */
static void session_grow(struct maker *maker, struct session *session, uint64_t stream)
{
    uint32_t old = session->cache;
    bool had = session->tokens > 0;

    session->tokens +=
        had ? random_between(&maker->seed, 1, 64) : random_between(&maker->seed, 16, 700);
    uint32_t scratch = maker_alloc(maker, session->tokens * 8 * KIB, stream);
    session->cache = maker_alloc(maker, session->tokens * 32 * KIB, stream);
    if (had)
        maker_free(maker, old);
    maker_free(maker, scratch);
}

static void serving_make(struct maker *maker)
{
    struct session sessions[SESSIONS] = { 0 };

    for (unsigned round = 0; round < SERVING_ROUNDS; round++) {
        uint64_t place = random_between(&maker->seed, 0, SESSIONS - 1);
        struct session *session = &sessions[place];
        bool ends = session->tokens > random_between(&maker->seed, 300, 1500);
        if (!ends) {
            session_grow(maker, session, 1 + place % 4);
            continue;
        }
        maker_free(maker, session->cache);
        session->tokens = 0;
    }
}

#define TEETH             48U
#define TOOTH_BLOCKS      1024U
#define TOOTH_BUDGET      (1024ULL * MIB)
#define TOOTH_FIRST_BYTES (2ULL * MIB)
#define TOOTH_LAST_BYTES  (64ULL * MIB)

struct tooth {
    uint32_t blocks[TOOTH_BLOCKS];
    unsigned count;
};

/* Fills the budget with blocks of one size, then frees three of four. */
static void tooth_cut(struct maker *maker, struct tooth *tooth, uint64_t bytes)
{
    unsigned kept = 0;

    tooth->count = 0;
    while (maker->ok && maker->trace->live_bytes + bytes <= TOOTH_BUDGET &&
           tooth->count < TOOTH_BLOCKS)
        tooth->blocks[tooth->count++] = maker_alloc(maker, bytes, 0);
    for (unsigned i = 0; i < tooth->count; i++) {
        if (i % 4 == 3)
            tooth->blocks[kept++] = tooth->blocks[i];
        else
            maker_free(maker, tooth->blocks[i]);
    }
    tooth->count = kept;
}

/*
 * Each size is half as large again as the one before, and what is kept of the last two sizes lies
 * between the free pieces: they are plenty, and always too small.
 */
static void sawtooth_make(struct maker *maker)
{
    struct tooth teeth[2] = { 0 };
    uint64_t bytes = TOOTH_FIRST_BYTES;

    for (unsigned i = 0; i < TEETH; i++) {
        struct tooth *tooth = &teeth[i % 2];
        for (unsigned k = 0; k < tooth->count; k++)
            maker_free(maker, tooth->blocks[k]);
        tooth_cut(maker, tooth, bytes);
        bytes = bytes < TOOTH_LAST_BYTES ? bytes + bytes / 2 : TOOTH_FIRST_BYTES;
    }
}

#define OFFLOAD_LAYERS  40U
#define OFFLOAD_WINDOW  8U
#define OFFLOAD_STEPS   10U
#define OFFLOAD_WEIGHTS 2U

/* The sizes of a program's layers, no two alike, and the weights that are on the device. */
struct offload {
    uint64_t bytes[OFFLOAD_LAYERS][OFFLOAD_WEIGHTS];
    uint32_t weights[OFFLOAD_LAYERS][OFFLOAD_WEIGHTS];
    bool is_there[OFFLOAD_LAYERS];
};

static void layer_fetch(struct maker *maker, struct offload *offload, unsigned layer)
{
    for (unsigned i = 0; i < OFFLOAD_WEIGHTS && !offload->is_there[layer]; i++)
        offload->weights[layer][i] = maker_alloc(maker, offload->bytes[layer][i], 0);
    offload->is_there[layer] = true;
}

/* There may be no such layer. */
static void layer_drop(struct maker *maker, struct offload *offload, unsigned layer)
{
    if (layer >= OFFLOAD_LAYERS || !offload->is_there[layer])
        return;
    for (unsigned i = 0; i < OFFLOAD_WEIGHTS; i++)
        maker_free(maker, offload->weights[layer][i]);
    offload->is_there[layer] = false;
}

static void layer_backward(struct maker *maker, struct offload *offload, unsigned layer)
{
    uint32_t gradients[OFFLOAD_WEIGHTS];

    layer_fetch(maker, offload, layer);
    for (unsigned i = 0; i < OFFLOAD_WEIGHTS; i++)
        gradients[i] = maker_alloc(maker, offload->bytes[layer][i], 0);
    uint32_t scratch = maker_alloc(maker, random_between(&maker->seed, 40, 48) * MIB, 0);
    maker_free(maker, scratch);
    for (unsigned i = 0; i < OFFLOAD_WEIGHTS; i++)
        maker_free(maker, gradients[i]);
    layer_drop(maker, offload, layer + OFFLOAD_WINDOW);
}

/* Weights of 16 and 48 MiB and up to a tenth more are fetched for each layer, and offloaded when the window has moved
 * on; activations stay for the way back. */
static void offload_make(struct maker *maker)
{
    struct offload offload = { .is_there = { false } };
    uint32_t activations[OFFLOAD_LAYERS];

    for (unsigned layer = 0; layer < OFFLOAD_LAYERS; layer++) {
        offload.bytes[layer][0] = random_between(&maker->seed, 16 * MIB, 17 * MIB + MIB / 2);
        offload.bytes[layer][1] = random_between(&maker->seed, 48 * MIB, 53 * MIB);
    }
    for (unsigned step = 0; step < OFFLOAD_STEPS; step++) {
        for (unsigned layer = 0; layer < OFFLOAD_LAYERS; layer++) {
            layer_fetch(maker, &offload, layer);
            activations[layer] = maker_alloc(maker, offload.bytes[layer][1] / 2, 0);
            layer_drop(maker, &offload, layer - OFFLOAD_WINDOW);
        }
        for (unsigned layer = OFFLOAD_LAYERS; layer-- > 0;) {
            layer_backward(maker, &offload, layer);
            maker_free(maker, activations[layer]);
        }
    }
}

#define ALTERNATE_BYTES  (12ULL << 30)
#define ALTERNATE_LEAST  (64 * KIB)
#define ALTERNATE_MOST   (1ULL << 30)
#define ALTERNATE_WHOLES 11U
#define WHOLE_BYTES      (512 * MIB)
#define ALTERNATE_RESTS  8U
#define REST_BYTES       (64 * MIB)

/* Allocates 12 GiB and frees every other block. Then allocates as much as is free: most of it in blocks of 512 MiB, the
 * rest in blocks of 64 MiB. */
static void alternate_make(struct maker *maker)
{
    uint32_t count = (uint32_t)(ALTERNATE_BYTES / maker->bytes);
    uint32_t first = maker->trace->block_count;

    for (uint32_t i = 0; i < count; i++)
        (void)maker_alloc(maker, maker->bytes, 0);
    for (uint32_t i = 0; i < count; i += 2)
        maker_free(maker, first + i);
    for (unsigned i = 0; i < ALTERNATE_WHOLES; i++)
        (void)maker_alloc(maker, WHOLE_BYTES, 0);
    for (unsigned i = 0; i < ALTERNATE_RESTS; i++)
        (void)maker_alloc(maker, REST_BYTES, 0);
}

#define SIZED ":SIZE" /* of a name: the workload takes a size */

static const struct workload {
    const char *name;
    const char *note;
    void (*make)(struct maker *maker);
} workloads[WORKLOAD_COUNT] = {
    { "steady", "a training loop with fixed shapes", steady_make },
    { "varlen", "a training loop whose sequence lengths change each step", varlen_make },
    { "serving", "sessions with growing caches on four streams", serving_make },
    { "sawtooth", "rising sizes between live blocks, which fragment memory", sawtooth_make },
    { "offload", "weights of odd sizes that are fetched and offloaded in turn", offload_make },
    { "alternate" SIZED,
      "12 GiB of blocks of SIZE (64KiB to 1GiB), every other freed, then 6 GiB of large ones",
      alternate_make },
};

/* Whether a name is a workload's. Stores the size in it; 0: none. */
static bool name_matches(const struct workload *workload, const char *name, uint64_t *bytes)
{
    const char *sized = strstr(workload->name, SIZED);
    size_t length = sized == NULL ? 0 : (size_t)(sized - workload->name) + 1;

    *bytes = 0;
    if (sized == NULL)
        return strcmp(workload->name, name) == 0;
    return strncmp(workload->name, name, length) == 0 && vmm__size_parse(name + length, bytes) &&
           *bytes >= ALTERNATE_LEAST && *bytes <= ALTERNATE_MOST;
}

static const struct workload *workload_find(const char *name, uint64_t *bytes)
{
    for (unsigned i = 0; i < WORKLOAD_COUNT; i++)
        if (name_matches(&workloads[i], name, bytes))
            return &workloads[i];
    return NULL;
}

const char *workload_name(unsigned index)
{
    return workloads[index].name;
}

const char *workload_note(unsigned index)
{
    return workloads[index].note;
}

bool workload_exists(const char *name)
{
    uint64_t bytes;

    return workload_find(name, &bytes) != NULL;
}

bool workload_make(const char *name, struct trace *trace)
{
    struct maker maker = { .trace = trace, .seed = 1, .ok = true };
    const struct workload *workload = workload_find(name, &maker.bytes);

    if (workload == NULL || !trace_init(trace, name))
        return false;
    workload->make(&maker);
    if (!maker.ok)
        trace_free(trace);
    return maker.ok;
}
