"""The bars of the benches, and whether the measurements meet them.

Imported by: bench_report.py.
"""
from bench_data import EXPANDABLE, NATIVE, OURS_SIM

SIZES = ("512B", "2MiB")
KERNEL_MS = 200.0


class Bar:
    """One row: the bar and the measurement; met is None if it could not be measured."""

    def __init__(self, figure, bar, measured, met):
        self.figure, self.bar, self.measured, self.met = figure, bar, measured, met

    def cells(self):
        return [self.figure, self.bar, self.measured,
                {True: "yes", False: "NO", None: "-"}[self.met]]


def unmeasured(figure, bar):
    return Bar(figure, bar, "not measured here", None)


def faster(data, bench, arguments, most_ns, least_ratio, figure, bar):
    """For each argument vmmcache takes at most most_ns, and the fastest peer takes least_ratio times as long."""
    slowest, ratios = None, []
    for argument in arguments:
        ours, peer = data.figure(bench, data.ours, argument), data.best_peer(bench, argument)
        if ours is None or peer is None:
            return unmeasured(figure, bar)
        slowest = max(slowest or (0, ""), (ours, argument))
        ratios.append((peer[0] / ours, peer[1], argument))
    least = min(ratios)
    text = "%.1f ns%s; %.1f x faster than %s%s" % (
        slowest[0], slowest[1] and " (%s)" % slowest[1], least[0], least[1],
        least[2] and " (%s)" % least[2])
    return Bar(figure, bar, text, slowest[0] <= most_ns and least[0] >= least_ratio)


def rate(data, bench, allocator, size, threads):
    return data.figure(bench, allocator, "%s/%d" % (size, threads), "items_per_second")


def scaling(data, size):
    figure, bar = "16 threads, own streams, " + size, ">= 8 x one thread, >= 300 x the best peer"
    one, all_16 = (rate(data, "threads", data.ours, size, count) for count in (1, 16))
    peer = data.best_peer("threads", size + "/16", "items_per_second", highest=True)
    if not one or not all_16 or not peer:
        return unmeasured(figure, bar)
    text = "%.1f x; %.0f x %s" % (all_16 / one, all_16 / peer[0], peer[1])
    return Bar(figure, bar, text, all_16 >= 8 * one and all_16 >= 300 * peer[0])


def sharing(data, size):
    figure, bar = "16 threads, one shared stream, " + size, ">= the pairs/s of one thread"
    one, all_16 = (rate(data, "shared", data.ours, size, count) for count in (1, 16))
    if not one or not all_16:
        return unmeasured(figure, bar)
    return Bar(figure, bar, "%.2f x" % (all_16 / one), all_16 >= one)


def handing(data, bench, streams, size, threads):
    figure = "half of %d threads free what the others allocate, %s, %s" % (threads, streams, size)
    bar = ">= 10 x the fastest peer's pairs/s"
    ours = rate(data, bench, data.ours, size, threads)
    peer = data.best_peer(bench, "%s/%d" % (size, threads), "items_per_second", highest=True)
    if not ours or not peer:
        return unmeasured(figure, bar)
    text = "%.1f M/s, %.1f x %s" % (ours / 1e6, ours / peer[0], peer[1])
    return Bar(figure, bar, text, ours >= 10 * peer[0])


def later_passes(data):
    figure, bar = "trace, later passes", "<= 100 ns an operation on each"
    found = [(data.figure("trace", data.ours, trace, "later_ns"), trace)
             for trace in data.arguments("trace")]
    if not found or any(ns is None for ns, _ in found):
        return unmeasured(figure, bar)
    return Bar(figure, bar, "%.0f ns (%s)" % max(found), max(found)[0] <= 100)


def first_pass(data, peer, least, figure, bar):
    """vmmcache is faster than the peer on more than this share of the traces."""
    wins, slower = 0, []
    traces = data.arguments("trace")
    for trace in traces:
        ours = data.figure("trace", data.ours, trace, "first_ns")
        theirs = data.figure("trace", peer, trace, "first_ns")
        if ours is None or theirs is None:
            return unmeasured(figure, bar)
        wins += ours < theirs
        if ours >= theirs:
            slower.append("%s takes %.2f x as long" % (trace, ours / theirs))
    text = "%d of %d%s" % (wins, len(traces), slower and "; " + ", ".join(slower) or "")
    return Bar(figure, bar, text, wins > least * len(traces) or wins == len(traces))


def own_time(data):
    figure, bar = "own time around driver calls while growing", "<= 5 % of the calls' time"
    found = [(data.figure("growth", data.ours, size, "own_percent"), size)
             for size in data.arguments("growth")]
    if not data.has_gpu or any(value is None for value, _ in found):
        return unmeasured(figure, bar)
    return Bar(figure, bar, "%.1f %% (blocks of %s)" % max(found), max(found)[0] <= 5)


def trims(data, peer):
    figure = "`vmm_trim(0)` of 32 GiB idle, against %s" % peer
    bar = ">= 2 x faster than empty_cache"
    found = []
    for size in data.arguments("growth"):
        ours = data.figure("growth", data.ours, size, "trim_ms")
        theirs = data.figure("growth", peer, size, "trim_ms")
        if ours is None or theirs is None:
            return unmeasured(figure, bar)
        found.append((theirs / ours, size, ours, theirs))
    text = "%.1f x (blocks of %s: %.1f ms, %.1f ms)" % min(found)
    return Bar(figure, bar, text, min(found)[0] >= 2)


def trims_busy(data):
    figure, bar = "the same while a kernel runs", "does not wait for the kernel (%.0f ms)" % KERNEL_MS
    found = [data.figure("trim_busy", data.ours, size, "trim_ms")
             for size in data.arguments("trim_busy")]
    if not found or any(ms is None for ms in found):
        return unmeasured(figure, bar)
    return Bar(figure, bar, "%.1f ms" % max(found), max(found) < KERNEL_MS)


def sim_pair(data):
    figure, bar = "sim: a pair of 512 B", "<= 3 x glibc's in the same run"
    ours, glibc = (data.figure("pair", name, "512B") for name in (OURS_SIM, "glibc"))
    if ours is None or glibc is None:
        return unmeasured(figure, bar)
    return Bar(figure, bar, "%.1f ns, %.2f x" % (ours, ours / glibc), ours <= 3 * glibc)


def growth_of(data, bench):
    few, many = (data.figure(bench, OURS_SIM, live, "pair_ns") for live in ("1GiB", "139GiB"))
    return None if few is None or many is None else (many, few, 100 * (many / few - 1))


def sim_heap(data):
    """Replaced at random, each step misses the processor's cache, so the bar is for replacement oldest first."""
    figure, bar = "sim: 139 GiB of 2-MiB blocks against 1 GiB", "within 30 %, oldest first"
    aged, random = (growth_of(data, bench) for bench in ("heap", "heap_random"))
    if aged is None or random is None:
        return unmeasured(figure, bar)
    return Bar(figure, bar, "oldest first %.0f ns, %.0f ns: %+.0f %%; at random %.0f ns, %.0f ns: %+.0f %%"
               % (aged + random), aged[2] <= 30)


def gpu_bars(data):
    yield faster(data, "pair", data.arguments("pair"), 40, 10, "pair of one size, one thread",
                 "<= 40 ns and >= 10 x faster than the fastest peer at each size")
    yield faster(data, "mixed", [""], 80, 10, "2000 live, mixed", "<= 80 ns and >= 10 x")
    for bar in (scaling, sharing):
        for size in SIZES:
            yield bar(data, size)
    for bench, streams in (("handoff", "a stream for each two"), ("handoff_shared", "one stream")):
        for threads in (2, 16):
            for size in SIZES:
                yield handing(data, bench, streams, size, threads)
    yield later_passes(data)
    yield first_pass(data, EXPANDABLE, 1, "trace, first pass, against expandable", "faster on each")
    yield first_pass(data, NATIVE, 0.5, "trace, first pass, against native", "faster on most")
    yield own_time(data)
    for peer in (NATIVE, EXPANDABLE):
        yield trims(data, peer)
    yield trims_busy(data)


def bars(data):
    return [*(gpu_bars(data) if data.has_gpu else ()), sim_pair(data), sim_heap(data)]
