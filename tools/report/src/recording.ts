// Blocks and reserved memory over the states of a recording. State 0 is before the first operation.

import { type Column, type Head, unpackColumns } from "./columns";

export interface Blocks {
    count: number;
    start: Column; // first state in which the block is live; increases
    until: Column; // first state in which its free was requested
    end: Column; // first state in which its memory can be used again
    bytes: Column;
    address: Column;
    stream: Column;
    pool: Column;
    frame: Column;
    label: Column;
}

export interface Spans {
    count: number;
    start: Column;
    end: Column;
    address: Column;
    bytes: Column;
    stream: Column;
    pool: Column;
}

/** Where chunks are mapped. */
export interface Mappings {
    count: number;
    start: Column;
    end: Column;
    chunk: Column; // its number
    address: Column;
    bytes: Column; // of the chunk, at its home; 0: a further place, in a view
}

export class Recording {
    readonly last: number; // state
    readonly sites: number[]; // of each frame: the first with its text, regardless of the caller
    readonly hasAddresses: boolean;
    readonly hasStacks: boolean;
    readonly hasWaiting: boolean;
    readonly hasReserved: boolean;
    readonly hasChunks: boolean;
    readonly hasTimes: boolean;
    readonly isSampled: boolean;

    private constructor(
        readonly head: Head,
        readonly blocks: Blocks,
        readonly spans: Spans,
        readonly mappings: Mappings,
        private readonly times: Column,
    ) {
        this.last = head.operations;
        const firsts = new Map<string, number>();
        this.sites = head.frames.texts.map((text, frame) => firsts.get(text) ?? (firsts.set(text, frame), frame));
        this.hasAddresses = blocks.address.some(address => address > 0);
        this.hasStacks = head.frames.texts.length > 1;
        this.hasWaiting = blocks.until !== blocks.end;
        this.hasReserved = spans.count > 0;
        this.hasChunks = mappings.count > 0;
        this.hasTimes = times.length > 0;
        this.isSampled = head.kind === "samples";
    }

    static async open(head: Head, base64: string): Promise<Recording> {
        const columns = await unpackColumns(head, base64);
        const take = (name: string) => columns.get(name)!;
        const livesOf = (prefix: string) => {
            const start = take(prefix + "start");
            return { count: start.length, start, end: endsOf(start, take(prefix + "life"), head.operations) };
        };
        const lives = livesOf("");
        const blocks = {
            ...lives,
            until: untilOf(lives.start, take("held"), lives.end),
            bytes: take("bytes"),
            address: take("address"),
            stream: take("stream"),
            pool: take("pool"),
            frame: take("frame"),
            label: take("label"),
        };
        const spans = {
            ...livesOf("span_"),
            address: take("span_address"),
            bytes: take("span_bytes"),
            stream: take("span_stream"),
            pool: take("span_pool"),
        };
        const mappings = {
            ...livesOf("mapping_"),
            chunk: take("mapping_chunk"),
            address: take("mapping_address"),
            bytes: take("mapping_bytes"),
        };
        return new Recording(head, blocks, spans, mappings, take("times"));
    }

    /** What leads to the next state. */
    get stepName(): string {
        return this.isSampled ? "sample" : "operation";
    }

    /** Seconds since the first state. */
    secondsOf(state: number): number {
        return (this.times[state] - this.times[0]) / 1e6;
    }

    /** The last state whose time is not after this. */
    stateAtSeconds(seconds: number): number {
        return Math.max(countUpTo(this.times, this.times[0] + seconds * 1e6) - 1, 0);
    }

    /** Blocks that are live or wait for work in a state. */
    blocksAt(state: number): number[] {
        const { start, end } = this.blocks;
        const found: number[] = [];
        const count = countUpTo(start, state);
        for (let block = 0; block < count; block++) if (end[block] > state) found.push(block);
        return found;
    }

    /** The stack of a block, innermost frame first. */
    stackOf(block: number): string[] {
        const { parents, texts } = this.head.frames;
        const stack: string[] = [];
        for (let frame = this.blocks.frame[block]; frame > 0; frame = parents[frame]) stack.push(texts[frame]);
        return stack;
    }

    /** Where a block is from, in a line: its name and its innermost frame, or its stream. */
    siteOf(block: number): string {
        const frame = this.blocks.frame[block];
        const label = this.head.labels[this.blocks.label[block]];
        const site = frame > 0 ? this.head.frames.texts[frame] : label ? "" : this.streamOf(block);
        return [label, site].filter(Boolean).join(", ");
    }

    streamOf(block: number): string {
        return this.head.streams[this.blocks.stream[block]];
    }
}

/** How many of the sorted values are at most this one. */
export function countUpTo(values: Column, most: number): number {
    let low = 0;
    let high = values.length;
    while (low < high) {
        const middle = (low + high) >>> 1;
        if (values[middle] <= most) low = middle + 1;
        else high = middle;
    }
    return low;
}

export function largest(values: Column): number {
    let most = 0;
    for (const value of values) if (value > most) most = value;
    return most;
}

function endsOf(start: Column, life: Column, last: number): Column {
    return start.map((state: number, i: number) => (life[i] ? state + life[i] : last + 1));
}

function untilOf(start: Column, held: Column, end: Column): Column {
    if (!held.some((states: number) => states > 0)) return end;
    return end.map((state: number, i: number) => (held[i] ? start[i] + held[i] : state));
}
