// Memory over time: the large chart, the strip below it that shows the whole recording, and the legend.

import uPlot from "uplot";

import { Axis } from "./axis";
import type { Curve } from "./curves";
import { beforePicture, element } from "./dom";
import { bytesText, countText, plural, secondsText } from "./format";
import { attachPointer } from "./pointer";
import type { Recording } from "./recording";
import { sample } from "./samples";
import type { Store } from "./store";
import { colour, onThemeChange } from "./theme";

const HEIGHT = 320;
const STRIP_HEIGHT = 44;
const MOST_TICKS = 6;
const AXIS_WIDTH = 76;
const RIGHT = 26; // so that the last label has room
const PAN_SHARE = 0.1;
const ZOOM_FACTOR = 1.6;
const NOTE_WIDTH = 16;
const MOST_NOTES = 8; // of a mark
const FONT = "12px system-ui, sans-serif";

type Note = [number, string, boolean];

export interface ChartCurve {
    name: string;
    colour: string; // name of a custom property
    curve: Curve;
    isFilled?: boolean;
    isDashed?: boolean;
    isHidden?: boolean;
}

export class Chart {
    readonly root: HTMLElement;
    private readonly axis: Axis;
    private readonly plotBox = element("div.plot");
    private readonly stripBox = element("div.strip");
    private readonly legend = element("div.legend.row");
    private readonly marker = element("div.marker");
    private readonly window = element("div.window");
    private readonly notes = element("div.notes");
    private plot!: uPlot;
    private strip!: uPlot;
    private hovered = -1; // state
    private width = 1; // of the plots, in pixels. Not read from the page for each picture: that would lay it out.
    private readonly redraw = beforePicture(() => this.draw());

    constructor(
        private readonly recording: Recording,
        private readonly store: Store,
        private curves: ChartCurve[],
    ) {
        this.axis = new Axis(recording, store.choices);
        this.root = element(
            "div.chart",
            {
                tabIndex: 0,
                role: "group",
                onkeydown: (event: KeyboardEvent) => this.press(event),
                "aria-label":
                    "Memory over time. Arrow keys pan, plus and minus zoom, 0 shows everything, " +
                    "comma and full stop move the moment, P goes to the peak.",
            },
            this.plotBox,
            this.stripBox,
            this.legend,
        );
        store.listen(["from", "to"], this.redraw);
        store.listen(["moment"], () => this.placeMarker());
        store.listen(["axis"], () => this.showAll());
        onThemeChange(() => this.rebuild());
        new ResizeObserver(() => this.resize()).observe(this.root);
    }

    /** Shows other curves, such as those after a change of the filter. */
    setCurves(curves: ChartCurve[]): void {
        const hidden = new Map(this.curves.map(({ name, isHidden }) => [name, isHidden]));
        this.curves = curves.map(curve => ({ ...curve, isHidden: hidden.get(curve.name) ?? curve.isHidden }));
        this.rebuild();
    }

    zoom(factor: number, around = (this.store.choices.from + this.store.choices.to) / 2): void {
        const { from, to } = this.store.choices;
        const width = Math.max((to - from) / factor, this.axis.least);
        const scale = width / (to - from);
        this.show(around - (around - from) * scale, around + (to - around) * scale);
    }

    pan(share: number): void {
        const { from, to } = this.store.choices;
        this.show(from + share * (to - from), to + share * (to - from));
    }

    private show(from: number, to: number): void {
        this.store.set(this.axis.clamp(from, to));
    }

    showAll(): void {
        this.store.set({ from: 0, to: this.axis.end });
        this.rebuild();
    }

    /** Moves the shown part so that the moment is in it. */
    reveal(): void {
        const { from, to, moment } = this.store.choices;
        const x = this.axis.of(moment);
        if (x < from || x > to) this.show(x - (to - from) / 2, x + (to - from) / 2);
    }

    private press(event: KeyboardEvent): void {
        if (event.target !== this.root || event.ctrlKey || event.metaKey || event.altKey) return;
        const { from, to, moment } = this.store.choices;
        const actions: Record<string, () => void> = {
            ArrowLeft: () => this.pan(-PAN_SHARE),
            ArrowRight: () => this.pan(PAN_SHARE),
            "+": () => this.zoom(ZOOM_FACTOR),
            "=": () => this.zoom(ZOOM_FACTOR),
            "-": () => this.zoom(1 / ZOOM_FACTOR),
            0: () => this.showAll(),
            Home: () => this.show(0, to - from),
            End: () => this.show(this.axis.end - to + from, this.axis.end),
            ",": () => this.pick(moment - 1),
            ".": () => this.pick(moment + 1),
            p: () => this.root.dispatchEvent(new CustomEvent("peak", { bubbles: true })),
        };
        const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
        if (!action) return;
        event.preventDefault();
        action();
    }

    private pick(state: number): void {
        this.store.set({ moment: Math.min(Math.max(state, 0), this.recording.last) });
        this.reveal();
    }

    private rebuild(): void {
        this.drawLegend(); // before uPlot reports where the pointer is
        this.plot?.destroy();
        this.strip?.destroy();
        const width = this.root.clientWidth;
        if (!width) return;
        this.width = Math.max(width - AXIS_WIDTH - RIGHT, 1);
        this.plot = new uPlot(this.options(width, HEIGHT, true), [[]], this.plotBox);
        this.strip = new uPlot(this.options(width, STRIP_HEIGHT, false), [[]], this.stripBox);
        this.plot.over.append(this.marker, this.notes);
        this.strip.over.append(this.window);
        this.attach();
        this.drawStrip();
        this.draw();
    }

    private resize(): void {
        if (this.plot?.width !== this.root.clientWidth) this.rebuild();
    }

    private options(width: number, height: number, isMain: boolean): uPlot.Options {
        const grid = { stroke: () => colour("--grid"), width: 1 };
        const axis = { stroke: () => colour("--muted"), font: FONT, grid, ticks: { show: false } };
        return {
            width,
            height,
            padding: isMain ? [22, RIGHT, 0, 0] : [0, RIGHT, 0, AXIS_WIDTH],
            legend: { show: false },
            cursor: { show: isMain, y: false, points: { show: false }, drag: { x: false, y: false, setScale: false } },
            scales: { x: { time: false, auto: false }, y: { auto: false, range: (_, __, most) => [0, most] } },
            axes: isMain
                ? [
                      {
                          ...axis,
                          label: this.axis.label,
                          labelSize: 20,
                          labelFont: FONT,
                          size: 30,
                          space: 90,
                          values: (_, splits) => splits.map(x => this.axis.text(x)),
                          incrs: this.increments(),
                      },
                      {
                          ...axis,
                          size: AXIS_WIDTH,
                          splits: (_, __, ___, most) => ticks(most),
                          values: (_, splits) => splits.map(bytesText),
                      },
                  ]
                : [{ show: false }, { show: false }],
            series: [
                {},
                ...this.curves.map(curve => ({
                    show: !curve.isHidden,
                    width: curve.isFilled ? 1 : 1.5,
                    points: { show: false },
                    stroke: () => colour(curve.colour),
                    dash: curve.isDashed ? [5, 4] : undefined,
                    fill: curve.isFilled ? () => colour(curve.colour + "-fill") : undefined,
                })),
            ],
            hooks: isMain ? { setCursor: [plot => this.hover(plot)] } : {},
        };
    }

    private increments(): number[] {
        const least = this.store.choices.axis === "time" ? -6 : 0;
        return Array.from({ length: 13 - least }, (_, i) => [1, 2, 5].map(unit => unit * 10 ** (i + least))).flat();
    }

    private draw(): void {
        if (!this.plot) return;
        const { from, to } = this.store.choices;
        this.plotCurves(this.plot, from, to, true);
        this.placeMarker();
        this.placeWindow();
        this.placeNotes();
    }

    private drawStrip(): void {
        this.plotCurves(this.strip, 0, this.axis.end, false);
    }

    private plotCurves(plot: uPlot, from: number, to: number, snaps: boolean): void {
        const data = sample(
            this.axis,
            this.curves.map(({ curve }) => curve),
            from,
            to,
            this.width,
        );
        const shown = data.slice(1).filter((_, i) => !this.curves[i].isHidden);
        const most = shown.reduce((most, values) => values.reduce((a, b) => (a > b ? a : b), most), 1);
        const step = tickStep(most);
        plot.batch(() => {
            plot.setData(data as unknown as uPlot.AlignedData, false);
            plot.setScale("x", { min: from, max: to });
            plot.setScale("y", { min: 0, max: snaps ? Math.ceil((most * 1.02) / step) * step : most * 1.05 });
        });
    }

    private position(x: number): number {
        const { from, to } = this.store.choices;
        return ((x - from) / (to - from)) * this.width;
    }

    private placeMarker(): void {
        if (!this.plot) return;
        const left = this.position(this.axis.of(this.store.choices.moment));
        this.marker.hidden = left < 0 || left > this.width;
        this.marker.style.transform = `translateX(${left}px)`;
        this.drawValues();
    }

    private placeWindow(): void {
        const { from, to } = this.store.choices;
        this.window.style.left = `${(100 * from) / this.axis.end}%`;
        this.window.style.width = `${(100 * (to - from)) / this.axis.end}%`;
    }

    /** Notes that would cover each other share a mark, which leads to the first that failed. */
    private placeNotes(): void {
        const marks = new Map<number, Note[]>();
        for (const note of this.recording.head.notes) {
            const left = this.position(this.axis.of(note[0]));
            if (left < 0 || left > this.width) continue;
            const place = Math.round(left / NOTE_WIDTH);
            const mark = marks.get(place);
            if (mark) mark.push(note);
            else marks.set(place, [note]);
        }
        this.notes.replaceChildren(...[...marks.values()].map(notes => this.noteMark(notes)));
    }

    private noteMark(notes: Note[]): HTMLElement {
        const failed = notes.filter(([, , hasFailed]) => hasFailed);
        const told = failed.length ? failed : notes;
        const lines = told.slice(0, MOST_NOTES).map(([, text]) => text);
        const rest = notes.length - lines.length;
        const title = lines.join("\n") + (rest > 0 ? `\nand ${plural(rest, "other mark")}` : "");
        return element(
            failed.length ? "button.note.failed" : "button.note",
            {
                title,
                "aria-label": title,
                style: `left:${this.position(this.axis.of(told[0][0]))}px`,
                onclick: () => this.pick(told[0][0]),
            },
            failed.length ? "!" : "",
        );
    }

    private attach(): void {
        const pick = (x: number) => this.store.set({ moment: this.axis.stateAt(x) });
        const show = (from: number, to: number) => this.show(from, to);
        const range = () => this.store.choices;
        attachPointer(this.plot, {
            range,
            show,
            pick,
            zoom: (factor, x) => this.zoom(factor, x),
            all: () => this.showAll(),
        });
        this.strip.over.onpointerdown = event => {
            const box = this.strip.over.getBoundingClientRect();
            const move = ({ clientX }: PointerEvent) => {
                const middle = ((clientX - box.left) / box.width) * this.axis.end;
                const half = (this.store.choices.to - this.store.choices.from) / 2;
                show(middle - half, middle + half);
            };
            this.strip.over.setPointerCapture(event.pointerId);
            this.strip.over.onpointermove = move;
            this.strip.over.onpointerup = () => (this.strip.over.onpointermove = null);
            move(event);
        };
    }

    private hover(plot: uPlot): void {
        const left = plot.cursor.left ?? -1;
        this.hovered = left < 0 ? -1 : this.axis.stateAt(plot.posToVal(left, "x"));
        this.drawValues();
    }

    private drawLegend(): void {
        this.legend.replaceChildren(
            element("span.where.muted"),
            ...this.curves.map((curve, i) =>
                element(
                    "button.key",
                    {
                        "aria-pressed": String(!curve.isHidden),
                        title: `Show or hide: ${curve.name}`,
                        onclick: () => this.toggle(i),
                    },
                    element(curve.isDashed ? "span.swatch.dashed" : "span.swatch", {
                        style: `--swatch: var(${curve.colour})`,
                    }),
                    element("span.name", {}, curve.name),
                    element("span.value"),
                ),
            ),
        );
        this.drawValues();
    }

    private drawValues(): void {
        const state = this.hovered >= 0 ? this.hovered : this.store.choices.moment;
        const where = this.legend.querySelector(".where");
        if (!where) return;
        const time = this.recording.hasTimes ? `, ${secondsText(this.recording.secondsOf(state))}` : "";
        const name = this.hovered >= 0 ? "Pointer" : "Moment";
        where.textContent = `${name}: ${this.recording.stepName} ${countText(state)}${time}`;
        this.legend.querySelectorAll(".value").forEach((value, i) => {
            value.textContent = bytesText(this.curves[i].curve.at(state));
        });
    }

    private toggle(curve: number): void {
        this.curves[curve].isHidden = !this.curves[curve].isHidden;
        this.rebuild();
        this.legend.querySelectorAll<HTMLElement>(".key")[curve].focus();
    }
}

/** A power of two that divides this into few parts. */
function tickStep(most: number): number {
    return 2 ** Math.ceil(Math.log2(Math.max(most, 1) / MOST_TICKS));
}

function ticks(most: number): number[] {
    const step = tickStep(most);
    return Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => i * step);
}
