// The flame graph: live bytes by stack. The width of a frame is the bytes that it and what it called hold.

import { element } from "./dom";
import { bytesText, percentText, plural } from "./format";
import { Moment } from "./moment";
import { type StackNode, stackTree } from "./stacks";
import { hideTip, showTip } from "./tip";

const ROW = 22;
const LEAST_SHARE = 0.0015; // of the width: thinner frames are left out
const MOST_DEPTH = 200;

export class Flame {
    readonly root: HTMLElement;
    private readonly rows = element("div.rows", {
        role: "tree",
        "aria-label": "Live bytes by stack",
        onkeydown: (event: KeyboardEvent) => this.press(event),
    });
    private readonly path = element("div.path.small.muted");
    private readonly shown = new Map<HTMLElement, StackNode>();
    private readonly made = new Map<StackNode, HTMLElement>();
    private top!: StackNode;
    private zoomed: string[] = []; // the texts from the root to what is zoomed into

    private moment!: Moment;
    private isOfPeak = false;
    private readonly buttons = [
        element("button", { onclick: () => this.choose(false) }, "At the moment"),
        element("button", { onclick: () => this.choose(true) }, "At the peak"),
    ];

    constructor(private readonly peak: number) {
        const choice = element("span.group", { role: "group", "aria-label": "Stacks of" }, ...this.buttons);
        this.root = element(
            "div.flame",
            {},
            element("div.controls", {}, choice, this.path),
            element("div.scroller", { onscroll: hideTip }, this.rows),
        );
    }

    update(moment: Moment): void {
        this.moment = moment;
        const { recording, filter } = moment;
        this.top = stackTree(this.isOfPeak ? new Moment(recording, this.peak, filter) : moment);
        this.buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(this.isOfPeak === (i === 1))));
        this.draw();
    }

    private choose(isOfPeak: boolean): void {
        this.isOfPeak = isOfPeak;
        this.update(this.moment);
    }

    /** The frame that was zoomed into, as far as this moment has it. */
    private focus(): StackNode {
        let node = this.top;
        for (const text of this.zoomed) {
            const child = node.children.find(child => child.text === text);
            if (!child) break;
            node = child;
        }
        return node;
    }

    private draw(): void {
        const focus = this.focus();
        const above: StackNode[] = [];
        for (let node = focus.parent; node; node = node.parent) above.unshift(node);
        this.shown.clear();
        this.made.clear();
        let depth = above.length;
        above.forEach((node, row) => this.place(node, row, 0, 1, true));
        if (focus.bytes) depth = this.placeTree(focus, above.length, 0, 1);
        this.rows.replaceChildren(...this.shown.keys());
        this.rows.style.height = `${(depth + 1) * ROW}px`;
        this.path.textContent = focus.bytes
            ? `${focus === this.top ? "All blocks" : focus.text}: ${bytesText(focus.bytes)} in ${plural(focus.blocks, "block")}`
            : "No block is live at this moment.";
        this.made.get(focus)?.setAttribute("tabindex", "0");
    }

    private placeTree(node: StackNode, depth: number, left: number, width: number): number {
        this.place(node, depth, left, width, false);
        let deepest = depth;
        let at = left;
        for (const child of depth < MOST_DEPTH ? node.children : []) {
            const share = (width * child.bytes) / node.bytes;
            if (share < LEAST_SHARE) break; // the rest is smaller
            deepest = Math.max(deepest, this.placeTree(child, depth + 1, at, share));
            at += share;
        }
        return deepest;
    }

    private place(node: StackNode, row: number, left: number, width: number, isAbove: boolean): void {
        const told = `${node.text}, ${bytesText(node.bytes)}, ${percentText(node.bytes, this.top.bytes)}`;
        const made = element(
            isAbove ? "div.frame.above" : "div.frame",
            {
                role: "treeitem",
                tabIndex: -1,
                "aria-label": told,
                "aria-level": row + 1,
                style: `left:${100 * left}%;width:${100 * width}%;top:${row * ROW}px;--hue:${hue(node.text)}`,
                onclick: () => this.zoom(node),
                onpointerleave: hideTip,
                onblur: hideTip,
                onpointermove: ({ clientX, clientY }: PointerEvent) => this.tell(node, clientX, clientY),
            },
            element("span", {}, node.text),
            width > 0.12 && element("small.muted", {}, bytesText(node.bytes)),
        );
        this.shown.set(made, node);
        this.made.set(node, made);
    }

    private zoom(node: StackNode): void {
        this.zoomed = [];
        for (let at = node; at.parent; at = at.parent) this.zoomed.unshift(at.text);
        const hasFocus = this.rows.contains(document.activeElement);
        hideTip();
        this.draw();
        if (hasFocus) this.made.get(this.focus())?.focus();
    }

    private tell(node: StackNode, x: number, y: number): void {
        const caller = node.parent && `${percentText(node.bytes, node.parent.bytes)} of ${node.parent.text}`;
        showTip(
            x,
            y,
            element(
                "div",
                {},
                element("strong", {}, bytesText(node.bytes)),
                element("p", {}, node.text),
                element("p", {}, `${plural(node.blocks, "block")}, ${percentText(node.bytes, this.top.bytes)} of all`),
                caller && element("p", {}, caller),
            ),
        );
    }

    private press(event: KeyboardEvent): void {
        const node = this.shown.get(event.target as HTMLElement);
        if (!node) return;
        const siblings = node.parent?.children ?? [node];
        const at = siblings.indexOf(node);
        const goals: Record<string, StackNode | null | undefined> = {
            ArrowUp: node.parent,
            ArrowDown: node.children[0],
            ArrowLeft: siblings[at - 1],
            ArrowRight: siblings[at + 1],
        };
        if (event.key in goals) this.move(node, goals[event.key]);
        else if (event.key === "Enter" || event.key === " ") this.zoom(node);
        else if (event.key === "Backspace") this.zoom(this.focus().parent ?? this.top);
        else return;
        event.preventDefault();
    }

    private move(from: StackNode, to: StackNode | null | undefined): void {
        const made = to && this.made.get(to);
        if (!made) return;
        this.made.get(from)!.tabIndex = -1;
        made.tabIndex = 0;
        made.focus();
        const box = made.getBoundingClientRect();
        this.tell(to, box.left, box.bottom);
    }
}

/** The same for the same text: so a frame keeps its colour over time. */
function hue(text: string): number {
    let sum = 0;
    for (let i = 0; i < text.length; i++) sum = (sum * 31 + text.charCodeAt(i)) | 0;
    return 205 + (Math.abs(sum) % 60);
}
