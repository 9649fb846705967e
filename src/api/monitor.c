/* Publishes the statistics of the process's caches: see monitor.h. */
#define _GNU_SOURCE
#include "api/monitor.h"
#include "api/config.h"
#include "base/fork.h"
#include "base/hostmem.h"
#include "base/list.h"
#include "base/mutex.h"
#include "base/time.h"
#include "base/variable.h"
#include "monitor/segment.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct mutex call_lock = VMM_MUTEX_INIT; /* orders calls; guards these */
static struct ticker ticker;
static bool is_exit_watched;

static struct mutex lock = VMM_MUTEX_INIT; /* guards all below */
static struct vmm_cache *caches;           /* linked by monitor_next */
static uint64_t serials;
static struct segment segment = { .file = -1 };
static struct monitor_head *head; /* MONITOR_MOST_BYTES; NULL: not yet */
static bool has_failed;           /* a write has, and that was logged */
static uint64_t next_ns;          /* the thread publishes no earlier */

/* The thread takes at most this part of a processor, whatever there is to read. */
enum { PART_OF_TIME = 100 };

/* ---- Publish -------------------------------------------------------------------------------- */

static void publish_locked(void)
{
    char *begin = (char *)head;
    char *at = begin + sizeof *head;
    head->caches = 0;
    for (struct vmm_cache *cache = caches; cache != NULL; cache = cache->monitor_next) {
        char *end = vmm__monitor_read(cache, at, MONITOR_MOST_BYTES - (size_t)(at - begin));
        if (end == NULL)
            break;
        head->caches++;
        at = end;
    }
    head->bytes = (uint64_t)(at - begin);
    if (!vmm__segment_write(&segment, head) && !has_failed) {
        has_failed = true;
        vmm__cache_log(caches, "monitor: cannot write %.200s: %s", segment.path, strerror(errno));
    }
}

static void publish(void *context)
{
    (void)context;
    VMM_HOLD(&lock);
    uint64_t begin_ns = vmm__time_ns();
    if (caches != NULL && begin_ns >= next_ns) {
        publish_locked();
        next_ns = begin_ns + (vmm__time_ns() - begin_ns) * PART_OF_TIME;
    }
}

/* ---- Begin and end -------------------------------------------------------------------------- */

/* The child has neither the thread nor the caches. */
VMM_FORK_CHILD static void child_begin(void)
{
    call_lock = (struct mutex)VMM_MUTEX_INIT;
    lock = (struct mutex)VMM_MUTEX_INIT;
    ticker = (struct ticker){ .runs = false };
    caches = NULL;
    vmm__segment_forget(&segment);
    if (head != NULL)
        head->pid = 0;
}

/* If another thread creates or destroys a cache meanwhile, the file may stay; vmmtop finds that its process is gone. A
 * cache that begins in a later handler has the segment made, and watched, again. */
static void exit_remove(void)
{
    if (!vmm__mutex_try_lock(&call_lock))
        return;
    is_exit_watched = false;
    vmm__mutex_lock(&lock);
    vmm__segment_close(&segment);
    caches = NULL;
    vmm__mutex_unlock(&lock);
    vmm__mutex_unlock(&call_lock);
}

static vmm_status exit_watch(void)
{
    if (!is_exit_watched && atexit(exit_remove) != 0)
        return vmm__error(VMM_ERR_HOST_OOM, "monitor: no host memory for an exit handler");
    is_exit_watched = true;
    return vmm__fork_watch(child_begin);
}

/* For the first cache. The caller holds call_lock. After exit_remove() the thread still runs. */
static vmm_status segment_begin(const char *folder)
{
    if (head == NULL)
        head = vmm__host_table_alloc(MONITOR_MOST_BYTES);
    if (head == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "monitor: no host memory for the segment");
    vmm_status status = exit_watch();
    if (status == VMM_OK)
        status = vmm__segment_open(&segment, folder);
    if (status == VMM_OK && !ticker.runs)
        status = vmm__ticker_start(&ticker, MONITOR_PERIOD_MS, publish, NULL);
    if (status != VMM_OK)
        vmm__segment_close(&segment);
    return status;
}

static void cache_add(struct vmm_cache *cache)
{
    struct vmm_cache **link = &caches;
    VMM_HOLD(&lock);
    while (*link != NULL)
        link = &(*link)->monitor_next;
    cache->monitor_serial = ++serials;
    cache->monitor_next = NULL;
    *link = cache;
    publish_locked();
}

static void cache_remove(struct vmm_cache *cache)
{
    VMM_HOLD(&lock);
    VMM_LIST_REMOVE(&caches, cache, monitor_next);
    if (caches != NULL)
        publish_locked();
    else
        vmm__segment_close(&segment);
}

/* NULL: do not publish. */
static vmm_status folder_choose(const char **folder)
{
    const char *text = vmm__variable("VMM_MONITOR");
    *folder = NULL;
    if (text == NULL || strcmp(text, "0") == 0)
        return VMM_OK;
    if (strcmp(text, "1") != 0 && *text != '/')
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "VMM_MONITOR=%.40s: not 0, 1 or the path of a folder", text);
    *folder = *text == '/' ? text : MONITOR_DIRECTORY;
    return VMM_OK;
}

vmm_status vmm__monitor_check(void)
{
    const char *folder;
    return folder_choose(&folder);
}

vmm_status vmm__monitor_environment(struct vmm_cache *cache)
{
    const char *folder;
    vmm_status status = folder_choose(&folder);
    if (folder == NULL)
        return status;
    VMM_HOLD(&call_lock);
    if (segment.file < 0)
        status = segment_begin(folder);
    if (status == VMM_OK)
        cache_add(cache);
    return status;
}

void vmm__monitor_end(struct vmm_cache *cache)
{
    if (cache->monitor_serial == 0)
        return;
    VMM_HOLD(&call_lock);
    cache_remove(cache);
    if (caches == NULL)
        vmm__ticker_stop(&ticker);
}
