// Places memory on a tape: reserved ranges one after the other, blocks at their places in them. Without addresses,
// blocks lie one after the other in the order of their allocation.

import { joinRanges, type Moment } from "./moment";

const GUESS_BYTES = 2 << 20; // blocks with addresses but no ranges: what lies around them in so many bytes

export interface TapeRange {
    address: number; // -1: unknown
    bytes: number;
    at: number; // on the tape
    stream: number;
    pool: number;
}

export interface Tape {
    ranges: TapeRange[];
    blocks: number[]; // in the order of the tape
    at: Float64Array; // where each begins
    bytes: number;
}

export function layTape(moment: Moment): Tape {
    return moment.recording.hasAddresses ? layAddresses(moment) : layOrder(moment);
}

function layOrder({ blocks, recording }: Moment): Tape {
    const { bytes } = recording.blocks;
    const at = new Float64Array(blocks.length);
    let end = 0;
    blocks.forEach((block, i) => {
        at[i] = end;
        end += bytes[block];
    });
    return { ranges: [], blocks, at, bytes: end };
}

function layAddresses(moment: Moment): Tape {
    const {
        blocks,
        recording: {
            blocks: { address },
        },
    } = moment;
    const ranges = placeRanges(moment.ranges.length ? joinRanges(moment.ranges) : guessRanges(moment));
    const at = new Float64Array(blocks.length);
    let range = 0;
    blocks.forEach((block, i) => {
        while (range + 1 < ranges.length && ranges[range + 1].address <= address[block]) range++;
        at[i] = ranges[range].at + address[block] - ranges[range].address;
    });
    const last = ranges[ranges.length - 1];
    return { ranges, blocks, at, bytes: last ? last.at + last.bytes : 0 };
}

function placeRanges(ranges: Omit<TapeRange, "at">[]): TapeRange[] {
    let end = 0;
    return ranges.map(range => {
        end += range.bytes;
        return { ...range, at: end - range.bytes };
    });
}

function guessRanges({
    blocks,
    recording: {
        blocks: { address, bytes, stream, pool },
    },
}: Moment): Omit<TapeRange, "at">[] {
    const found: Omit<TapeRange, "at">[] = [];
    for (const block of blocks) {
        const low = Math.floor(address[block] / GUESS_BYTES) * GUESS_BYTES;
        const high = Math.ceil((address[block] + bytes[block]) / GUESS_BYTES) * GUESS_BYTES;
        const before = found[found.length - 1];
        if (before && low <= before.address + before.bytes)
            before.bytes = Math.max(before.bytes, high - before.address);
        else found.push({ address: low, bytes: high - low, stream: stream[block], pool: pool[block] });
    }
    return found;
}

/** The index of the last block that begins at or before a place; -1: none. */
export function blockBefore(tape: Tape, place: number): number {
    let low = 0;
    let high = tape.at.length;
    while (low < high) {
        const middle = (low + high) >>> 1;
        if (tape.at[middle] <= place) low = middle + 1;
        else high = middle;
    }
    return low - 1;
}

/** The range at a place. */
export function rangeAt(tape: Tape, place: number): TapeRange | undefined {
    return tape.ranges.findLast(range => range.at <= place);
}
