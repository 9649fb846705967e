// Fragmentation in words.

import type { Plan } from "./columns";
import { element } from "./dom";
import { bytesText, percentText, plural } from "./format";
import { findFragmentation, type Fragmentation } from "./fragmentation";
import type { Moment } from "./moment";

const MOST_PINS = 6;

export class Words {
    readonly root = element("div.words");

    update(moment: Moment): void {
        this.root.replaceChildren(
            ...(moment.recording.isSampled
                ? [sampled(moment)]
                : moment.reservedBytes
                  ? told(findFragmentation(moment), moment)
                  : withoutRanges(moment)),
        );
    }
}

function withoutRanges({
    recording: {
        hasReserved,
        head: { what_if },
    },
}: Moment): HTMLElement[] {
    if (hasReserved) return [element("p", {}, "Nothing is reserved at this moment.")];
    const why = element(
        "p",
        {},
        "The recording does not say which memory was reserved, so that it shows no fragmentation of its own.",
    );
    if (!what_if)
        return [
            why,
            element(
                "p",
                {},
                "A snapshot does, and --fragtest adds what each policy would have reserved for these requests.",
            ),
        ];
    const plans = [...what_if].sort((a, b) => lossOf(b) - lossOf(a));
    return [
        why,
        element("p", {}, "Each policy would have lost to fragmentation:"),
        element("ol.pins", {}, ...plans.map(planItem)),
    ];
}

function sampled({ liveBytes, reservedBytes }: Moment): HTMLElement {
    return element(
        "p",
        {},
        `${bytesText(reservedBytes)} are reserved, ${bytesText(liveBytes)} of them live (${percentText(liveBytes, reservedBytes)}). ` +
            "Samples do not say where the free memory lies, which blocks pin it, and what a trim would return. " +
            "A recording does: start the program with VMM_TRACE=FILE.",
    );
}

function lossOf(plan: Plan): number {
    return plan.ok ? plan.peak_reserved - plan.lower_bound : Infinity;
}

function planItem(plan: Plan): HTMLElement {
    if (!plan.ok) return element("li", {}, `${plan.name} would have failed: ${plan.reason}`);
    return element(
        "li",
        {},
        element("strong", {}, bytesText(lossOf(plan))),
        ` by ${plan.name}, which reserves ${bytesText(plan.peak_reserved)}: the live bytes need ${percentText(plan.lower_bound, plan.peak_reserved)} of it`,
    );
}

function told(found: Fragmentation, moment: Moment): HTMLElement[] {
    const free = found.idleBytes + found.pinnedBytes + found.elsewhereBytes;
    const unit = moment.recording.head.chunk_bytes ? "chunk" : "segment";
    const chunkBytes = moment.chunks ? 0 : moment.recording.head.chunk_bytes; // where chunks begin is unknown
    const part = chunkBytes ? `part of ${bytesText(chunkBytes)}` : unit;
    const sentences = [
        `${bytesText(found.reservedBytes)} are reserved: ${bytesText(found.liveBytes)} live (${percentText(found.liveBytes, found.reservedBytes)})` +
            (found.waitingBytes ? `, ${bytesText(found.waitingBytes)} freed with work under way` : "") +
            `, ${bytesText(free)} free.`,
        found.idleBytes
            ? `${bytesText(found.idleBytes)} lie in ${plural(found.idleChunks, chunkBytes ? "part" : unit)}` +
              (chunkBytes
                  ? ` of ${bytesText(chunkBytes)} without a block: a trim returns those whose whole chunk has none.`
                  : " without a block: a trim returns them.")
            : `No ${part} is without a block: a trim returns nothing.`,
        `${chunkBytes ? "At least " : ""}${bytesText(found.pinnedBytes)} of free memory lie beside blocks and cannot be returned. ` +
            `The largest free range has ${bytesText(found.largestFree)}.`,
        ...(found.elsewhereBytes
            ? [
                  `${bytesText(found.elsewhereBytes)} are free parts of ${plural(found.elsewhereChunks, "chunk")} whose rest ` +
                      "is mapped at other addresses, for blocks in views.",
              ]
            : []),
    ];
    return [bar(found), ...sentences.map(text => element("p", {}, text)), pinList(found, unit)].filter(
        part => part !== null,
    );
}

function bar({
    liveBytes,
    waitingBytes,
    pinnedBytes,
    elsewhereBytes,
    idleBytes,
    reservedBytes,
}: Fragmentation): HTMLElement {
    const parts: [string, number, string][] = [
        ["live", liveBytes, "--live"],
        ["waiting", waitingBytes, "--busy"],
        ["pinned", pinnedBytes, "--pinned"],
        ["beside views", elsewhereBytes, "--plan-1"],
        ["idle", idleBytes, "--idle"],
    ];
    const shown = parts.filter(([, bytes]) => bytes > 0);
    return element(
        "div.shares",
        {},
        element(
            "div.bar",
            { role: "img", "aria-label": shown.map(([name, bytes]) => `${name} ${bytesText(bytes)}`).join(", ") },
            ...shown.map(([, bytes, colour]) =>
                element("i", { style: `width:${(100 * bytes) / reservedBytes}%;background:var(${colour})` }),
            ),
        ),
        element(
            "div.keys.row.small",
            {},
            ...shown.map(([name, bytes, colour]) =>
                element(
                    "span.item",
                    {},
                    element("span.swatch", { style: `--swatch: var(${colour})` }),
                    `${name} ${bytesText(bytes)}`,
                ),
            ),
        ),
    );
}

function pinList({ pins }: Fragmentation, unit: string): HTMLElement | null {
    if (!pins.length) return null;
    const rest = pins.slice(MOST_PINS).reduce((sum, pin) => sum + pin.bytes, 0);
    return element(
        "ol.pins",
        {},
        ...pins
            .slice(0, MOST_PINS)
            .map(pin =>
                element(
                    "li",
                    {},
                    element("strong", {}, bytesText(pin.bytes)),
                    ` pinned in ${plural(pin.chunks, unit)} by ${plural(pin.blocks, "block")} of ${bytesText(pin.blockBytes)} from `,
                    element("code", {}, pin.site),
                ),
            ),
        rest > 0 &&
            element(
                "li",
                {},
                element("strong", {}, bytesText(rest)),
                ` by ${plural(pins.length - MOST_PINS, "other kind")} of blocks`,
            ),
    );
}
