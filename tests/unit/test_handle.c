/* Handles: which are found, and which never. */
#define _GNU_SOURCE
#include "support/test_support.h"
#include "support/thread_support.h"

#include "base/handle.h"

#include <stdatomic.h>
#include <string.h>

TEST(an_open_handle_finds_its_record)
{
    int records[2];
    void *first = vmm__handle_open(HANDLE_POOL, &records[0]);
    void *second = vmm__handle_open(HANDLE_SHARE, &records[1]);
    assert_non_null(first);
    assert_ptr_not_equal(first, second);
    assert_ptr_equal(vmm__handle_find(HANDLE_POOL, first), &records[0]);
    assert_ptr_equal(vmm__handle_find(HANDLE_SHARE, second), &records[1]);
    vmm__handle_close(first);
    vmm__handle_close(second);
}

TEST(a_handle_of_another_kind_is_not_found)
{
    int record;
    void *handle = vmm__handle_open(HANDLE_TICKET, &record);
    assert_null(vmm__handle_find(HANDLE_POOL, handle));
    assert_null(vmm__handle_find(HANDLE_SHARE, handle));
    vmm__handle_close(handle);
}

/* The slot serves many other handles meanwhile. */
TEST(a_closed_handle_is_never_found_again)
{
    enum { HANDLES = 1 << 18 };
    int record;
    void *closed = vmm__handle_open(HANDLE_POOL, &record);
    vmm__handle_close(closed);
    for (int i = 0; i < HANDLES; i++) {
        void *handle = vmm__handle_open(HANDLE_POOL, &record);
        assert_ptr_not_equal(handle, closed);
        assert_null(vmm__handle_find(HANDLE_POOL, closed));
        vmm__handle_close(handle);
    }
}

TEST(garbage_is_not_found)
{
    int record;
    uintptr_t handle = (uintptr_t)vmm__handle_open(HANDLE_POOL, &record);
    assert_null(vmm__handle_find(HANDLE_POOL, NULL));
    assert_null(vmm__handle_find(HANDLE_POOL, &record));
    for (uintptr_t low = 1; low < 4096; low++)
        assert_null(vmm__handle_find((enum handle_kind)(low % 8), (void *)low));
    for (unsigned bit = 0; bit < 64; bit++)
        assert_null(vmm__handle_find(HANDLE_POOL, (void *)(handle ^ (uintptr_t)1 << bit)));
    vmm__handle_close((void *)handle);
}

TEST(too_many_handles_are_refused)
{
    enum { MOST = 1 << 16 };
    static void *handles[MOST];
    int record;
    unsigned count = 0;
    while (count < MOST && (handles[count] = vmm__handle_open(HANDLE_SHARE, &record)) != NULL)
        count++;
    assert_in_range(count, MOST / 2, MOST - 1);
    vmm__handle_close(handles[7]);
    handles[7] = vmm__handle_open(HANDLE_SHARE, &record);
    assert_non_null(handles[7]);
    assert_null(vmm__handle_open(HANDLE_SHARE, &record));
    while (count > 0)
        vmm__handle_close(handles[--count]);
}

enum { ROUNDS = 20000, THREADS = 3 };

static _Atomic(void *) shown;
static atomic_bool goes_on;

/* A record that knows its handle: a find returns the record of no other one. */
struct record {
    _Atomic(void *) handle;
};

static void *thread_find(void *context)
{
    while (atomic_load(&goes_on)) {
        void *handle = atomic_load(&shown);
        struct record *found = vmm__handle_find(HANDLE_POOL, handle);
        if (found != NULL && atomic_load(&found->handle) != handle &&
            vmm__handle_find(HANDLE_POOL, handle) != NULL)
            return context;
    }
    return NULL;
}

TEST(threads_find_only_the_record_of_a_handle)
{
    static struct record records[64];
    pthread_t threads[THREADS];
    atomic_store(&goes_on, true);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, thread_find, records), 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct record *record = &records[i % 64];
        void *handle = vmm__handle_open(HANDLE_POOL, record);
        atomic_store(&record->handle, handle);
        atomic_store(&shown, handle);
        vmm__handle_close(handle);
    }
    atomic_store(&goes_on, false);
    for (int i = 0; i < THREADS; i++) {
        void *trouble;
        assert_int_equal(pthread_join(threads[i], &trouble), 0);
        assert_null(trouble);
    }
}
