/* A server that gives memory back: at once after a burst, and by time when it is idle. */
#define _POSIX_C_SOURCE 200809L
#include "gpu.h"

#include <time.h>

enum { REQUEST_BYTES = 16 << 20, REQUESTS = 16, DECAY_MS = 100 };

static uint64_t reserved_bytes(vmm_cache *cache)
{
    vmm_stats stats = VMM_STATS_INIT;
    check(vmm_stats_get(cache, &stats));
    return stats.reserved_bytes.current;
}

static void serve_burst(vmm_cache *cache, vmm_stream stream)
{
    void *blocks[REQUESTS];
    for (int i = 0; i < REQUESTS; i++) {
        check(vmm_alloc(cache, REQUEST_BYTES, stream, &blocks[i]));
        gpu_fill(blocks[i], i, REQUEST_BYTES, stream);
    }
    for (int i = 0; i < REQUESTS; i++)
        check(vmm_free(cache, blocks[i]));
}

/* [after_burst] */
static size_t give_back(vmm_cache *cache, size_t keep_bytes)
{
    size_t released;
    check(vmm_wait(cache)); /* else memory whose work still runs goes back later */
    check(vmm_trim(cache, keep_bytes, &released));
    return released;
}
/* [end] */

/* [event_loop] */
static vmm_cache *create_decaying(void)
{
    vmm_config config = VMM_CONFIG_INIT;
    vmm_cache *cache;
    config.decay_ms = DECAY_MS;
    config.decay_keep_bytes = 64 << 20; /* for the next request */
    config.decay_thread = VMM_OFF;      /* on_timer() does its work */
    check(vmm_create(&config, &cache));
    return cache;
}

/* Called by the event loop's timer. It waits for no work and no other thread. */
static void on_timer(vmm_cache *cache)
{
    check(vmm_poll(cache));
}
/* [end] */

int main(void)
{
    vmm_cache *cache = create_decaying();
    vmm_stream stream = gpu_stream_create();
    serve_burst(cache, stream);
    EXPECT(give_back(cache, 128 << 20) > 0);
    EXPECT(reserved_bytes(cache) <= 128 << 20);

    serve_burst(cache, stream);
    struct timespec pause = { 0, DECAY_MS * 1000000L / 2 };
    for (int i = 0; i < 100 && reserved_bytes(cache) > 64 << 20; i++) {
        EXPECT(nanosleep(&pause, NULL) == 0);
        on_timer(cache);
    }
    EXPECT(reserved_bytes(cache) <= 64 << 20);
    check(vmm_destroy(cache));
    gpu_stream_destroy(stream);
    return 0;
}
