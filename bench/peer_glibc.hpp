/* malloc() and free() of the C library: a reference that every machine can run. No device, no streams. */
#ifndef VMM_BENCH_PEER_GLIBC_HPP
#define VMM_BENCH_PEER_GLIBC_HPP

#include "allocator.hpp"

#include <cstdlib>
#include <gnu/libc-version.h>

namespace bench
{

class glibc
{
  public:
    static constexpr std::size_t alignment = 16;
    static constexpr bool is_slow = false, caches = false, trims = false, is_ours = false;

    static const char *name()
    {
        return "glibc";
    }
    static device &place()
    {
        return device::host();
    }
    static bool available(std::string &why)
    {
        why = std::string("glibc ") + gnu_get_libc_version();
        return true;
    }
    static void thread_begin()
    {
    }

    void *alloc(std::size_t bytes, void *)
    {
        void *address = std::malloc(bytes);
        if (address == nullptr)
            failed_ = true;
        return address;
    }
    void free(void *address, std::size_t, void *)
    {
        std::free(address);
    }
    void trim()
    {
    }
    figures read()
    {
        return {};
    }
    bool ok() const
    {
        return !failed_;
    }
    std::string error() const
    {
        return "malloc failed";
    }

  private:
    std::atomic<bool> failed_{ false };
};

} // namespace bench

#endif
