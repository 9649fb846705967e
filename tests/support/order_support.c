/* Adversaries that choose which work finishes: see order_support.h. */
#include "support/order_support.h"

#include "fragtest/trace/random.h"

enum { STEP_MOST = 4 }; /* one in so many times a step ends */

struct order order_make(enum order_kind kind, uint64_t seed, uint64_t streams)
{
    struct order order = { .kind = kind, .random = seed, .streams = streams };
    order.turn = random_next(&order.random) % streams;
    return order;
}

const char *order_name(enum order_kind kind)
{
    static const char *const names[ORDER_KINDS] = { "random", "newest", "oldest", "backwards",
                                                    "stall",  "run",    "hold" };
    return names[kind];
}

static bool step_ends(struct order *order)
{
    return random_next(&order->random) % STEP_MOST == 0;
}

/* The choice that was submitted first, or last. */
static uint32_t choice_by_age(const struct sim_choice *choices, uint32_t count, bool is_newest)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < count; i++) {
        if ((choices[i].number > choices[best].number) == is_newest)
            best = i;
    }
    return best;
}

/* One piece at a step, of the stream before the last one's in the row. */
static uint32_t choice_backwards(struct order *order, uint32_t count)
{
    order->is_in_step = !order->is_in_step;
    if (!order->is_in_step)
        return count;
    order->turn++;
    return count - 1 - (uint32_t)(order->turn % count);
}

static bool is_marked(const struct order *order, const struct sim_choice *choice)
{
    return (uint64_t)(uintptr_t)choice->stream % order->streams == order->turn;
}

/* The first one that is marked, or is not; none: count. */
static uint32_t choice_marked(const struct order *order, const struct sim_choice *choices,
                              uint32_t count, bool marked)
{
    uint32_t i = 0;
    while (i < count && is_marked(order, &choices[i]) != marked)
        i++;
    return i;
}

static uint32_t order_choose(void *context, const struct sim_choice *choices, uint32_t count)
{
    struct order *order = context;
    switch (order->kind) {
    case ORDER_RANDOM:
        return step_ends(order) ? count : (uint32_t)(random_next(&order->random) % count);
    case ORDER_NEWEST:
        return step_ends(order) ? count : choice_by_age(choices, count, true);
    case ORDER_OLDEST:
        return step_ends(order) ? count : choice_by_age(choices, count, false);
    case ORDER_BACKWARDS:
        return choice_backwards(order, count);
    case ORDER_STALL:
        return choice_marked(order, choices, count, false);
    case ORDER_RUN:
        return choice_marked(order, choices, count, true);
    case ORDER_HOLD:
    case ORDER_KINDS:
        break;
    }
    return count;
}

void order_begin(struct driver *driver, struct order *order)
{
    vmm__sim_order_set(driver, order == NULL ? NULL : order_choose, order);
}
