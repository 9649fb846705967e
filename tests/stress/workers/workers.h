/*
 * Workers: many host threads on many streams of one cache, for as long as one likes.
 *
 * A run is a row of rounds. In a round each worker, a thread, draws operations of its own (stress.h) and runs them on
 * the cache that all share, under a limit that is less than they would like; they pass blocks to each other. Workers
 * die, and others go on with what they left. After a round all threads have ended: every block is checked and given
 * back, and nothing may be active, reserved or different from what was written. What the process holds then (host
 * memory, mappings, files) is compared from round to round: it must not grow.
 *
 *   main.c      arguments, the row of rounds, the report
 *   workers.c   the cache and the threads, whether they make progress, what must hold after a round
 *   drift.c     what the process holds, and whether that grows
 *   stall.c     how fast others are while one stream stands still
 *
 * Locks: see shared.h. A worker's figures are its thread's until that has been joined, but for `done`, `has_ended` and
 * stress.doing, which are atomic.
 */
#ifndef WORKERS_H
#define WORKERS_H

#include "shared.h"

#include "base/sanitizer.h"
#include "fragtest/trace/random.h"

#define MIB UINT64_C(1048576)

enum { WORKERS_MOST = 64, WORKER_STREAMS = MODEL_STREAMS - 1 - STRESS_STRANGERS };

struct settings {
    vmm_driver_kind kind;
    unsigned threads;
    unsigned streams;
    double seconds;      /* of all rounds; 0: until so many operations were done */
    uint64_t operations; /* in all rounds; 0: for so many seconds */
    uint64_t seed;
    vmm_reuse reuse;
    vmm_clock_kind clock_kind;
    uint64_t limit_bytes;
    double stall_seconds; /* 0: no stream is made to stand still */
};

struct workers;

struct worker {
    struct workers *workers;
    struct stress stress;
    struct mixture mixture;
    pthread_t thread;
    bool is_running; /* its thread has to be joined */
    _Atomic bool has_ended;
    _Atomic uint64_t done; /* operations, for the watchdog */
    uint64_t deaths;
};

struct workers {
    struct settings settings;
    struct stress_shared shared;
    struct worker each[WORKERS_MOST];
};

/* ---- workers.c ------------------------------------------------------------------------------- */

/* Notes the first trouble, and ends the round. Any thread. */
void workers_trouble(struct workers *workers, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
bool workers_are_troubled(struct workers *workers);

/* Notes a call that failed. */
void workers_expect(struct workers *workers, const char *call, vmm_status status);

/* Opens the driver, the streams and the cache; gives everything back. The status says whether there is such a driver
 * at all. */
vmm_status workers_open(struct workers *workers, const struct settings *settings);
void workers_close(struct workers *workers);

/* The body of a worker's thread in a round. */
void *worker_main(void *worker);

/*
 * Runs a thread for each worker until `enough` says so, which is asked every few milliseconds, or there is trouble.
 * One that dies gets a successor; one that makes no progress for 30 seconds ends the process.
 */
void workers_round(struct workers *workers, void *(*body)(void *worker),
                   bool (*enough)(void *context, uint64_t operations), void *context);

/* After a round: all blocks checked and given back, all work waited for, all memory returned. */
void workers_rest(struct workers *workers);

struct stress_sums workers_sums(const struct workers *workers, uint64_t *deaths);
vmm_stats workers_stats(struct workers *workers);

static inline bool workers_go_on(struct worker *worker)
{
    return atomic_load_explicit(&worker->workers->shared.goes_on, memory_order_relaxed);
}

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

/* Makes one stream stand still, and times allocations and frees of all workers on the others. Trouble if more than one
 * in a thousand takes more than 50 us; builds that check or sanitize only report. */
void stall_run(struct workers *workers);

#endif
