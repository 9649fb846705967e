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

/* Holds one of two tenants that take turns, not both. */
#define OPTIONS_TURNS_MEMORY "60%"

/* Holds the peak of one of three processes, and a part of the others. */
#define OPTIONS_CROWD_MEMORY "150%"

struct options_source {
    const char *name; /* a file, or a workload's name */
    bool is_workload;
};

struct options {
    vmm_driver_kind driver;
    struct options_source sources[OPTIONS_MAX_SOURCES];
    unsigned source_count;
    uint64_t
        tenant_bytes; /* of each tenant of the workload sleep, which runs alone; 0: not chosen */
    uint64_t
        crowd_bytes; /* what each process of the workload neighbours needs, which runs alone, too; 0: not chosen */
    bool is_unrecorded; /* the workload of that name, which runs alone, too */
    bool policies[POLICY_COUNT];
    const char *memory; /* a size, or N% of the trace's peak live bytes; NULL: no limit */
    unsigned passes;
    uint64_t lag;
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

/* The limit for a trace, in bytes; 0: none. */
uint64_t options_limit(const struct options *options, uint64_t peak_live_bytes);

/* An option as the help text shows it. */
struct options_entry {
    const char *name;
    const char *value; /* what to write after it; NULL: it takes no value */
    const char *text;
};

#define OPTIONS_COUNT 18

const struct options_entry *options_entry(unsigned index);

#endif
