/* Running out of memory as PyTorch sees it: an exception of its own class, which says what was wrong. */
#include "torch/c10.hpp"
#include "torch/hooks.hpp"

#include <cstring>
#include <stdexcept>

static hooks plugin;

static void memory_ends_in_pytorchs_exception(void **)
{
    bool caught = false;
    try {
        (void)plugin.alloc(GIB, 0, stream_of(0));
    } catch (const c10::OutOfMemoryError &error) {
        caught = true;
        assert_int_equal(c10::Error::alive, 1);
        static const char begin[] =
            "vmmcache: CUDA out of memory. Tried to allocate 1.0 GiB. GPU 0: ";
        assert_memory_equal(error.what(), begin, sizeof begin - 1);
        assert_string_equal(error.what() + sizeof begin - 1, plugin.last_error());
    }
    assert_true(caught);
    assert_int_equal(c10::Error::alive, 0);
}

static void more_than_there_are_addresses_is_no_other_error(void **)
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

static void it_is_caught_as_its_parents_and_goes_on(void **)
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

static void a_device_that_is_not_there_is_named(void **)
{
    try {
        (void)plugin.alloc(MIB, 77, stream_of(0));
        fail();
    } catch (const c10::OutOfMemoryError &) {
        fail_msg("a device that is not there is no want of memory");
    } catch (const std::runtime_error &error) {
        assert_non_null(std::strstr(error.what(), "cannot allocate 1.0 MiB. GPU 77: "));
        assert_non_null(std::strstr(error.what(), "no device 77"));
    }
}

/* What the library's records say must be what a throw of the class itself says. */
static void the_class_itself_is_caught_alike(void **)
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
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_ends_in_pytorchs_exception),
        cmocka_unit_test(more_than_there_are_addresses_is_no_other_error),
        cmocka_unit_test(it_is_caught_as_its_parents_and_goes_on),
        cmocka_unit_test(a_device_that_is_not_there_is_named),
        cmocka_unit_test(the_class_itself_is_caught_alike),
    };
    return cmocka_run_group_tests(tests, plugin_open, nullptr);
}
