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


def step_ms(record):
    return 1e3 * results.step_median(record)


def picture(data, title, figure, upright):
    """Of the workloads that any allocator completed."""
    shown = [name for name in data.allocators if name in NAMES]
    groups = [(workload, {NAMES[name]: data.median(workload, name, figure) for name in shown})
              for workload in data.workloads("steps")]
    return BarsPicture.drawn(title, NAMES.values(), [group for group in groups if any(group[1].values())], upright)


def pictures(data):
    """[(name, SVG)]"""
    drawn = (("steps", picture(data, "median time of a step", step_ms, "ms")),
             ("footprint", picture(data, "reserved above live memory", excess, "%")))
    return [(name, svg) for name, svg in drawn if svg]
