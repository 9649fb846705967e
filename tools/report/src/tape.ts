// Places memory on a tape: reserved ranges one after the other, blocks at their places in them. Without addresses,
// blocks lie one after the other in the order of their allocation. Memory of blocks in views lies at its home, too.

import type { Chunks, Piece } from "./chunks";
import { joinRanges, type Moment, type Range } from "./moment";
import { countUpTo } from "./recording";

const GUESS_BYTES = 2 << 20; // blocks with addresses but no ranges: what lies around them in so many bytes

export interface TapeRange {
    address: number; // -1: unknown
    bytes: number;
    at: number; // on the tape
    stream: number;
    pool: number;
}

/** Memory at its home that a block in a view has. */
export interface TapePiece {
    piece: Piece;
    at: number;
    block: number; // its index on the tape; -1: none at this moment
}

export interface Tape {
    ranges: TapeRange[];
    chunks: { at: number; bytes: number }[]; // what of each mapping of a chunk is on the tape
    pieces: TapePiece[];
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
    return { ranges: [], chunks: [], pieces: [], blocks, at, bytes: end };
}

function layAddresses(moment: Moment): Tape {
    const {
        blocks,
        recording: {
            blocks: { address },
        },
    } = moment;
    const ranges = placeRanges(moment.ranges.length ? joinRanges(withPieces(moment)) : guessRanges(moment));
    const at = new Float64Array(blocks.length);
    let range = 0;
    blocks.forEach((block, i) => {
        while (range + 1 < ranges.length && ranges[range + 1].address <= address[block]) range++;
        at[i] = ranges[range].at + address[block] - ranges[range].address;
    });
    const last = ranges[ranges.length - 1];
    const tape: Tape = { ranges, chunks: [], pieces: [], blocks, at, bytes: last ? last.at + last.bytes : 0 };
    if (moment.chunks) {
        tape.chunks = layChunks(moment.chunks, ranges);
        tape.pieces = layPieces(moment, tape);
    }
    return tape;
}

/** Reserved memory, and that of blocks in views at its home. */
function withPieces({ ranges, chunks }: Moment): Range[] {
    if (!chunks?.pieces.length) return ranges;
    const of = new Map(ranges.map(range => [range.address, range]));
    const pieces = chunks.pieces.map(({ address, bytes, range }) => ({ ...of.get(range)!, address, bytes }));
    return [...ranges, ...pieces].sort((a, b) => a.address - b.address);
}

function layChunks({ spots }: Chunks, ranges: TapeRange[]): Tape["chunks"] {
    const found: Tape["chunks"] = [];
    let range = 0;
    for (const { chunk, address } of spots) {
        while (range < ranges.length && ranges[range].address + ranges[range].bytes <= address) range++;
        for (let i = range; i < ranges.length && ranges[i].address < address + chunk.bytes; i++) {
            const low = Math.max(address, ranges[i].address);
            const high = Math.min(address + chunk.bytes, ranges[i].address + ranges[i].bytes);
            found.push({ at: ranges[i].at + low - ranges[i].address, bytes: high - low });
        }
    }
    return found;
}

function layPieces({ chunks, recording }: Moment, { ranges, blocks }: Tape): TapePiece[] {
    const { address, bytes } = recording.blocks;
    const starts = Float64Array.from(blocks, block => address[block]);
    let range = 0;
    return chunks!.pieces.map(piece => {
        while (ranges[range].address + ranges[range].bytes <= piece.address) range++;
        const found = countUpTo(starts, piece.seen) - 1;
        const isThere = found >= 0 && piece.seen < starts[found] + bytes[blocks[found]];
        const at = ranges[range].at + piece.address - ranges[range].address;
        return { piece, at, block: isThere ? found : -1 };
    });
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
    return countUpTo(tape.at, place) - 1;
}

/** The piece at a place. */
export function pieceAt(tape: Tape, place: number): TapePiece | undefined {
    return tape.pieces.find(({ piece, at }) => at <= place && place < at + piece.bytes);
}

/** The range at a place. */
export function rangeAt(tape: Tape, place: number): TapeRange | undefined {
    return tape.ranges.findLast(range => range.at <= place);
}
