// What the tests of vmmcache.hpp share: a small cache on a driver that needs no GPU.
#ifndef VMM_TEST_HPP_SUPPORT_HPP
#define VMM_TEST_HPP_SUPPORT_HPP

#include "expect.hpp"

#include <string>
#include <vmmcache/vmmcache.hpp>

inline constexpr std::size_t MIB = 1 << 20;
inline constexpr std::uint64_t LIMIT = 64 * MIB;

inline vmm_driver_kind driver = VMM_DRIVER_HOST;

inline vmm_config limited()
{
    vmm_config config = vmm::make_config();
    config.driver = driver;
    config.limit_bytes = LIMIT;
    return config;
}

inline vmm_stream stream_named(int number)
{
    static char names[8];
    return reinterpret_cast<vmm_stream>(&names[number]);
}

inline std::uint64_t live_blocks(const vmm::cache &cache)
{
    return cache.stats().allocations.current;
}

// The status of the vmm::error that a call throws.
template <typename Call> vmm_status refused(Call &&call)
{
    return thrown_by<vmm::error>(std::forward<Call>(call)).status();
}

// Reads the driver from the first argument.
inline void read_driver(int argc, char **argv)
{
    std::string name = argc == 2 ? argv[1] : "";
    if (name != "sim" && name != "host") {
        (void)std::fprintf(stderr, "usage: %s sim|host\n", argv[0]);
        std::exit(2);
    }
    driver = name == "sim" ? VMM_DRIVER_SIM : VMM_DRIVER_HOST;
}

#endif
