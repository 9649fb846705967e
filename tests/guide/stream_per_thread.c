/* A stream for each thread, and a block that passes from one stream to another. */
#include "gpu.h"

#include <pthread.h>

enum { THREADS = 4, ROUNDS = 200, BYTES = 1 << 20 };

/* [thread] */
static void *work(void *argument)
{
    vmm_cache *cache = argument;
    vmm_stream stream = gpu_stream_create();
    for (int round = 0; round < ROUNDS; round++) {
        void *block;
        check(vmm_alloc(cache, BYTES, stream, &block));
        gpu_fill(block, round, BYTES, stream);
        check(vmm_free(cache, block)); /* the fill may still be running */
    }
    check(vmm_stream_end(cache, stream)); /* before the stream is destroyed */
    gpu_stream_destroy(stream);
    return NULL;
}
/* [end] */

/* [two_streams] */
static void pass_on(vmm_cache *cache, vmm_stream producer, vmm_stream consumer)
{
    void *block;
    check(vmm_alloc(cache, BYTES, producer, &block));
    gpu_fill(block, 1, BYTES, producer);
    gpu_stream_wait(consumer, producer); /* the order of work is the program's */
    gpu_fill(block, 2, BYTES, consumer);
    check(vmm_record_stream(cache, block, consumer));
    check(vmm_free(cache, block)); /* kept until the consumer's work is done */
}
/* [end] */

int main(void)
{
    vmm_cache *cache;
    pthread_t threads[THREADS];
    check(vmm_create(NULL, &cache));
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&threads[i], NULL, work, cache) == 0);
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_join(threads[i], NULL) == 0);

    vmm_stream streams[2] = { gpu_stream_create(), gpu_stream_create() };
    pass_on(cache, streams[0], streams[1]);
    check(vmm_wait(cache));
    check(vmm_trim(cache, 0, NULL));
    vmm_stats stats = VMM_STATS_INIT;
    check(vmm_stats_get(cache, &stats));
    EXPECT(stats.reserved_bytes.current == 0);
    for (int i = 0; i < 2; i++) {
        check(vmm_stream_end(cache, streams[i]));
        gpu_stream_destroy(streams[i]);
    }
    check(vmm_destroy(cache));
    return 0;
}
