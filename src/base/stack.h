/*
 * Stacks of host threads: stored as addresses, and named only when a report is written.
 *
 * Owns: nothing. May be called by: everything. Locks: none. vmm__stack_take() allocates nothing after the first stack
 * was taken; vmm__stack_name() may, to write the name of a C++ function.
 */
#ifndef VMM_BASE_STACK_H
#define VMM_BASE_STACK_H

#include <stddef.h>

enum { STACK_FRAMES = 16 };

struct stack {
    void *frames[STACK_FRAMES]; /* return addresses, the latest call first */
    int count;
};

/* Takes the calling thread's stack from `caller` on, a return address in it. */
void vmm__stack_take(struct stack *stack, const void *caller);

/* The same, in memory that the caller frees with vmm__host_free(); NULL: there is none. */
struct stack *vmm__stack_new(const void *caller);

/* Writes "function+0x1f (library+0x1234)", or less if the program has no symbols. A function of C++ has its name in the
 * source, without parameters, if the process has loaded a C++ runtime. */
void vmm__stack_name(const void *frame, char *text, size_t text_bytes);

#endif
