// What if: what other policies and settings would have reserved, and which limits they survive.

import type { Plan } from "./columns";
import { element } from "./dom";
import { bytesText, percentText } from "./format";

const STEPS = 1000;

export class WhatIf {
    readonly root: HTMLElement;
    private readonly rows: { plan: Plan; verdict: HTMLElement }[];
    private readonly slider: HTMLInputElement;
    private readonly limit = element("output");
    private readonly least: number;
    private readonly most: number;

    constructor(plans: Plan[]) {
        this.least = 0.98 * Math.min(...plans.map(plan => plan.lower_bound));
        this.most = 1.02 * Math.max(...plans.map(plan => plan.peak_reserved));
        this.slider = element<HTMLInputElement>("input", {
            type: "range",
            min: "0",
            max: String(STEPS),
            value: String(STEPS),
            oninput: () => this.judge(),
            "aria-label": "Memory limit",
        });
        this.rows = plans.map(plan => ({ plan, verdict: element("td.verdict") }));
        this.root = element(
            "div.whatif",
            {},
            element(
                "p.small.muted",
                {},
                "The requests of this recording, replayed by fragtest on a simulated GPU without work in flight. " +
                    `Their live bytes alone need ${bytesText(plans[0].lower_bound)}.`,
            ),
            element("label.limit.row", {}, "With a limit of ", this.limit, this.slider),
            element(
                "div.scroller",
                { tabIndex: 0, role: "region", "aria-label": "Policies" },
                element(
                    "table",
                    {},
                    element(
                        "thead",
                        {},
                        element(
                            "tr",
                            {},
                            ...["Policy", "Reserves at most", "", "Survives from", "With this limit"].map(name =>
                                element("th.small.muted", { scope: "col" }, name),
                            ),
                        ),
                    ),
                    element("tbody", {}, ...this.rows.map(row => this.row(row))),
                ),
            ),
        );
        this.judge();
    }

    private row({ plan, verdict }: { plan: Plan; verdict: HTMLElement }): HTMLElement {
        const excess = plan.peak_reserved - plan.lower_bound;
        return element(
            "tr",
            {},
            element("th", { scope: "row" }, plan.name),
            element("td.number", {}, plan.ok ? bytesText(plan.peak_reserved) : "failed"),
            element(
                "td.excess",
                { title: `${percentText(excess, plan.lower_bound)} more than the live bytes` },
                element(
                    "div",
                    {},
                    element("i", { style: `width:${(100 * plan.lower_bound) / this.most}%` }),
                    element("i.more", { style: `width:${(100 * excess) / this.most}%` }),
                    element("span.small.muted", {}, `+${percentText(excess, plan.lower_bound)}`),
                ),
            ),
            element("td.number", {}, plan.least ? bytesText(plan.least) : "no limit found"),
            verdict,
        );
    }

    private judge(): void {
        const limit = this.least + ((this.most - this.least) * Number(this.slider.value)) / STEPS;
        this.limit.textContent = bytesText(limit);
        this.slider.setAttribute("aria-valuetext", bytesText(limit));
        for (const { plan, verdict } of this.rows) {
            const survives = plan.ok && plan.least !== null && plan.least <= limit;
            verdict.textContent = survives ? "survives" : "out of memory";
            verdict.classList.toggle("bad", !survives);
        }
    }
}
