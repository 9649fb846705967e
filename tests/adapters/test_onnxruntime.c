/* vmm_ort_allocator on the driver that is named, with the least of ONNX Runtime that it uses (fake/). */
#define _GNU_SOURCE
#include "support/cache_support.h"

#include <string.h>
#include <vmmcache/onnxruntime.h>

struct OrtMemoryInfo {
    const char *name;
    int device;
};
struct OrtStatus {
    int code;
};

static struct OrtMemoryInfo known;
static struct OrtStatus refusal;
static bool is_refused;

static OrtStatus *info_create(const char *name, OrtAllocatorType type, int device,
                              OrtMemType memory, OrtMemoryInfo **out)
{
    (void)type;
    (void)memory;
    known = (struct OrtMemoryInfo){ .name = name, .device = device };
    *out = &known;
    return is_refused ? &refusal : NULL;
}

static void info_release(OrtMemoryInfo *info)
{
    info->name = NULL;
}

static const OrtApi api = { .CreateMemoryInfo = info_create, .ReleaseMemoryInfo = info_release };

static void allocator_init(struct vmm_ort_allocator *allocator, struct cache_test *test)
{
    is_refused = false;
    assert_null(vmm_ort_allocator_init(allocator, &api, test->cache, "Cuda", 0, test->streams[1]));
}

CACHE_TEST(sessions_allocate_from_the_cache)
{
    struct vmm_ort_allocator allocator;
    allocator_init(&allocator, test);
    OrtAllocator *base = &allocator.base;
    void *one = base->Alloc(base, 3 * MIB);
    void *two = base->Reserve(base, 100);
    assert_true(one != NULL && two != NULL);
    assert_int_equal(cache_stats(test).requested_bytes.current, 3 * MIB + 100);
    vmm_item item = VMM_ITEM_INIT;
    assert_ok(vmm_find(test->cache, one, &item));
    assert_ptr_equal(item.stream, test->streams[1]);
    base->Free(base, one);
    base->Free(base, two);
    base->Free(base, NULL);
    assert_int_equal(cache_stats(test).requested_bytes.current, 0);
    vmm_ort_allocator_fini(&allocator, &api);
}

CACHE_TEST(allocator_describes_its_memory)
{
    struct vmm_ort_allocator allocator;
    allocator_init(&allocator, test);
    assert_ptr_equal(allocator.base.Info(&allocator.base), &known);
    assert_true(strcmp(known.name, "Cuda") == 0 && known.device == 0);
    /* What a later version would call is not there, and the version says so. */
    assert_int_equal(allocator.base.version, 18);
    assert_null(allocator.base.AllocOnStream);
    vmm_ort_allocator_fini(&allocator, &api);
    assert_null(known.name);
}

CACHE_TEST(no_memory_is_null)
{
    struct vmm_ort_allocator allocator;
    allocator_init(&allocator, test);
    assert_null(allocator.base.Alloc(&allocator.base, CACHE_LIMIT + 1));
    assert_null(allocator.base.Alloc(&allocator.base, 0));
    vmm_ort_allocator_fini(&allocator, &api);
}

CACHE_TEST(refusal_of_onnx_runtime_is_passed_on)
{
    struct vmm_ort_allocator allocator;
    is_refused = true;
    assert_ptr_equal(
        vmm_ort_allocator_init(&allocator, &api, test->cache, "Cuda", 0, test->streams[1]),
        &refusal);
}

CACHE_MAIN()
