/*
 * Stacks of the host: taken as addresses, and named only when somebody wants to read them.
 *
 * Owns: nothing. May be called by: guard. Locks: none. Neither function allocates, once stacks were taken for
 * the first time.
 */
#ifndef VMM_GUARD_STACK_H
#define VMM_GUARD_STACK_H

#include <stddef.h>

enum { STACK_FRAMES = 16 };

struct stack {
    void *frames[STACK_FRAMES]; /* return addresses, the latest call first */
    int count;
};

/* The stack of the calling thread from `caller` on, an address that a function of it returns to. */
void vmm__stack_take(struct stack *stack, const void *caller);

/* "function+0x1f (library+0x1234)", as far as the program's symbols tell. */
void vmm__stack_name(const void *frame, char *text, size_t text_bytes);

#endif
