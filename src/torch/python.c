/* Exceptions of Python: see python.h. */
#define _GNU_SOURCE
#include "torch/python.h"
#include "base/symbol.h"
#include "vmmcache/torch.h"

#include <dlfcn.h>
#include <pthread.h>

/* X(name, result, parameters) */
#define PYTHON_MAP(X)                                                                              \
    X(PyGILState_Check, int, (void))                                                               \
    X(PyGILState_Ensure, int, (void))                                                              \
    X(PyGILState_GetThisThreadState, void *, (void))                                               \
    X(PyGILState_Release, void, (int))                                                             \
    X(PyErr_Fetch, void, (void **, void **, void **))                                              \
    X(PyErr_Restore, void, (void *, void *, void *))                                               \
    X(PyCapsule_IsValid, int, (void *, const char *))                                              \
    X(PyCapsule_GetPointer, void *, (void *, const char *))

#define PYTHON_MEMBER(name, result, parameters) result(*name) parameters;
static struct {
    PYTHON_MAP(PYTHON_MEMBER)
    bool is_there;
} python;
#undef PYTHON_MEMBER

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void python_find(void)
{
    python.is_there = true;
#define PYTHON_FIND(name, result, parameters)                                                      \
    python.is_there =                                                                              \
        vmm__symbol_store(dlsym(RTLD_DEFAULT, #name), &python.name) && python.is_there;
    PYTHON_MAP(PYTHON_FIND)
#undef PYTHON_FIND
}

static bool is_there(void)
{
    (void)pthread_once(&once, python_find);
    return python.is_there;
}

void vmm__python_error_take(struct python_error *error)
{
    *error = (struct python_error){ .is_taken = is_there() &&
                                                python.PyGILState_GetThisThreadState() != NULL &&
                                                python.PyGILState_Check() };
    if (error->is_taken)
        python.PyErr_Fetch(&error->parts[0], &error->parts[1], &error->parts[2]);
}

void vmm__python_error_restore(const struct python_error *error)
{
    if (error->is_taken)
        python.PyErr_Restore(error->parts[0], error->parts[1], error->parts[2]);
}

/* ---- DLPack ---------------------------------------------------------------------------------- */

/* DLManagedTensor */
struct managed {
    unsigned char tensor[48];
    void (*context)(void *);
    void (*deleter)(void *);
};

void vmm_torch_dlpack_delete(void *managed)
{
    struct python_error error;
    if (!is_there())
        return;
    int state = python.PyGILState_Ensure();
    vmm__python_error_take(&error);
    ((struct managed *)managed)->context(managed);
    vmm__python_error_restore(&error);
    python.PyGILState_Release(state);
}

void vmm_torch_dlpack_end(void *capsule)
{
    if (is_there() && python.PyCapsule_IsValid(capsule, "dltensor"))
        vmm_torch_dlpack_delete(python.PyCapsule_GetPointer(capsule, "dltensor"));
}
