/* An allocation and its free: of one size, and within 2000 live blocks of mixed sizes. */
#ifndef VMM_BENCH_PAIR_HPP
#define VMM_BENCH_PAIR_HPP

#include "support.hpp"

namespace bench
{

/* Replaces blocks of `live` in the order drawn. */
template <class A>
void replacements_run(A &allocator, std::vector<block> &live, const std::vector<replacement> &drawn)
{
    for (const replacement &r : drawn) {
        block &b = live[r.index];
        allocator.free(b.address, b.bytes, b.stream);
        b.address = static_cast<char *>(allocator.alloc(r.bytes, b.stream));
        b.bytes = r.bytes;
    }
}

/* Returns a steady live set: a round of replacements makes no more driver calls. */
template <class A>
std::vector<block> live_set(A &allocator, std::size_t count, vmm_stream stream,
                            const std::vector<replacement> &drawn)
{
    constexpr int most_rounds = 20;
    std::vector<block> live(count);
    for (std::size_t i = 0; i < count; i++)
        live[i] = block_alloc(allocator, drawn[i].bytes, stream);
    for (int round = 0; round < most_rounds && !A::is_slow && allocator.ok(); round++) {
        figures before = allocator.read();
        replacements_run(allocator, live, drawn);
        figures after = allocator.read();
        if (round > 0 && after.calls == before.calls && after.reserved == before.reserved)
            break;
    }
    return live;
}

template <class A> void pair(benchmark::State &state, std::size_t bytes)
{
    A allocator;
    vmm_stream stream = A::place().stream(0);
    allocator.free(allocator.alloc(bytes, stream), bytes, stream);
    figures before = allocator.read();
    for (auto _ : state)
        allocator.free(keep(allocator.alloc(bytes, stream)), bytes, stream);
    figures after = allocator.read();
    report_calls(state, before, after);
    if (A::caches && after.calls != before.calls)
        fail(state, "the hot path called the driver");
    std::vector<block> two = { block_alloc(allocator, bytes, stream),
                               block_alloc(allocator, bytes, stream) };
    verify_blocks(state, allocator, two);
    blocks_free(allocator, two);
    verify_empty(state, allocator);
}

template <class A> void mixed(benchmark::State &state)
{
    constexpr std::size_t live_count = 2000, drawn_count = 1 << 16;
    A allocator;
    std::vector<replacement> drawn = replacements_draw(drawn_count, live_count);
    std::vector<block> live = live_set(allocator, live_count, A::place().stream(0), drawn);
    figures before = allocator.read();
    std::size_t next = 0;
    for (auto _ : state) {
        const replacement &r = drawn[next];
        block &b = live[r.index];
        allocator.free(b.address, b.bytes, b.stream);
        b.address = static_cast<char *>(allocator.alloc(r.bytes, b.stream));
        b.bytes = r.bytes;
        next = (next + 1) % drawn_count;
    }
    report_calls(state, before, allocator.read());
    verify_blocks(state, allocator, live);
    blocks_free(allocator, live);
    verify_empty(state, allocator);
}

template <class A> void register_pair()
{
    for (std::size_t bytes :
         { 512 * std::size_t{ 1 }, 64 * kib, mib, 5 * mib / 2, 32 * mib, 512 * mib }) {
        auto body = [bytes](benchmark::State &state) { pair<A>(state, bytes); };
        auto *added = add(std::string("pair/") + A::name() + "/" + bytes_text(bytes), body);
        added->Repetitions(set().repetitions);
        A::is_slow ? added->Iterations(20) : added->MinTime(set().seconds);
    }
    auto *added = add(std::string("mixed/") + A::name(), mixed<A>);
    added->Repetitions(set().repetitions);
    A::is_slow ? added->Iterations(200) : added->MinTime(set().seconds);
}

} // namespace bench

#endif
