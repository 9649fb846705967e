// A block in words: for the tips of the map and the rows of the table.

import type { Chunk } from "./chunks";
import { element } from "./dom";
import { addressText, bytesText, countText, plural, secondsText } from "./format";
import type { Moment } from "./moment";
import type { Recording } from "./recording";

const MOST_FRAMES = 10;
const MOST_PIECES = 4;

export function ageText(recording: Recording, block: number, state: number): string {
    const start = recording.blocks.start[block];
    if (start === 0) return "since before the start";
    if (recording.hasTimes) return secondsText(recording.secondsOf(state) - recording.secondsOf(start));
    return `${countText(state - start)} ops`;
}

/** The chunks at these addresses: their size, what blocks have of it, and how often they are mapped in views. */
function chunkLines({ chunks }: Moment, low: number, high: number): [string, string][] {
    const under = chunks?.under(low, high) ?? [];
    if (!under.length) return [];
    const sum = (value: (chunk: Chunk) => number) => under.reduce((total, chunk) => total + value(chunk), 0);
    const places = sum(chunk => chunk.places);
    const text =
        (under.length > 1 ? `${countText(under.length)}, of ` : "") +
        `${bytesText(sum(chunk => chunk.bytes))}, ${bytesText(sum(chunk => chunk.used))} in blocks` +
        (under.length > 1 ? "" : `, from ${addressText(under[0].address)}`) +
        (places ? `, mapped at ${plural(places, "place")} in views` : "");
    return [[under.length > 1 ? "Chunks" : "Chunk", text]];
}

/** Where the memory of a block in a view is at home. */
function viewText({ chunks }: Moment, low: number, high: number): string {
    const pieces = chunks?.behind(low, high) ?? [];
    const rest = pieces.length - MOST_PIECES;
    const parts = pieces
        .slice(0, MOST_PIECES)
        .map(({ address, bytes }) => `${bytesText(bytes)} at home at ${addressText(address)}`);
    return [...parts, ...(rest > 0 ? [`${countText(rest)} more`] : [])].join(", ");
}

/** Memory without a block, from one address to another, in a reserved range; `place`: the pointer's address. */
export function freeTip(
    moment: Moment,
    place: number,
    low: number,
    high: number,
    range: { address: number; bytes: number; stream: number; pool: number },
): HTMLElement {
    const { streams, pools } = moment.recording.head;
    return tip(`${bytesText(high - low)} free`, [
        ["Address", addressText(low)],
        ["Reserved", `${bytesText(range.bytes)} from ${addressText(range.address)}`],
        ["Stream", streams[range.stream]],
        ["Pool", pools.length > 1 ? pools[range.pool] : ""],
        ...chunkLines(moment, place, place + 1),
    ]);
}

function tip(title: string, lines: [string, string][], below: HTMLElement | null = null): HTMLElement {
    const rows = lines
        .filter(([, text]) => text)
        .flatMap(([name, text]) => [element("dt.muted", {}, name), element("dd", {}, text)]);
    return element("div", {}, element("strong", {}, title), element("dl", {}, ...rows), below);
}

export function blockTip(moment: Moment, block: number): HTMLElement {
    const { recording, state } = moment;
    const { bytes, start, address, pool, label } = recording.blocks;
    const [low, high] = [address[block], address[block] + bytes[block]];
    return tip(
        bytesText(bytes[block]),
        [
            ["Name", recording.head.labels[label[block]]],
            ["State", moment.isWaiting(block) ? "freed, its work is under way" : "live"],
            ["Age", ageText(recording, block, state)],
            ["Allocated", start[block] ? `operation ${countText(start[block])}` : ""],
            ["Stream", recording.streamOf(block)],
            ["Pool", recording.head.pools.length > 1 ? recording.head.pools[pool[block]] : ""],
            ["Address", low ? addressText(low) : ""],
            ["View", viewText(moment, low, high)],
            ...chunkLines(moment, low, high),
        ],
        stackList(recording, block),
    );
}

function stackList(recording: Recording, block: number): HTMLElement | null {
    const stack = recording.stackOf(block);
    if (!stack.length) return null;
    const rest = stack.length - MOST_FRAMES;
    return element(
        "ol.stack",
        {},
        ...stack.slice(0, MOST_FRAMES).map(frame => element("li", {}, frame)),
        rest > 0 && element("li", {}, `and ${rest} more`),
    );
}
