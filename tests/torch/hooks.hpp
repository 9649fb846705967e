/*
 * The hooks as PyTorch finds them: looked up in a library that it opens, and cast to the types of its plug-in
 * interface.
 */
#ifndef VMM_TEST_HOOKS_HPP
#define VMM_TEST_HOOKS_HPP

extern "C" {
#include "support/test_support.h"
}
#include "vmmcache/torch.h"

#include <dlfcn.h>

#include <functional>
#include <string>
#include <utility>

struct CUstream_st;
using cuda_stream = CUstream_st *;
using mempool_id = std::pair<unsigned long long, unsigned long long>;

struct hooks {
    std::function<void *(size_t, int, cuda_stream)> alloc;
    std::function<void(void *, size_t, int, cuda_stream)> free;
    std::function<void(void *, size_t, int, cuda_stream)> free_unsized;
    std::function<void(int)> init;
    std::function<void()> reset;
    std::function<void(double, int)> memory_fraction;
    std::function<void *(void *, size_t *)> base;
    std::function<void(void *, cuda_stream)> record_stream;
    std::function<void(int, mempool_id, std::function<bool(cuda_stream)>)> pool_begin;
    std::function<void(int, mempool_id)> pool_end;
    std::function<void(int, mempool_id)> pool_release;
    decltype(&vmm_torch_try_alloc) try_alloc;
    decltype(&vmm_torch_configure) configure;
    decltype(&vmm_torch_cache) cache;
    decltype(&vmm_torch_stats_get) torch_stats_get;
    decltype(&vmm_torch_stats_reset) torch_stats_reset;
    decltype(&vmm_torch_history_start) history_start;
    decltype(&vmm_torch_history_stop) history_stop;
    decltype(&vmm_stats_get) stats_get;
    decltype(&vmm_last_error) last_error;
    decltype(&vmm_walk) walk;
    decltype(&vmm_torch_dlpack_delete) dlpack_delete;
    decltype(&vmm_torch_dlpack_end) dlpack_end;
};

template <class Function> inline Function *hook_find(void *library, const char *name)
{
    void *address = dlsym(library, name);
    if (address == nullptr)
        print_error("%s\n", dlerror());
    assert_non_null(address);
    return reinterpret_cast<Function *>(address);
}

inline hooks hooks_open(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
        print_error("%s\n", dlerror());
    assert_non_null(library);
    hooks found;
    found.alloc = hook_find<void *(size_t, int, cuda_stream)>(library, "vmm_torch_alloc");
    found.free = hook_find<void(void *, size_t, int, cuda_stream)>(library, "vmm_torch_free");
    found.free_unsized =
        hook_find<void(void *, size_t, int, cuda_stream)>(library, "vmm_torch_free_unsized");
    found.init = hook_find<void(int)>(library, "vmm_torch_init");
    found.reset = hook_find<void()>(library, "vmm_torch_reset");
    found.memory_fraction = hook_find<void(double, int)>(library, "vmm_torch_memory_fraction");
    found.base = hook_find<void *(void *, size_t *)>(library, "vmm_torch_base");
    found.record_stream = hook_find<void(void *, cuda_stream)>(library, "vmm_torch_record_stream");
    found.pool_begin = hook_find<void(int, mempool_id, std::function<bool(cuda_stream)>)>(
        library, "vmm_torch_pool_begin");
    found.pool_end = hook_find<void(int, mempool_id)>(library, "vmm_torch_pool_end");
    found.pool_release = hook_find<void(int, mempool_id)>(library, "vmm_torch_pool_release");
#define HOOK_FIND(member, name) found.member = hook_find<decltype(name)>(library, #name)
    HOOK_FIND(try_alloc, vmm_torch_try_alloc);
    HOOK_FIND(configure, vmm_torch_configure);
    HOOK_FIND(cache, vmm_torch_cache);
    HOOK_FIND(torch_stats_get, vmm_torch_stats_get);
    HOOK_FIND(torch_stats_reset, vmm_torch_stats_reset);
    HOOK_FIND(history_start, vmm_torch_history_start);
    HOOK_FIND(history_stop, vmm_torch_history_stop);
    HOOK_FIND(stats_get, vmm_stats_get);
    HOOK_FIND(last_error, vmm_last_error);
    HOOK_FIND(walk, vmm_walk);
    HOOK_FIND(dlpack_delete, vmm_torch_dlpack_delete);
    HOOK_FIND(dlpack_end, vmm_torch_dlpack_end);
#undef HOOK_FIND
    return found;
}

/* Whether a text has a part. Says so if it does not. */
inline bool has(const std::string &text, const char *part)
{
    if (text.find(part) == std::string::npos)
        print_error("'%s' is not in '%s'\n", part, text.c_str());
    return text.find(part) != std::string::npos;
}

inline cuda_stream stream_of(uintptr_t number)
{
    return reinterpret_cast<cuda_stream>(number);
}

#endif
