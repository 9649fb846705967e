/*
 * The part of PyTorch's plug-in interface that is C++: the allocation hook that throws, and graph pools, which
 * select their requests with a std::function. PyTorch's headers are not needed: the code builds PyTorch's
 * exception through symbols of the loaded libraries.
 *
 * Owns: copies of the filters of the pools that are open.
 * Called by: PyTorch only. Locks: `open_pools_lock`, a leaf, guards their map.
 */
#include "torch/abi.h"

extern "C" {
#include "base/error.h"
}

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <typeinfo>
#include <utility>

namespace
{

/* ---- Exceptions ----------------------------------------------------------------------------- */

/* Used if PyTorch is not loaded or does not have the symbols. */
class out_of_memory : public std::bad_alloc
{
  public:
    explicit out_of_memory(const std::string &text)
    {
        text_[text.copy(text_, sizeof text_ - 1)] = '\0';
    }
    const char *what() const noexcept override
    {
        return text_;
    }

  private:
    char text_[1024]; /* copies of an exception must not throw */
};

/* c10::Error::Error(std::string message, Backtrace, const void *caller); Backtrace is a shared_ptr. */
using error_constructor = void (*)(void *self, std::string message,
                                   std::shared_ptr<const void> backtrace, const void *caller);
#define ERROR_CONSTRUCTOR                                                                          \
    "_ZN3c105ErrorC1ENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"                         \
    "St10shared_ptrIKNS_9LazyValueIS6_EEEPKv"

struct torch_error {
    error_constructor construct;
    std::type_info *type;
    void **functions; /* the virtual table; the destructor is its first entry */
};

/* c10::OutOfMemoryError adds no fields to c10::Error, which has about 130 bytes. */
constexpr size_t error_bytes = 1024;

void *symbol_of(const char *library, const char *name)
{
    void *handle = dlopen(library, RTLD_NOLOAD | RTLD_LAZY);
    if (handle == nullptr)
        return nullptr;
    void *symbol = dlsym(handle, name);
    (void)dlclose(handle); /* the library was loaded before and stays loaded */
    return symbol;
}

/* Every library that throws or catches the class defines it. */
void *class_symbol(const char *name)
{
    void *symbol = symbol_of("libc10_cuda.so", name);
    return symbol != nullptr ? symbol : symbol_of("libtorch_python.so", name);
}

bool torch_error_resolve(torch_error *error)
{
    void *construct = symbol_of("libc10.so", ERROR_CONSTRUCTOR);
    void *type = class_symbol("_ZTIN3c1016OutOfMemoryErrorE");
    void *table = class_symbol("_ZTVN3c1016OutOfMemoryErrorE");
    if (construct == nullptr || type == nullptr || table == nullptr)
        return false;
    error->construct = reinterpret_cast<error_constructor>(construct);
    error->type = static_cast<std::type_info *>(type);
    error->functions = static_cast<void **>(table) + 2; /* after the offset and the type */
    return true;
}

[[noreturn]] void torch_error_throw(const torch_error &error, const std::string &message)
{
    void *object = abi::__cxa_allocate_exception(error_bytes);
    std::memset(object, 0, error_bytes);
    try {
        error.construct(object, message, nullptr, nullptr);
    } catch (...) {
        abi::__cxa_free_exception(object);
        throw;
    }
    *static_cast<void **>(object) = error.functions; /* an Error becomes an OutOfMemoryError */
    auto destruct = reinterpret_cast<void (*)(void *)>(error.functions[0]);
    abi::__cxa_throw(object, error.type, destruct);
}

[[noreturn]] void failure_throw(size_t bytes, int device, vmm_status status)
{
    char message[VMM_TORCH_FAILURE_BYTES];
    vmm__torch_failure_write(device, bytes, status, message, sizeof message);
    if (!vmm__is_oom(status))
        throw std::runtime_error(message);
    torch_error error;
    if (torch_error_resolve(&error))
        torch_error_throw(error, message);
    throw out_of_memory(message);
}

/* ---- Open pools ----------------------------------------------------------------------------- */

using stream_filter = std::function<bool(void *)>;
using pool_pair = std::pair<unsigned long long, unsigned long long>; /* PyTorch's MempoolId_t */

/* The filters of pools that are open, by device and id; several of one pool if threads begin and end it at once. The
 * cache has a pointer to the filter, which stays valid when its node moves from one map to another. */
using filters = std::multimap<std::pair<int, pool_pair>, stream_filter>;

std::mutex open_pools_lock;
auto &open_pools = *new filters;

vmm_pool_id id_of(const pool_pair &id)
{
    return vmm_pool_id{ id.first, id.second };
}

/* The cache calls this through C, which no exception may cross. */
int filter_call(void *context, vmm_stream stream)
{
    try {
        return (*static_cast<stream_filter *>(context))(stream) ? 1 : 0;
    } catch (...) {
        return 0;
    }
}

} // namespace

extern "C" void *vmm_torch_alloc(size_t bytes, int device, vmm_stream stream)
{
    void *ptr = nullptr;
    vmm_status status = vmm__torch_take(bytes, device, stream, &ptr);
    if (status != VMM_OK)
        failure_throw(bytes, device, status);
    return ptr;
}

/* Throws on failure: a capture that used other memory would replay wrongly. */
extern "C" VMM_API void vmm_torch_pool_begin(int device, pool_pair id, stream_filter filter)
{
    filters opened;
    stream_filter &kept = opened.emplace(std::pair(device, id), std::move(filter))->second;
    vmm_status status =
        vmm__torch_pool_begin(device, id_of(id), kept ? filter_call : nullptr, &kept);
    if (status != VMM_OK)
        throw std::runtime_error(std::string("vmmcache: cannot begin a graph pool on GPU ") +
                                 std::to_string(device) + ": " + vmm_last_error());
    std::lock_guard<std::mutex> guard(open_pools_lock);
    open_pools.merge(opened);
}

extern "C" VMM_API void vmm_torch_pool_end(int device, pool_pair id)
{
    /* Before the call: after it, another thread may begin the same id. */
    std::unique_lock<std::mutex> guard(open_pools_lock);
    auto closed = open_pools.extract(std::pair(device, id));
    guard.unlock();
    vmm_status status = vmm__torch_pool_unroute(device, id_of(id));
    if (status == VMM_OK)
        return;
    guard.lock();
    open_pools.insert(std::move(closed));
    guard.unlock();
    vmm__torch_complain("vmm_torch_pool_end", status);
}

extern "C" VMM_API void vmm_torch_pool_release(int device, pool_pair id)
{
    vmm_status status = vmm__torch_pool_leave(device, id_of(id));
    if (status != VMM_OK)
        vmm__torch_complain("vmm_torch_pool_release", status);
}
