/*
 * Shared by the files of the model of views; main.c says what it is.
 *
 *   records.c    what the cache would record, and how a free changes it
 *   rules.c      which operations the rules allow
 *   world.c      a sim driver, and the driver calls of each operation on it
 *   canonical.c  one number for all states that differ in names only
 *   search.c     every sequence of operations, shortest first
 *   describe.c   an operation in words
 *   main.c       the command
 *
 * Numbers are small and records are copied as a whole. Nothing is thread-safe.
 */
#ifndef VMM_TESTS_MODEL_H
#define VMM_TESTS_MODEL_H

#include "driver/driver.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    STREAMS = 3,
    CHUNKS = 3,
    GRANULES = 2, /* of a chunk */
    VIEWS = 2,
    ROW = 3,    /* most chunks of a view */
    SLOTS = 16, /* addresses of a view, in chunks */
    BLOCKS = 8,
    EVENTS = 16, /* of a stream */
    HOME = 0xff, /* instead of a view */
    NONE = 0xff  /* instead of a chunk */
};

/* ---- Rules ----------------------------------------------------------------------------------- */

/* X(name, the rule). Each can be switched off. */
#define RULE_MAP(X)                                                                                \
    X(MAP_ORDER, "no unmap of a handle between a map of it and that mapping's set-access")         \
    X(ONCE_IN_VIEW, "a chunk is at most once in a view")                                           \
    X(OWNERSHIP_OF_ENDS, "a partly live chunk under a view block belongs to the block's stream")   \
    X(OWNERSHIP_OF_IDLE, "an idle chunk under a view block does so too, or is transferred first")  \
    X(OTHER_STREAMS, "a block that other streams use is free when their work has finished")        \
    X(WAIT_AS_ONE, "all home ranges of such a block wait, not only the first")                     \
    X(STAMP_WAITING, "such a block is stamped with its own stream's event when it is free")        \
    X(RETAINED_TRIM, "chunks of a graph pool are not trimmed")                                     \
    X(RETAINED_EVICT, "views of a graph pool are not evicted")                                     \
    X(RETAINED_TRANSFER, "chunks of a graph pool are not transferred")                             \
    X(POOLS_APART, "a chunk of a graph pool serves no other pool")                                 \
    X(ONE_OWNER_PER_BYTE, "a view block occupies its home ranges")                                 \
    X(ONE_ADDRESS, "a home address under a view block cannot be freed")                            \
    X(STAMP_HOME, "a free through a view stamps the home granules")                                \
    X(STAMP_PLACE, "a free through a view stamps the places that it used")                         \
    X(TRANSFER_WHOLE, "only idle chunks are transferred")                                          \
    X(FINISHED_BEFORE_TRANSFER, "only chunks whose work has finished are transferred")             \
    X(FINISHED_BEFORE_TRIM, "a trim unmaps a chunk's places after their last use has finished")    \
    X(FINISHED_BEFORE_EVICT, "a view is unmapped after its last use has finished")                 \
    X(EVERY_PLACE, "a trim unmaps every place of a chunk, then releases it")

enum rule {
#define RULE_ENUM(name, text) RULE_##name,
    RULE_MAP(RULE_ENUM)
#undef RULE_ENUM
        RULES
};

struct rules {
    bool off[RULES];
};

/* ---- Records --------------------------------------------------------------------------------- */

/* An event of a stream. Number 0: none. */
struct stamp {
    uint8_t stream;
    uint8_t number;
};

struct granule {
    bool used;
    struct stamp stamp; /* its last free */
};

struct chunk {
    bool exists;
    bool retained; /* belongs to the graph pool */
    uint8_t owner;
    struct granule granules[GRANULES];
};

/* A mapping of a chunk in a view. */
struct place {
    uint8_t chunk;      /* NONE: a hole, which a trim left */
    bool is_orphan;     /* the chunk was released: only without rule MAP_ORDER */
    struct stamp stamp; /* the last free of a block that used this place */
};

struct view {
    uint8_t count; /* 0: the view does not exist */
    uint8_t base;  /* slot of row[0] */
    bool is_half;  /* mapped, without access yet */
    struct place row[ROW];
};

/* Granules at home in a chunk, or at consecutive addresses of a view, counted from its slot 0. */
struct range {
    uint8_t view;  /* or HOME */
    uint8_t chunk; /* at home only */
    uint8_t first;
    uint8_t count;
};

enum block_state { BLOCK_NONE, BLOCK_LIVE, BLOCK_WAITS };

struct block {
    uint8_t state;
    uint8_t stream;
    uint8_t last;  /* the stream that wrote it last */
    uint8_t users; /* other streams that used it: a bit each */
    bool is_read;  /* others may be reading it, so that the program does not write it any more */
    bool is_graph; /* a captured graph uses it */
    struct range range;
    struct stamp freed;
    uint8_t waits[STREAMS]; /* BLOCK_WAITS: events that must pass; 0: none */
    uint32_t word;          /* its contents */
};

/* The memory that a captured graph uses at each launch, live or not. */
struct graph {
    bool exists;
    uint8_t stream;
    struct range range;
};

struct records {
    struct chunk chunks[CHUNKS];
    struct view views[VIEWS];
    struct block blocks[BLOCKS];
    struct graph graph;
    uint8_t recorded[STREAMS]; /* events */
    uint8_t passed[STREAMS];   /* the last of them that the host knows to have passed */
};

/* A granule of a range: where it is at home, and the place through which the range reaches it. */
struct spot {
    uint8_t chunk;
    uint8_t granule;
    struct place *place; /* NULL: at home */
};
/* The range must be mapped. */
struct spot records_spot(struct records *records, struct range range, unsigned index);

/* At home, or in a view that has all of the range's places: always, unless a rule is off. */
bool range_is_mapped(const struct records *records, struct range range);

bool records_finished(const struct records *records, struct stamp stamp);
bool chunk_is_idle(const struct chunk *chunk);
unsigned view_position(const struct view *view, unsigned chunk); /* view->count: not in it */
/* The view holds a live or waiting block. */
bool view_is_in_use(const struct records *records, unsigned view);
struct block *records_block_of_graph(struct records *records); /* NULL: it was freed */
struct block *records_free_block(struct records *records);

void records_occupy(struct records *records, const struct rules *rules, struct range range);
/* Frees `count` granules from the range's start, or all that lie in its first chunk. */
void records_vacate(struct records *records, const struct rules *rules, struct range range,
                    struct stamp stamp);
struct range range_first_chunk(struct range range);
struct range range_behind_first_chunk(struct range range);
/* Removes the chunk's place; the row loses holes at its ends. */
void view_remove(struct view *view, unsigned position);
void view_place(struct view *view, int position, unsigned chunk); /* -1, a hole, or count */

/* ---- Operations ------------------------------------------------------------------------------ */

/* X(name) */
#define OPERATION_MAP(X)                                                                           \
    X(BEGIN)      /* the first of each sequence: who owns which chunk */                           \
    X(HOME_ALLOC) /* at home */                                                                    \
    X(VIEW_ALLOC) /* in a standing view */                                                         \
    X(STITCH)     /* map a row, set access, allocate in it */                                      \
    X(HALF)       /* map a row of one chunk */                                                     \
    X(WHOLE)      /* set access of that row */                                                     \
    X(UNDO)       /* unmap that row */                                                             \
    X(EXTEND)     /* map one more chunk beside a view, or in a hole of it */                       \
    X(USE)        /* by another stream, and record that */                                         \
    X(FREE)                                                                                        \
    X(MISUSE)   /* the program frees a home address under a view block */                          \
    X(RETAIN)   /* a graph captures the use of a block */                                          \
    X(LAUNCH)   /* that graph */                                                                   \
    X(FINISH)   /* work of a stream */                                                             \
    X(TRANSFER) /* a chunk to another stream */                                                    \
    X(TRIM)     /* a chunk */                                                                      \
    X(EVICT)    /* a view */                                                                       \
    X(CREATE)   /* a chunk */

enum operation_kind {
#define OPERATION_ENUM(name) OPERATION_##name,
    OPERATION_MAP(OPERATION_ENUM)
#undef OPERATION_ENUM
        OPERATIONS
};

struct operation {
    uint8_t kind;
    uint8_t stream;
    uint8_t view;
    uint8_t chunk;
    uint8_t block;
    int8_t position;  /* EXTEND */
    uint8_t count;    /* chunks of `row` */
    uint8_t row[ROW]; /* BEGIN: the owners; STITCH, HALF: the chunks */
    struct range range;
    bool all;   /* FINISH: all recorded events pass, not only the next */
    bool reads; /* USE: does not write */
};

typedef void (*operation_fn)(void *context, const struct operation *operation);
/* Calls the function for each operation that the rules allow. */
void rules_allowed(const struct records *records, const struct rules *rules, operation_fn each,
                   void *context);

const char *rule_name(enum rule rule);
const char *rule_text(enum rule rule);
const char *operation_name(enum operation_kind kind);
void operation_describe(const struct records *before, const struct operation *operation, char *text,
                        size_t bytes);

/* ---- The world: records, and the driver that judges them ------------------------------------- */

struct world {
    struct driver *driver;
    struct rules rules;
    struct records records;
    uint64_t homes; /* addresses */
    uint64_t views[VIEWS];
    uint64_t handles[CHUNKS];
    bool is_dirty[CHUNKS]; /* used, or mapped again, since it was created */
    vmm_stream streams[STREAMS];
    void *events[STREAMS][EVENTS];
    void *event; /* for stream waits */
    uint32_t words;
    uint32_t submitted[STREAMS]; /* pieces of work */
    uint32_t finished[STREAMS];
    uint32_t pieces[STREAMS][EVENTS]; /* submitted before the event */
    unsigned stream; /* FINISH: whose work finishes, until `finished` reaches `wanted` */
    uint32_t wanted;
    char failure[400]; /* the first refusal, violation or mismatch; empty: none */
};

bool world_open(struct world *world, const struct rules *rules);
void world_close(struct world *world);
void world_print(const struct world *world); /* what the names in the driver's messages mean */
void world_perform(struct world *world, const struct operation *operation);
/* Has the driver judge the state: what is live and what a graph uses is used once more. */
void world_judge(struct world *world);

/* The same number for all states that differ in names of streams, chunks and views, or mirrored. */
uint64_t world_canonical(struct world *world);

/* ---- The search ------------------------------------------------------------------------------ */

enum { DEPTH_MOST = 12 };

struct search {
    struct rules rules;
    unsigned depth;
    bool merges_nothing; /* follows every sequence, also from states that were seen before */
    uint64_t executed;   /* sequences given to the driver */
    uint64_t states[DEPTH_MOST + 1]; /* new ones, by the number of operations */
    double sequences;                /* of `depth` operations, if none were left out */
    uint64_t kinds[OPERATIONS];
    unsigned failing; /* operations in the sequence that failed; 0: none */
    struct operation path[DEPTH_MOST + 1];
    char failure[400];
};

/* False: it could not run (out of memory). */
bool search_run(struct search *search);
void search_print_path(const struct search *search);

#endif
