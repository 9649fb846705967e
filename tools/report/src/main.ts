// The page: reads the recording that it carries, and puts the parts together.

import { Bar, keepBelowBar } from "./bar";
import { Chart, type ChartCurve } from "./chart";
import { FORMAT, type Head } from "./columns";
import { type DenseCurve, StepCurve, sumCurve } from "./curves";
import { byId, element } from "./dom";
import { Filter } from "./filter";
import { Flame } from "./flame";
import { header } from "./header";
import { MemoryMap } from "./map";
import { Moment } from "./moment";
import { Recording } from "./recording";
import { Store } from "./store";
import { BlockTable } from "./table";
import { WhatIf } from "./whatif";
import { Words } from "./words";

const CHART_HELP =
    "Drag to pan, turn the wheel to zoom, drag with Shift to zoom into a range, click to pick a moment. " +
    "Keys: arrows, + and \u2212, 0 for all, comma and full stop for the operation before and after, P for the peak.";

const WHAT_IF_HELP =
    "Run vmmcache-report with --fragtest PATH: it replays these requests under other policies, settings and limits.";

const SHOWN_PLAN = 2; // the library as it is; the others are shown on demand

class Page {
    private readonly store: Store;
    private readonly live: DenseCurve;
    private readonly reserved: DenseCurve | null;
    private readonly peak: number;
    private readonly curves: ChartCurve[];
    private readonly chart: Chart;
    private readonly parts: { update(moment: Moment): void }[];

    constructor(
        private readonly recording: Recording,
        root: HTMLElement,
    ) {
        this.live = sumCurve(recording.last, recording.blocks.start, recording.blocks.until, recording.blocks.bytes);
        const { start, end, bytes } = recording.spans;
        this.reserved = recording.hasReserved ? sumCurve(recording.last, start, end, bytes) : null;
        this.peak = this.live.peak();
        this.store = new Store({
            from: 0,
            to: Math.max(recording.last, 1),
            axis: recording.isSampled ? "time" : "operations",
            moment: this.peak,
            stream: -1,
            least: 0,
            text: "",
            selected: -1,
        });
        this.curves = this.makeCurves();
        this.chart = new Chart(recording, this.store, this.curves);
        this.chart.root.addEventListener("peak", () => this.goToPeak());
        const bar = new Bar(recording, this.store, () => this.goToPeak());
        const map = new MemoryMap(this.store, recording.hasStacks, recording.head.pools.length > 1);
        const [flame, table, words] = [new Flame(this.peak), new BlockTable(this.store), new Words()];
        this.parts = [bar, map, flame, table, words];
        root.replaceChildren(
            header(recording, this.live, this.reserved),
            element(
                "main",
                {},
                this.chartSection(),
                bar.root,
                section("map", "Memory map", [map.root]),
                recording.hasStacks
                    ? section("stacks", "Live bytes by stack", [flame.root])
                    : section("stacks", "Live bytes by stream and size", [
                          hint("The recording has no stacks."),
                          flame.root,
                      ]),
                element(
                    "div.columns",
                    {},
                    section("blocks", "Blocks", [table.root]),
                    section("fragmentation", "Fragmentation", [words.root]),
                ),
                this.whatIf(),
            ),
            element("footer.small.muted", {}, `Written by vmmcache-report ${recording.head.version}`),
        );
        keepBelowBar(bar.root);
        this.store.listen(["moment", "stream", "least", "text"], () => this.update());
        this.store.listen(["stream", "least", "text"], () =>
            this.chart.setCurves([...this.curves, ...this.filterCurve()]),
        );
        this.chart.showAll();
        this.update();
    }

    private update(): void {
        const filter = new Filter(this.recording, { ...this.store.choices });
        const moment = new Moment(this.recording, this.store.choices.moment, filter);
        for (const part of this.parts) part.update(moment);
    }

    private goToPeak(): void {
        this.store.set({ moment: this.peak });
        this.chart.reveal();
    }

    private makeCurves(): ChartCurve[] {
        const { blocks, hasWaiting, last, head } = this.recording;
        const busy = hasWaiting ? sumCurve(last, blocks.start, blocks.end, blocks.bytes) : null;
        const plans = (head.what_if ?? []).map((plan, i) => ({
            name: `what if: ${plan.name}`,
            colour: `--plan-${i}`,
            curve: new StepCurve(plan.states, plan.reserved),
            isDashed: true,
            isHidden: i !== SHOWN_PLAN,
        }));
        return [...filled("reserved", this.reserved), ...filled("busy", busy), ...filled("live", this.live), ...plans];
    }

    private filterCurve(): ChartCurve[] {
        const { blocks, last } = this.recording;
        const { isOn, matches } = new Filter(this.recording, { ...this.store.choices });
        return filled("filter", isOn ? sumCurve(last, blocks.start, blocks.end, blocks.bytes, matches) : null);
    }

    private chartSection(): HTMLElement {
        const { chart, store } = this;
        const button = (text: string, title: string, onclick: () => void) =>
            element("button", { title, "aria-label": title, onclick }, text);
        const axis = element<HTMLSelectElement>(
            "select",
            {
                "aria-label": "Axis",
                onchange: () => store.set({ axis: axis.value as "operations" | "time" }),
            },
            element("option", { value: "operations" }, "operations"),
            element("option", { value: "time" }, "time"),
        );
        const controls = element(
            "div.controls",
            {},
            this.recording.hasTimes && !this.recording.isSampled && axis,
            element(
                "span.group",
                { role: "group", "aria-label": "Zoom" },
                button("\u2212", "Zoom out", () => chart.zoom(0.5)),
                button("+", "Zoom in", () => chart.zoom(2)),
            ),
            button("All", "Show the whole recording", () => chart.showAll()),
        );
        return section("chart", "Memory over time", [chart.root, hint(CHART_HELP)], controls);
    }

    private whatIf(): HTMLElement {
        const { isSampled, head } = this.recording;
        const help = isSampled
            ? "Samples have no requests that could be replayed. A recording has them."
            : WHAT_IF_HELP;
        return section("what-if", "What if", [head.what_if ? new WhatIf(head.what_if).root : hint(help)]);
    }
}

/** A curve whose colour has its name; none if there is none. */
function filled(name: string, curve: DenseCurve | null): ChartCurve[] {
    return curve ? [{ name, colour: `--${name}`, curve, isFilled: true }] : [];
}

/** A part of the page; beside: what stands beside its heading. */
function section(id: string, title: string, contents: (Node | string)[], beside?: HTMLElement): HTMLElement {
    const heading = element("div.heading.row", {}, element("h2", { id: `${id}-title` }, title), beside);
    return element("section.card", { id, "aria-labelledby": `${id}-title` }, heading, ...contents);
}

function hint(text: string): HTMLElement {
    return element("p.small.muted", {}, text);
}

async function main(): Promise<void> {
    const root = byId("page");
    try {
        const head: Head = JSON.parse(byId("head").textContent!);
        if (head.format !== FORMAT) throw new Error(`the page has format ${head.format}, its program reads ${FORMAT}`);
        const recording = await Recording.open(head, byId("data").textContent!);
        byId("data").remove(); // megabytes of text
        new Page(recording, root);
        requestAnimationFrame(() => {
            root.removeAttribute("aria-busy");
            performance.mark("first picture");
        });
    } catch (error) {
        root.replaceChildren(
            element("p.fatal", { role: "alert" }, `This page cannot be shown: ${(error as Error).message}`),
        );
        throw error;
    }
}

void main();
