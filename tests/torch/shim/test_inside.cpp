/* torchbench's measurement of the time inside the allocator (tools/torchbench/inside.cpp), on the shim. */
#include "torch/shim/shim_support.hpp"

extern "C" {
int inside_begin();
void inside_end();
void inside_read(std::uint64_t *ns, std::uint64_t *count);
}

static uint64_t requests_measured()
{
    uint64_t ns = 0, count = 0;
    inside_read(&ns, &count);
    assert_true(count == 0 || ns > 0);
    return count;
}

TEST(allocations_and_frees_are_measured)
{
    uint64_t before = requests_measured();
    assert_int_equal(inside_begin(), 1);
    {
        c10::DataPtr block = shim().allocate(MIB);
        assert_non_null(block.get());
        assert_int_equal(requests_measured(), before + 1);
        assert_true(block.get_deleter() == shim().raw_deleter()); /* PyTorch compares them */
        shim().recordStream(block, c10::cuda::CUDAStream(c10::Stream(stream_of(0x60))));
        assert_int_equal(live_blocks(), 1);
    }
    assert_int_equal(requests_measured(), before + 2);
    assert_int_equal(live_blocks(), 0);
    inside_end();
}

TEST(a_block_outlives_the_measurement)
{
    c10::DeleterFnPtr deleter = shim().raw_deleter();
    c10::DataPtr early = shim().allocate(MIB);
    assert_int_equal(inside_begin(), 1);
    c10::DataPtr block = shim().allocate(MIB);
    early = c10::DataPtr();
    inside_end();
    assert_true(shim().raw_deleter() == deleter);
    assert_int_equal(live_blocks(), 1);
    block = c10::DataPtr();
    assert_int_equal(live_blocks(), 0);
    uint64_t before = requests_measured();
    (void)shim().allocate(MIB);
    assert_int_equal(requests_measured(), before);
}

/* The library refuses a default stream of threads: the call reached it, and the block stays whole. */
TEST(record_stream_reaches_the_allocator)
{
    assert_int_equal(inside_begin(), 1);
    {
        c10::DataPtr block = shim().allocate(MIB);
        c10::cuda::CUDAStream refused(c10::Stream(stream_of(0x2)));
        std::string text = thrown<c10::Error>([&] { shim().recordStream(block, refused); });
        assert_true(has(text, "record_stream"));
        assert_int_equal(live_blocks(), 1);
    }
    assert_int_equal(live_blocks(), 0);
    inside_end();
}
