// Chunks in one state: where each is mapped, which blocks it has, and what blocks in views have of it.

import type { Range } from "./moment";
import type { Recording } from "./recording";

export interface Chunk {
    address: number; // of its home
    bytes: number;
    places: number; // further mappings, in views
    used: number; // bytes of blocks, also of those in views
    blocks: number[];
}

/** Memory of a chunk that a block in a view has. */
export interface Piece {
    chunk: Chunk;
    address: number; // at the chunk's home
    bytes: number;
    seen: number; // its address in the view
    range: number; // the address of the block's memory there
}

/** One mapping of a chunk. */
interface Spot {
    chunk: Chunk;
    address: number;
}

export class Chunks {
    readonly all: Chunk[]; // with memory, in the order of their homes
    readonly pieces: Piece[]; // in the order of their addresses at home
    readonly spots: Spot[]; // in the order of addresses
    private readonly seen: Piece[]; // in the order of their addresses in views

    /** Of blocks and ranges in the order of their addresses. */
    constructor(recording: Recording, state: number, blocks: number[], ranges: Range[]) {
        const { address, bytes } = recording.blocks;
        this.spots = spotsAt(recording, state);
        this.seen = [];
        const kept = new Set<Chunk>();
        const at = (i: number): Range => ranges[i];
        overlaps(this.spots, ranges.length, at, ({ chunk, address: spot }, i, low, high) => {
            const range = ranges[i].address;
            kept.add(chunk);
            if (spot !== chunk.address)
                this.seen.push({ chunk, address: chunk.address + low - spot, bytes: high - low, seen: low, range });
        });
        const blockAt = (i: number) => ({ address: address[blocks[i]], bytes: bytes[blocks[i]] });
        overlaps(this.spots, blocks.length, blockAt, ({ chunk }, i, low, high) => {
            chunk.used += high - low;
            chunk.blocks.push(blocks[i]);
        });
        this.all = this.spots
            .filter(({ chunk, address }) => address === chunk.address && kept.has(chunk))
            .map(({ chunk }) => chunk);
        this.pieces = [...this.seen].sort((a, b) => a.address - b.address);
    }

    /** The chunks with a mapping at these addresses. */
    under(low: number, high: number): Chunk[] {
        const found: Chunk[] = [];
        overlaps(
            this.spots,
            1,
            () => ({ address: low, bytes: high - low }),
            ({ chunk }) => found.push(chunk),
        );
        return found;
    }

    /** What a block at these addresses of a view has of chunks, in its order; none if it is not in a view. */
    behind(low: number, high: number): Piece[] {
        return this.seen.filter(({ seen, bytes }) => seen < high && low < seen + bytes);
    }
}

function spotsAt({ mappings }: Recording, state: number): Spot[] {
    const chunks = new Map<number, Chunk>();
    const found: number[] = [];
    for (let i = 0; i < mappings.count; i++) {
        if (mappings.start[i] > state || mappings.end[i] <= state) continue;
        found.push(i);
        if (mappings.bytes[i])
            chunks.set(mappings.chunk[i], {
                address: mappings.address[i],
                bytes: mappings.bytes[i],
                places: 0,
                used: 0,
                blocks: [],
            });
    }
    const spots: Spot[] = [];
    for (const i of found) {
        const chunk = chunks.get(mappings.chunk[i]);
        if (!chunk) continue;
        if (!mappings.bytes[i]) chunk.places++;
        spots.push({ chunk, address: mappings.address[i] });
    }
    return spots.sort((a, b) => a.address - b.address);
}

/** Calls run() for each mapping and each of `count` parts that meet, with the addresses that they share. The parts are
 *  in the order of addresses, and do not meet each other. */
function overlaps(
    spots: Spot[],
    count: number,
    part: (i: number) => { address: number; bytes: number },
    run: (spot: Spot, i: number, low: number, high: number) => void,
): void {
    let first = 0;
    for (let i = 0; i < count; i++) {
        const { address, bytes } = part(i);
        const end = address + bytes;
        while (first < spots.length && spots[first].address + spots[first].chunk.bytes <= address) first++;
        for (let at = first; at < spots.length && spots[at].address < end; at++) {
            const spot = spots[at];
            run(spot, i, Math.max(address, spot.address), Math.min(end, spot.address + spot.chunk.bytes));
        }
    }
}
