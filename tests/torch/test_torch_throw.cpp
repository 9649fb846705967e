/* Running out of memory throws PyTorch's own exception, with the library's report. */
#include "torch/c10.hpp"
#include "torch/hooks.hpp"

#include <cstring>
#include <stdexcept>

static hooks plugin;

TEST(out_of_memory_throws_pytorchs_exception)
{
    bool caught = false;
    try {
        (void)plugin.alloc(GIB, 0, stream_of(0));
    } catch (const c10::OutOfMemoryError &error) {
        caught = true;
        assert_int_equal(c10::Error::alive, 1);
        static const char begin[] = "CUDA out of memory. Tried to allocate 1024.00 MiB. GPU "
                                    "0 has a total capacity of ";
        assert_memory_equal(error.what(), begin, sizeof begin - 1);
        assert_non_null(std::strstr(error.what(), plugin.last_error()));
    }
    assert_true(caught);
    assert_int_equal(c10::Error::alive, 0);
}

TEST(request_beyond_address_space_throws_the_same)
{
    for (size_t bytes : { size_t(1) << 45, SIZE_MAX }) {
        bool caught = false;
        try {
            (void)plugin.alloc(bytes, 0, stream_of(0));
        } catch (const c10::OutOfMemoryError &error) {
            caught = std::strstr(error.what(), "out of memory") != nullptr;
        }
        assert_true(caught);
    }
}

TEST(exception_is_caught_by_base_class)
{
    int caught = 0;
    for (int i = 0; i < 100; i++) {
        try {
            (void)plugin.alloc(GIB, 0, stream_of(0));
        } catch (const c10::Error &error) {
            std::exception_ptr again = std::current_exception();
            caught += again != nullptr && std::strstr(error.what(), "out of memory") != nullptr;
        }
    }
    assert_int_equal(caught, 100);
    assert_int_equal(c10::Error::alive, 0);
    void *block = plugin.alloc(MIB, 0, stream_of(0));
    assert_non_null(block);
    plugin.free(block, MIB, 0, stream_of(0));
}

TEST(missing_device_is_named)
{
    try {
        (void)plugin.alloc(MIB, 77, stream_of(0));
        fail();
    } catch (const c10::OutOfMemoryError &) {
        fail_msg("a missing device was reported as out of memory");
    } catch (const std::runtime_error &error) {
        assert_non_null(std::strstr(error.what(), "cannot allocate 1.0 MiB. GPU 77: "));
        assert_non_null(std::strstr(error.what(), "no device 77"));
    }
}

/* An exception that PyTorch throws itself is caught by the same handler as the library's. */
TEST(pytorchs_own_throw_is_caught)
{
    bool caught = false;
    try {
        c10::memory_error_throw("by PyTorch");
    } catch (const c10::OutOfMemoryError &error) {
        caught = std::strcmp(error.what(), "by PyTorch") == 0;
    }
    assert_true(caught);
}

static int plugin_open(void **)
{
    plugin = hooks_open(VMM_TORCH_LIBRARY);
    vmm_config config = VMM_CONFIG_INIT;
    config.driver = VMM_DRIVER_SIM;
    config.device_bytes = 64 * MIB;
    return plugin.configure(&config);
}

int main()
{
    return tests_run(plugin_open, nullptr);
}
