/*
 * Faults: their kinds, and what it takes to inject one again.
 *
 * Owns nothing. May be called by: points, the command.
 */
#ifndef FAULTS_FAULT_H
#define FAULTS_FAULT_H

#include "calls.h"

#include <stdio.h>

enum sweep_kind {
    KIND_DRIVER,          /* one call of the driver fails */
    KIND_FOR_EVER,        /* all from one on, as far as they can fail with that code */
    KIND_MEMORY,          /* one allocation of the library's records fails */
    KIND_MEMORY_FOR_EVER, /* all from one on */
    KIND_DOUBLE,          /* one call or allocation fails, and another one soon after */
    KIND_SYSTEM,          /* one call of the system fails */
    KIND_SYSTEM_FOR_EVER, /* and so does every later one of that name */
    KINDS
};

/* One fault, with what it takes to inject it again. */
struct sweep_fault {
    enum sweep_kind kind;
    unsigned scenario;
    uint64_t number; /* of the point, among those of its kind, in its scenario */
    unsigned variant;
    unsigned call;
    int code;
    uint64_t second_in; /* double: the second fails so many points later */
    unsigned second_call;
    int second_code; /* 0: it has not come yet */
};

const char *sweep_kind_name(enum sweep_kind kind);

/* Whether faults of the kind are injected into calls of the group. */
bool sweep_kind_numbers(enum sweep_kind kind, enum sweep_group group);

/* A number that depends on the seed and the fault alone. */
uint64_t sweep_fault_draw(const struct sweep_fault *fault, uint64_t seed, uint64_t salt);

/* What failed, and how to have it fail again. */
void sweep_fault_write(const struct sweep_fault *fault, uint64_t seed, FILE *out);

#endif
