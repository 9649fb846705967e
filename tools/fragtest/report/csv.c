/* The CSV writer: see csv.h. */
#include "fragtest/report/csv.h"

#include <inttypes.h>
#include <string.h>

/* Quoted where a comma, a quote or a line's end would end the field. */
static void field_write(FILE *out, const char *text)
{
    if (strpbrk(text, ",\"\r\n") == NULL) {
        (void)fputs(text, out);
        return;
    }
    (void)fputc('"', out);
    for (; *text != '\0'; text++) {
        if (*text == '"')
            (void)fputc('"', out);
        (void)fputc(*text, out);
    }
    (void)fputc('"', out);
}

static void run_write(FILE *out, const struct result *result)
{
    const struct timeline *timeline = &result->timeline;

    for (unsigned i = 0; i < TIMELINE_SAMPLES; i++) {
        const struct timeline_sample *sample = &timeline->samples[i];
        uint64_t op = timeline_first(timeline, i);
        if (op == timeline_first(timeline, i + 1) || op >= timeline->ops_done)
            continue;
        field_write(out, result->trace->name);
        (void)fprintf(out, ",%s,%" PRIu64 ",%" PRIu64 ",%" PRIu64 "\n", result->policy->name, op,
                      sample->live_bytes, sample->reserved_bytes);
    }
}

void csv_write(FILE *out, const struct result *results, unsigned count)
{
    (void)fputs("trace,policy,operation,live_bytes,reserved_bytes\n", out);
    for (unsigned i = 0; i < count; i++)
        run_write(out, &results[i]);
}
