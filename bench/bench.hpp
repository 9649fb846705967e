/*
 * What the benches share: a cache whose failures end the bench, and counters of its driver calls.
 *
 * Every bench runs on each driver that opens here (sim always, cuda where there is a GPU), verifies
 * its result and reports the driver calls of its timed part. Names are BENCH/DRIVER/ARGUMENT.
 */
#ifndef VMM_BENCH_HPP
#define VMM_BENCH_HPP

#include "vmmcache/vmmcache.h"

#include <benchmark/benchmark.h>
#include <chrono>
#include <string>

namespace bench
{

constexpr std::size_t kib = 1024;
constexpr std::size_t mib = 1024 * kib;

/* Owns one cache. After a failure `status` is not VMM_OK and every further call does nothing. */
class cache
{
  public:
    explicit cache(vmm_driver_kind kind);
    ~cache();
    cache(const cache &) = delete;
    cache &operator=(const cache &) = delete;

    void *alloc(std::size_t bytes)
    {
        void *block = nullptr;
        if (status_ == VMM_OK)
            status_ = vmm_alloc(cache_, bytes, nullptr, &block);
        return block;
    }

    void free(void *block)
    {
        if (status_ == VMM_OK)
            status_ = vmm_free(cache_, block);
    }

    std::size_t trim();
    vmm_stats stats();

    bool ok() const
    {
        return status_ == VMM_OK;
    }

  private:
    vmm_cache *cache_ = nullptr;
    vmm_status status_;
};

/* Ends a bench with an error; failed() tells whether any did. */
void fail(benchmark::State &state, const char *text);
bool failed();

/* Fails with `text` unless `holds`, or with what the library said where a call of it failed. */
bool verify(benchmark::State &state, const cache &used, bool holds, const char *text);

/* Driver calls and driver time between two readings, for each iteration. */
void report_driver(benchmark::State &state, const vmm_stats &before, const vmm_stats &after);

/* Calls that change mappings or physical memory. */
std::uint64_t memory_calls(const vmm_stats &stats);

/* Seconds since `start`, for benches that time a part of each iteration. */
double seconds_since(std::chrono::steady_clock::time_point start);

std::string name(const char *bench, const char *driver);

/* Each bench file registers its own. */
void register_hot(const char *driver, vmm_driver_kind kind);
void register_grow(const char *driver, vmm_driver_kind kind);
void register_replay(const char *driver, vmm_driver_kind kind);

} // namespace bench

#endif
