// The top of the page: what was recorded, links to the parts, and the figures that sum it up.

import type { DenseCurve } from "./curves";
import { element } from "./dom";
import { bytesText, countText, percentText, plural, secondsText } from "./format";
import { largest, type Recording } from "./recording";
import { themeButton } from "./theme";

const LINKS = [
    ["chart", "Time"],
    ["map", "Map"],
    ["stacks", "Stacks"],
    ["blocks", "Blocks"],
    ["fragmentation", "Fragmentation"],
    ["what-if", "What if"],
];

/** reserved: null if the recording does not say. */
export function header(recording: Recording, live: DenseCurve, reserved: DenseCurve | null): HTMLElement {
    const links = LINKS.map(([id, text]) => element("a", { href: `#${id}` }, text));
    const title = [element("p.muted", {}, kindText(recording)), element("h1", {}, recording.head.name)];
    return element(
        "header",
        {},
        element("div.title", {}, ...title),
        element("nav.row", { "aria-label": "Parts of the page" }, ...links, themeButton()),
        element("dl.figures.card", {}, ...figures(recording, live, reserved).map(figureBox)),
    );
}

function kindText(recording: Recording): string {
    const { kind, device, devices } = recording.head;
    const kindName = { trace: "Trace", snapshot: "Snapshot", samples: "Samples of a process" }[kind];
    const deviceText = devices > 1 || device > 0 ? `device ${device}${devices > 1 ? `, one of ${devices}` : ""}` : "";
    const time = recording.hasTimes && secondsText(recording.secondsOf(recording.last));
    return [kindName, deviceText, time].filter(Boolean).join(", ");
}

type Figure = [name: string, value: string, more: string];

function figures(recording: Recording, live: DenseCurve, reserved: DenseCurve | null): Figure[] {
    const { blocks, last, head } = recording;
    const peak = live.at(live.peak());
    const most = reserved?.range(0, last)[1] ?? 0;
    return [
        ["Peak live", bytesText(peak), `at ${recording.stepName} ${countText(live.peak())}`],
        reserved
            ? ["Peak reserved", bytesText(most), `${percentText(most - peak, peak)} more than live`]
            : ["Largest block", bytesText(largest(blocks.bytes)), ""],
        [
            "Live at the end",
            bytesText(live.at(last)),
            recording.isSampled ? "" : plural(recording.blocksAt(last).length, "block"),
        ],
        recording.isSampled
            ? ["Samples", countText(last + 1), "without blocks"]
            : ["Operations", countText(last), plural(blocks.count, "block")],
        ["Streams", countText(head.streams.length), head.pools.length > 1 ? `${head.pools.length} pools` : ""],
    ];
}

function figureBox([name, value, more]: Figure): HTMLElement {
    return element(
        "div",
        {},
        element("dt.small.muted", {}, name),
        element("dd.value", {}, value),
        element("dd.small.muted", {}, more),
    );
}
