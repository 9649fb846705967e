/*
 * soak: random operations on the strict sim driver until something is wrong. See soak.h.
 *
 * usage: soak [SEED [OPERATIONS]]      defaults: seed 1, 10 million operations
 *
 * Exit status: 0 all was well, 1 trouble (told on stderr with what replays it), 2 wrong arguments.
 */
#include "soak.h"

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
                 "%llu compactions, %llu captures, %llu launches, "
                 "%llu violations, %llu mismatches; %.1f s\n",
                 (unsigned long long)seed, (unsigned long long)soak->done,
                 (unsigned long long)sums->chapters, (unsigned long long)sums->allocations,
                 (unsigned long long)sums->uses, (unsigned long long)sums->moves,
                 (unsigned long long)sums->stream_waits, (unsigned long long)sums->stalls,
                 (unsigned long long)sums->ooms, (unsigned long long)sums->pressure_calls,
                 (unsigned long long)sums->compactions, (unsigned long long)sums->captures,
                 (unsigned long long)sums->launches, (unsigned long long)sums->violations,
                 (unsigned long long)sums->mismatches, seconds);
}

static int soak_run(struct soak *soak, uint64_t seed, uint64_t operations)
{
    struct progress progress;
    uint64_t start = vmm__clock_ns();
    progress_init(&progress, stderr, false);
    progress_begin(&progress, operations, "soak: seed %llu", (unsigned long long)seed);
    soak->random = seed;
    while (soak->done < operations && !soak_is_troubled(soak))
        soak_chapter(soak, operations - soak->done, step_drawn, &progress);
    progress_end(&progress);
    if (soak_is_troubled(soak))
        (void)fprintf(stderr, "soak: chapter %llu, operation %llu (soak %llu %llu): %s\n",
                      (unsigned long long)soak->sums.chapters + 1, (unsigned long long)soak->done,
                      (unsigned long long)seed, (unsigned long long)soak->done, soak->trouble);
    sums_write(soak, seed, (double)(vmm__clock_ns() - start) / 1e9);
    return soak_is_troubled(soak) ? EXIT_TROUBLE : 0;
}

int main(int argc, char **argv)
{
    static struct soak soak;
    uint64_t seed = 1;
    uint64_t operations = 10000000;
    if (argc > 3 || (argc > 1 && !number_read(argv[1], &seed)) ||
        (argc > 2 && !number_read(argv[2], &operations))) {
        (void)fprintf(stderr, "usage: %s [SEED [OPERATIONS]]\n", argv[0]);
        return EXIT_USAGE;
    }
    return soak_run(&soak, seed, operations);
}
