/*
 * An undeclared use: a stream frees a block that another stream still reads, and a third one asks for memory.
 * The block may reach that stream, or leave the device, only after the read: else the reader finds a pattern that is
 * not its own, or on sim a race is recorded.
 *
 * May be called by: unrecorded_show, tests. Locks: none; the second thread runs while the first one waits.
 */
#ifndef FRAGTEST_UNRECORDED_H
#define FRAGTEST_UNRECORDED_H

#include "fragtest/replay/scene.h"

#define UNRECORDED_CASES  6
#define UNRECORDED_ROUNDS 5
#define UNRECORDED_ROWS   (POLICY_COUNT + 2) /* vmmcache may have two, and there is cudaMallocAsync */
#define UNRECORDED_NONE   (-1)               /* not run */
#define UNRECORDED_MEMORY (-2)               /* a request got no memory */

/* What happens while the block is read. */
enum unrecorded_way {
    UNRECORDED_REQUEST, /* another stream allocates and fills as much */
    UNRECORDED_THREAD,  /* the same on another thread */
    UNRECORDED_TRIM     /* the policy gives back its memory */
};

struct unrecorded_case {
    enum unrecorded_way way;
    uint64_t bytes;
};

/* A policy in all cases. */
struct unrecorded_row {
    const struct policy_ops *ops;
    bool is_declared;            /* the program declares the use after all */
    bool is_promised;            /* the policy promises to be right */
    int wrong[UNRECORDED_CASES]; /* in so many rounds; or one of the two above */
};

struct unrecorded {
    struct scene_run run;
    const char *driver; /* its name */
    struct unrecorded_case cases[UNRECORDED_CASES];
    struct unrecorded_row rows[UNRECORDED_ROWS];
    unsigned row_count;
};

/* Runs the policies that are chosen, and cudaMallocAsync if that is all of them and there is a GPU. Fails with the
 * library's error. */
vmm_status unrecorded_run(struct scene_run *run);

/* In how many rounds of a row the reader's block changed under it. */
unsigned unrecorded_wrong(const struct unrecorded_row *row);

/* Whether it was right in all cases that were run. */
bool unrecorded_is_right(const struct unrecorded_row *row);

/* Whether vmmcache (or, without it, each policy) was right where it promises to be. */
bool unrecorded_is_good(const struct unrecorded *unrecorded);

#endif
