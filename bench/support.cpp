/* See support.hpp. */
#include "support.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>

namespace
{
bool any_failed; /* Google Benchmark exits with 0 even after errors */
}

namespace bench
{

settings &set()
{
    static settings only;
    return only;
}

double seconds_since(clock::time_point start)
{
    return std::chrono::duration<double>(clock::now() - start).count();
}

bool fail(benchmark::State &state, const std::string &text)
{
    any_failed = true;
    state.SkipWithError(text.c_str());
    return false;
}

bool failed()
{
    return any_failed;
}

std::string bytes_text(std::size_t bytes)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB" };
    double value = static_cast<double>(bytes);
    unsigned unit = 0;
    for (; value >= 1024 && unit < 3; unit++)
        value /= 1024;
    char text[32];
    (void)std::snprintf(text, sizeof text, "%g%s", value, units[unit]);
    return text;
}

std::vector<replacement> replacements_draw(std::size_t count, std::size_t live)
{
    std::mt19937_64 random(1);
    std::uniform_real_distribution<double> power(9, 23);
    std::uniform_int_distribution<std::size_t> index(0, live - 1);
    std::vector<replacement> drawn(count);
    for (replacement &r : drawn)
        r = { static_cast<std::size_t>(std::exp2(power(random))), index(random) };
    return drawn;
}

std::string blocks_fault(const std::vector<block> &blocks, std::size_t alignment, device &place)
{
    std::vector<block> sorted = blocks;
    std::sort(sorted.begin(), sorted.end(),
              [](const block &a, const block &b) { return a.address < b.address; });
    const char *end = nullptr;
    for (const block &b : sorted) {
        if (b.address == nullptr)
            return "a block is missing";
        if (reinterpret_cast<std::uintptr_t>(b.address) % alignment != 0)
            return "a block is not aligned";
        if (b.address < end)
            return "two live blocks overlap";
        end = b.address + b.bytes;
    }
    return place.touch(blocks) ? "" : "a block does not keep its contents";
}

void report_calls(benchmark::State &state, const figures &before, const figures &after)
{
    if (after.calls < 0)
        return;
    state.counters["driver_calls"] = benchmark::Counter(
        static_cast<double>(after.calls - before.calls), benchmark::Counter::kAvgIterations);
}

} // namespace bench
