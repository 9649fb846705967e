/* Announced captures: see captures.h. */
#define _GNU_SOURCE
#include "vm/captures.h"
#include "base/error.h"
#include "base/fork.h"
#include "base/hostmem.h"
#include "base/mutex.h"
#include "base/thread.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

struct announcement {
    struct announcement *next;
    struct driver *driver;
    vmm_stream stream;
    uintptr_t thread;
    long kernel_thread;
    bool has_begun; /* the stream was seen to be captured */
};

static struct mutex lock = { .mutex = PTHREAD_MUTEX_INITIALIZER };
static struct announcement *first;

/* The caches of the parent, whose drivers the announcements name, are of no use to a child. */
VMM_FORK_CHILD static void child_begin(void)
{
    lock = (struct mutex){ .mutex = PTHREAD_MUTEX_INITIALIZER };
    first = NULL;
}

void vmm__captures_lock(void)
{
    vmm__mutex_lock(&lock);
}

void vmm__captures_unlock(void)
{
    vmm__mutex_unlock(&lock);
}

/* Whether the thread of an announcement has ended. Wrong if another thread has got its number since, which the system
 * reuses as late as it can. Leaves errno as it is. */
static bool thread_has_ended(const struct announcement *announced)
{
    int code = errno;
    bool has_ended =
        syscall(SYS_tgkill, (long)getpid(), announced->kernel_thread, 0L) != 0 && errno == ESRCH;
    errno = code;
    return has_ended;
}

/* If the driver does not answer, the capture may be under way. */
static bool is_over(struct announcement *announced)
{
    bool is_capturing = true;
    bool is_own = announced->thread == vmm__thread_self();
    bool has_ended = !is_own && thread_has_ended(announced);
    if (announced->stream == STREAM_PER_THREAD && !is_own)
        return has_ended;
    VMM_QUIET();
    vmm_status status =
        vmm__driver_stream_capturing(announced->driver, announced->stream, &is_capturing);
    if (status == VMM_OK && is_capturing)
        announced->has_begun = true;
    bool is_known = status == VMM_OK || status == VMM_ERR_INVALID_ARGUMENT;
    return is_known && !(status == VMM_OK && is_capturing) &&
           (announced->has_begun || is_own || has_ended);
}

static void remove_at(struct announcement **link)
{
    struct announcement *removed = *link;
    *link = removed->next;
    vmm__host_free(removed, sizeof *removed);
}

static void over_drop(void)
{
    struct announcement **link = &first;
    while (*link != NULL) {
        if (is_over(*link))
            remove_at(link);
        else
            link = &(*link)->next;
    }
}

bool vmm__captures_any_locked(void)
{
    over_drop();
    return first != NULL;
}

bool vmm__captures_has_locked(vmm_stream stream)
{
    over_drop();
    const struct announcement *announced = first;
    while (announced != NULL && announced->stream != stream)
        announced = announced->next;
    return announced != NULL;
}

vmm_status vmm__captures_open(void)
{
    return vmm__fork_watch(child_begin);
}

vmm_status vmm__captures_announce(struct driver *driver, vmm_stream stream)
{
    struct announcement *made = vmm__host_alloc(1, sizeof *made);
    if (made == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "vmm_capture_announce: no host memory for a record");
    *made = (struct announcement){ .driver = driver,
                                   .stream = stream,
                                   .thread = vmm__thread_self(),
                                   .kernel_thread = syscall(SYS_gettid) };
    vmm__captures_lock();
    made->next = first;
    first = made;
    vmm__captures_unlock();
    return VMM_OK;
}

static bool is_meant(const struct announcement *announced, const struct driver *driver,
                     const vmm_stream *stream)
{
    if (announced->driver != driver || stream == NULL)
        return announced->driver == driver;
    bool is_own = announced->stream != STREAM_PER_THREAD || announced->thread == vmm__thread_self();
    return announced->stream == *stream && is_own;
}

/* Removes the newest announcement of a driver, of one stream or with NULL of any. */
static bool newest_remove(const struct driver *driver, const vmm_stream *stream)
{
    struct announcement **link = &first;
    vmm__captures_lock();
    while (*link != NULL && !is_meant(*link, driver, stream))
        link = &(*link)->next;
    bool is_found = *link != NULL;
    if (is_found)
        remove_at(link);
    vmm__captures_unlock();
    return is_found;
}

bool vmm__captures_retract(const struct driver *driver, vmm_stream stream)
{
    return newest_remove(driver, &stream);
}

void vmm__captures_forget(const struct driver *driver)
{
    while (newest_remove(driver, NULL))
        continue;
}
