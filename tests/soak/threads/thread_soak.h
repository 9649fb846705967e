/*
 * The soak of threads: many host threads on many streams of one cache, for as long as one likes.
 *
 * A run is a row of rounds. In a round a crew of hands, a thread each, takes blocks, fills them, checks them, uses
 * them on other streams, passes them to each other and gives them back, under a limit that is less than they would
 * like; hands die and others go on with what they left. After a round all threads have ended: whoever is left checks
 * and gives back every block, and nothing may be active, reserved or different from what was written. What the
 * process holds then (host memory, mappings, files) is compared from round to round: it must not grow.
 *
 *   thread_soak.c   arguments, the row of rounds, what is reported
 *   crew.c          the crew: its cache, its hands' threads, whether they make progress, rest
 *   hand.c          what one hand does next
 *   hand_block.c    blocks: taken, used in legal order, checked, passed, given back
 *   hand_graph.c    graphs: captured, launched, released
 *   drift.c         what the process holds, and whether that grows
 *   stall.c         how fast others are while one stream stands still
 *
 * Every use of a block is legal: what one stream does to it is ordered after what the others did, and told to the
 * cache. So whatever is found different, or the sim driver objects to, is the cache's fault.
 *
 * Locks: each place of the exchange has its own mutex, the first trouble has one; a hand's figures are its thread's
 * until that has been joined, but for `done`, `doing` and `has_ended`, which are atomic.
 */
#ifndef VMM_THREAD_SOAK_H
#define VMM_THREAD_SOAK_H

#include "base/sanitizer.h"
#include "cache_on.h"

#include "random.h"

#include <pthread.h>

#define MIB UINT64_C(1048576)

enum { CREW_HANDS = 64, CREW_STREAMS = 64, CREW_PLACES = 256, HAND_BLOCKS = 64 };

struct crew_settings {
    vmm_driver_kind kind;
    unsigned threads;
    unsigned streams;
    double seconds;      /* of all rounds; 0: until so many operations were done */
    uint64_t operations; /* in all rounds; 0: for so many seconds */
    uint64_t seed;
    vmm_sharing sharing;
    uint64_t limit_bytes;
    double stall_seconds; /* 0: no stream is made to stand still */
};

/* A live block; address NULL: there is none. */
struct crew_block {
    void *address;
    uint64_t bytes;
    uint32_t word; /* that it is filled with */
    unsigned owner;
    uint64_t users; /* a bit for each stream that the cache was told of */
};

/* Where one hand leaves a block for another. */
struct crew_place {
    pthread_mutex_t mutex;
    struct crew_block block;
};

struct hand_sums {
    uint64_t operations;
    uint64_t allocations;
    uint64_t uses;
    uint64_t passes;
    uint64_t refusals; /* allocations for which there was no memory */
    uint64_t captures;
    uint64_t deaths;
};

struct crew;

struct hand {
    struct crew *crew;
    unsigned number;
    pthread_t thread;
    bool is_running; /* its thread has to be joined */
    _Atomic bool has_ended;
    _Atomic uint64_t done;       /* operations, for whoever looks whether there is progress */
    _Atomic(const char *) doing; /* what it is in the middle of */
    uint64_t random;
    void *event;
    vmm_stream graph_stream; /* that it captures; nobody else works there */
    struct crew_block blocks[HAND_BLOCKS];
    uint64_t live_bytes;
    uint32_t sequence;
    struct hand_sums sums;
};

struct crew {
    struct crew_settings settings;
    struct driver *driver;
    vmm_cache *cache;
    vmm_stream streams[CREW_STREAMS];
    struct hand hands[CREW_HANDS];
    struct crew_place places[CREW_PLACES];
    _Atomic bool goes_on; /* the round */
    pthread_mutex_t trouble_mutex;
    char trouble[640]; /* the first; empty: none */
};

/* ---- crew.c ---------------------------------------------------------------------------------- */

/* Notes the first trouble, and ends the round. Any thread. */
void crew_trouble(struct crew *crew, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool crew_is_troubled(struct crew *crew);

/* Notes a call that failed. */
void crew_expect(struct crew *crew, const char *call, vmm_status status);

/* Opens the driver, the streams and the cache; gives everything back. False: the trouble says why. The status
 * tells whether there is such a driver at all. */
vmm_status crew_open(struct crew *crew, const struct crew_settings *settings);
void crew_close(struct crew *crew);

/*
 * Runs a thread for each hand until `enough` says so, which is asked every few milliseconds, or there is trouble.
 * Whoever dies gets a successor; whoever makes no progress for 30 seconds ends the process.
 */
void crew_round(struct crew *crew, void *(*body)(void *hand),
                bool (*enough)(void *context, uint64_t operations), void *context);

/* After a round: all blocks checked and given back, all work waited for, all memory returned. */
void crew_rest(struct crew *crew);

struct hand_sums crew_sums(const struct crew *crew);
vmm_stats crew_stats(struct crew *crew);

/* ---- hand.c ---------------------------------------------------------------------------------- */

/* The body of a hand's thread. */
void *hand_main(void *hand);

/* True once in `times`. */
static inline bool hand_dice(struct hand *hand, uint64_t times)
{
    return random_next(&hand->random) % times == 0;
}

static inline void hand_does(struct hand *hand, const char *what)
{
    atomic_store_explicit(&hand->doing, what, memory_order_relaxed);
}

/* A number in low..high whose logarithm is evenly spread. */
uint64_t hand_bytes_drawn(struct hand *hand, uint64_t low, uint64_t high);

/* ---- hand_block.c ---------------------------------------------------------------------------- */

void hand_block_take(struct hand *hand, struct crew_block *block);
void hand_block_give(struct hand *hand, struct crew_block *block);
void hand_block_use(struct hand *hand, struct crew_block *block);
void hand_block_touch(struct hand *hand, struct crew_block *block);

/* Exchanges the block, or none, for what lies in some place. */
void hand_block_pass(struct hand *hand, struct crew_block *block);

/* Leaves all blocks for others. */
void hand_blocks_leave(struct hand *hand);

void hand_fill(struct hand *hand, const struct crew_block *block, vmm_stream stream);
void hand_check(struct hand *hand, const struct crew_block *block, vmm_stream stream);
uint32_t hand_word(struct hand *hand, unsigned stream);

/* ---- hand_graph.c ---------------------------------------------------------------------------- */

/* Captures a graph on the hand's own stream, launches and releases it. */
void hand_graph(struct hand *hand);

/* ---- drift.c --------------------------------------------------------------------------------- */

enum { DRIFT_ROUNDS = 4096 };

/* ThreadSanitizer maps memory for itself. */
#ifdef VMM_THREAD_SANITIZER
enum { DRIFT_MAPPINGS = 64 };
#else
enum { DRIFT_MAPPINGS = 16 };
#endif

/* X(name, what it is, slack): what is held after each round, and by how much that may differ. */
#define DRIFT_MAP(X)                                                                               \
    X(host_bytes, "host memory of the library and its driver, bytes", 1048576)                     \
    X(mappings, "mappings of the process", DRIFT_MAPPINGS)                                         \
    X(files, "open files", 0)                                                                      \
    X(excess_permille, "most reserved of most live memory in a round, thousandths", 50)

struct drift_sample {
#define DRIFT_MEMBER(name, text, slack) uint64_t name;
    DRIFT_MAP(DRIFT_MEMBER)
#undef DRIFT_MEMBER
};

struct drift {
    unsigned count;
    struct drift_sample samples[DRIFT_ROUNDS];
};

/* Takes the next sample. */
void drift_sample(struct drift *drift, const vmm_stats *stats);

/* Whether anything grew: after a quarter of the rounds, for warming up, the least of the last third is more than
 * the most of the first third, and by more than the slack. Writes a line of each figure; returns the first that
 * grew, or NULL. */
const char *drift_report(const struct drift *drift);

/* ---- stall.c --------------------------------------------------------------------------------- */

/* Makes one stream stand still, and times allocations and frees of all hands on the others. Trouble if more than one
 * in a thousand takes more than 50 us; builds that check or sanitize only report. */
void stall_run(struct crew *crew);

#endif
