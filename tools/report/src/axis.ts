// The chart's horizontal axis: operations, or seconds if the recording has times.

import { shortCountText, secondsText } from "./format";
import type { Recording } from "./recording";
import type { Choices } from "./store";

const MOST_ZOOM_STATES = 8;
const MOST_ZOOM_SECONDS = 1e-5;

export class Axis {
    constructor(
        private readonly recording: Recording,
        private readonly choices: Choices,
    ) {}

    private get isTime(): boolean {
        return this.choices.axis === "time";
    }

    get end(): number {
        return this.isTime ? this.recording.secondsOf(this.recording.last) || 1 : Math.max(this.recording.last, 1);
    }

    get least(): number {
        return Math.min(this.isTime ? MOST_ZOOM_SECONDS : MOST_ZOOM_STATES, this.end);
    }

    get label(): string {
        return this.isTime ? "time since the start" : "operations";
    }

    of(state: number): number {
        return this.isTime ? this.recording.secondsOf(state) : state;
    }

    stateAt(x: number): number {
        const state = this.isTime ? this.recording.stateAtSeconds(x) : Math.floor(x);
        return Math.min(Math.max(state, 0), this.recording.last);
    }

    text(x: number): string {
        return this.isTime ? secondsText(x, 9) : shortCountText(x);
    }

    /** A part of the axis of at least the smallest width, moved inside the whole. */
    clamp(from: number, to: number): { from: number; to: number } {
        const width = Math.min(Math.max(to - from, this.least), this.end);
        const low = Math.min(Math.max((from + to - width) / 2, 0), this.end - width);
        return { from: low, to: low + width };
    }
}
