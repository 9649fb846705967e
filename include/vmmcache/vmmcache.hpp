/*
 * libvmmcache for C++17: owners, exceptions and a std::pmr memory resource on top of vmmcache.h.
 *
 *   vmm::cache cache;                                    // device 0; throws where there is no GPU
 *   vmm::block weights = cache.allocate(1 << 20, stream);
 *   launch(weights.data(), weights.size(), stream);
 *   if (vmm::block more = cache.try_allocate(1 << 30))   // throws nothing
 *       launch(more.data(), more.size(), stream);
 *
 * Header only: link the C library. Needs exceptions, RTTI and the standard library, and no CUDA header. What has no
 * wrapper here (routes of pools, several pools that sleep at once, reports) is called through cache::get() and
 * pool::get().
 *
 * Errors. A call that fails throws vmm::out_of_memory (a std::bad_alloc) if memory or addresses ran out, and
 * vmm::error (a std::runtime_error) for all else. Both carry the vmm_status and the line of vmm_last_error().
 *
 * Callbacks. No exception may leave a callback of the C library. The wrappers here catch what a function
 * of the program throws. walk() throws it again when the walk has ended. Any other callback has no caller to
 * throw to: the cache keeps the first such exception, and take_error() returns it. The same holds for a free
 * that fails inside a destructor or a std::pmr call. Functions given to the C API directly must not throw.
 *
 * Threads. As in the C header: any thread may call any function of a cache, except that nothing may run at the same
 * time as its move, its close() or its destructor, and one thread at a time calls listen(). The same holds for a pool.
 * One block is used by one thread at a time.
 */
#ifndef VMMCACHE_HPP
#define VMMCACHE_HPP

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vmmcache/vmmcache.h>

namespace vmm
{

/* Every address that a cache returns is a multiple of this. */
inline constexpr std::size_t alignment_bytes = 512;

/* A failed call. what() is the line of vmm_last_error(). */
class error : public std::runtime_error
{
  public:
    error(vmm_status status, const std::string &line) : std::runtime_error(line), status_(status)
    {
    }
    vmm_status status() const noexcept
    {
        return status_;
    }

  private:
    vmm_status status_;
};

/* Device memory, host memory or addresses ran out: ERR_DEVICE_OOM, ERR_HOST_OOM, ERR_ADDRESS_SPACE. */
class out_of_memory : public std::bad_alloc
{
  public:
    out_of_memory(vmm_status status, const std::string &line) : line_(line), status_(status)
    {
    }
    const char *what() const noexcept override
    {
        return line_.what();
    }
    vmm_status status() const noexcept
    {
        return status_;
    }

  private:
    std::runtime_error line_; /* a string whose copy cannot throw */
    vmm_status status_;
};

/* Throws nothing for VMM_OK; else what the head of this file says, with this thread's vmm_last_error(). */
inline void throw_on_error(vmm_status status)
{
    switch (status) {
    case VMM_OK:
        return;
    case VMM_ERR_DEVICE_OOM:
    case VMM_ERR_HOST_OOM:
    case VMM_ERR_ADDRESS_SPACE:
        throw out_of_memory(status, vmm_last_error());
    default:
        throw error(status, vmm_last_error());
    }
}

/* A configuration in which every field has its default. */
inline vmm_config make_config() noexcept
{
    vmm_config config = VMM_CONFIG_INIT;
    return config;
}

/* Options of a pool in which every field has its default. */
inline vmm_pool_options make_pool_options() noexcept
{
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    return options;
}

/* Options of a sleep or a wake in which every field has its default. Its functions must not throw. */
inline vmm_sleep_options make_sleep_options() noexcept
{
    vmm_sleep_options options = VMM_SLEEP_OPTIONS_INIT;
    return options;
}

/* What a compaction copied, and by how much reserved memory shrank. */
struct compaction {
    std::uint64_t moved_bytes = 0;
    std::uint64_t released_bytes = 0;
};

/*
 * Functions of the program that a cache calls; an empty one is not installed, and the field of vmm_config counts.
 * Each may be called by several threads at once. log must not call the cache. pressure may free blocks and trim: it
 * returns whether it freed anything; an exception counts as no. debug may call the cache as the C header says.
 */
struct callbacks {
    std::function<void(const char *line)> log;
    std::function<bool(vmm_pool *pool, std::size_t bytes)> pressure;
    std::function<void(const char *line)> debug;
};

/*
 * The functions of a source of segments, as vmm_segment_source says; several threads may call them at once. One that
 * throws has no memory, or has taken the segment back; the cache keeps the exception.
 */
struct segment_source {
    std::function<void *(std::size_t bytes, vmm_stream stream)> allocate;
    std::function<void(void *segment, std::size_t bytes)> free;
    std::size_t segment_bytes = 0;
};

namespace detail
{

class state;

/* What the functions of a pool's source get as their context. */
struct source {
    state *owner;
    segment_source functions;
    std::unique_ptr<source> next; /* of those whose pool the cache ends */
};

/* What callbacks and blocks point to. It keeps its address when the cache is moved. */
class state
{
  public:
    explicit state(callbacks given) : functions(std::move(given))
    {
    }

    /* Calls the function. If that throws, keeps the exception and returns the fallback. */
    template <typename Result, typename Function>
    Result guarded(Result fallback, Function &&function) noexcept
    {
        try {
            return function();
        } catch (...) {
            keep(std::current_exception());
            return fallback;
        }
    }

    /* Keeps the failure of a call that cannot throw. */
    void keep_failure(vmm_status status) noexcept
    {
        guarded(0, [status] {
            throw_on_error(status);
            return 0;
        });
    }

    /* Keeps a source until the cache has ended: its pool could not be destroyed. */
    void keep_source(std::unique_ptr<source> left) noexcept
    {
        std::lock_guard<std::mutex> hold(lock_);
        left->next = std::move(sources_);
        sources_ = std::move(left);
    }

    std::exception_ptr take() noexcept
    {
        std::lock_guard<std::mutex> hold(lock_);
        return std::exchange(first_, nullptr);
    }

    vmm_cache *handle = nullptr;
    callbacks functions;
    std::function<void(const vmm_change &)> listener;

  private:
    void keep(std::exception_ptr thrown) noexcept
    {
        std::lock_guard<std::mutex> hold(lock_);
        if (first_ == nullptr)
            first_ = std::move(thrown);
    }

    std::mutex lock_;
    std::exception_ptr first_;
    std::unique_ptr<source> sources_;
};

inline void *segment_allocate(void *context, std::size_t bytes, vmm_stream stream) noexcept
{
    source &from = *static_cast<source *>(context);
    return from.owner->guarded(static_cast<void *>(nullptr),
                               [&] { return from.functions.allocate(bytes, stream); });
}

inline void segment_free(void *context, void *segment, std::size_t bytes) noexcept
{
    source &from = *static_cast<source *>(context);
    from.owner->guarded(0, [&] {
        from.functions.free(segment, bytes);
        return 0;
    });
}

inline void log_line(void *context, const char *line) noexcept
{
    state &owner = *static_cast<state *>(context);
    owner.guarded(0, [&] {
        owner.functions.log(line);
        return 0;
    });
}

inline int ask_for_memory(void *context, vmm_pool *pool, std::size_t bytes) noexcept
{
    state &owner = *static_cast<state *>(context);
    return owner.guarded(0, [&] { return owner.functions.pressure(pool, bytes) ? 1 : 0; });
}

inline void report_debug(void *context, const char *line) noexcept
{
    state &owner = *static_cast<state *>(context);
    owner.guarded(0, [&] {
        owner.functions.debug(line);
        return 0;
    });
}

inline void report_change(void *context, const vmm_change *change) noexcept
{
    state &owner = *static_cast<state *>(context);
    owner.guarded(0, [&] {
        owner.listener(*change);
        return 0;
    });
}

template <typename Visit> struct walk_state {
    Visit &visit;
    std::exception_ptr thrown;
};

template <typename Visit, typename Item> int visit_item(void *context, const Item *item) noexcept
{
    auto &walk = *static_cast<walk_state<Visit> *>(context);
    try {
        return walk.visit(*item) ? 0 : 1;
    } catch (...) {
        walk.thrown = std::current_exception();
        return 1;
    }
}

/* Runs a walk, which gets the visitor and its context, and throws what the visitor threw. */
template <typename Visit, typename Walk> void walk_items(Visit &visit, Walk &&walk)
{
    walk_state<Visit> seen{ visit, nullptr };
    vmm_status status = walk(visit_item<Visit>, &seen);
    if (seen.thrown != nullptr)
        std::rethrow_exception(seen.thrown);
    throw_on_error(status);
}

/* A block at a multiple of an alignment, a power of two. Above alignment_bytes it is from the default pool: pushes and
 * routes do not apply. */
[[nodiscard]] inline vmm_status alloc_aligned(vmm_cache *cache, std::size_t bytes,
                                              std::size_t alignment, vmm_stream stream,
                                              void **out) noexcept
{
    if (alignment <= alignment_bytes)
        return vmm_alloc(cache, bytes, stream, out);
    return vmm_alloc_aligned(vmm_cache_pool(cache), bytes, alignment, stream, out);
}

} // namespace detail

/*
 * Owns a share of a block, which another process can import. Move only. May outlive the cache.
 *
 * Where importers may still use the block, only close(true) ends the share of an export: the destructor of one that was
 * sent leaves it open until the process ends, and the block stays where it is.
 */
class share
{
  public:
    /* Waits for what send() of another process sends. */
    [[nodiscard]] static share receive(int socket)
    {
        vmm_share *received = nullptr;
        throw_on_error(vmm_share_receive(socket, &received));
        return share(received);
    }
    share(share &&other) noexcept : handle_(std::exchange(other.handle_, nullptr))
    {
    }
    share &operator=(share &&other) noexcept
    {
        share(std::move(other)).swap(*this);
        return *this;
    }
    share(const share &) = delete;
    share &operator=(const share &) = delete;
    ~share()
    {
        if (handle_ != nullptr)
            (void)vmm_share_close(handle_, 0);
    }

    void send(int socket) const
    {
        throw_on_error(vmm_share_send(handle_, socket));
    }

    /* vmm_share_close(). is_unused: no importer uses the block. If it throws, the share is as before. */
    void close(bool is_unused = false)
    {
        throw_on_error(vmm_share_close(handle_, is_unused ? 1 : 0));
        handle_ = nullptr;
    }

    /* The C handle. */
    vmm_share *get() const noexcept
    {
        return handle_;
    }

    void swap(share &other) noexcept
    {
        std::swap(handle_, other.handle_);
    }

  private:
    friend class block;
    explicit share(vmm_share *handle) noexcept : handle_(handle)
    {
    }
    vmm_share *handle_;
};

/*
 * Owns one block of device memory; frees it in order of the stream that it was allocated on. Move only. Must not
 * outlive its cache. An empty block owns nothing: data() is null and size() is 0.
 */
class block
{
  public:
    block() noexcept = default;
    block(block &&other) noexcept
    {
        swap(other);
    }
    block &operator=(block &&other) noexcept
    {
        block(std::move(other)).swap(*this);
        return *this;
    }
    block(const block &) = delete;
    block &operator=(const block &) = delete;

    /* A free that fails here is kept for cache::take_error(); call reset() to see it at once. */
    ~block()
    {
        if (data_ == nullptr)
            return;
        vmm_status status = vmm_free(owner_->handle, data_);
        if (status != VMM_OK)
            owner_->keep_failure(status);
    }

    /* The device address. The host may read and write there only on the host driver. */
    void *data() const noexcept
    {
        return data_;
    }
    std::size_t size() const noexcept
    {
        return bytes_;
    }
    vmm_stream stream() const noexcept
    {
        return stream_;
    }
    explicit operator bool() const noexcept
    {
        return data_ != nullptr;
    }

    /* vmm_resize(): data() may change. If it throws, the block is as before. */
    void resize(std::size_t bytes)
    {
        throw_on_error(vmm_resize(handle(), data_, bytes, &data_));
        bytes_ = bytes;
    }

    /* vmm_commit() and vmm_decommit(): give memory to whole units of a block of reserve(), and take it. */
    void commit(std::size_t offset, std::size_t bytes)
    {
        throw_on_error(vmm_commit(handle(), data_, offset, bytes));
    }
    void decommit(std::size_t offset, std::size_t bytes)
    {
        throw_on_error(vmm_decommit(handle(), data_, offset, bytes));
    }

    /* vmm_share_export(). */
    [[nodiscard]] share export_share() const
    {
        vmm_share *exported = nullptr;
        throw_on_error(vmm_share_export(handle(), data_, &exported));
        return share(exported);
    }

    /* vmm_pin() and vmm_unpin(): the block keeps its physical memory. */
    void pin()
    {
        throw_on_error(vmm_pin(handle(), data_));
    }
    void unpin()
    {
        throw_on_error(vmm_unpin(handle(), data_));
    }

    /* vmm_parts_walk(): visit(const vmm_part &) returns whether to go on, and may call the cache. If it throws, the
     * walk ends and the exception leaves this call. */
    template <typename Visit> void walk_parts(Visit &&visit) const
    {
        detail::walk_items(visit, [this](vmm_part_visitor visitor, void *context) {
            return vmm_parts_walk(handle(), data_, visitor, context);
        });
    }

    /* vmm_dmabuf_export(): a descriptor, which the caller closes. */
    [[nodiscard]] int export_dmabuf(std::size_t offset, std::size_t bytes) const
    {
        int fd = -1;
        throw_on_error(vmm_dmabuf_export(handle(), data_, offset, bytes, &fd));
        return fd;
    }

    /* Declares that work on another stream uses the block (vmm_record_stream()). Throws on failure. */
    void record_stream(vmm_stream other)
    {
        throw_on_error(vmm_record_stream(handle(), data_, other));
    }

    /* Frees the block now. If the C call leaves the block live (ERR_HOST_OOM, ERR_DRIVER) it stays owned. */
    void reset()
    {
        if (data_ == nullptr)
            return;
        vmm_status status = vmm_free(owner_->handle, data_);
        if (status != VMM_ERR_HOST_OOM && status != VMM_ERR_DRIVER)
            (void)release();
        throw_on_error(status);
    }

    /* Gives up ownership; the caller calls vmm_free(). */
    [[nodiscard]] void *release() noexcept
    {
        owner_ = nullptr;
        bytes_ = 0;
        stream_ = nullptr;
        return std::exchange(data_, nullptr);
    }

    void swap(block &other) noexcept
    {
        std::swap(owner_, other.owner_);
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        std::swap(stream_, other.stream_);
    }

  private:
    friend class cache;
    friend class pool;
    block(detail::state *owner, void *data, std::size_t bytes, vmm_stream stream) noexcept
        : owner_(owner), data_(data), bytes_(bytes), stream_(stream)
    {
    }
    vmm_cache *handle() const noexcept
    {
        return owner_ == nullptr ? nullptr : owner_->handle;
    }

    detail::state *owner_ = nullptr;
    void *data_ = nullptr;
    std::size_t bytes_ = 0;
    vmm_stream stream_ = nullptr;
};

/* Owns a vmm_cache. Move only. Calls on a cache that was moved from or closed throw ERR_INVALID_ARGUMENT;
 * only close() does nothing then. */
class cache
{
  public:
    explicit cache(vmm_config config = make_config(), callbacks functions = {})
        : state_(std::make_unique<detail::state>(std::move(functions)))
    {
        if (state_->functions.log) {
            config.log = detail::log_line;
            config.log_context = state_.get();
        }
        if (state_->functions.pressure) {
            config.pressure = detail::ask_for_memory;
            config.pressure_context = state_.get();
        }
        if (state_->functions.debug) {
            config.misuse = detail::report_debug;
            config.misuse_context = state_.get();
        }
        throw_on_error(vmm_create(&config, &state_->handle));
    }
    cache(cache &&) noexcept = default;
    cache &operator=(cache &&other) noexcept
    {
        cache(std::move(other)).swap(*this);
        return *this;
    }
    cache(const cache &) = delete;
    cache &operator=(const cache &) = delete;

    /* Ends the cache and its live blocks; what vmm_destroy() says is lost: call close() to see it. Must not run inside
     * a callback of this cache; if it does, the cache stays and is never freed. */
    ~cache()
    {
        if (get() != nullptr && vmm_destroy(get()) == VMM_ERR_INVALID_ARGUMENT)
            (void)state_.release();
    }

    /* vmm_destroy(). The cache is gone also if this throws, unless the status is ERR_INVALID_ARGUMENT (called by a
     * callback of this cache, nothing happened). take_error() goes on working. */
    void close()
    {
        vmm_status status = vmm_destroy(get());
        if (status != VMM_ERR_INVALID_ARGUMENT && state_ != nullptr)
            state_->handle = nullptr;
        throw_on_error(status);
    }

    /* The C handle, for calls that have no wrapper here. */
    vmm_cache *get() const noexcept
    {
        return state_ == nullptr ? nullptr : state_->handle;
    }

    [[nodiscard]] block allocate(std::size_t bytes, vmm_stream stream = nullptr)
    {
        void *data = nullptr;
        throw_on_error(vmm_alloc(get(), bytes, stream, &data));
        return block(state_.get(), data, bytes, stream);
    }

    /* Throws nothing: an empty block is a failure, whose status goes to *status and line to vmm_last_error(). */
    [[nodiscard]] block try_allocate(std::size_t bytes, vmm_stream stream = nullptr,
                                     vmm_status *status = nullptr) noexcept
    {
        void *data = nullptr;
        vmm_status outcome = vmm_alloc(get(), bytes, stream, &data);
        if (status != nullptr)
            *status = outcome;
        return outcome == VMM_OK ? block(state_.get(), data, bytes, stream) : block();
    }

    /* As pool::allocate_aligned() and pool::reserve(), from the default pool. */
    [[nodiscard]] block allocate_aligned(std::size_t bytes, std::size_t alignment,
                                         vmm_stream stream = nullptr)
    {
        void *data = nullptr;
        vmm_pool *from = vmm_cache_pool(get());
        throw_on_error(vmm_alloc_aligned(from, bytes, alignment, stream, &data));
        return block(state_.get(), data, bytes, stream);
    }
    [[nodiscard]] block reserve(std::size_t bytes, std::size_t unit_bytes = 0,
                                vmm_stream stream = nullptr)
    {
        void *data = nullptr;
        throw_on_error(vmm_reserve(vmm_cache_pool(get()), bytes, unit_bytes, stream, &data));
        return block(state_.get(), data, bytes, stream);
    }

    /* vmm_share_import(). The block has the size that the exporter requested. */
    [[nodiscard]] block import_share(const share &from, vmm_stream stream = nullptr)
    {
        void *data = nullptr;
        throw_on_error(vmm_share_import(get(), from.get(), stream, &data));
        block imported(state_.get(), data, 0, stream);
        vmm_item item = VMM_ITEM_INIT;
        throw_on_error(vmm_find(get(), data, &item));
        imported.bytes_ = static_cast<std::size_t>(item.requested_bytes);
        return imported;
    }

    /* vmm_trim(). Returns the bytes given back. */
    std::size_t trim(std::size_t keep_bytes = 0)
    {
        std::size_t released = 0;
        throw_on_error(vmm_trim(get(), keep_bytes, &released));
        return released;
    }
    /* vmm_compact(). No thread may submit work on blocks of the cache meanwhile. */
    compaction compact(std::uint32_t budget_ms = 0)
    {
        compaction result;
        throw_on_error(vmm_compact(get(), budget_ms, &result.moved_bytes, &result.released_bytes));
        return result;
    }
    void wait()
    {
        throw_on_error(vmm_wait(get()));
    }
    void wait_stream(vmm_stream stream)
    {
        throw_on_error(vmm_wait_stream(get(), stream));
    }
    void poll()
    {
        throw_on_error(vmm_poll(get()));
    }
    void set_limit(std::uint64_t limit_bytes)
    {
        throw_on_error(vmm_limit_set(get(), limit_bytes));
    }
    void add_peers(std::uint64_t devices)
    {
        throw_on_error(vmm_peers_add(get(), devices));
    }
    std::uint64_t peers() const
    {
        std::uint64_t devices = 0;
        throw_on_error(vmm_peers_get(get(), &devices));
        return devices;
    }

    /* To be called before the program destroys a stream that this cache has seen. */
    void end_stream(vmm_stream stream)
    {
        throw_on_error(vmm_stream_end(get(), stream));
    }

    vmm_stats stats() const
    {
        vmm_stats stats = VMM_STATS_INIT;
        throw_on_error(vmm_stats_get(get(), &stats));
        return stats;
    }

    /* Calls visit(const vmm_item &) for every range of memory and every block until it returns false. It runs with
     * locks held and must not call the cache. If it throws, the walk ends and the exception leaves this call. */
    template <typename Visit> void walk(Visit &&visit) const
    {
        detail::walk_items(visit, [this](vmm_visitor visitor, void *context) {
            return vmm_walk(get(), visitor, context);
        });
    }

    /* vmm_trace_start(): records the cache to a file, with_stacks with the host's stack of each allocation. */
    void start_trace(const std::string &path, bool with_stacks = false)
    {
        vmm_trace_options options = VMM_TRACE_OPTIONS_INIT;
        options.stacks = with_stacks ? 1 : 0;
        throw_on_error(vmm_trace_start(get(), path.c_str(), &options));
    }
    void stop_trace()
    {
        throw_on_error(vmm_trace_stop(get()));
    }
    /* Marks this moment in the recording, if there is one. */
    void note_trace(const std::string &text)
    {
        throw_on_error(vmm_trace_note(get(), text.c_str()));
    }

    /* vmm_listen(). The listener runs with locks held and must not call the cache. An empty one ends it. */
    void listen(std::function<void(const vmm_change &)> listener)
    {
        throw_on_error(vmm_listen(get(), nullptr, nullptr));
        state_->listener = std::move(listener);
        if (state_->listener)
            throw_on_error(vmm_listen(get(), detail::report_change, state_.get()));
    }

    /* Returns the first exception that had no caller to go to since the last take_error(), or null. */
    std::exception_ptr take_error() noexcept
    {
        return state_ == nullptr ? nullptr : state_->take();
    }

    void swap(cache &other) noexcept
    {
        state_.swap(other.state_);
    }

  private:
    friend class memory_resource;
    friend class pool;
    std::unique_ptr<detail::state> state_;
};

/* While it lives, vmm_alloc() of the thread that made it allocates from its pool. Destroy it on that thread, the last
 * one made first. */
class pool_push
{
  public:
    explicit pool_push(vmm_pool *pool) : pool_(pool)
    {
        throw_on_error(vmm_pool_push(pool));
    }
    ~pool_push()
    {
        (void)vmm_pool_pop(pool_);
    }
    pool_push(const pool_push &) = delete;
    pool_push &operator=(const pool_push &) = delete;

  private:
    vmm_pool *pool_;
};

/* Owns a sleep or wake that a thread of the library carries out. Move only. Must not outlive its cache. The destructor
 * waits, and keeps a failure for cache::take_error(). */
class ticket
{
  public:
    ticket(ticket &&other) noexcept
        : owner_(other.owner_), handle_(std::exchange(other.handle_, nullptr))
    {
    }
    ticket &operator=(ticket &&other) noexcept
    {
        ticket(std::move(other)).swap(*this);
        return *this;
    }
    ticket(const ticket &) = delete;
    ticket &operator=(const ticket &) = delete;
    ~ticket()
    {
        if (handle_ == nullptr || owner_->handle == nullptr)
            return;
        vmm_status status = vmm_ticket_wait(handle_);
        if (status != VMM_OK)
            owner_->keep_failure(status);
    }

    /* Whether the work has ended, with success or not. */
    bool done() const
    {
        int done = 0;
        throw_on_error(vmm_ticket_poll(handle_, &done));
        return done != 0;
    }

    /* Waits for the work and throws what it failed with. Once only. */
    void wait()
    {
        throw_on_error(vmm_ticket_wait(std::exchange(handle_, nullptr)));
    }

    void swap(ticket &other) noexcept
    {
        std::swap(owner_, other.owner_);
        std::swap(handle_, other.handle_);
    }

  private:
    friend class pool;
    explicit ticket(detail::state *owner) noexcept : owner_(owner)
    {
    }
    detail::state *owner_;
    vmm_ticket *handle_ = nullptr;
};

/*
 * Owns a pool of a cache. Move only. Must not outlive its cache, which may be moved meanwhile; blocks may outlive the
 * pool. Calls on a pool that was moved from or closed throw ERR_INVALID_ARGUMENT.
 */
class pool
{
  public:
    explicit pool(cache &owner, const vmm_pool_options &options = make_pool_options())
        : owner_(owner.state_.get())
    {
        throw_on_error(vmm_pool_create(owner.get(), &options, &handle_));
    }
    /* A pool whose memory is that of a source. Its blocks must not outlive it: if some do, the pool stays until the
     * cache ends. */
    pool(cache &owner, segment_source functions, vmm_pool_options options = make_pool_options())
        : owner_(owner.state_.get()),
          source_(new detail::source{ owner_, std::move(functions), nullptr })
    {
        options.source = { detail::segment_allocate, detail::segment_free, source_.get(),
                           source_->functions.segment_bytes };
        throw_on_error(vmm_pool_create(owner.get(), &options, &handle_));
    }
    pool(pool &&other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)),
          handle_(std::exchange(other.handle_, nullptr)), source_(std::move(other.source_))
    {
    }
    pool &operator=(pool &&other) noexcept
    {
        pool(std::move(other)).swap(*this);
        return *this;
    }
    pool(const pool &) = delete;
    pool &operator=(const pool &) = delete;

    /* The default pool adopts the live blocks. A failure is kept for cache::take_error(); call close() to see it. */
    ~pool()
    {
        if (handle_ == nullptr || owner_->handle == nullptr)
            return;
        vmm_status status = vmm_pool_destroy(handle_, 1);
        if (status != VMM_OK)
            owner_->keep_failure(status);
        if (status != VMM_OK && source_ != nullptr)
            owner_->keep_source(std::move(source_));
    }

    /* vmm_pool_destroy(). If the status is ERR_INVALID_ARGUMENT, nothing happened; else the pool is gone. One with a
     * source is gone only on success. */
    void close(bool adopt = true)
    {
        vmm_status status = vmm_pool_destroy(handle_, adopt ? 1 : 0);
        bool stays = source_ == nullptr ? status == VMM_ERR_INVALID_ARGUMENT : status != VMM_OK;
        if (!stays)
            handle_ = nullptr;
        throw_on_error(status);
    }

    /* The C handle, for calls that have no wrapper here. */
    vmm_pool *get() const noexcept
    {
        return handle_;
    }

    [[nodiscard]] block allocate(std::size_t bytes, vmm_stream stream = nullptr)
    {
        void *data = nullptr;
        throw_on_error(vmm_alloc_from(handle_, bytes, stream, &data));
        return block(owner_, data, bytes, stream);
    }

    /* As cache::try_allocate(). */
    [[nodiscard]] block try_allocate(std::size_t bytes, vmm_stream stream = nullptr,
                                     vmm_status *status = nullptr) noexcept
    {
        void *data = nullptr;
        vmm_status outcome = vmm_alloc_from(handle_, bytes, stream, &data);
        if (status != nullptr)
            *status = outcome;
        return outcome == VMM_OK ? block(owner_, data, bytes, stream) : block();
    }

    /* vmm_alloc_aligned(). */
    [[nodiscard]] block allocate_aligned(std::size_t bytes, std::size_t alignment,
                                         vmm_stream stream = nullptr)
    {
        void *data = nullptr;
        throw_on_error(vmm_alloc_aligned(handle_, bytes, alignment, stream, &data));
        return block(owner_, data, bytes, stream);
    }

    /* vmm_reserve(): addresses, which get memory by block::commit(). */
    [[nodiscard]] block reserve(std::size_t bytes, std::size_t unit_bytes = 0,
                                vmm_stream stream = nullptr)
    {
        void *data = nullptr;
        throw_on_error(vmm_reserve(handle_, bytes, unit_bytes, stream, &data));
        return block(owner_, data, bytes, stream);
    }

    /* vmm_pool_sleep() and vmm_pool_wake(): the call returns when the pool sleeps, or is awake. */
    void sleep(const vmm_sleep_options &options = make_sleep_options())
    {
        throw_on_error(vmm_pool_sleep(&handle_, 1, &options, nullptr));
    }
    void wake(const vmm_sleep_options &options = make_sleep_options())
    {
        throw_on_error(vmm_pool_wake(&handle_, 1, &options, nullptr));
    }

    /* The same on a thread of the library: the ticket tells when it is done. */
    [[nodiscard]] ticket begin_sleep(const vmm_sleep_options &options = make_sleep_options())
    {
        ticket begun(owner_);
        throw_on_error(vmm_pool_sleep(&handle_, 1, &options, &begun.handle_));
        return begun;
    }
    [[nodiscard]] ticket begin_wake(const vmm_sleep_options &options = make_sleep_options())
    {
        ticket begun(owner_);
        throw_on_error(vmm_pool_wake(&handle_, 1, &options, &begun.handle_));
        return begun;
    }
    vmm_pool_phase phase() const
    {
        vmm_pool_phase phase = VMM_POOL_AWAKE;
        throw_on_error(vmm_pool_state(handle_, &phase));
        return phase;
    }

    /* vmm_backup_find(): where the sleep has saved the byte at an address. Valid until the wake. */
    void *find_backup(const void *data) const
    {
        void *host = nullptr;
        throw_on_error(vmm_backup_find(handle_, data, &host));
        return host;
    }
    void drop_backup()
    {
        throw_on_error(vmm_backup_drop(handle_));
    }

    /* As cache::walk(), of this pool. */
    template <typename Visit> void walk(Visit &&visit) const
    {
        detail::walk_items(visit, [this](vmm_visitor visitor, void *context) {
            return vmm_pool_walk(handle_, visitor, context);
        });
    }

    /* For the calling thread, as long as the result lives. */
    [[nodiscard]] pool_push push() const
    {
        return pool_push(handle_);
    }

    /* vmm_pool_place(): a block at an address that is free in the pool. */
    [[nodiscard]] block place(void *address, std::size_t bytes, vmm_stream stream = nullptr)
    {
        throw_on_error(vmm_pool_place(handle_, address, bytes, stream));
        return block(owner_, address, bytes, stream);
    }

    /* vmm_pool_trim(). Returns the bytes given back. */
    std::size_t trim(std::size_t keep_bytes = 0)
    {
        std::size_t released = 0;
        throw_on_error(vmm_pool_trim(handle_, keep_bytes, &released));
        return released;
    }
    void set_limit(std::uint64_t limit_bytes)
    {
        throw_on_error(vmm_pool_limit_set(handle_, limit_bytes));
    }
    vmm_stats stats() const
    {
        vmm_stats stats = VMM_STATS_INIT;
        throw_on_error(vmm_pool_stats_get(handle_, &stats));
        return stats;
    }

    void swap(pool &other) noexcept
    {
        std::swap(owner_, other.owner_);
        std::swap(handle_, other.handle_);
        std::swap(source_, other.source_);
    }

  private:
    detail::state *owner_;
    vmm_pool *handle_ = nullptr;
    std::unique_ptr<detail::source> source_;
};

/*
 * Device memory for code that takes a std::pmr::memory_resource; every allocation is for one stream. Must not outlive
 * its cache, which may be moved meanwhile.
 *
 * The addresses are device addresses: the host may read and write there only on the host driver. So use it for code
 * that only hands addresses on. Standard containers, and std::pmr's pool and monotonic resources, write to
 * the memory themselves: with them the cache must be one of the host driver.
 *
 * allocate() throws as vmm::cache does. A deallocate() that fails is kept for cache::take_error().
 */
class memory_resource : public std::pmr::memory_resource
{
  public:
    explicit memory_resource(cache &owner, vmm_stream stream = nullptr) noexcept
        : owner_(owner.state_.get()), stream_(stream)
    {
    }
    vmm_stream stream() const noexcept
    {
        return stream_;
    }

  private:
    void *do_allocate(std::size_t bytes, std::size_t alignment) override
    {
        void *data = nullptr;
        throw_on_error(detail::alloc_aligned(handle(), bytes, alignment, stream_, &data));
        return data;
    }

    void do_deallocate(void *data, std::size_t, std::size_t) override
    {
        vmm_status status = vmm_free(handle(), data);
        if (status != VMM_OK && owner_ != nullptr)
            owner_->keep_failure(status);
    }

    /* Equal: the same cache and stream. A block that passes to a container of another stream would be freed in order
     * of the wrong stream. */
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
    {
        const auto *same = dynamic_cast<const memory_resource *>(&other);
        return same != nullptr && same->owner_ == owner_ && same->stream_ == stream_;
    }

    vmm_cache *handle() const noexcept
    {
        return owner_ == nullptr ? nullptr : owner_->handle;
    }

    detail::state *owner_;
    vmm_stream stream_;
};

} // namespace vmm

#endif
