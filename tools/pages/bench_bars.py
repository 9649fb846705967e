"""The bars of the benches, and whether the measurements meet them.

Imported by: bench_report.py.
"""
from bench_data import EXPANDABLE, NATIVE, OURS_SIM

SIZES = ("512B", "2MiB")
KERNEL_MS = 200.0


class Unmeasured(Exception):
    """A figure that a bar needs is not there."""


def had(figures):
    """The figures, if there are any, and all were measured."""
    figures = list(figures)
    if not figures or None in figures:
        raise Unmeasured
    return figures


def row(figure, bar, measure, *arguments):
    """The cells of a bar. measure() returns what was measured, and whether that meets the bar."""
    try:
        measured, is_met = measure(*arguments)
    except Unmeasured:
        return [figure, bar, "not measured here", "-"]
    return [figure, bar, measured, "yes" if is_met else "NO"]


def faster(data, bench, arguments, most_ns, least_ratio):
    """For each argument vmmcache takes at most most_ns, and the fastest peer takes least_ratio times as long."""
    ours = had(data.figure(bench, data.ours, argument) for argument in arguments)
    peers = had(data.best_peer(bench, argument) for argument in arguments)
    slowest, size = max(zip(ours, arguments))
    ratio, peer, least_size = min((rate / ns, name, argument)
                                  for ns, (rate, name), argument in zip(ours, peers, arguments))
    text = "%.1f ns%s; %.1f x faster than %s%s" % (
        slowest, size and " (%s)" % size, ratio, peer, least_size and " (%s)" % least_size)
    return text, slowest <= most_ns and ratio >= least_ratio


def rates(data, bench, size, *threads):
    """Of vmmcache, with so many threads each."""
    return had(data.figure(bench, data.ours, "%s/%d" % (size, count), "items_per_second") for count in threads)


def best_rate(data, bench, size, threads):
    """Of the fastest peer, and its name."""
    return had([data.best_peer(bench, "%s/%d" % (size, threads), "items_per_second", highest=True)])[0]


def scaling(data, size):
    one, all_16 = rates(data, "threads", size, 1, 16)
    rate, peer = best_rate(data, "threads", size, 16)
    return "%.1f x; %.0f x %s" % (all_16 / one, all_16 / rate, peer), all_16 >= 8 * one and all_16 >= 300 * rate


def sharing(data, size):
    one, all_16 = rates(data, "shared", size, 1, 16)
    return "%.2f x" % (all_16 / one), all_16 >= one


def handing(data, bench, size, threads):
    [ours], (rate, peer) = rates(data, bench, size, threads), best_rate(data, bench, size, threads)
    return "%.1f M/s, %.1f x %s" % (ours / 1e6, ours / rate, peer), ours >= 10 * rate


def most(data, bench, figure, form, limit):
    """The largest over all arguments, which are named unless there is no room for them in the form."""
    arguments = data.arguments(bench)
    found = max(zip(had(data.figure(bench, data.ours, argument, figure) for argument in arguments), arguments))
    return form.format(*found), found[0] <= limit


def first_pass(data, peer, least):
    """vmmcache is faster than the peer on more than this share of the traces."""
    traces = data.arguments("trace")
    ours, theirs = (had(data.figure("trace", name, trace, "first_ns") for trace in traces)
                    for name in (data.ours, peer))
    slower = ["%s takes %.2f x as long" % (trace, own / other)
              for trace, own, other in zip(traces, ours, theirs) if own >= other]
    wins = len(traces) - len(slower)
    return "; ".join(["%d of %d" % (wins, len(traces)), *([", ".join(slower)] if slower else [])]), (
        wins > least * len(traces) or not slower)


def trims(data, peer):
    sizes = data.arguments("growth")
    ours, theirs = (had(data.figure("growth", name, size, "trim_ms") for size in sizes) for name in (data.ours, peer))
    least = min((other / own, size, own, other) for own, other, size in zip(ours, theirs, sizes))
    return "%.1f x (blocks of %s: %.1f ms, %.1f ms)" % least, least[0] >= 2


def sim_pair(data):
    ours, glibc = had(data.figure("pair", name, "512B") for name in (OURS_SIM, "glibc"))
    return "%.1f ns, %.2f x" % (ours, ours / glibc), ours <= 3 * glibc


def sim_heap(data):
    """Replaced at random, each step misses the processor's cache, so the bar is for replacement oldest first."""
    few, many, few_random, many_random = had(
        data.figure(bench, OURS_SIM, live, "pair_ns")
        for bench in ("heap", "heap_random") for live in ("1GiB", "139GiB"))
    growth = 100 * (many / few - 1)
    return ("oldest first %.0f ns, %.0f ns: %+.0f %%; at random %.0f ns, %.0f ns: %+.0f %%" % (
        many, few, growth, many_random, few_random, 100 * (many_random / few_random - 1))), growth <= 30


def gpu_bars(data):
    yield row("pair of one size, one thread", "<= 40 ns and >= 10 x faster than the fastest peer at each size",
              faster, data, "pair", data.arguments("pair"), 40, 10)
    yield row("2000 live, mixed", "<= 80 ns and >= 10 x", faster, data, "mixed", [""], 80, 10)
    for size in SIZES:
        yield row("16 threads, own streams, " + size, ">= 8 x one thread, >= 300 x the best peer", scaling, data, size)
    for size in SIZES:
        yield row("16 threads, one shared stream, " + size, ">= the pairs/s of one thread", sharing, data, size)
    for bench, streams in (("handoff", "a stream for each two"), ("handoff_shared", "one stream")):
        for threads in (2, 16):
            for size in SIZES:
                yield row("half of %d threads free what the others allocate, %s, %s" % (threads, streams, size),
                          ">= 10 x the fastest peer's pairs/s", handing, data, bench, size, threads)
    yield row("trace, later passes", "<= 100 ns an operation on each",
              most, data, "trace", "later_ns", "{:.0f} ns ({})", 100)
    yield row("trace, first pass, against expandable", "faster on each", first_pass, data, EXPANDABLE, 1)
    yield row("trace, first pass, against native", "faster on most", first_pass, data, NATIVE, 0.5)
    yield row("own time around driver calls while growing", "<= 5 % of the calls' time",
              most, data, "growth", "own_percent", "{:.1f} % (blocks of {})", 5)
    for peer in (NATIVE, EXPANDABLE):
        yield row("`vmm_trim(0)` of 32 GiB idle, against " + peer, ">= 2 x faster than empty_cache", trims, data, peer)
    yield row("the same while a kernel runs", "does not wait for the kernel (%.0f ms)" % KERNEL_MS,
              most, data, "trim_busy", "trim_ms", "{:.1f} ms", KERNEL_MS)


def bars(data):
    """The rows of the table."""
    return [*(gpu_bars(data) if data.has_gpu else ()),
            row("sim: a pair of 512 B", "<= 3 x glibc's in the same run", sim_pair, data),
            row("sim: 139 GiB of 2-MiB blocks against 1 GiB", "within 30 %, oldest first", sim_heap, data)]
