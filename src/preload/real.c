/*
 * libcuda's own functions, and which of them are replaced: see preload.h.
 *
 * Owns: the tables, which do not change once they are filled.
 * Called by: all files, any thread.
 */
#define _GNU_SOURCE
#include "base/fork.h"
#include "base/symbol.h"
#include "base/variable.h"
#include "preload/preload.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A replaced function. dlsym() and cuGetProcAddress() may give different addresses for it. */
struct hook {
    const char *exported;
    const char *asked;
    int version;
    cuuint64_t flags;
    void (*replacement)(void);
    void *by_symbol;
    void *by_name;
};

_Thread_local unsigned vmm__preload_inside __attribute__((tls_model("initial-exec")));

static pthread_once_t load_once = PTHREAD_ONCE_INIT;
static bool is_loaded;
static struct preload_real functions;
static _Atomic int known_mode = -1;
static struct hook hooks[] = {
#define HOOK(name, like, asked, version, flags)                                                    \
    { #name, asked, version, flags, (void (*)(void))(name), NULL, NULL },
    PRELOAD_HOOK_MAP(HOOK)
#undef HOOK
};
enum { HOOKS = sizeof hooks / sizeof *hooks };

/* From now on every call is libcuda's. */
static void mode_end(void)
{
    atomic_store_explicit(&known_mode, PRELOAD_OFF, memory_order_relaxed);
}

/* ---- The C library's dlsym() ----------------------------------------------------------------- */

/* dlsym() moved from libdl to libc, with a new version of the symbol. */
preload_dlsym_fn vmm__preload_dlsym(void)
{
    static const char *const versions[] = { "GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5" };
    static _Atomic(preload_dlsym_fn) known;
    preload_dlsym_fn found = atomic_load_explicit(&known, memory_order_relaxed);
    for (unsigned i = 0; i < sizeof versions / sizeof *versions && found == NULL; i++) {
        (void)vmm__symbol_store(dlvsym(RTLD_NEXT, "dlsym", versions[i]), &found);
    }
    atomic_store_explicit(&known, found, memory_order_relaxed);
    return found;
}

/* ---- Loading --------------------------------------------------------------------------------- */

static void *name_find(__typeof__(cuGetProcAddress_v2) *proc_address, const char *asked,
                       int version, cuuint64_t flags)
{
    void *found = NULL;
    CUdriverProcAddressQueryResult state = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (proc_address == NULL ||
        proc_address(asked, &found, version, flags, &state) != CUDA_SUCCESS ||
        state != CU_GET_PROC_ADDRESS_SUCCESS)
        return NULL;
    return found;
}

static void *function_address(void (*function)(void))
{
    void *address;
    memcpy(&address, &function, sizeof address);
    return address;
}

static void hooks_fill(void *library, __typeof__(cuGetProcAddress_v2) *proc_address)
{
    for (struct hook *hook = hooks; hook < hooks + HOOKS; hook++) {
        hook->by_symbol = vmm__preload_dlsym()(library, hook->exported);
        hook->by_name = name_find(proc_address, hook->asked, hook->version, hook->flags);
    }
}

/* The exported symbol is the same function under every driver; a name may mean a later form. */
static void functions_fill(void *library, __typeof__(cuGetProcAddress_v2) *proc_address)
{
#define FUNCTION_FILL(name, like, asked, version, flags)                                           \
    (void)vmm__symbol_store(name_find(proc_address, asked, version, flags), &functions.name);      \
    if (functions.name == NULL)                                                                    \
        (void)vmm__symbol_store(vmm__preload_dlsym()(library, #name), &functions.name);
    PRELOAD_HOOK_MAP(FUNCTION_FILL)
    PRELOAD_USED_MAP(FUNCTION_FILL)
#undef FUNCTION_FILL
}

/* The name of a function that caches need and an old driver does not have; NULL: none is missing. */
static const char *function_missing(void)
{
#define FUNCTION_CHECK(name, like, asked, version, flags)                                          \
    if (functions.name == NULL)                                                                    \
        return #name;
    PRELOAD_NEEDED_MAP(FUNCTION_CHECK)
#undef FUNCTION_CHECK
    return NULL;
}

static void functions_load(void)
{
    __typeof__(cuGetProcAddress_v2) *proc_address = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return;
    (void)vmm__symbol_store(vmm__preload_dlsym()(library, "cuGetProcAddress_v2"), &proc_address);
    functions_fill(library, proc_address);
    hooks_fill(library, proc_address);
    is_loaded = true;
    const char *missing = function_missing();
    if (missing != NULL && vmm__preload_mode() == PRELOAD_SERVE) {
        vmm__preload_complain("libcuda has no %s, its driver is too old; the program runs without "
                              "the cache",
                              missing);
        mode_end();
    }
}

/* A thread that is inside may be loading. */
const struct preload_real *vmm__preload_real(void)
{
    if (vmm__preload_inside == 0) {
        vmm__preload_inside++;
        (void)pthread_once(&load_once, functions_load);
        vmm__preload_inside--;
    }
    return is_loaded ? &functions : NULL;
}

bool vmm__preload_has_name(const char *exported)
{
    const struct hook *hook = hooks;
    while (hook < hooks + HOOKS && strcmp(hook->exported, exported) != 0)
        hook++;
    return hook < hooks + HOOKS;
}

void *vmm__preload_replacement(const char *name, const void *found)
{
    for (const struct hook *hook = hooks; hook < hooks + HOOKS; hook++) {
        if ((hook->by_symbol == found && strcmp(hook->exported, name) == 0) ||
            (hook->by_name == found && strcmp(hook->asked, name) == 0))
            return function_address(hook->replacement);
    }
    return NULL;
}

/* ---- Settings -------------------------------------------------------------------------------- */

void vmm__preload_complain(const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    (void)fprintf(stderr, "libvmmcache_preload: %s\n", text);
}

static enum preload_mode mode_read(void)
{
    const char *value = vmm__variable("VMM_PRELOAD");
    if (value == NULL || vmm__variable_is(value, "on"))
        return PRELOAD_SERVE;
    if (strcmp(value, "record") == 0)
        return PRELOAD_RECORD;
    if (!vmm__variable_is(value, "off"))
        vmm__preload_complain("VMM_PRELOAD=%.40s: not on, record or off; the program runs "
                              "without the cache",
                              value);
    return PRELOAD_OFF;
}

enum preload_mode vmm__preload_mode(void)
{
    int mode = atomic_load_explicit(&known_mode, memory_order_relaxed);
    if (mode < 0) {
        mode = (int)mode_read();
        atomic_store_explicit(&known_mode, mode, memory_order_relaxed);
    }
    return (enum preload_mode)mode;
}

vmm_status vmm__preload_leave_children(void)
{
    return vmm__fork_watch(mode_end);
}
