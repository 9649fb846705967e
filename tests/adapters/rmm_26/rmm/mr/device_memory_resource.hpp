/* RMM 25.12 to 26.04, as far as rmm_resource uses it. */
#ifndef FAKE_RMM_HPP
#define FAKE_RMM_HPP

#include <cstddef>

struct CUstream_st;

namespace rmm
{

class cuda_stream_view
{
  public:
    explicit cuda_stream_view(CUstream_st *stream) : stream_(stream)
    {
    }
    CUstream_st *value() const noexcept
    {
        return stream_;
    }

  private:
    CUstream_st *stream_;
};

namespace mr
{

class device_memory_resource
{
  public:
    virtual ~device_memory_resource() = default;
    void *allocate(std::size_t bytes, cuda_stream_view stream)
    {
        return do_allocate(bytes, stream);
    }
    void deallocate(void *block, std::size_t bytes, cuda_stream_view stream) noexcept
    {
        do_deallocate(block, bytes, stream);
    }
    bool is_equal(const device_memory_resource &other) const noexcept
    {
        return do_is_equal(other);
    }

  private:
    virtual void *do_allocate(std::size_t bytes, cuda_stream_view stream) = 0;
    virtual void do_deallocate(void *block, std::size_t bytes,
                               cuda_stream_view stream) noexcept = 0;
    virtual bool do_is_equal(const device_memory_resource &other) const noexcept = 0;
};

} // namespace mr
} // namespace rmm

#endif
