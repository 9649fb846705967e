/* Stacks of the host: see stack.h. */
#define _GNU_SOURCE
#include "base/stack.h"
#include "base/hostmem.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { OWN_FRAMES = 8 }; /* frames between a public function and this one, at most */

void vmm__stack_take(struct stack *stack, const void *caller)
{
    void *frames[STACK_FRAMES + OWN_FRAMES];
    int count = backtrace(frames, STACK_FRAMES + OWN_FRAMES);
    int first = 0;
    while (first < count && frames[first] != caller)
        first++;
    if (first == count) /* the caller's frame was not found: keep all */
        first = 0;
    count -= first;
    stack->count = count < STACK_FRAMES ? count : STACK_FRAMES;
    memcpy(stack->frames, frames + first, (size_t)stack->count * sizeof *frames);
}

struct stack *vmm__stack_new(const void *caller)
{
    struct stack *stack = vmm__host_alloc(1, sizeof *stack);
    if (stack != NULL)
        vmm__stack_take(stack, caller);
    return stack;
}

static const char *file_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

void vmm__stack_name(const void *frame, char *text, size_t text_bytes)
{
    Dl_info info;
    /* A call may be the last instruction of its function, so look up the byte before its return address. */
    if (frame == NULL || dladdr((const char *)frame - 1, &info) == 0 || info.dli_fname == NULL) {
        (void)snprintf(text, text_bytes, "%p", frame);
        return;
    }
    size_t offset = (size_t)((uintptr_t)frame - (uintptr_t)info.dli_fbase);
    if (info.dli_sname == NULL) {
        (void)snprintf(text, text_bytes, "%s+0x%zx", file_of(info.dli_fname), offset);
        return;
    }
    (void)snprintf(text, text_bytes, "%s+0x%zx (%s+0x%zx)", info.dli_sname,
                   (size_t)((uintptr_t)frame - (uintptr_t)info.dli_saddr), file_of(info.dli_fname),
                   offset);
}
