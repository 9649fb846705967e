/* Stacks of the host: see stack.h. */
#define _GNU_SOURCE
#include "base/stack.h"
#include "base/hostmem.h"
#include "base/symbol.h"

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

/* ---- Names ----------------------------------------------------------------------------------- */

typedef char *(*demangle_fn)(const char *symbol, char *buffer, size_t *length, int *status);

/* The function of the C++ runtime, if the process has one, wherever it is loaded; else NULL. */
static demangle_fn demangler_find(void)
{
    demangle_fn demangle;
    void *library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
    (void)vmm__symbol_store(dlsym(library != NULL ? library : RTLD_DEFAULT, "__cxa_demangle"),
                            &demangle);
    if (library != NULL)
        (void)dlclose(library); /* other parts of the process hold it */
    return demangle;
}

/* Cuts the parameters of a function, which come last: "a::f(int) const" becomes "a::f". */
static void parameters_cut(char *name)
{
    char *at = strrchr(name, ')');
    int depth = at == NULL ? 0 : 1;
    while (depth > 0 && at > name) {
        at--;
        depth += *at == ')' ? 1 : *at == '(' ? -1 : 0;
    }
    if (at != NULL && at > name)
        *at = '\0';
}

/* The name of a C++ function in its source; the caller frees it with vmm__host_free() as 0 bytes, because malloc() of
 * the C++ runtime made it. NULL: it has none, or there is no such runtime. */
static char *plain_name(const char *symbol)
{
    demangle_fn demangle = strncmp(symbol, "_Z", 2) == 0 ? demangler_find() : NULL;
    int status;
    char *name = demangle == NULL ? NULL : demangle(symbol, NULL, NULL, &status);
    if (name != NULL)
        parameters_cut(name);
    return name;
}

static void symbol_write(const Dl_info *info, const void *frame, char *text, size_t text_bytes)
{
    char *plain = plain_name(info->dli_sname);
    (void)snprintf(text, text_bytes, "%s+0x%zx (%s+0x%zx)", plain != NULL ? plain : info->dli_sname,
                   (size_t)((uintptr_t)frame - (uintptr_t)info->dli_saddr),
                   file_of(info->dli_fname),
                   (size_t)((uintptr_t)frame - (uintptr_t)info->dli_fbase));
    vmm__host_free(plain, 0);
}

void vmm__stack_name(const void *frame, char *text, size_t text_bytes)
{
    Dl_info info;
    /* A call may be the last instruction of its function, so look up the byte before its return address. */
    if (frame == NULL || dladdr((const char *)frame - 1, &info) == 0 || info.dli_fname == NULL) {
        (void)snprintf(text, text_bytes, "%p", frame);
        return;
    }
    if (info.dli_sname != NULL)
        symbol_write(&info, frame, text, text_bytes);
    else
        (void)snprintf(text, text_bytes, "%s+0x%zx", file_of(info.dli_fname),
                       (size_t)((uintptr_t)frame - (uintptr_t)info.dli_fbase));
}
