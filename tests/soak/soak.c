/*
 * soak: random operations on the strict sim driver until something is wrong. See soak.h.
 *
 * usage: soak [SEED [OPERATIONS [CHAPTER [LIE]]]]      defaults: seed 1, 10 million operations
 *
 * CHAPTER: the most operations of a chapter, 0: as many as are drawn. With few, a run is a row of short
 * schedules, each with settings and an order of its own. LIE: query, follow, device, record, use or end, see
 * soak.h: the soak must then find trouble.
 *
 * Exit status: 0 all was well (or a lie was found), 1 trouble (told on stderr with what replays it; or a lie was
 * not found), 2 wrong arguments.
 */
#include "soak.h"

#include "base/arith.h"
#include "base/clock.h"
#include "progress.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

enum { EXIT_TROUBLE = 1, EXIT_USAGE = 2 };

void soak_trouble(struct soak *soak, const char *format, ...)
{
    if (soak_is_troubled(soak))
        return;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(soak->trouble, sizeof soak->trouble, format, arguments);
    va_end(arguments);
}

void soak_expect(struct soak *soak, const char *call, vmm_status status)
{
    if (status != VMM_OK)
        soak_trouble(soak, "%s: %s: %s", call, vmm_status_name(status), vmm_last_error());
}

uint64_t soak_log_between(struct soak *soak, uint64_t low, uint64_t high)
{
    double share = (double)(random_next(&soak->random) >> 11) / (double)(UINT64_C(1) << 53);
    double drawn = exp(log((double)low) + share * (log((double)high) - log((double)low)));
    uint64_t number = (uint64_t)drawn;
    return number < low ? low : number > high ? high : number;
}

static void step_drawn(void *context, uint64_t done)
{
    progress_step(context, done);
}

static bool number_read(const char *text, uint64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0' && errno == 0;
}

static void sums_write(const struct soak *soak, uint64_t seed, double seconds)
{
    const struct soak_sums *sums = &soak->sums;
    (void)printf("soak: seed %llu: %llu operations in %llu chapters, %llu allocations, %llu uses, "
                 "%llu moves, %llu stream waits, %llu stalls, %llu ooms, %llu pressure calls, "
                 "%llu compactions, %llu captures, %llu launches, %llu streams ended, "
                 "%llu violations, %llu mismatches; %.1f s\n",
                 (unsigned long long)seed, (unsigned long long)soak->done,
                 (unsigned long long)sums->chapters, (unsigned long long)sums->allocations,
                 (unsigned long long)sums->uses, (unsigned long long)sums->moves,
                 (unsigned long long)sums->stream_waits, (unsigned long long)sums->stalls,
                 (unsigned long long)sums->ooms, (unsigned long long)sums->pressure_calls,
                 (unsigned long long)sums->compactions, (unsigned long long)sums->captures,
                 (unsigned long long)sums->launches, (unsigned long long)sums->ends,
                 (unsigned long long)sums->violations, (unsigned long long)sums->mismatches,
                 seconds);
}

/* What is asked for. */
struct run {
    uint64_t seed;
    uint64_t operations;
    uint64_t chapter; /* most operations of one; 0: any number */
};

static uint64_t chapter_most(struct soak *soak, const struct run *run)
{
    uint64_t left = run->operations - soak->done;
    return run->chapter == 0 ? left : vmm__min(left, soak_log_between(soak, 1, run->chapter));
}

static int run_judge(const struct soak *soak, const struct run *run)
{
    bool is_troubled = soak_is_troubled(soak);
    if (soak->lie != LIE_NONE) {
        (void)printf("soak: the lie was %sfound: %s\n", is_troubled ? "" : "not ", soak->trouble);
        return is_troubled ? 0 : EXIT_TROUBLE;
    }
    if (is_troubled)
        (void)fprintf(stderr, "soak: chapter %llu, operation %llu (soak %llu %llu %llu): %s\n",
                      (unsigned long long)soak->sums.chapters + 1, (unsigned long long)soak->done,
                      (unsigned long long)run->seed, (unsigned long long)soak->done,
                      (unsigned long long)run->chapter, soak->trouble);
    return is_troubled ? EXIT_TROUBLE : 0;
}

static int soak_run(struct soak *soak, const struct run *run)
{
    struct progress progress;
    uint64_t start = vmm__clock_ns();
    progress_init(&progress, stderr, false);
    progress_begin(&progress, run->operations, "soak: seed %llu", (unsigned long long)run->seed);
    soak->random = run->seed;
    soak->is_short = run->chapter != 0;
    while (soak->done < run->operations && !soak_is_troubled(soak))
        soak_chapter(soak, chapter_most(soak, run), step_drawn, &progress);
    progress_end(&progress);
    int judgement = run_judge(soak, run);
    sums_write(soak, run->seed, (double)(vmm__clock_ns() - start) / 1e9);
    return judgement;
}

int main(int argc, char **argv)
{
    static struct soak soak;
    struct run run = { .seed = 1, .operations = 10000000 };
    if (argc > 5 || (argc > 1 && !number_read(argv[1], &run.seed)) ||
        (argc > 2 && !number_read(argv[2], &run.operations)) ||
        (argc > 3 && !number_read(argv[3], &run.chapter)) ||
        (argc > 4 && !soak_lie_read(argv[4], &soak.lie))) {
        (void)fprintf(stderr, "usage: %s [SEED [OPERATIONS [CHAPTER [LIE]]]]\n", argv[0]);
        return EXIT_USAGE;
    }
    return soak_run(&soak, &run);
}
