// Bytes over the states of a recording, with the least and most of any range found quickly.

import type { Column } from "./columns";

export interface Curve {
    at(state: number): number;
    /** Least and most in the states first to last. */
    range(first: number, last: number): [number, number];
}

const SHARE = 16; // entries of a level for one of the next

interface Level {
    least: Float64Array;
    most: Float64Array;
}

/** A value for each state. Levels above them hold the least and most of SHARE entries of the level below. */
export class DenseCurve implements Curve {
    private readonly levels: Level[];

    constructor(readonly values: Float64Array) {
        this.levels = [{ least: values, most: values }];
        for (let top = this.levels[0]; top.least.length > SHARE; top = this.levels[this.levels.length - 1])
            this.levels.push(levelAbove(top));
    }

    at(state: number): number {
        return this.values[state];
    }

    range(first: number, last: number): [number, number] {
        let least = Infinity;
        let most = -Infinity;
        let low = first;
        let high = last + 1;
        for (const level of this.levels) {
            const isTop = level === this.levels[this.levels.length - 1];
            const lowFull = isTop ? high : Math.min(Math.ceil(low / SHARE) * SHARE, high);
            const highFull = isTop ? high : Math.max(Math.floor(high / SHARE) * SHARE, lowFull);
            for (let i = low; i < lowFull; i++) [least, most] = [min(least, level.least[i]), max(most, level.most[i])];
            for (let i = highFull; i < high; i++)
                [least, most] = [min(least, level.least[i]), max(most, level.most[i])];
            if (lowFull >= highFull) break;
            low = lowFull / SHARE;
            high = highFull / SHARE;
        }
        return [least, most];
    }

    /** The first state with the highest value. */
    peak(): number {
        return this.values.indexOf(this.range(0, this.values.length - 1)[1]);
    }
}

const min = (a: number, b: number) => (a < b ? a : b);
const max = (a: number, b: number) => (a > b ? a : b);

function levelAbove({ least, most }: Level): Level {
    const count = Math.ceil(least.length / SHARE);
    const above = { least: new Float64Array(count).fill(Infinity), most: new Float64Array(count).fill(-Infinity) };
    for (let i = 0; i < least.length; i++) {
        const to = (i / SHARE) | 0;
        if (least[i] < above.least[to]) above.least[to] = least[i];
        if (most[i] > above.most[to]) above.most[to] = most[i];
    }
    return above;
}

/** The sum of bytes over those that a state lies in, of `start` to before `end`. */
export function sumCurve(
    last: number,
    start: Column,
    end: Column,
    bytes: Column,
    matches?: (i: number) => boolean,
): DenseCurve {
    const values = new Float64Array(last + 1);
    for (let i = 0; i < start.length; i++) {
        if (matches && !matches(i)) continue;
        values[start[i]] += bytes[i];
        if (end[i] <= last) values[end[i]] -= bytes[i];
    }
    for (let state = 1; state <= last; state++) values[state] += values[state - 1];
    return new DenseCurve(values);
}

/** Values from some states on, each until the next. */
export class StepCurve implements Curve {
    constructor(
        private readonly states: number[],
        private readonly values: number[],
    ) {}

    at(state: number): number {
        return this.values[this.indexOf(state)] ?? 0;
    }

    range(first: number, last: number): [number, number] {
        let least = this.at(first);
        let most = least;
        for (let i = this.indexOf(first) + 1; i < this.states.length && this.states[i] <= last; i++) {
            least = min(least, this.values[i]);
            most = max(most, this.values[i]);
        }
        return [least, most];
    }

    private indexOf(state: number): number {
        let low = 0;
        let high = this.states.length;
        while (low < high) {
            const middle = (low + high) >>> 1;
            if (this.states[middle] <= state) low = middle + 1;
            else high = middle;
        }
        return low - 1;
    }
}
