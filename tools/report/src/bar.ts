// The bar that stays in sight: the moment that all parts below show, and the filter.

import { byId, element } from "./dom";
import { bytesText, countText, percentText, plural, secondsText } from "./format";
import type { Moment } from "./moment";
import type { Recording } from "./recording";
import type { Store } from "./store";

const LEAST_SIZES = [0, 4096, 65536, 1 << 20, 16 << 20, 256 << 20, 2 ** 30];
const TYPING_MS = 200;

export class Bar {
    readonly root: HTMLElement;
    private readonly number: HTMLInputElement;
    private readonly summary = element("p.summary", { role: "status" });

    constructor(
        private readonly recording: Recording,
        private readonly store: Store,
        goToPeak: () => void,
    ) {
        const go = (state: number) => store.set({ moment: Math.min(Math.max(state, 0), recording.last) });
        const button = (text: string, title: string, onclick: () => void) =>
            element("button", { title, "aria-label": title, onclick }, text);
        this.number = element<HTMLInputElement>("input", {
            type: "number",
            id: "moment",
            min: "0",
            max: String(recording.last),
            oninput: () => this.number.value && go(Number(this.number.value)),
        });
        this.root = element(
            "div.bar-box.card",
            { role: "region", "aria-label": "Moment and filter" },
            element(
                "div.controls",
                {},
                element("label", { htmlFor: "moment" }, "Moment"),
                this.number,
                element("span.muted", {}, `of ${countText(recording.last)}`),
                element(
                    "span.group",
                    { role: "group", "aria-label": "Move the moment" },
                    button("\u25c0", `Previous ${recording.stepName}`, () => go(store.choices.moment - 1)),
                    button("\u25b6", `Next ${recording.stepName}`, () => go(store.choices.moment + 1)),
                ),
                button("Peak", "Go to the peak of live bytes", goToPeak),
                button("End", "Go to the end", () => go(recording.last)),
                element("span.space"),
                ...this.filters(),
            ),
            this.summary,
        );
    }

    update(moment: Moment): void {
        const { state, filter, matching, recording } = moment;
        if (document.activeElement !== this.number) this.number.value = String(state);
        const parts = [
            recording.hasTimes && secondsText(recording.secondsOf(state)),
            `${bytesText(moment.liveBytes)} live` +
                (recording.isSampled ? "" : ` in ${plural(moment.blocks.length, "block")}`),
            moment.waitingBytes && `${bytesText(moment.waitingBytes)} freed with work under way`,
            moment.reservedBytes && `${bytesText(moment.reservedBytes)} reserved`,
        ];
        if (filter.isOn) {
            const bytes = matching.reduce((sum, block) => sum + recording.blocks.bytes[block], 0);
            parts.push(
                `the filter matches ${bytesText(bytes)} in ${plural(matching.length, "block")}, ` +
                    percentText(bytes, moment.liveBytes + moment.waitingBytes),
            );
        }
        this.summary.textContent = parts.filter(Boolean).join(" \u00b7 ");
    }

    private filters(): (HTMLElement | false)[] {
        const { streams, labels } = this.recording.head;
        const hasText = this.recording.hasStacks || labels.length > 1;
        const option = (value: number, text: string) => element("option", { value: String(value) }, text);
        const stream = element<HTMLSelectElement>(
            "select",
            {
                "aria-label": "Stream",
                onchange: () => this.store.set({ stream: Number(stream.value) }),
            },
            option(-1, "all streams"),
            ...streams.map((name, number) => option(number, name)),
        );
        const least = element<HTMLSelectElement>(
            "select",
            {
                "aria-label": "Smallest size",
                onchange: () => this.store.set({ least: Number(least.value) }),
            },
            ...LEAST_SIZES.map(size => option(size, size ? `${bytesText(size)} and more` : "all sizes")),
        );
        let typing = 0;
        const text = element<HTMLInputElement>("input", {
            type: "search",
            id: "filter-text",
            placeholder: "part of a frame or name",
            "aria-label": "Part of a frame or name",
            oninput: () => {
                clearTimeout(typing);
                typing = setTimeout(() => this.store.set({ text: text.value }), TYPING_MS) as unknown as number;
            },
        });
        const clear = () => {
            stream.value = "-1";
            least.value = "0";
            text.value = "";
            this.store.set({ stream: -1, least: 0, text: "" });
        };
        return [
            element("span.muted", {}, "Filter"),
            streams.length > 1 && stream,
            least,
            hasText && text,
            element("button", { onclick: clear }, "Clear"),
        ];
    }
}

/** Keeps headings that a link jumps to below the bar. */
export function keepBelowBar(bar: HTMLElement): void {
    new ResizeObserver(() => byId("page").style.setProperty("--bar-height", `${bar.offsetHeight}px`)).observe(bar);
}
