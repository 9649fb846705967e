// Fragmentation: which free memory cannot be returned, and which blocks hold it.

import { joinRanges, type Moment, type Range } from "./moment";
import type { Recording } from "./recording";

export interface Pin {
    bytes: number; // free, in chunks that these blocks keep
    chunks: number;
    blocks: number;
    blockBytes: number;
    site: string;
}

export interface Fragmentation {
    liveBytes: number;
    waitingBytes: number;
    reservedBytes: number;
    idleBytes: number; // in parts without a block
    idleChunks: number;
    pinnedBytes: number; // free, beside blocks
    elsewhereBytes: number; // free, in chunks whose rest is mapped at other addresses
    elsewhereChunks: number;
    largestFree: number; // bytes at consecutive addresses
    pins: Pin[]; // largest first
}

/** The least that can be returned, with blocks in it: a chunk; where the recording does not say where they begin, a
 *  part of the size that chunks are multiples of, or a whole range. */
interface Unit {
    bytes: number;
    used: number;
    blocks: number[];
}

/** Units of one size without a block. There may be far more than a page could hold one by one. */
interface Gap {
    bytes: number; // of each
    count: number;
}

interface Units {
    held: Unit[]; // those that one block fills may be missing
    gaps: Gap[];
}

export function findFragmentation(moment: Moment): Fragmentation {
    const chunk = moment.recording.head.chunk_bytes;
    const { held, gaps } = moment.chunks ? sorted(moment.chunks.all) : chunk ? partsOf(moment) : rangesOf(moment);
    const idle = gaps.filter(gap => gap.bytes >= chunk);
    const elsewhere = gaps.filter(gap => gap.bytes < chunk);
    const pins = pinsOf(held, moment);
    const sumOfGaps = (gaps: Gap[]) => gaps.reduce((total, gap) => total + gap.bytes * gap.count, 0);
    const countOfGaps = (gaps: Gap[]) => gaps.reduce((total, gap) => total + gap.count, 0);
    return {
        liveBytes: moment.liveBytes,
        waitingBytes: moment.waitingBytes,
        reservedBytes: moment.reservedBytes,
        idleBytes: sumOfGaps(idle),
        idleChunks: countOfGaps(idle),
        pinnedBytes: pins.reduce((total, pin) => total + pin.bytes, 0),
        elsewhereBytes: sumOfGaps(elsewhere),
        elsewhereChunks: countOfGaps(elsewhere),
        largestFree: largestFree(moment),
        pins,
    };
}

function sorted(units: Unit[]): Units {
    const gaps = units.filter(unit => !unit.blocks.length).map(({ bytes }) => ({ bytes, count: 1 }));
    return { held: units.filter(unit => unit.blocks.length), gaps };
}

function rangesOf({ ranges, blocks, recording }: Moment): Units {
    const { address, bytes } = recording.blocks;
    const units = ranges.map((range): Unit => ({ bytes: range.bytes, used: 0, blocks: [] }));
    let first = 0;
    for (const block of blocks) {
        const [low, high] = [address[block], address[block] + bytes[block]];
        while (first < ranges.length && ranges[first].address + ranges[first].bytes <= low) first++;
        for (let i = first; i < ranges.length && ranges[i].address < high; i++) {
            const end = ranges[i].address + ranges[i].bytes;
            units[i].used += Math.max(Math.min(high, end) - Math.max(low, ranges[i].address), 0);
            units[i].blocks.push(block);
        }
    }
    return sorted(units);
}

function partsOf({ ranges, blocks, recording }: Moment): Units {
    const { address, bytes } = recording.blocks;
    const found: Units = { held: [], gaps: [] };
    let first = 0;
    for (const range of joinRanges(ranges)) {
        while (first < blocks.length && address[blocks[first]] + bytes[blocks[first]] <= range.address) first++;
        let next = first;
        while (next < blocks.length && address[blocks[next]] < range.address + range.bytes) next++;
        cutRange(range, blocks.slice(first, next), recording, found);
    }
    return found;
}

/** Adds the parts of a range with these blocks. Makes units only of the first and the last part of each block: those
 *  between them are full. */
function cutRange(range: Range, blocks: number[], { blocks: { address, bytes }, head }: Recording, found: Units): void {
    const chunk = head.chunk_bytes;
    const end = range.address + range.bytes;
    const units = new Map<number, Unit>();
    let free = range.address; // where the parts begin that no block has met
    for (const block of blocks) {
        const low = Math.max(address[block], range.address);
        const high = Math.min(address[block] + bytes[block], end);
        if (high <= low) continue;
        const [first, last] = [Math.floor(low / chunk), Math.ceil(high / chunk) - 1];
        for (const part of new Set([first, last])) {
            const [from, to] = [Math.max(part * chunk, range.address), Math.min((part + 1) * chunk, end)];
            const unit = units.get(part) ?? { bytes: to - from, used: 0, blocks: [] };
            units.set(part, unit);
            unit.used += Math.min(high, to) - Math.max(low, from);
            unit.blocks.push(block);
        }
        found.gaps.push(...gapsBetween(free, first * chunk, chunk));
        free = Math.max(free, (last + 1) * chunk);
    }
    found.gaps.push(...gapsBetween(free, end, chunk));
    for (const unit of units.values()) found.held.push(unit);
}

/** The parts of free memory: perhaps a piece of one, whole ones, and a piece of one. */
function gapsBetween(low: number, high: number, chunk: number): Gap[] {
    if (high <= low) return [];
    const [first, end] = [Math.ceil(low / chunk), Math.floor(high / chunk)];
    if (end < first) return [{ bytes: high - low, count: 1 }];
    const pieces = [first * chunk - low, high - end * chunk].filter(bytes => bytes > 0);
    return [{ bytes: chunk, count: end - first }, ...pieces.map(bytes => ({ bytes, count: 1 }))];
}

/** Free bytes of chunks with blocks, by the site and size of the chunk's largest block. */
function pinsOf(units: Unit[], { recording }: Moment): Pin[] {
    const { bytes, frame } = recording.blocks;
    const kindOf = (block: number) => `${recording.sites[frame[block]]}/${bytes[block]}`;
    const found = new Map<string, Pin & { known: Set<number> }>();
    for (const unit of units) {
        const free = unit.bytes - unit.used;
        if (!unit.blocks.length || free <= 0) continue;
        const owner = unit.blocks.reduce((a, b) => (bytes[b] > bytes[a] ? b : a));
        const key = kindOf(owner);
        let pin = found.get(key);
        if (!pin)
            found.set(
                key,
                (pin = {
                    bytes: 0,
                    chunks: 0,
                    blocks: 0,
                    blockBytes: bytes[owner],
                    site: recording.siteOf(owner),
                    known: new Set(),
                }),
            );
        pin.bytes += free;
        pin.chunks++;
        for (const block of unit.blocks) if (kindOf(block) === key) pin.known.add(block);
        pin.blocks = pin.known.size;
    }
    return [...found.values()].sort((a, b) => b.bytes - a.bytes);
}

function largestFree({ ranges, blocks, recording }: Moment): number {
    const { address, bytes } = recording.blocks;
    let most = 0;
    let at = 0;
    for (const range of joinRanges(ranges) as Range[]) {
        let end = range.address;
        for (; at < blocks.length && address[blocks[at]] < range.address + range.bytes; at++) {
            most = Math.max(most, address[blocks[at]] - end);
            end = Math.max(end, address[blocks[at]] + bytes[blocks[at]]);
        }
        most = Math.max(most, range.address + range.bytes - end);
    }
    return most;
}
