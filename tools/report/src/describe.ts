// A block in words: for the tips of the map and the rows of the table.

import { element } from "./dom";
import { addressText, bytesText, countText, secondsText } from "./format";
import type { Recording } from "./recording";

const MOST_FRAMES = 10;

export function ageText(recording: Recording, block: number, state: number): string {
    const start = recording.blocks.start[block];
    if (start === 0) return "since before the start";
    if (recording.hasTimes) return secondsText(recording.secondsOf(state) - recording.secondsOf(start));
    return `${countText(state - start)} ops`;
}

/** Memory without a block, from one address to another, in a reserved range. */
export function freeTip(
    recording: Recording,
    low: number,
    high: number,
    range: { address: number; bytes: number; stream: number; pool: number },
): HTMLElement {
    const { streams, pools } = recording.head;
    return tip(`${bytesText(high - low)} free`, [
        ["Address", addressText(low)],
        ["Reserved", `${bytesText(range.bytes)} from ${addressText(range.address)}`],
        ["Stream", streams[range.stream]],
        ["Pool", pools.length > 1 ? pools[range.pool] : ""],
    ]);
}

function tip(title: string, lines: [string, string][], below: HTMLElement | null = null): HTMLElement {
    const rows = lines
        .filter(([, text]) => text)
        .flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)]);
    return element("div", {}, element("strong", {}, title), element("dl", {}, ...rows), below);
}

export function blockTip(recording: Recording, block: number, state: number): HTMLElement {
    const { bytes, until, start, address, pool, label } = recording.blocks;
    return tip(
        bytesText(bytes[block]),
        [
            ["Name", recording.head.labels[label[block]]],
            ["State", until[block] <= state ? "freed, its work is under way" : "live"],
            ["Age", ageText(recording, block, state)],
            ["Allocated", start[block] ? `operation ${countText(start[block])}` : ""],
            ["Stream", recording.streamOf(block)],
            ["Pool", recording.head.pools.length > 1 ? recording.head.pools[pool[block]] : ""],
            ["Address", address[block] ? addressText(address[block]) : ""],
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
