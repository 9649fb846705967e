/*
 * Orders in which the sim driver finishes work: simple adversaries, each with a seed. See
 * vmm__sim_order_set().
 */
#ifndef VMM_ORDER_SUPPORT_H
#define VMM_ORDER_SUPPORT_H

#include "driver/sim/sim.h"

enum order_kind {
    ORDER_RANDOM,    /* any stream, any number of pieces at a step */
    ORDER_NEWEST,    /* what was submitted last, and a few pieces at a step */
    ORDER_OLDEST,    /* what was submitted first, and a few pieces at a step */
    ORDER_BACKWARDS, /* each stream in turn, from the last to the first */
    ORDER_STALL,     /* one stream makes no progress by itself; the others finish at once */
    ORDER_RUN,       /* one stream finishes at once; the others make no progress by themselves */
    ORDER_HOLD,      /* no stream makes progress by itself */
    ORDER_KINDS
};

struct order {
    enum order_kind kind;
    uint64_t random; /* state */
    uint64_t turn; /* BACKWARDS: pieces so far; STALL, RUN: the stream, its name modulo `streams` */
    uint64_t streams;
    bool is_in_step; /* BACKWARDS: the piece of this step was chosen */
};

/* An order of a kind; `streams`: about how many there are. */
struct order order_make(enum order_kind kind, uint64_t seed, uint64_t streams);

/* Has the driver finish work in that order from now on; NULL: by lag again. */
void order_begin(struct driver *driver, struct order *order);

const char *order_name(enum order_kind kind);

#endif
