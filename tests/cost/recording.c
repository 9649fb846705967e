/*
 * What a recording costs, in a loop of one thread that does nothing else: a call takes at most 4 times as long as one
 * that is not recorded. The loop is as slow as the slower one of two threads, its own and the one that writes the file,
 * if each has a processor. So the bar is on the processor time of the slower one, which does not depend on what else
 * runs; the wall time stands beside it. It is a ratio, because machines differ; cost.instructions counts the
 * instructions. With one processor for both threads, the loop takes the time of the process. The best of some rounds
 * counts. A packed recording has no bar: its loop waits for the writer.
 *
 * Ends with 1 if the bar is not met.
 */
#define _GNU_SOURCE
#include "cost.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS      30
#define PAIRS       (1 << 18) /* several times what the memory of the recording holds */
#define RATIO_MOST  4.0
#define BLOCK_BYTES 512

/* Nanoseconds a call. */
struct times {
    double thread;
    double process;
    double wall;
};

static double clock_read(clockid_t clock)
{
    struct timespec now;
    cost_require(clock_gettime(clock, &now) == 0, "clock_gettime");
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static struct times times_read(void)
{
    return (struct times){ .thread = clock_read(CLOCK_THREAD_CPUTIME_ID),
                           .process = clock_read(CLOCK_PROCESS_CPUTIME_ID),
                           .wall = clock_read(CLOCK_MONOTONIC) };
}

static void best_keep(double *best, double before, double after)
{
    double each = (after - before) / (2.0 * PAIRS);
    *best = each < *best ? each : *best;
}

static void round_run(vmm_cache *cache, struct times *best)
{
    struct times before = times_read();
    for (int i = 0; i < PAIRS; i++)
        cost_free(cache, cost_alloc(cache, BLOCK_BYTES));
    struct times after = times_read();
    best_keep(&best->thread, before.thread, after.thread);
    best_keep(&best->process, before.process, after.process);
    best_keep(&best->wall, before.wall, after.wall);
}

static struct times times_measure(const char *path)
{
    struct times best = { 1e9, 1e9, 1e9 };
    vmm_cache *cache = cost_cache_create();
    for (int i = 0; i < ROUNDS; i++) {
        if (path != NULL)
            cost_require(vmm_trace_start(cache, path, NULL) == VMM_OK, "vmm_trace_start");
        round_run(cache, &best);
        if (path != NULL)
            cost_require(vmm_trace_stop(cache) == VMM_OK, "vmm_trace_stop");
    }
    cost_cache_end(cache);
    return best;
}

static struct times times_recorded(void)
{
    char path[64];
    FILE *file = tmpfile(); /* it has no name */
    cost_require(file != NULL, "tmpfile");
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fileno(file));
    struct times recorded = times_measure(path);
    (void)fclose(file);
    return recorded;
}

/* The name of a packed recording must say so. */
static struct times times_packed(void)
{
    char path[] = "/tmp/vmm-cost-XXXXXX.gz";
    int file = mkstemps(path, (int)strlen(".gz"));
    cost_require(file >= 0, "mkstemps");
    struct times packed = times_measure(path);
    (void)close(file);
    (void)unlink(path);
    return packed;
}

static void times_print(const char *what, struct times times)
{
    printf("%-20s %7.1f  %7.1f  %7.1f\n", what, times.thread, times.process, times.wall);
}

static bool recording_bar(void)
{
    struct times plain = times_measure(NULL);
    struct times recorded = times_recorded();
    double writer = recorded.process - recorded.thread;
    double ratio = (writer > recorded.thread ? writer : recorded.thread) / plain.thread;
    bool is_met = ratio <= RATIO_MOST;
    printf("ns a call, best of %d   thread  process     wall\n", ROUNDS);
    times_print("not recorded", plain);
    times_print("recorded", recorded);
    printf("a recorded call takes %.1f times as long, at most %.0f: %s\n", ratio, RATIO_MOST,
           is_met ? "met" : "NOT MET");
    return is_met;
}

int main(void)
{
    bool is_met = cost_bar_meets(recording_bar);
    times_print("recorded, .gz", times_packed());
    return is_met ? 0 : 1;
}
