/*
 * Where blocks live: a device with its streams, or the host's memory. Opened once for the process, so
 * that no bench pays for a context.
 *
 * Owns: the driver and the streams made on it. stream() and touch() are for one thread at a time.
 */
#ifndef VMM_BENCH_DEVICE_HPP
#define VMM_BENCH_DEVICE_HPP

#include "floor.h"

#include <cstdint>
#include <string>
#include <vector>

namespace bench
{

/* A block as a bench remembers it. */
struct block {
    char *address = nullptr;
    std::size_t bytes = 0;
    void *stream = nullptr;
};

class device
{
  public:
    static device &sim();
    static device &cuda();
    static device &host(); /* no driver: plain memory, and streams are nothing */
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
    std::string describe() const; /* or why it did not open */

    void *stream(unsigned number); /* made at its first use */
    bool delay(std::uint64_t ns, void *stream);
    bool wait(); /* for all work */

    /* Writes bytes of their own into each block, in stream order, and then finds them there. */
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
    std::vector<void *> streams_;
};

} // namespace bench

#endif
