// The table of the largest or oldest blocks.

import { ageText } from "./describe";
import { element } from "./dom";
import { addressText, bytesText, countText, plural } from "./format";
import type { Moment } from "./moment";
import type { Store } from "./store";

const MOST_ROWS = 200;

type Sort = "largest" | "oldest";

export class BlockTable {
    readonly root: HTMLElement;
    private readonly head = element("thead");
    private readonly body = element("tbody");
    private readonly caption = element("p.small.muted");
    private readonly buttons: Record<Sort, HTMLElement>;
    private moment!: Moment;
    private sort: Sort = "largest";

    constructor(private readonly store: Store) {
        this.buttons = { largest: this.button("largest", "Largest"), oldest: this.button("oldest", "Oldest") };
        this.root = element(
            "div.blocks",
            {},
            element(
                "div.controls",
                {},
                element(
                    "span.group",
                    { role: "group", "aria-label": "Order" },
                    this.buttons.largest,
                    this.buttons.oldest,
                ),
                this.caption,
            ),
            element(
                "div.scroller",
                { tabIndex: 0, role: "region", "aria-label": "Blocks" },
                element("table", {}, this.head, this.body),
            ),
        );
        store.listen(["selected"], () => this.markSelected());
    }

    update(moment: Moment): void {
        this.moment = moment;
        const shown = this.first();
        const { hasAddresses } = moment.recording;
        const names = ["Size", "Age", "Allocated", ...(hasAddresses ? ["Address"] : []), "From"];
        this.head.replaceChildren(
            element("tr", {}, ...names.map(name => element("th.small.muted", { scope: "col" }, name))),
        );
        this.body.replaceChildren(...shown.map(block => this.row(block)));
        this.caption.textContent =
            moment.matching.length > shown.length
                ? `${countText(shown.length)} of ${plural(moment.matching.length, "block")}`
                : plural(shown.length, "block");
        for (const sort of ["largest", "oldest"] as Sort[])
            this.buttons[sort].setAttribute("aria-pressed", String(sort === this.sort));
        this.markSelected();
    }

    private button(sort: Sort, text: string): HTMLElement {
        return element(
            "button",
            {
                onclick: () => {
                    this.sort = sort;
                    this.update(this.moment);
                },
            },
            text,
        );
    }

    /** The first rows in the order that is asked for. */
    private first(): number[] {
        const { bytes, start } = this.moment.recording.blocks;
        const before =
            this.sort === "largest"
                ? (a: number, b: number) => bytes[b] - bytes[a] || start[a] - start[b] || a - b
                : (a: number, b: number) => start[a] - start[b] || bytes[b] - bytes[a] || a - b;
        const found: number[] = [];
        for (const block of this.moment.matching) {
            if (found.length === MOST_ROWS && before(found[MOST_ROWS - 1], block) <= 0) continue;
            const at = found.findIndex(other => before(block, other) < 0);
            found.splice(at < 0 ? found.length : at, 0, block);
            found.length = Math.min(found.length, MOST_ROWS);
        }
        return found;
    }

    private row(block: number): HTMLElement {
        const { recording, state } = this.moment;
        const { bytes, start, address } = recording.blocks;
        const select = () => this.store.set({ selected: block });
        return element(
            "tr",
            {
                tabIndex: 0,
                "data-block": block,
                onclick: select,
                onkeydown: (event: KeyboardEvent) =>
                    event.key === "Enter" && event.target === event.currentTarget && select(),
            },
            element("td.number", {}, bytesText(bytes[block])),
            element("td.number", {}, ageText(recording, block, state)),
            element(
                "td.number",
                {},
                start[block]
                    ? element(
                          "button.link",
                          {
                              title: "Go to the moment of this allocation",
                              onclick: () => this.store.set({ moment: start[block] }),
                          },
                          countText(start[block]),
                      )
                    : "before",
            ),
            recording.hasAddresses && element("td.address", {}, addressText(address[block])),
            element("td.site", { title: recording.stackOf(block).join("\n") }, recording.siteOf(block)),
        );
    }

    private markSelected(): void {
        for (const row of this.body.querySelectorAll<HTMLElement>("tr"))
            row.setAttribute("aria-selected", String(Number(row.dataset.block) === this.store.choices.selected));
    }
}
