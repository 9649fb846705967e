// Colours of blocks by what the reader asks: who allocated them, stream, pool, age or size.

import { ageText } from "./describe";
import { bytesText } from "./format";
import type { Moment } from "./moment";
import { colour } from "./theme";

export const SHADINGS = { site: "Owner", stream: "Stream", pool: "Pool", age: "Age", size: "Size" };
export type Shading = keyof typeof SHADINGS;

const KINDS = 9; // colours for the largest kinds; the rest share one
const STEPS = 6;

export interface Shades {
    of(block: number): string;
    keys: { colour: string; text: string }[];
}

/** The colours of kinds last time, which they keep as long as they are among the largest. */
export type KindColours = Map<number, number>;

export function shade(moment: Moment, shading: Shading, last: KindColours): Shades {
    return shading === "age" || shading === "size" ? shadeBySteps(moment, shading) : shadeByKind(moment, shading, last);
}

function shadeByKind(moment: Moment, shading: "site" | "stream" | "pool", last: KindColours): Shades {
    const { blocks, head, sites } = moment.recording;
    const kindOf =
        shading === "site" ? (block: number) => sites[blocks.frame[block]] : (block: number) => blocks[shading][block];
    const names = { site: head.frames.texts, stream: head.streams, pool: head.pools }[shading];
    const totals = new Map<number, number>();
    for (const block of moment.matching)
        totals.set(kindOf(block), (totals.get(kindOf(block)) ?? 0) + blocks.bytes[block]);
    const ranked = [...totals].sort((a, b) => b[1] - a[1]);
    const top = ranked.slice(0, KINDS);
    assign(
        last,
        top.map(([kind]) => kind),
    );
    const colours = new Map(top.map(([kind]) => [kind, colour(`--kind-${last.get(kind)}`)]));
    const keys = top.map(([kind, bytes]) => ({
        colour: colours.get(kind)!,
        text: `${names[kind] || "no stack"}: ${bytesText(bytes)}`,
    }));
    const rest = ranked.slice(KINDS).reduce((sum, [, bytes]) => sum + bytes, 0);
    if (rest) keys.push({ colour: colour("--kind-rest"), text: `${ranked.length - KINDS} others: ${bytesText(rest)}` });
    return { of: block => colours.get(kindOf(block)) ?? colour("--kind-rest"), keys };
}

/** Gives kinds without a colour one that no other of these kinds has. */
function assign(last: KindColours, kinds: number[]): void {
    const used = new Set(kinds.map(kind => last.get(kind)));
    const free = Array.from({ length: KINDS }, (_, i) => i).filter(i => !used.has(i));
    for (const kind of kinds) if (!last.has(kind)) last.set(kind, free.shift()!);
    for (const kind of last.keys()) if (!kinds.includes(kind)) last.delete(kind);
}

/** Six steps from new to old, or from small to large. */
function shadeBySteps({ matching, recording, state }: Moment, shading: "age" | "size"): Shades {
    const { start, bytes } = recording.blocks;
    const value =
        shading === "age"
            ? (block: number) => Math.log(state - start[block] + 1)
            : (block: number) => Math.log(bytes[block]);
    let [least, most] = [Infinity, -Infinity];
    let [first, last] = [matching[0], matching[0]];
    for (const block of matching) {
        if (value(block) < least) [least, first] = [value(block), block];
        if (value(block) > most) [most, last] = [value(block), block];
    }
    const colours = Array.from({ length: STEPS }, (_, step) => colour(`--step-${step}`));
    const text = (block: number) => (shading === "age" ? ageText(recording, block, state) : bytesText(bytes[block]));
    const keys = matching.length
        ? [
              { colour: colours[0], text: text(first) },
              ...colours.slice(1, -1).map(colour => ({ colour, text: "" })),
              { colour: colours[STEPS - 1], text: text(last) },
          ]
        : [];
    return {
        of: block => colours[Math.min(Math.floor((STEPS * (value(block) - least)) / (most - least || 1)), STEPS - 1)],
        keys,
    };
}
