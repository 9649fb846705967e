/*
 * What of PyTorch's plug-in interface speaks C++: the allocation that throws, and private pools, whose
 * requests a function object picks out. PyTorch's headers are not needed: its exception is made through
 * symbols of the libraries that are loaded already.
 *
 * Owns: copies of the function objects of pools that are begun.
 * May be called by: nobody within. Locks: `begun_lock`, a leaf, guards the list of copies.
 */
#include "torch/abi.h"

extern "C" {
#include "base/error.h"
#include "base/hostmem.h"
#include "base/size.h"
}

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstring>
#include <functional>
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

/* Where PyTorch is not loaded, or does not have what we look for. */
class shortage : public std::bad_alloc
{
  public:
    explicit shortage(const std::string &text)
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
    void **functions; /* of the class: its destructor comes first */
};

/* c10::OutOfMemoryError adds nothing to c10::Error, which has about 130 bytes. */
constexpr size_t error_bytes = 1024;

void *symbol_of(const char *library, const char *name)
{
    void *handle = dlopen(library, RTLD_NOLOAD | RTLD_LAZY);
    if (handle == nullptr)
        return nullptr;
    void *symbol = dlsym(handle, name);
    (void)dlclose(handle); /* it was loaded before, and stays */
    return symbol;
}

/* The class is defined wherever it is thrown or caught. */
void *class_symbol(const char *name)
{
    void *symbol = symbol_of("libc10_cuda.so", name);
    return symbol != nullptr ? symbol : symbol_of("libtorch_python.so", name);
}

bool torch_error_find(torch_error *error)
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
    char size[32];
    std::string message = vmm__is_shortage(status)
                              ? "vmmcache: CUDA out of memory. Tried to allocate "
                              : "vmmcache: cannot allocate ";
    message += vmm__size_write(size, sizeof size, bytes);
    message += ". GPU " + std::to_string(device) + ": " + vmm_last_error();
    if (!vmm__is_shortage(status))
        throw std::runtime_error(message);
    torch_error error;
    if (torch_error_find(&error))
        torch_error_throw(error, message);
    throw shortage(message);
}

/* ---- Pools that are begun ------------------------------------------------------------------- */

using stream_filter = std::function<bool(void *)>;
using pool_pair = std::pair<unsigned long long, unsigned long long>; /* PyTorch's MempoolId_t */

struct begun {
    int device;
    pool_pair id;
    stream_filter filter;
    begun *next;
};

std::mutex begun_lock;
begun *begun_first;

vmm_pool_id id_of(const pool_pair &id)
{
    return vmm_pool_id{ id.first, id.second };
}

/* The cache calls it through C, which no exception may cross. */
int stream_passes(void *context, vmm_stream stream)
{
    try {
        return static_cast<begun *>(context)->filter(stream) ? 1 : 0;
    } catch (...) {
        return 0;
    }
}

begun *begun_make(int device, const pool_pair &id, stream_filter filter)
{
    void *memory = vmm__host_alloc(1, sizeof(begun));
    if (memory == nullptr)
        throw std::bad_alloc();
    return new (memory) begun{ device, id, std::move(filter), nullptr };
}

void begun_drop(begun *dropped)
{
    if (dropped == nullptr)
        return;
    dropped->~begun();
    vmm__host_free(dropped, sizeof *dropped);
}

void begun_enter(begun *entered)
{
    std::lock_guard<std::mutex> guard(begun_lock);
    entered->next = begun_first;
    begun_first = entered;
}

/* nullptr if nothing of that id is begun. */
begun *begun_leave(int device, const pool_pair &id)
{
    std::lock_guard<std::mutex> guard(begun_lock);
    begun **link = &begun_first;
    while (*link != nullptr && ((*link)->device != device || (*link)->id != id))
        link = &(*link)->next;
    begun *found = *link;
    if (found != nullptr)
        *link = found->next;
    return found;
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

/* Throws if it fails: a capture whose memory came from elsewhere would be replayed wrongly. */
extern "C" VMM_API void vmm_torch_pool_begin(int device, pool_pair id, stream_filter filter)
{
    bool has_filter = static_cast<bool>(filter);
    begun *made = begun_make(device, id, std::move(filter));
    vmm_status status =
        vmm__torch_pool_begin(device, id_of(id), has_filter ? stream_passes : nullptr, made);
    if (status == VMM_OK) {
        begun_enter(made);
        return;
    }
    begun_drop(made);
    throw std::runtime_error(std::string("vmmcache: a private pool cannot begin on GPU ") +
                             std::to_string(device) + ": " + vmm_last_error());
}

extern "C" VMM_API void vmm_torch_pool_end(int device, pool_pair id)
{
    begun *ended = begun_leave(device, id); /* first: another thread may begin it anew at once */
    vmm_status status = vmm__torch_pool_end(device, id_of(id));
    if (status == VMM_OK) {
        begun_drop(ended);
        return;
    }
    if (ended != nullptr)
        begun_enter(ended);
    vmm__torch_complain("vmm_torch_pool_end", status);
}

extern "C" VMM_API void vmm_torch_pool_release(int device, pool_pair id)
{
    vmm_status status = vmm__torch_pool_release(device, id_of(id));
    if (status != VMM_OK)
        vmm__torch_complain("vmm_torch_pool_release", status);
}
