/* See device.hpp. */
#include "device.hpp"

#include <algorithm>
#include <cstring>

namespace
{

/* Larger than any bench needs: 139 GiB of live blocks must fit. */
constexpr std::uint64_t sim_bytes = std::uint64_t{ 192 } << 30;

/* In host memory, only so many bytes at each end of a block are written. */
constexpr std::size_t touched_bytes = 64;

bool host_touch(const std::vector<bench::block> &blocks)
{
    auto ends = [](const bench::block &b, auto visit) {
        std::size_t bytes = std::min(b.bytes, touched_bytes);
        return visit(b.address, bytes) && visit(b.address + b.bytes - bytes, bytes);
    };
    for (std::size_t i = 0; i < blocks.size(); i++)
        ends(blocks[i], [i](char *address, std::size_t bytes) {
            std::memset(address, static_cast<int>(i % 251), bytes);
            return true;
        });
    for (std::size_t i = 0; i < blocks.size(); i++) {
        auto holds = [i](const char *address, std::size_t bytes) {
            return std::all_of(address, address + bytes,
                               [i](char byte) { return byte == static_cast<char>(i % 251); });
        };
        if (!ends(blocks[i], holds))
            return false;
    }
    return true;
}

} // namespace

namespace bench
{

device::device(vmm_driver_kind kind, std::uint64_t device_bytes)
{
    if (floor_open(kind, device_bytes, &driver_) != VMM_OK)
        error_ = vmm_last_error();
}

device &device::sim()
{
    static device only(VMM_DRIVER_SIM, sim_bytes);
    return only;
}

device &device::cuda()
{
    static device only(VMM_DRIVER_CUDA, 0);
    return only;
}

device &device::host()
{
    static device only;
    return only;
}

void device::close()
{
    for (vmm_stream stream : streams_)
        (void)floor_stream_destroy(driver_, stream);
    streams_.clear();
    if (driver_ != nullptr)
        floor_close(driver_);
    driver_ = nullptr;
}

void device::close_all()
{
    sim().close();
    cuda().close();
}

std::string device::describe() const
{
    if (is_host_)
        return "host memory";
    if (driver_ == nullptr)
        return error_;
    std::string version = floor_version(driver_);
    return std::string(floor_device_name(driver_)) + (version.empty() ? "" : "; ") + version;
}

vmm_stream device::stream(unsigned number)
{
    if (is_host_)
        return nullptr;
    while (streams_.size() <= number) {
        vmm_stream made = nullptr;
        if (floor_stream_create(driver_, &made) != VMM_OK)
            return nullptr;
        streams_.push_back(made);
    }
    return streams_[number];
}

bool device::delay(std::uint64_t ns, vmm_stream stream)
{
    return is_host_ || floor_delay(driver_, ns, stream) == VMM_OK;
}

bool device::wait()
{
    return is_host_ || floor_wait(driver_) == VMM_OK;
}

bool device::touch_work(const std::vector<block> &blocks)
{
    bool done = true;
    std::uint32_t word = 1;
    for (const block &b : blocks)
        done = done && floor_fill(driver_, b.address, b.bytes, word++, b.stream) == VMM_OK;
    word = 1;
    for (const block &b : blocks)
        done = done && floor_check(driver_, b.address, b.bytes, word++, b.stream) == VMM_OK;
    return done;
}

bool device::touch(const std::vector<block> &blocks)
{
    std::uint64_t before = 0, after = 0;
    if (is_host_)
        return host_touch(blocks);
    return floor_mismatches(driver_, &before) == VMM_OK && touch_work(blocks) &&
           floor_mismatches(driver_, &after) == VMM_OK && after == before;
}

} // namespace bench
