/* One process loads weights; its workers use the same device memory. */
#define _POSIX_C_SOURCE 200809L
#include "gpu.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORKERS = 2, BYTES = 20 << 20, WEIGHT = 7 };

/* [loader] */
static vmm_share *load_weights(vmm_cache *cache, void **weights)
{
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    vmm_pool *pool;
    vmm_share *share;
    options.name = "weights";
    options.shareable = VMM_SHARE_MACHINE;
    check(vmm_pool_create(cache, &options, &pool));
    check(vmm_alloc_from(pool, BYTES, NULL, weights));
    gpu_fill(*weights, WEIGHT, BYTES, NULL); /* or copy them from a file */
    check(vmm_wait(cache));                  /* no stream of a worker can wait for ours */
    check(vmm_share_export(cache, *weights, &share));
    return share;
}
/* [end] */

/* [worker] */
static void work(int socket)
{
    vmm_cache *cache;
    vmm_share *share;
    void *weights;
    check(vmm_create(NULL, &cache));
    check(vmm_share_receive(socket, &share));
    check(vmm_share_import(cache, share, NULL, &weights));
    check(vmm_share_close(share, 0)); /* the memory stays */
    EXPECT(gpu_byte(weights, NULL) == WEIGHT);
    check(vmm_free(cache, weights));
    check(vmm_destroy(cache));
}
/* [end] */

/* A worker starts before the first cache, with a socket to its parent. */
static pid_t start_worker(int *to_worker)
{
    int sockets[2];
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    pid_t worker = fork();
    if (worker == 0) {
        (void)close(sockets[0]);
        work(sockets[1]);
        _exit(0);
    }
    (void)close(sockets[1]);
    *to_worker = sockets[0];
    return worker;
}

static void join(pid_t worker)
{
    int status = -1;
    EXPECT(worker > 0 && waitpid(worker, &status, 0) == worker);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
    pid_t workers[WORKERS];
    int to_worker[WORKERS];
    vmm_cache *cache;
    void *weights;
    for (int i = 0; i < WORKERS; i++)
        workers[i] = start_worker(&to_worker[i]);
    check(vmm_create(NULL, &cache));
    vmm_share *share = load_weights(cache, &weights);
    /* [end_of_share] */
    for (int i = 0; i < WORKERS; i++)
        check(vmm_share_send(share, to_worker[i]));
    for (int i = 0; i < WORKERS; i++)
        join(workers[i]);
    check(vmm_share_close(share, 1)); /* no worker uses the weights any longer */
    check(vmm_free(cache, weights));
    /* [end] */
    check(vmm_destroy(cache));
    return 0;
}
