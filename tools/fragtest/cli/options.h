/*
 * The command line. Owns nothing: texts are argv's.
 *
 * May be called by: main, help, runner, tests.
 */
#ifndef FRAGTEST_OPTIONS_H
#define FRAGTEST_OPTIONS_H

#include "fragtest/policies/policy.h"

#include <stdbool.h>
#include <stdint.h>

#define OPTIONS_MAX_SOURCES 64
#define OPTIONS_DEMO_TRACE  "encoder_streams"

/* A limit at which both baselines die and vmmcache lives: they need 127 % and 109.5 %. */
#define OPTIONS_DEMO_MEMORY "105%"

struct scene;

struct options_source {
    const char *name; /* a file, or a workload's name */
    bool is_workload;
};

struct options {
    vmm_driver_kind driver;
    struct options_source sources[OPTIONS_MAX_SOURCES];
    unsigned source_count;
    const struct scene *scene; /* runs alone; NULL: traces and workloads are replayed */
    uint64_t scene_bytes;      /* its SIZE */
    bool policies[POLICY_COUNT];
    const char *memory; /* a size, or N% of the trace's peak live bytes; NULL: no limit */
    unsigned passes;
    unsigned lag;
    unsigned trims;
    unsigned compacts;
    unsigned jitter; /* percent */
    struct policy_settings settings;
    bool least;
    bool verify;
    bool quiet;
    const char *json;     /* NULL: none; "-": stdout */
    const char *timeline; /* the same; only one of them goes to stdout */
};

struct options_error {
    char text[256];
};

enum options_outcome {
    OPTIONS_RUN,
    OPTIONS_HELP,
    OPTIONS_VERSION,
    OPTIONS_WORKLOADS, /* list the workloads */
    OPTIONS_BAD
};

/* OPTIONS_BAD: one line in *error says what is wrong. */
enum options_outcome options_parse(int argc, char **argv, struct options *options,
                                   struct options_error *error);

/* An option as the help text shows it. */
struct options_entry {
    const char *name;
    const char *value; /* what to write after it; NULL: it takes no value */
    const char *text;
};

#define OPTIONS_COUNT 18

const struct options_entry *options_entry(unsigned index);

#endif
