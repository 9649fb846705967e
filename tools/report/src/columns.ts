// The recording as the page carries it: a head of JSON, and columns of numbers in planes of bytes.
// Written by tools/python/vmmcache/report_pack.py.

export const FORMAT = 1;

export type Column = Uint32Array | Float64Array;

export interface Plan {
    name: string;
    ok: boolean;
    reason: string | null;
    lower_bound: number;
    peak_reserved: number;
    least: number | null;
    driver_ms: number;
    states: number[];
    reserved: number[];
}

export interface Head {
    format: number;
    version: string;
    name: string;
    kind: "trace" | "snapshot" | "samples"; // samples: a block is what a stream has live in a pool; no addresses
    device: number;
    devices: number;
    operations: number;
    chunk_bytes: number;
    columns: { name: string; count: number; planes: number; is_sum: boolean }[];
    frames: { parents: number[]; texts: string[] };
    streams: string[];
    pools: string[];
    labels: string[];
    notes: [number, string, boolean][]; // state, text, whether something failed; states increase
    what_if: Plan[] | null;
}

export async function unpackColumns(head: Head, base64: string): Promise<Map<string, Column>> {
    const bytes = await decompress(await decodeBase64(base64));
    const columns = new Map<string, Column>();
    let at = 0;
    for (const { name, count, planes, is_sum } of head.columns) {
        const column = joinPlanes(bytes.subarray(at, at + count * planes), count, planes);
        columns.set(name, is_sum ? sumUp(column) : column);
        at += count * planes;
    }
    if (at !== bytes.length) throw new Error("the page is damaged: its columns have another length than it says");
    return columns;
}

async function decodeBase64(text: string): Promise<Uint8Array<ArrayBuffer>> {
    const quick = (Uint8Array as unknown as { fromBase64?: (text: string) => Uint8Array<ArrayBuffer> }).fromBase64;
    if (quick) return quick.call(Uint8Array, text);
    const answer = await fetch("data:application/octet-stream;base64," + text.trim());
    return new Uint8Array(await answer.arrayBuffer());
}

async function decompress(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
}

function joinPlanes(bytes: Uint8Array, count: number, planes: number): Column {
    const column = planes <= 4 ? new Uint32Array(count) : new Float64Array(count);
    let weight = 1;
    for (let plane = 0; plane < planes; plane++, weight *= 256) {
        const part = bytes.subarray(plane * count, (plane + 1) * count);
        for (let i = 0; i < count; i++) column[i] += part[i] * weight;
    }
    return column;
}

function sumUp(steps: Column): Column {
    const sums = new Float64Array(steps.length);
    let sum = 0;
    for (let i = 0; i < steps.length; i++) sums[i] = sum += steps[i];
    return sum < 2 ** 32 ? Uint32Array.from(sums) : sums;
}
