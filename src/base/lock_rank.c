/* Assertions and the order of locks: see assert.h and lock_rank.h. */
#include "base/lock_rank.h"

#if VMM_CHECK >= 1

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

void vmm__assert_fail(const char *file, int line, const char *condition)
{
    (void)fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, condition);
    abort();
}

/* The lock that the thread took last. A callback ends the search: invariant 3. */
static _Thread_local struct lock_check *innermost;

static bool thread_holds_rank(enum lock_rank rank)
{
    const struct lock_check *held = innermost;
    while (held != NULL && held->rank != LOCK_RANK_CALLBACK && held->rank != rank)
        held = held->outer;
    return held != NULL && held->rank == rank;
}

void vmm__lock_check_order(const struct lock_check *check)
{
    bool may_take_second = check->rank == LOCK_RANK_LANE && thread_holds_rank(LOCK_RANK_GROW);
    if (check->rank == LOCK_RANK_NONE)
        return;
    for (const struct lock_check *held = innermost;
         held != NULL && held->rank != LOCK_RANK_CALLBACK; held = held->outer) {
        bool is_second_lane = held->rank == LOCK_RANK_LANE && may_take_second;
        VMM_ASSERT(held != check);
        VMM_ASSERT(held->rank < check->rank || is_second_lane);
    }
}

void vmm__lock_check_take(struct lock_check *check)
{
    check->outer = innermost;
    innermost = check;
}

void vmm__lock_check_release(const struct lock_check *check)
{
    struct lock_check **link = &innermost;
    while (*link != NULL && *link != check)
        link = &(*link)->outer;
    VMM_ASSERT(*link != NULL);
    *link = check->outer;
}

bool vmm__lock_check_holds(const struct lock_check *check)
{
    const struct lock_check *held = innermost;
    while (held != NULL && held->rank != LOCK_RANK_CALLBACK && held != check)
        held = held->outer;
    return held == check;
}

#endif
