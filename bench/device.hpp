/*
 * The memory that blocks live in: a device with its streams, or host memory. Opened once for the process, so
 * that no bench measures the creation of a context.
 *
 * Owns: the driver and the streams created on it. Only one thread at a time may call stream() and touch().
 */
#ifndef VMM_BENCH_DEVICE_HPP
#define VMM_BENCH_DEVICE_HPP

#include "floor.h"

#include <cstdint>
#include <string>
#include <vector>

namespace bench
{

/* A live block of a bench. */
struct block {
    char *address = nullptr;
    std::size_t bytes = 0;
    vmm_stream stream = nullptr;
};

class device
{
  public:
    static device &sim();
    static device &cuda();
    static device &host(); /* no driver: plain memory; streams are null */
    static void close_all();

    bool ok() const
    {
        return driver_ != nullptr || is_host_;
    }
    bool is_sim() const
    {
        return this == &sim();
    }
    struct driver *driver() const
    {
        return driver_;
    }
    std::string describe() const; /* or the reason why it did not open */

    vmm_stream stream(unsigned number); /* created at its first use */
    bool delay(std::uint64_t ns, vmm_stream stream);
    bool wait(); /* for all work */

    /* Writes a different pattern into each block, in stream order, and then checks the patterns. */
    bool touch(const std::vector<block> &blocks);

  private:
    device(vmm_driver_kind kind, std::uint64_t device_bytes);
    device() : is_host_(true)
    {
    }
    void close();
    bool touch_work(const std::vector<block> &blocks);

    struct driver *driver_ = nullptr;
    bool is_host_ = false;
    std::string error_;
    std::vector<vmm_stream> streams_;
};

} // namespace bench

#endif
