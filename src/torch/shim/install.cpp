/*
 * The functions that the Python package calls.
 * Owns: the allocator, for the rest of the process. Locks: none; the package calls it once.
 */
#include "torch/shim/allocator.h"

#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <exception>
#include <new>

namespace vmm_shim
{

/* Higher than that of PyTorch's own allocator. torch.accelerator asks the allocator of the highest priority. */
constexpr uint8_t priority = 255;

static char failure[1024];

static const char *failure_keep(const char *text)
{
    std::strncpy(failure, text, sizeof failure - 1);
    return failure;
}

static void install(const vmm_torch_functions *functions)
{
    TORCH_CHECK(functions->version == VMM_TORCH_PROVIDER_VERSION &&
                    functions->struct_size >= sizeof *functions,
                "the library is of another version");
    auto *before = caching::allocator.load();
    TORCH_CHECK(before == nullptr || !before->initialized(),
                "PyTorch has used its own allocator already");
    library = functions;
    reclaim_install();
    history_install();
    trackers_install();
    static allocator *installed = new allocator;
    caching::allocator.store(installed);
    c10::SetAllocator(c10::DeviceType::CUDA, installed, priority);
    library->peers_defer(); /* PyTorch asks: see enablePeerAccess() */
}

} // namespace vmm_shim

/* Returns NULL, or what is wrong; PyTorch then has the allocator that it had. */
extern "C" __attribute__((visibility("default"))) const char *
vmm_shim_install(const vmm_torch_functions *functions)
{
    try {
        vmm_shim::install(functions);
    } catch (const std::exception &error) {
        return vmm_shim::failure_keep(error.what());
    }
    return nullptr;
}
