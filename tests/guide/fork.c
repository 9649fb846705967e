/* Workers are forked before the first cache; a later child must not use the parent's. */
#define _POSIX_C_SOURCE 200809L
#include "gpu.h"

#include <sys/wait.h>
#include <unistd.h>

enum { WORKERS = 2 };

/* [workers] */
/* A worker's whole life: its cache is made after fork(). */
static void work(void)
{
    vmm_cache *cache;
    void *block;
    check(vmm_create(NULL, &cache));
    check(vmm_alloc(cache, 1 << 20, NULL, &block));
    gpu_fill(block, 1, 1 << 20, NULL);
    check(vmm_free(cache, block));
    check(vmm_destroy(cache));
}

static void start_workers(pid_t *workers)
{
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = fork();
        if (workers[i] == 0) {
            work();
            _exit(0);
        }
    }
}
/* [end] */

/* [inherited] */
/* In a child that was forked too late: every call is refused at once and touches nothing. */
static int is_refused(vmm_cache *inherited)
{
    void *block;
    return vmm_alloc(inherited, 1 << 20, NULL, &block) == VMM_ERR_FORKED &&
           vmm_destroy(inherited) == VMM_ERR_FORKED;
}
/* [end] */

static void join(pid_t child)
{
    int status = -1;
    EXPECT(child > 0 && waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
    pid_t workers[WORKERS];
    vmm_cache *cache;
    start_workers(workers);
    check(vmm_create(NULL, &cache));
    pid_t late = fork();
    if (late == 0)
        _exit(is_refused(cache) ? 0 : 1);
    join(late);
    for (int i = 0; i < WORKERS; i++)
        join(workers[i]);
    check(vmm_destroy(cache));
    return 0;
}
