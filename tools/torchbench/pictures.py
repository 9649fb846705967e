"""Charts of torchbench: bars side by side, one colour for each allocator.

Imported by: report.py.
"""
import bench_data
import results
from allocators import EXPANDABLE, NATIVE, OURS
from bench_svg import BarsPicture

# The names that have colours in the charts of the project.
NAMES = {NATIVE: bench_data.NATIVE, EXPANDABLE: bench_data.EXPANDABLE, OURS: bench_data.OURS_CUDA}
LEAST_EXCESS = 0.1  # %, the smallest value that a chart shows


def excess(record):
    """% reserved above live memory."""
    return max(100 * (results.footprint(record) - 1), LEAST_EXCESS)


def groups(data, figure_of):
    """Yields (workload, {allocator: value}) for workloads with any value."""
    for workload in data.workloads("steps"):
        found = {NAMES[name]: figure_of(workload, name) for name in data.allocators if name in NAMES}
        found = {name: value for name, value in found.items() if value}
        if found:
            yield workload, found


def picture(title, found, upright):
    found = list(found)
    allocators = [name for name in NAMES.values() if any(name in bars for _, bars in found)]
    return BarsPicture(title, allocators, found, upright).draw() if allocators else None


def pictures(data):
    """[(name, SVG)]"""
    drawn = (("steps", picture("median time of a step", groups(
        data, lambda workload, name: data.median(workload, name, lambda record:
                                                 1e3 * results.step_median(record))), "ms")),
             ("footprint", picture("reserved above live memory", groups(
                 data, lambda workload, name: data.median(workload, name, excess)), "%")))
    return [(name, svg) for name, svg in drawn if svg]
