/*
 * The interface of an allocator that the benches measure, and vmmcache's implementation of it.
 *
 *   static name(), place()     "vmmcache-cuda"; the device of its blocks
 *   static available(why)      whether this machine can run it; why: its version, or the reason
 *   static alignment           of every block
 *   static is_slow             every call reaches the driver: few iterations, no traces
 *   static caches              keeps freed memory, and reuses it without a driver call
 *   static trims               trim() releases that memory
 *   static is_ours             it must pass checks that the peers need not pass
 *   static thread_begin()      each thread calls it before any other function
 *   alloc(bytes, stream)       nullptr on failure; ok() and error() report the first failure
 *   free(address, bytes, stream)
 *   trim()                     releases all idle memory, if `trims`
 *   read()                     its statistics
 *
 * A new object holds no memory. Several threads may call alloc(), free() and trim().
 */
#ifndef VMM_BENCH_ALLOCATOR_HPP
#define VMM_BENCH_ALLOCATOR_HPP

#include "device.hpp"

#include <atomic>
#include <cstdint>

namespace bench
{

/* A field is -1 if the allocator does not report it. */
struct figures {
    std::int64_t calls = -1;     /* driver calls that change mappings or physical memory */
    std::int64_t driver_ns = -1; /* host time spent in driver calls */
    std::int64_t reserved = -1;
    std::int64_t reserved_peak = -1;
    std::int64_t live = -1; /* blocks */
};

enum class driver_choice { sim, cuda };

/* permille: the footprint setting; 0 for the default. */
template <driver_choice choice, unsigned permille = 0> class vmmcache
{
  public:
    static constexpr std::size_t alignment = 512;
    static constexpr bool is_slow = false, caches = true, trims = true, is_ours = true;

    static const char *name()
    {
        if (permille != 0)
            return choice == driver_choice::sim ? "vmmcache-sim-loose" : "vmmcache-cuda-loose";
        return choice == driver_choice::sim ? "vmmcache-sim" : "vmmcache-cuda";
    }
    static device &place()
    {
        return choice == driver_choice::sim ? device::sim() : device::cuda();
    }
    static bool available(std::string &why)
    {
        why = place().describe();
        return place().ok();
    }
    static void thread_begin()
    {
    }

    vmmcache()
    {
        if (floor_cache_create(place().driver(), permille, &cache_) != VMM_OK)
            fail_first();
    }
    ~vmmcache()
    {
        vmm_destroy(cache_);
    }
    vmmcache(const vmmcache &) = delete;
    vmmcache &operator=(const vmmcache &) = delete;

    void *alloc(std::size_t bytes, vmm_stream stream)
    {
        void *address = nullptr;
        if (vmm_alloc(cache_, bytes, stream, &address) != VMM_OK)
            fail_first();
        return address;
    }
    void free(void *address, std::size_t, void *)
    {
        if (vmm_free(cache_, address) != VMM_OK)
            fail_first();
    }
    void trim()
    {
        if (vmm_trim(cache_, 0, nullptr) != VMM_OK)
            fail_first();
    }
    void poll()
    {
        if (vmm_poll(cache_) != VMM_OK)
            fail_first();
    }
    figures read()
    {
        vmm_stats stats = VMM_STATS_INIT;
        if (vmm_stats_get(cache_, &stats) != VMM_OK)
            fail_first();
        figures found;
        found.calls =
            static_cast<std::int64_t>(stats.create_calls + stats.map_calls + stats.access_calls +
                                      stats.unmap_calls + stats.release_calls);
        found.driver_ns = static_cast<std::int64_t>(floor_host_ns(place().driver()));
        found.reserved = static_cast<std::int64_t>(stats.reserved_bytes.current);
        found.reserved_peak = static_cast<std::int64_t>(stats.reserved_bytes.peak);
        found.live = static_cast<std::int64_t>(stats.allocations.current);
        return found;
    }

    bool ok() const
    {
        return !failed_.load(std::memory_order_relaxed);
    }
    std::string error() const
    {
        return "vmmcache: a call failed; the first error: " + error_;
    }

  private:
    void fail_first()
    {
        if (!failed_.exchange(true))
            error_ = vmm_last_error();
    }

    vmm_cache *cache_ = nullptr;
    std::atomic<bool> failed_{ false };
    std::string error_;
};

} // namespace bench

#endif
