/*
 * Explores the orders in which the steps of a few actors can happen: code whose atomic operations, locks and calls pass
 * control to a scheduler by explorer_step(). order_run() runs the actors to their ends in one order, and order_next()
 * chooses another one, until all were run that switch at most explorer.switches_most times away from an actor that
 * could go on. An actor may also choose: explorer_choose(). Memory is sequentially consistent.
 *
 * Define _GNU_SOURCE before the first header.
 */
#ifndef VMM_EXPLORER_SUPPORT_H
#define VMM_EXPLORER_SUPPORT_H

#include "support/test_support.h"

#include <ucontext.h>

enum { ACTORS_MOST = 3, STEPS_MOST = 4000, STACK_BYTES = 64 << 10 };

struct actor {
    ucontext_t context;
    void (*run)(void);
    bool has_ended;
    bool waits;   /* until another actor has made a step */
    bool is_idle; /* it has changed nothing since its last step: others need not look again */
    char stack[STACK_BYTES];
};

/* What was chosen at a step: the index among what was possible. */
struct choice {
    unsigned index;
    unsigned count;
};

static struct {
    struct actor actors[ACTORS_MOST];
    unsigned actor_count;
    unsigned current;
    ucontext_t main;
    struct choice choices[STEPS_MOST];
    unsigned length; /* of the choices that this run repeats */
    unsigned step;
    unsigned switches;
    unsigned switches_most;
    bool is_running;
} explorer;

static void explorer_step(void);

/* The actor cannot go on until another one has made a step. */
static void explorer_wait(void)
{
    explorer.actors[explorer.current].waits = true;
    explorer_step();
}

/* The same for an actor that found a lock taken, and did nothing else in this step. */
static inline void explorer_wait_idle(void)
{
    explorer.actors[explorer.current].is_idle = true;
    explorer_wait();
}

/* Returns each number below `count` in some order. */
static unsigned explorer_choose(unsigned count)
{
    if (!explorer.is_running)
        return 0;
    assert_true(explorer.step < STEPS_MOST);
    struct choice *choice = &explorer.choices[explorer.step];
    if (explorer.step++ >= explorer.length)
        *choice = (struct choice){ .index = 0, .count = count };
    assert_int_equal(choice->count, count);
    return choice->index;
}

static void actor_main(void)
{
    struct actor *actor = &explorer.actors[explorer.current];
    actor->run();
    actor->has_ended = true;
    explorer_step();
}

/* Adds an actor for the next runs. */
static void actor_add(void (*run)(void))
{
    struct actor *actor = &explorer.actors[explorer.actor_count++];
    actor->run = run;
    actor->has_ended = false;
    actor->waits = false;
    actor->is_idle = false;
    (void)getcontext(&actor->context);
    actor->context.uc_stack.ss_sp = actor->stack;
    actor->context.uc_stack.ss_size = sizeof actor->stack;
    makecontext(&actor->context, actor_main, 0);
}

/* Lists the actors that may run, the current one first; the others only while switches are left. */
static unsigned runnable_list(unsigned list[ACTORS_MOST])
{
    unsigned count = 0;
    const struct actor *current = &explorer.actors[explorer.current];
    bool can_go_on = !current->has_ended && !current->waits;
    if (can_go_on)
        list[count++] = explorer.current;
    for (unsigned i = 0; i < explorer.actor_count; i++) {
        const struct actor *actor = &explorer.actors[i];
        if (i != explorer.current && !actor->has_ended && !actor->waits &&
            (!can_go_on || explorer.switches < explorer.switches_most))
            list[count++] = i;
    }
    return count;
}

/* Chooses the actor of the next step. False: none may run. */
static bool actor_choose(void)
{
    unsigned list[ACTORS_MOST];
    unsigned count = runnable_list(list);
    if (count == 0)
        return false;
    bool can_go_on = list[0] == explorer.current;
    unsigned index = explorer_choose(count);
    explorer.switches += can_go_on && index > 0;
    explorer.current = list[index];
    explorer.actors[explorer.current].is_idle = false;
    return true;
}

/* Ends a step of the current actor, which goes on from here in its next one. */
static void explorer_step(void)
{
    struct actor *actor = &explorer.actors[explorer.current];
    if (!explorer.is_running)
        return;
    for (unsigned i = 0; i < explorer.actor_count && !actor->is_idle; i++) {
        if (&explorer.actors[i] != actor)
            explorer.actors[i].waits = false;
    }
    if (!actor_choose())
        (void)swapcontext(&actor->context, &explorer.main);
    else if (&explorer.actors[explorer.current] != actor)
        (void)swapcontext(&actor->context, &explorer.actors[explorer.current].context);
}

/* Runs the actors to their ends in one order. False: they wait for each other. */
static bool order_run(void)
{
    bool all_ended = true;
    explorer.step = 0;
    explorer.switches = 0;
    explorer.current = 0;
    explorer.is_running = true;
    if (actor_choose())
        (void)swapcontext(&explorer.main, &explorer.actors[explorer.current].context);
    explorer.is_running = false;
    for (unsigned i = 0; i < explorer.actor_count; i++)
        all_ended = all_ended && explorer.actors[i].has_ended;
    return all_ended;
}

/* Chooses the next order; false if there is none. */
static bool order_next(void)
{
    while (explorer.step > 0) {
        struct choice *choice = &explorer.choices[explorer.step - 1];
        if (++choice->index < choice->count) {
            explorer.length = explorer.step;
            return true;
        }
        explorer.step--;
    }
    return false;
}

#endif
