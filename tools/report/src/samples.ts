// Thins curves out to the pixels of a chart: each column of pixels shows the least and most of its states.

import type { Axis } from "./axis";
import type { Curve } from "./curves";

export type Samples = [Float64Array, ...Float64Array[]];

export function sample(axis: Axis, curves: Curve[], from: number, to: number, columns: number): Samples {
    const first = axis.stateAt(from);
    const last = axis.stateAt(to);
    return last - first < columns
        ? steps(axis, curves, first, last, from, to)
        : ranges(axis, curves, from, to, columns);
}

/** Every state: the value of the one before, then its own. */
function steps(axis: Axis, curves: Curve[], first: number, last: number, from: number, to: number): Samples {
    const count = 2 * (last - first) + 2;
    const data = [new Float64Array(count), ...curves.map(() => new Float64Array(count))] as Samples;
    for (let state = first; state <= last; state++) {
        const at = 2 * (state - first);
        data[0][at] = Math.max(axis.of(state), from);
        data[0][at + 1] = state < last ? Math.max(axis.of(state + 1), from) : to;
        curves.forEach((curve, i) => (data[i + 1][at] = data[i + 1][at + 1] = curve.at(state)));
    }
    return data;
}

function ranges(axis: Axis, curves: Curve[], from: number, to: number, columns: number): Samples {
    const data = [new Float64Array(2 * columns), ...curves.map(() => new Float64Array(2 * columns))] as Samples;
    const width = (to - from) / columns;
    let first = axis.stateAt(from);
    for (let column = 0; column < columns; column++) {
        const x = from + column * width;
        const last = axis.stateAt(x + width);
        data[0][2 * column] = x;
        data[0][2 * column + 1] = x + width / 2;
        curves.forEach((curve, i) => {
            [data[i + 1][2 * column], data[i + 1][2 * column + 1]] = curve.range(first, last);
        });
        first = last;
    }
    return data;
}
