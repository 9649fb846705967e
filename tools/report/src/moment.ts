// Memory in one state: its blocks and reserved ranges, in the order of their addresses.

import { Chunks } from "./chunks";
import type { Filter } from "./filter";
import type { Recording } from "./recording";

export interface Range {
    address: number;
    bytes: number;
    stream: number;
    pool: number;
}

export class Moment {
    readonly blocks: number[]; // live or waiting
    readonly matching: number[]; // of these, those that the filter lets through
    readonly ranges: Range[]; // reserved memory, one after the other in addresses
    readonly liveBytes: number;
    readonly waitingBytes: number;
    readonly reservedBytes: number;
    private found: Chunks | undefined;

    constructor(
        readonly recording: Recording,
        readonly state: number,
        readonly filter: Filter,
    ) {
        const { bytes, address } = recording.blocks;
        this.blocks = recording.blocksAt(state);
        if (recording.hasAddresses) this.blocks.sort((a, b) => address[a] - address[b]);
        this.matching = filter.isOn ? this.blocks.filter(filter.matches) : this.blocks;
        this.ranges = rangesAt(recording, state);
        const sum = (total: number, block: number) => total + bytes[block];
        this.waitingBytes = this.blocks.filter(block => this.isWaiting(block)).reduce(sum, 0);
        this.liveBytes = this.blocks.reduce(sum, 0) - this.waitingBytes;
        this.reservedBytes = this.ranges.reduce((total, range) => total + range.bytes, 0);
    }

    /** What the recording knows of chunks; null: nothing. */
    get chunks(): Chunks | null {
        if (!this.recording.hasChunks) return null;
        return (this.found ??= new Chunks(this.recording, this.state, this.blocks, this.ranges));
    }

    isWaiting(block: number): boolean {
        return this.recording.blocks.until[block] <= this.state;
    }
}

function rangesAt({ spans }: Recording, state: number): Range[] {
    const found: number[] = [];
    for (let span = 0; span < spans.count; span++)
        if (spans.start[span] <= state && spans.end[span] > state) found.push(span);
    found.sort((a, b) => spans.address[a] - spans.address[b]);
    return found.map(span => ({
        address: spans.address[span],
        bytes: spans.bytes[span],
        stream: spans.stream[span],
        pool: spans.pool[span],
    }));
}

/** Ranges with the neighbours of the same stream and pool joined. */
export function joinRanges(ranges: Range[]): Range[] {
    const joined: Range[] = [];
    for (const range of ranges) {
        const before = joined[joined.length - 1];
        if (
            before &&
            before.address + before.bytes === range.address &&
            before.stream === range.stream &&
            before.pool === range.pool
        )
            before.bytes += range.bytes;
        else joined.push({ ...range });
    }
    return joined;
}
