/*
 * A cache as an allocator of ONNX Runtime, through its C API.
 *
 *   static struct vmm_ort_allocator allocator;
 *   status = vmm_ort_allocator_init(&allocator, api, cache, "Cuda", 0, stream);
 *   api->RegisterAllocator(env, &allocator.base);
 *   api->AddSessionConfigEntry(options, "session.use_env_allocators", "1");
 *   ... sessions; then api->UnregisterAllocator(env, allocator.info), vmm_ort_allocator_fini(&allocator, api) ...
 *
 * Declares nothing where onnxruntime_c_api.h is not found. ONNX Runtime frees memory while work of its stream still
 * uses it, so the sessions must run on `stream`: give it as user_compute_stream of the CUDA execution provider.
 *
 * Owns: `info`, until fini. The cache must outlive the allocator, and the allocator the sessions. Threads: any.
 */
#ifndef VMMCACHE_ONNXRUNTIME_H
#define VMMCACHE_ONNXRUNTIME_H

#include <vmmcache/vmmcache.h>

#ifdef __has_include
#if __has_include(<onnxruntime_c_api.h>)
#include <onnxruntime_c_api.h>
#endif
#endif

#ifdef ORT_API_VERSION

#ifdef __cplusplus
extern "C" {
#endif

struct vmm_ort_allocator {
    OrtAllocator base; /* first, so that a pointer to it is one to this */
    OrtMemoryInfo *info;
    vmm_cache *cache;
    vmm_stream stream;
};

/* ONNX Runtime reports NULL as out of memory. */
static inline void *ORT_API_CALL vmm__ort_alloc(OrtAllocator *base, size_t bytes)
{
    const struct vmm_ort_allocator *allocator = (const struct vmm_ort_allocator *)(void *)base;
    void *block = NULL;
    if (bytes == 0 || vmm_alloc(allocator->cache, bytes, allocator->stream, &block) != VMM_OK)
        return NULL;
    return block;
}

static inline void ORT_API_CALL vmm__ort_free(OrtAllocator *base, void *block)
{
    const struct vmm_ort_allocator *allocator = (const struct vmm_ort_allocator *)(void *)base;
    (void)vmm_free(allocator->cache, block);
}

static inline const OrtMemoryInfo *ORT_API_CALL vmm__ort_info(const OrtAllocator *base)
{
    return ((const struct vmm_ort_allocator *)(const void *)base)->info;
}

/*
 * Does:     makes an allocator for blocks of a stream.
 * Takes:    name and device: those of the execution provider's memory, "Cuda" and the ordinal.
 * Returns:  NULL, or the status of ONNX Runtime, which the caller releases; then there is no allocator.
 */
static inline OrtStatus *vmm_ort_allocator_init(struct vmm_ort_allocator *allocator,
                                                const OrtApi *api, vmm_cache *cache,
                                                const char *name, int device, vmm_stream stream)
{
    OrtMemoryInfo *info = NULL;
    OrtStatus *status =
        api->CreateMemoryInfo(name, OrtDeviceAllocator, device, OrtMemTypeDefault, &info);
    if (status != NULL)
        return status;
    /* Fields of later versions stay zero: ONNX Runtime reads only those of `version`, that of 1.18 at most. */
    static const struct vmm_ort_allocator empty = { 0 };
    *allocator = empty;
    allocator->base.version = ORT_API_VERSION < 18 ? ORT_API_VERSION : 18;
    allocator->base.Alloc = vmm__ort_alloc;
    allocator->base.Free = vmm__ort_free;
    allocator->base.Info = vmm__ort_info;
#if ORT_API_VERSION >= 18
    allocator->base.Reserve = vmm__ort_alloc;
#endif
    allocator->info = info;
    allocator->cache = cache;
    allocator->stream = stream;
    return NULL;
}

/* Releases what init made. No session uses the allocator any longer. */
static inline void vmm_ort_allocator_fini(struct vmm_ort_allocator *allocator, const OrtApi *api)
{
    api->ReleaseMemoryInfo(allocator->info);
    allocator->info = NULL;
}

#ifdef __cplusplus
}
#endif

#endif /* ORT_API_VERSION */

#endif
