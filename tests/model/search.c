/*
 * Every sequence of operations, shortest first: see model.h.
 *
 * States are numbered in the order in which they are found. Each new one is reached again by its
 * operations, then each operation that the rules allow there is tried. A state whose canonical
 * number was seen before is not followed further: an equal one, reached with as few operations or
 * fewer, is. So the first sequence that fails is a shortest one.
 */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPERATIONS_MOST = 1024 }; /* allowed in one state */

struct node {
    uint32_t parent; /* its own number: the first of a sequence */
    struct operation operation;
    uint32_t first_edge; /* the states that its operations lead to */
    uint32_t edges;
};

struct graph_of_states {
    struct node *nodes;
    uint32_t count;
    uint32_t capacity;
    uint32_t *edges;
    uint32_t edge_count;
    uint32_t edge_capacity;
    uint64_t *numbers; /* canonical, open addressing; 0: empty */
    uint32_t *states;  /* beside it */
    uint32_t slots;    /* a power of two */
};

struct run {
    struct search *search;
    struct world world;
    struct graph_of_states states;
    struct operation allowed[OPERATIONS_MOST];
    unsigned allowed_count;
    unsigned depth; /* operations before those that are tried now */
    bool has_memory;
};

/* ---- The store of states --------------------------------------------------------------------- */

static bool array_grow(void **items, uint32_t *capacity, uint32_t count, size_t bytes)
{
    if (count < *capacity)
        return true;
    uint32_t wanted = *capacity == 0 ? 1024 : *capacity * 2;
    void *grown = realloc(*items, wanted * bytes);
    if (grown == NULL)
        return false;
    *items = grown;
    *capacity = wanted;
    return true;
}

static uint32_t slot_of(const struct graph_of_states *states, uint64_t number)
{
    uint32_t slot = (uint32_t)number & (states->slots - 1);
    while (states->numbers[slot] != 0 && states->numbers[slot] != number)
        slot = (slot + 1) & (states->slots - 1);
    return slot;
}

/* Keeps the table at most half full. */
static bool table_grow(struct graph_of_states *states)
{
    struct graph_of_states old = *states;
    if (states->slots / 2 > states->count)
        return true;
    states->slots = old.slots == 0 ? 4096 : old.slots * 2;
    states->numbers = calloc(states->slots, sizeof *states->numbers);
    states->states = calloc(states->slots, sizeof *states->states);
    for (uint32_t i = 0; states->numbers != NULL && states->states != NULL && i < old.slots; i++) {
        if (old.numbers[i] == 0)
            continue;
        uint32_t slot = slot_of(states, old.numbers[i]);
        states->numbers[slot] = old.numbers[i];
        states->states[slot] = old.states[i];
    }
    free(old.numbers);
    free(old.states);
    return states->numbers != NULL && states->states != NULL;
}

/* Sets *state to the state with this number, a new one if there is none. */
static bool state_find(struct run *run, uint64_t number, uint32_t parent,
                       const struct operation *operation, uint32_t *state)
{
    struct graph_of_states *states = &run->states;
    if (!table_grow(states) || !array_grow((void **)&states->nodes, &states->capacity,
                                           states->count, sizeof *states->nodes))
        return false;
    uint32_t slot = slot_of(states, number);
    *state = states->states[slot];
    if (states->numbers[slot] != 0 && !run->search->merges_nothing)
        return true;
    *state = states->count++;
    states->numbers[slot] = number;
    states->states[slot] = *state;
    states->nodes[*state] = (struct node){ .parent = parent, .operation = *operation };
    return true;
}

static bool edge_add(struct graph_of_states *states, uint32_t state)
{
    if (!array_grow((void **)&states->edges, &states->edge_capacity, states->edge_count,
                    sizeof *states->edges))
        return false;
    states->edges[states->edge_count++] = state;
    return true;
}

static void states_free(struct graph_of_states *states)
{
    free(states->nodes);
    free(states->edges);
    free(states->numbers);
    free(states->states);
}

/* ---- Sequences ------------------------------------------------------------------------------- */

/* Writes the operations that lead to the state; the first has index 0 and is no operation. */
static void path_read(const struct run *run, uint32_t state, struct operation *path)
{
    for (unsigned i = run->depth + 1; i-- > 0; state = run->states.nodes[state].parent)
        path[i] = run->states.nodes[state].operation;
}

static void path_perform(struct run *run, const struct operation *path)
{
    for (unsigned i = 0; i <= run->depth; i++)
        world_perform(&run->world, &path[i]);
}

static void run_fail(struct run *run, const struct operation *path, const struct operation *last)
{
    struct search *search = run->search;
    search->failing = run->depth + 1;
    memcpy(search->path, path, (run->depth + 1) * sizeof *path);
    search->path[run->depth + 1] = *last;
    memcpy(search->failure, run->world.failure, sizeof search->failure);
}

/* Performs one more operation in the state that the path leads to. */
static void operation_try(struct run *run, uint32_t state, const struct operation *path,
                          const struct operation *operation)
{
    struct search *search = run->search;
    uint32_t reached = 0;
    world_perform(&run->world, operation);
    search->executed++;
    search->kinds[operation->kind]++;
    if (run->world.failure[0] == '\0' && run->depth + 1 < search->depth) {
        uint32_t before = run->states.count;
        uint64_t number = world_canonical(&run->world);
        run->has_memory = number != 0 && state_find(run, number, state, operation, &reached) &&
                          edge_add(&run->states, reached);
        search->states[run->depth + 1] += run->states.count - before;
    }
    world_judge(&run->world);
    if (run->world.failure[0] != '\0')
        run_fail(run, path, operation);
}

static void allowed_add(void *context, const struct operation *operation)
{
    struct run *run = context;
    if (run->allowed_count < OPERATIONS_MOST)
        run->allowed[run->allowed_count++] = *operation;
    else
        run->has_memory = false;
}

static bool run_goes_on(const struct run *run)
{
    return run->has_memory && run->search->failing == 0;
}

static void state_expand(struct run *run, uint32_t state)
{
    struct operation path[DEPTH_MOST + 1];
    path_read(run, state, path);
    path_perform(run, path);
    run->allowed_count = 0;
    rules_allowed(&run->world.records, &run->world.rules, allowed_add, run);
    run->states.nodes[state].first_edge = run->states.edge_count;
    run->states.nodes[state].edges = run->allowed_count;
    for (unsigned i = 0; i < run->allowed_count && run_goes_on(run); i++) {
        if (i > 0)
            path_perform(run, path);
        operation_try(run, state, path, &run->allowed[i]);
    }
}

/* One, two or three streams own the chunks: all other ways differ in names only. */
static void run_begin(struct run *run)
{
    static const uint8_t owners[][CHUNKS] = { { 0, 0, 0 }, { 0, 0, 1 }, { 0, 1, 2 } };
    run->has_memory = true;
    for (unsigned i = 0; i < sizeof owners / sizeof *owners && run->has_memory; i++) {
        struct operation operation = { .kind = OPERATION_BEGIN };
        uint32_t state = run->states.count;
        memcpy(operation.row, owners[i], CHUNKS);
        world_perform(&run->world, &operation);
        run->has_memory = state_find(run, world_canonical(&run->world), state, &operation, &state);
    }
    run->search->states[0] = run->states.count;
}

/* ---- Counts ---------------------------------------------------------------------------------- */

/* Moves the number of sequences that end in each state one operation further. */
static void sequences_step(const struct graph_of_states *states, double *from, double *to)
{
    memset(to, 0, states->count * sizeof *to);
    for (uint32_t i = 0; i < states->count; i++) {
        const struct node *node = &states->nodes[i];
        for (uint32_t edge = 0; edge < node->edges && from[i] > 0; edge++)
            to[states->edges[node->first_edge + edge]] += from[i];
    }
}

/* The sequences of exactly `depth` operations, if no state were recognised. */
static double sequences_count(const struct run *run)
{
    const struct graph_of_states *states = &run->states;
    double *counts = calloc(2 * (size_t)states->count, sizeof *counts);
    double sum = 0;
    if (counts == NULL)
        return 0;
    double *from = counts;
    double *to = counts + states->count;
    for (uint64_t i = 0; i < run->search->states[0]; i++)
        from[i] = 1;
    for (unsigned depth = 1; depth < run->search->depth; depth++) {
        sequences_step(states, from, to);
        double *swap = from;
        from = to;
        to = swap;
    }
    for (uint32_t i = 0; i < states->count; i++)
        sum += from[i] * states->nodes[i].edges;
    free(counts);
    return sum;
}

/* ---- The search ------------------------------------------------------------------------------ */

static void run_search(struct run *run)
{
    uint32_t state = 0;
    run_begin(run);
    for (run->depth = 0; run->depth < run->search->depth; run->depth++) {
        uint32_t end = run->states.count;
        for (; state < end && run_goes_on(run); state++)
            state_expand(run, state);
    }
}

bool search_run(struct search *search)
{
    struct run *run = calloc(1, sizeof *run);
    if (run == NULL)
        return false;
    run->search = search;
    bool is_open = world_open(&run->world, &search->rules);
    if (is_open) {
        run_search(run);
        if (run_goes_on(run))
            search->sequences = sequences_count(run);
        world_close(&run->world);
    }
    bool has_memory = is_open && run->has_memory;
    states_free(&run->states);
    free(run);
    return has_memory;
}

void search_print_path(const struct search *search)
{
    struct world world;
    char text[200];
    if (!world_open(&world, &search->rules))
        return;
    world_print(&world);
    for (unsigned i = 0; i <= search->failing; i++) {
        operation_describe(&world.records, &search->path[i], text, sizeof text);
        (void)printf("  %u. %s\n", i, text);
        world_perform(&world, &search->path[i]);
    }
    world_judge(&world);
    (void)printf("  -> %s\n", world.failure);
    world_close(&world);
}
