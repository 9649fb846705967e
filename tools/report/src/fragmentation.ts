// Fragmentation: which free memory cannot be returned, and which blocks hold it.

import { joinRanges, type Moment, type Range } from "./moment";

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

/** The least that can be returned: a chunk; where the recording does not say where they begin, a part of the size that
 *  chunks are multiples of, or a whole range. */
interface Unit {
    bytes: number;
    used: number;
    blocks: number[];
}

export function findFragmentation(moment: Moment): Fragmentation {
    const units = moment.chunks?.all ?? filledParts(moment);
    const chunk = moment.recording.head.chunk_bytes;
    const free = units.filter(unit => !unit.blocks.length);
    const idle = free.filter(unit => unit.bytes >= chunk);
    const elsewhere = free.filter(unit => unit.bytes < chunk);
    const pins = pinsOf(units, moment);
    const sum = (items: { bytes: number }[]) => items.reduce((total, item) => total + item.bytes, 0);
    return {
        liveBytes: moment.liveBytes,
        waitingBytes: moment.waitingBytes,
        reservedBytes: moment.reservedBytes,
        idleBytes: sum(idle),
        idleChunks: idle.length,
        pinnedBytes: sum(pins),
        elsewhereBytes: sum(elsewhere),
        elsewhereChunks: elsewhere.length,
        largestFree: largestFree(moment),
        pins,
    };
}

interface Part extends Unit {
    address: number;
}

function filledParts(moment: Moment): Part[] {
    const parts = partsOf(moment);
    fill(parts, moment);
    return parts;
}

function partsOf({ ranges, recording }: Moment): Part[] {
    const chunk = recording.head.chunk_bytes;
    const unit = (address: number, bytes: number): Part => ({ address, bytes, used: 0, blocks: [] });
    if (!chunk) return ranges.map(({ address, bytes }) => unit(address, bytes));
    return joinRanges(ranges).flatMap(({ address, bytes }) => {
        const end = address + bytes;
        const count = Math.ceil(end / chunk) - Math.floor(address / chunk);
        return Array.from({ length: count }, (_, i) => {
            const low = Math.max((Math.floor(address / chunk) + i) * chunk, address);
            return unit(low, Math.min((Math.floor(low / chunk) + 1) * chunk, end) - low);
        });
    });
}

function fill(units: Part[], { blocks, recording }: Moment): void {
    const { address, bytes } = recording.blocks;
    let first = 0;
    for (const block of blocks) {
        const [low, high] = [address[block], address[block] + bytes[block]];
        while (first < units.length && units[first].address + units[first].bytes <= low) first++;
        for (let at = first; at < units.length && units[at].address < high; at++) {
            const unit = units[at];
            unit.used += Math.max(Math.min(high, unit.address + unit.bytes) - Math.max(low, unit.address), 0);
            unit.blocks.push(block);
        }
    }
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
