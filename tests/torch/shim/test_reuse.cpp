/* Reuse of memory along the dependencies of a captured graph. The table of functions says which block waits for whom;
 * what ends a wait in the library has tests of its own (tests/api/test_cache_capture.c). */
#include "torch/shim/shim_support.hpp"

#include <deque>

#if VMM_TEST_TORCH >= 210

namespace vmm_shim
{
extern const vmm_torch_functions *library;
}

static const MempoolId_t captured_pool(0, 7);
static const cudaStream_t own = stream_of(0x40), other = stream_of(0x50), third = stream_of(0x60);

/* The block that waits, for whom, and whether its wait was ended. */
static void *waits;
static std::vector<cudaStream_t> waits_for;
static int ended;

static unsigned streams_tell(int, const void *ptr, vmm_stream *streams, unsigned most)
{
    if (ptr != waits)
        return 0;
    for (size_t i = 0; i < waits_for.size() && i < most; i++)
        streams[i] = waits_for[i];
    return static_cast<unsigned>(waits_for.size());
}

static void end_note(int, const void *ptr)
{
    assert_ptr_equal(ptr, waits);
    ended++;
}

/* A capture of three streams, in which one frees a block that the others use. */
struct captured_scene {
    vmm_torch_functions table = provider();
    CUgraphNode_st begin, of_own, of_other, of_third;
    std::deque<CUgraphNode_st> more;

    captured_scene(std::vector<cudaStream_t> users, bool is_on)
    {
        table.wait_streams = streams_tell;
        table.wait_end = end_note;
        vmm_shim::library = &table;
        fake().reuses_in_captures = is_on;
        fake().stream = own;
        shim().beginAllocateToPool(0, captured_pool, [](cudaStream_t stream) {
            return fake().captures.count(stream) != 0;
        });
        of_own.after = of_other.after = of_third.after = { &begin };
        fake().captures = { { own, { 1, { &of_own } } },
                            { other, { 1, { &of_other } } },
                            { third, { 1, { &of_third } } } };
        users.insert(users.begin(), own);
        waits_for = users;
        waits = shim().raw_alloc_with_stream(MIB, own);
        ended = 0;
        shim().raw_delete(waits);
    }
    ~captured_scene()
    {
        fake().captures.clear();
        shim().endAllocateToPool(0, captured_pool);
        shim().releasePool(0, captured_pool);
        fake().stream = nullptr;
        fake().reuses_in_captures = false;
        vmm_shim::library = &provider();
        waits = nullptr;
    }
    /* Captures a node that comes after others, and what the stream captures next after that. */
    cudaGraphNode_t join_at(std::vector<cudaGraphNode_t> after, cudaStream_t stream = own)
    {
        more.push_back({ std::move(after) });
        fake().captures[stream].last = { &more.back() };
        return &more.back();
    }
};

static int ended_after_request(cudaStream_t stream = own)
{
    shim().raw_delete(shim().raw_alloc_with_stream(4 * MIB, stream));
    return ended;
}

TEST(a_block_serves_its_stream_after_the_join)
{
    captured_scene scene({ other }, true);
    assert_int_equal(ended_after_request(), 0);
    scene.join_at({ &scene.of_own });
    assert_int_equal(ended_after_request(), 0);
    cudaGraphNode_t later = scene.join_at({ &scene.of_other }, other);
    scene.join_at({ fake().captures[own].last[0], later });
    assert_int_equal(ended_after_request(), 1);
    assert_int_equal(ended_after_request(), 1);
}

TEST(all_users_must_have_joined)
{
    captured_scene scene({ other, third }, true);
    scene.join_at({ &scene.of_own, &scene.of_other });
    assert_int_equal(ended_after_request(), 0);
    cudaGraphNode_t join = scene.join_at({ &scene.of_other, &scene.of_third }, other);
    assert_int_equal(ended_after_request(), 0);
    assert_int_equal(ended_after_request(other), 0);
    scene.join_at({ join });
    assert_int_equal(ended_after_request(), 1);
}

TEST(without_the_setting_a_block_waits_for_the_end)
{
    captured_scene scene({ other }, false);
    scene.join_at({ &scene.of_own, &scene.of_other });
    assert_int_equal(ended_after_request(), 0);
}

TEST(a_user_outside_of_the_capture_is_waited_for)
{
    captured_scene scene({ other, stream_of(0x70) }, true);
    scene.join_at({ &scene.of_own, &scene.of_other });
    assert_int_equal(ended_after_request(), 0);
}

TEST(the_nodes_of_an_earlier_capture_do_not_count)
{
    captured_scene scene({ other }, true);
    scene.join_at({ &scene.of_own, &scene.of_other });
    fake().captures[own].id = 2;
    assert_int_equal(ended_after_request(), 0);
    fake().captures[own].id = 1;
    assert_int_equal(ended_after_request(), 1);
}

TEST(without_host_memory_a_block_waits_for_the_end)
{
    captured_scene scene({ other }, true);
    void *block = shim().raw_alloc_with_stream(MIB, own);
    waits = block;
    news_left = 0;
    shim().raw_delete(block);
    news_left = -1;
    scene.join_at({ &scene.of_own, &scene.of_other });
    (void)ended_after_request();
}

#endif
