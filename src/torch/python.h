/*
 * Exceptions of Python that are on their way while a destructor calls the library: ctypes loses them when the library
 * then calls a function of Python.
 *
 * Owns: the addresses of functions of Python, found once. Without Python in the process nothing here does anything.
 * May be called by: record, on any thread. Locks: none.
 */
#ifndef VMM_TORCH_PYTHON_H
#define VMM_TORCH_PYTHON_H

#include <stdbool.h>

struct python_error {
    void *parts[3];
    bool is_taken;
};

/* Takes the calling thread's exception, if the thread holds Python's lock. Each call needs its restore. */
void vmm__python_error_take(struct python_error *error);
void vmm__python_error_restore(const struct python_error *error);

#endif
