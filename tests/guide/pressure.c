/* The pressure callback: the program gives up cached data before a request fails. */
#include "gpu.h"

#include <pthread.h>

enum { MODELS = 6, MODEL_BYTES = 32 << 20 };

/* [pressure] */
struct models {
    pthread_mutex_t lock; /* several threads may be asked at once */
    vmm_cache *cache;
    void *weights[MODELS]; /* NULL: not loaded */
    unsigned oldest;
};

/* Evicts the oldest model. Called without locks of the cache: it may free and trim. */
static int evict(void *context, vmm_pool *pool, size_t bytes)
{
    struct models *models = context;
    int has_freed = 0;
    (void)pool;  /* that needs the memory */
    (void)bytes; /* one model a call; the cache asks again if that is not enough */
    pthread_mutex_lock(&models->lock);
    while (!has_freed && models->oldest < MODELS) {
        void **weights = &models->weights[models->oldest++];
        has_freed = *weights != NULL && vmm_free(models->cache, *weights) == VMM_OK;
        *weights = NULL;
    }
    pthread_mutex_unlock(&models->lock);
    return has_freed; /* 0: nothing left, the request fails */
}
/* [end] */

int main(void)
{
    struct models models = { .lock = PTHREAD_MUTEX_INITIALIZER };
    vmm_config config = VMM_CONFIG_INIT;
    config.limit_bytes = MODELS * (uint64_t)MODEL_BYTES;
    config.pressure = evict;
    config.pressure_context = &models;
    check(vmm_create(&config, &models.cache));
    for (int i = 0; i < MODELS; i++)
        check(vmm_alloc(models.cache, MODEL_BYTES, NULL, &models.weights[i]));

    void *request;
    check(vmm_alloc(models.cache, 3 * (size_t)MODEL_BYTES, NULL, &request));
    EXPECT(models.oldest == 3);
    EXPECT(models.weights[2] == NULL && models.weights[3] != NULL);
    void *none;
    EXPECT(vmm_alloc(models.cache, 6 * (size_t)MODEL_BYTES, NULL, &none) == VMM_ERR_DEVICE_OOM);
    EXPECT(models.oldest == MODELS);
    check(vmm_destroy(models.cache));
    return 0;
}
