/*
 * What the tests of the shim share: the allocator, installed in a fake PyTorch of the version that the program was
 * built for, on the driver that the command line names.
 */
#ifndef VMM_TEST_SHIM_SUPPORT_HPP
#define VMM_TEST_SHIM_SUPPORT_HPP

/* cmocka's macros have names of functions of <sstream>: it comes after it. */
#include <c10/cuda/CUDACachingAllocator.h>

#include "torch/shim/fake_c10.hpp"

#include "torch/hooks.hpp"
#include "vmmcache/torch_provider.h"

namespace caching = c10::cuda::CUDACachingAllocator;
using c10::MempoolId_t;

constexpr uint64_t device_bytes = 256 * MIB;
constexpr int shim_devices = 2;

/* The allocator as PyTorch sees it. */
caching::CUDAAllocator &shim();
/* The library's own view of it. */
const hooks &plugin();
const vmm_torch_functions &provider();
/* The last line of the library's log. */
std::string &logged();

/* What the program's pressure function does. */
extern std::function<int(size_t)> on_pressure;

/* So many times this thread still gets memory from operator new; -1: always. */
extern thread_local int news_left;

/* Whether the program may touch the memory. */
bool is_host_driver();

/* The text of the exception of type Error that a call throws; fails the test if it throws nothing. */
template <class Error, class Call> std::string thrown(Call call)
{
    try {
        call();
    } catch (const Error &error) {
        return error.what();
    }
    fail_msg("nothing was thrown");
    return "";
}

/* Functions whose form differs between versions. */
inline caching::SnapshotInfo snapshot_of(MempoolId_t id = { 0, 0 })
{
    return shim().snapshot(id);
}

inline void use_on_oom_set(const MempoolId_t &id)
{
#if VMM_TEST_TORCH >= 210
    shim().setUseOnOOM(0, id, true);
#else
    shim().setUseOnOOM(0, id);
#endif
}

/* A block of a pool, allocated as while the pool is captured: the pool has one use more. The same, without that use. */
void *begin_alloc(const MempoolId_t &pool, size_t bytes, cudaStream_t stream = nullptr);
void *alloc_in(const MempoolId_t &pool, size_t bytes, cudaStream_t stream = nullptr);

template <class Blocks = std::initializer_list<void *>> void blocks_delete(const Blocks &blocks)
{
    for (void *block : blocks)
        shim().raw_delete(block);
}

void history_record(bool is_enabled, caching::RecordContext when, size_t entries = 1000,
                    bool clears = true, const std::vector<std::string> &skipped = {});

/* A recording of history that ends with the test. */
class recording
{
  public:
    explicit recording(caching::RecordContext when, size_t entries = 1000, bool clears = true,
                       const std::vector<std::string> &skipped = {})
    {
        history_record(true, when, entries, clears, skipped);
    }
    ~recording()
    {
        history_record(false, caching::RecordContext::NEVER);
    }
};

/* Blocks of one device in use, as the library counts them. */
uint64_t live_blocks(int device = 0);

#endif
