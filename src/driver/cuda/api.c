/*
 * Loads and starts libcuda, decides whether its functions may be called, and translates their results.
 *
 * Owns: the process-wide table of libcuda functions. libcuda is opened at run time, so that one binary runs with and
 * without a GPU. It is never closed, because its threads may outlive the driver.
 * Invariants:
 *  1. no call is made after exit() begins or libcuda reports that it is shutting down: libcuda
 *     tears itself down then and a call may crash. Our exit handler is registered after libcuda
 *     starts, so it runs before libcuda's own; it waits at most one second for calls in progress on
 *     other threads;
 *  2. a child of fork() makes no call if its parent had started libcuda: the child can neither use
 *     nor restart it.
 * Called by: cuda.c, any thread. api_lock guards loading and starting; the table never changes
 * afterwards.
 */
#define _GNU_SOURCE
#include "base/error.h"
#include "base/fork.h"
#include "base/symbol.h"
#include "base/time.h"
#include "driver/cuda/internal.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static const char library_name[] = "libcuda.so.1";

static struct mutex api_lock = VMM_MUTEX_INIT;
static struct cuda_api api_table;
static bool api_is_loaded;
static bool is_started; /* or about to start */
static bool is_forked;  /* the parent of this process had started it */
static _Atomic bool is_shut_down;
static _Atomic unsigned calls_in_progress; /* on all threads */
static _Thread_local unsigned own_calls;

enum { EXIT_WAIT_MS = 1000 };

/* ---- Loading --------------------------------------------------------------------------------- */

/* cuGetProcAddress selects a function by version; before CUDA 12 only the exported names exist. */
static bool call_resolve(void *library, __typeof__(cuGetProcAddress_v2) *proc_address,
                         const char *exported, const char *asked, int version, void *member)
{
    void *found = NULL;
    CUdriverProcAddressQueryResult state = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (proc_address != NULL &&
        proc_address(asked, &found, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &state) ==
            CUDA_SUCCESS &&
        state == CU_GET_PROC_ADDRESS_SUCCESS && vmm__symbol_store(found, member))
        return true;
    return vmm__symbol_store(dlsym(library, exported), member);
}

static vmm_status call_missing(const char *exported, int version)
{
    return vmm__error(VMM_ERR_UNSUPPORTED,
                      "%s has no %s: the driver is older than CUDA %d.%d, or not NVIDIA's",
                      library_name, exported, version / 1000, version % 1000 / 10);
}

static vmm_status api_load_locked(void)
{
    if (api_is_loaded)
        return VMM_OK;
    void *library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *reason = dlerror();
        return vmm__error(VMM_ERR_NO_DEVICE, "cuda driver: %s",
                          reason != NULL ? reason : "libcuda.so.1 cannot be opened");
    }
    __typeof__(cuGetProcAddress_v2) *proc_address = NULL;
    (void)vmm__symbol_store(dlsym(library, "cuGetProcAddress_v2"), &proc_address);
#define API_RESOLVE(name, asked, version)                                                          \
    if (!call_resolve(library, proc_address, #name, asked, version, &api_table.name))              \
        return call_missing(#name, version);
    CUDA_CALL_MAP(API_RESOLVE)
#undef API_RESOLVE
#define API_RESOLVE(name, asked, version)                                                          \
    (void)call_resolve(library, proc_address, #name, asked, version, &api_table.name);
    CUDA_OPTIONAL_CALL_MAP(API_RESOLVE)
#undef API_RESOLVE
    api_is_loaded = true;
    return VMM_OK;
}

/* ---- Starting -------------------------------------------------------------------------------- */

/* Replaces the lock: the thread that held it does not exist in the child. */
static void child_reset(void)
{
    api_lock = (struct mutex)VMM_MUTEX_INIT;
    is_forked = is_forked || is_started;
}

static void shutdown_record(void)
{
    atomic_store_explicit(&is_shut_down, true, memory_order_seq_cst);
}

static bool cuda_is_shut_down(void)
{
    return atomic_load_explicit(&is_shut_down, memory_order_seq_cst);
}

bool vmm__cuda_calls_begin(void)
{
    atomic_fetch_add_explicit(&calls_in_progress, 1, memory_order_seq_cst);
    own_calls++;
    if (!cuda_is_shut_down())
        return true;
    vmm__cuda_calls_end();
    return false;
}

void vmm__cuda_calls_end(void)
{
    own_calls--;
    atomic_fetch_sub_explicit(&calls_in_progress, 1, memory_order_seq_cst);
}

/* A signal handler may call exit() within a call of this thread; then do not wait for that call. */
static void exit_handle(void)
{
    shutdown_record();
    for (int i = 0; i < EXIT_WAIT_MS; i++) {
        if (atomic_load_explicit(&calls_in_progress, memory_order_seq_cst) <= own_calls)
            return;
        vmm__time_pause(1000000);
    }
}

/* Any failure to start CUDA means that no device is available. */
static vmm_status api_init_locked(void)
{
    CUresult result = api_table.cuInit(0);
    if (result != CUDA_SUCCESS) {
        (void)vmm__cuda_status(&api_table, result, VMM_ERR_NO_DEVICE, "cuInit");
        return VMM_ERR_NO_DEVICE;
    }
    if (atexit(exit_handle) != 0)
        return vmm__error(VMM_ERR_HOST_OOM,
                          "cuda driver: out of host memory to register an exit handler");
    return VMM_OK;
}

static vmm_status api_start_locked(void)
{
    if (is_forked)
        return vmm__error(VMM_ERR_FORKED,
                          "cuda driver: the parent process started CUDA before fork(), "
                          "so this child cannot use it; start the child with "
                          "spawn or forkserver");
    if (cuda_is_shut_down())
        return vmm__error(VMM_ERR_NO_DEVICE, "cuda driver: the process is exiting");
    if (is_started)
        return VMM_OK;
    vmm_status status = api_load_locked();
    if (status != VMM_OK)
        return status;
    is_started = true; /* in case another thread forks during cuInit */
    status = api_init_locked();
    is_started = status == VMM_OK;
    return status;
}

vmm_status vmm__cuda_api_start(const struct cuda_api **out)
{
    vmm_status status = vmm__fork_watch(child_reset);
    if (status != VMM_OK)
        return status;
    VMM_HOLD(&api_lock);
    status = api_start_locked();
    if (status == VMM_OK)
        *out = &api_table;
    return status;
}

/* ---- Results --------------------------------------------------------------------------------- */

/* Newer than the oldest supported cuda.h. */
enum { TENSOR_MEMORY_LEAK = 721 };

/* The device is lost if its context is destroyed, or if CUDA requires a new process or a new context to continue. */
static vmm_status status_of(CUresult result, vmm_status no_memory)
{
    switch ((int)result) {
    case CUDA_SUCCESS:
        return VMM_OK;
    case CUDA_ERROR_NOT_READY:
        return VMM__PENDING;
    case CUDA_ERROR_OUT_OF_MEMORY:
        return no_memory;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
        return VMM_ERR_NO_DEVICE;
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
        return VMM_ERR_LOST;
    default:
        return VMM_ERR_DRIVER;
    }
}

bool vmm__cuda_is_loss(CUresult result)
{
    return status_of(result, VMM_ERR_HOST_OOM) == VMM_ERR_LOST;
}

vmm_status vmm__cuda_status(const struct cuda_api *api, CUresult result, vmm_status no_memory,
                            const char *format, ...)
{
    vmm_status status = status_of(result, no_memory);
    if (status == VMM_OK || status == VMM__PENDING)
        return status;
    if (result == CUDA_ERROR_DEINITIALIZED)
        shutdown_record();
    char call[160];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(call, sizeof call, format, arguments);
    va_end(arguments);
    const char *name = NULL;
    const char *text = NULL;
    bool may_call = vmm__cuda_calls_begin();
    if (!may_call || api->cuGetErrorName(result, &name) != CUDA_SUCCESS)
        name = "unknown result";
    if (!may_call || api->cuGetErrorString(result, &text) != CUDA_SUCCESS)
        text = "no text";
    if (may_call)
        vmm__cuda_calls_end();
    return vmm__error(status, "%s: %s (%d): %s", call, name, (int)result, text);
}
