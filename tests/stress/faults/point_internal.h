/*
 * What points and the making of children share: the state of the process that runs a scenario.
 *
 * May be called by: point.c, children.c.
 */
#ifndef FAULTS_POINT_INTERNAL_H
#define FAULTS_POINT_INTERNAL_H

#include "point.h"

#include <pthread.h>

enum mode { MODE_OFF, MODE_COUNT, MODE_SWEEP, MODE_CHILD, MODE_SYSTEM };

struct points {
    enum mode mode;
    unsigned asleep;
    unsigned statuses; /* that faults have put into calls */
    pthread_t thread;
    struct sweep_order order;
    unsigned scenario;
    uint64_t driver_points;
    uint64_t memory_points;
    uint64_t system_points;
    uint64_t children; /* that all slices together make, so far */
    uint64_t fired;
    bool goes_on; /* a fault for ever */
    struct sweep_fault fault;
    void (*step)(void *context);
    void *context;
};

extern struct points sweep_points;

/* Begins a run of a scenario in this process. */
void points_begin(enum mode mode, const struct sweep_order *order, unsigned scenario);

/* In the parent: makes children at the point it has come to. True in a child, where it fails with *code. */
bool children_made(unsigned call, int *code);

/* Of the driver and of memory, in a scenario that was counted. */
uint64_t points_counted(unsigned scenario);

/* In a child: a fault was injected. */
void point_hit(unsigned call, int code);

#endif
