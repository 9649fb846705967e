// The memory map: rows of reserved memory in the order of addresses, with the blocks in it.

import { blockTip, freeTip } from "./describe";
import { beforePicture, element } from "./dom";
import { addressText, bytesText } from "./format";
import type { Moment } from "./moment";
import { type KindColours, type Shades, type Shading, SHADINGS, shade } from "./shades";
import type { Store } from "./store";
import { blockBefore, layTape, pieceAt, rangeAt, type Tape, type TapeRange } from "./tape";
import { colour, onThemeChange } from "./theme";
import { hideTip, showTip } from "./tip";

const ROW = 22; // pixels, with the space below
const CELL = 17;
const GUTTER = 118;
const ROWS = 16; // at the first scale
const LEAST_CHUNK = 10; // pixels
const MOST_ZOOM = 12; // powers of two
const MOST_HEIGHT = 440;
const PALE = 0.35; // opacity
const VIEWS =
    " Blocks in views are underlined; their memory is pale at its home, where it is not counted a second time.";
const FONT = "11px ui-monospace, monospace";

export class MemoryMap {
    readonly root: HTMLElement;
    private readonly canvas = element<HTMLCanvasElement>("canvas");
    private readonly spacer = element("div.spacer");
    private readonly scroller: HTMLElement;
    private readonly keys = element("div.keys.row.small");
    private readonly scale = element("output.muted");
    private readonly intro = element("p.small.muted");
    private moment!: Moment;
    private tape!: Tape;
    private shades!: Shades;
    private shading: Shading = "site";
    private kindColours: KindColours = new Map();
    private zoomed = 0;
    private readonly redraw = beforePicture(() => this.draw());

    constructor(
        private readonly store: Store,
        hasStacks: boolean,
        hasPools: boolean,
    ) {
        this.scroller = element(
            "div.scroller",
            {
                tabIndex: 0,
                role: "application",
                onscroll: this.redraw,
                "aria-label": "Memory map. Arrow keys move from block to block, plus and minus change the scale.",
                onkeydown: (event: KeyboardEvent) => this.press(event),
                onblur: hideTip,
                onpointerleave: hideTip,
                onpointermove: (event: PointerEvent) => this.point(event),
                onclick: (event: PointerEvent) => this.choose(event),
            },
            element("div.sheet", {}, this.canvas),
            this.spacer,
        );
        this.shading = hasStacks ? "site" : "stream";
        this.root = element("div.map", {}, this.intro, this.controls(hasStacks, hasPools), this.scroller, this.keys);
        store.listen(["selected"], () => this.reveal());
        onThemeChange(() => this.update(this.moment));
        new ResizeObserver(this.redraw).observe(this.scroller);
    }

    update(moment: Moment): void {
        this.moment = moment;
        this.tape = layTape(moment);
        this.shades = shade(moment, this.shading, this.kindColours);
        this.intro.textContent = introText(moment);
        this.keys.replaceChildren(
            ...this.shades.keys.map(({ colour, text }) =>
                element("span.item", {}, element("span.swatch", { style: `--swatch: ${colour}` }), text),
            ),
        );
        this.draw();
    }

    private controls(hasStacks: boolean, hasPools: boolean): HTMLElement {
        const usable = (Object.keys(SHADINGS) as Shading[]).filter(
            key => (key !== "site" || hasStacks) && (key !== "pool" || hasPools),
        );
        const select = element<HTMLSelectElement>(
            "select",
            {
                onchange: () => {
                    this.shading = select.value as Shading;
                    this.kindColours = new Map();
                    this.update(this.moment);
                },
            },
            ...usable.map(key => element("option", { value: key }, SHADINGS[key])),
        );
        return element(
            "div.controls",
            {},
            element("label", {}, "Colour by ", select),
            element(
                "span.group",
                { role: "group", "aria-label": "Scale of the map" },
                element(
                    "button",
                    { title: "More bytes a row", "aria-label": "More bytes a row", onclick: () => this.zoom(-1) },
                    "\u2212",
                ),
                element(
                    "button",
                    { title: "Fewer bytes a row", "aria-label": "Fewer bytes a row", onclick: () => this.zoom(1) },
                    "+",
                ),
                this.scale,
            ),
        );
    }

    private get rowBytes(): number {
        return 2 ** (Math.ceil(Math.log2(Math.max(this.tape.bytes, 4096) / ROWS)) - this.zoomed);
    }

    private get width(): number {
        return Math.max(this.scroller.clientWidth - GUTTER - 1, 1);
    }

    private zoom(steps: number): void {
        const middle = ((this.scroller.scrollTop + this.scroller.clientHeight / 2) / ROW) * this.rowBytes;
        this.zoomed = Math.min(Math.max(this.zoomed + steps, 0), MOST_ZOOM);
        this.draw();
        this.scroller.scrollTop = (middle / this.rowBytes) * ROW - this.scroller.clientHeight / 2;
    }

    /** Draws the rows that the scroller shows. */
    private draw(): void {
        const rows = Math.ceil(this.tape.bytes / this.rowBytes);
        this.scale.textContent = `${bytesText(this.rowBytes)} a row`;
        this.spacer.style.height = `${rows * ROW}px`;
        this.scroller.style.height = `${Math.min(Math.max(rows, 1) * ROW + 2, MOST_HEIGHT)}px`;
        const { clientWidth: width, clientHeight: height, scrollTop: top } = this.scroller;
        const ratio = devicePixelRatio;
        Object.assign(this.canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
        Object.assign(this.canvas.style, { width: `${width}px`, height: `${height}px` });
        const pen = this.canvas.getContext("2d")!;
        pen.scale(ratio, ratio);
        pen.translate(0, -top);
        this.drawRows(pen, Math.floor(top / ROW), Math.min(Math.ceil((top + height) / ROW), rows));
    }

    private drawRows(pen: CanvasRenderingContext2D, first: number, end: number): void {
        const [low, high] = [first * this.rowBytes, end * this.rowBytes];
        pen.fillStyle = colour("--free");
        this.fill(pen, low, Math.min(high, this.tape.bytes));
        const pixel = this.rowBytes / this.width;
        let drawn = -Infinity; // end of the last of the blocks that are too thin to be seen one by one
        const start = Math.max(blockBefore(this.tape, low), 0);
        for (let i = start; i < this.tape.blocks.length && this.tape.at[i] < high; i++) {
            const end = this.tape.at[i] + this.bytesOf(i);
            const isThin = this.bytesOf(i) < pixel / 2;
            if (isThin && end - drawn < pixel / 2) continue;
            this.drawBlock(pen, i, low, high);
            if (isThin) drawn = end;
        }
        this.drawPieces(pen, low, high);
        this.drawChunks(pen, low, high);
        this.drawEdges(pen, low, high);
        this.drawAddresses(pen, first, end);
        this.drawSelected(pen, low, high);
    }

    private bytesOf(i: number): number {
        return this.moment.recording.blocks.bytes[this.tape.blocks[i]];
    }

    private addressOf(i: number): number {
        return this.moment.recording.blocks.address[this.tape.blocks[i]];
    }

    private colourOf(block: number): string {
        const isDim = this.moment.filter.isOn && !this.moment.filter.matches(block);
        return isDim ? colour("--dim") : this.shades.of(block);
    }

    private drawBlock(pen: CanvasRenderingContext2D, i: number, low: number, high: number): void {
        const block = this.tape.blocks[i];
        const start = Math.max(this.tape.at[i], low);
        const end = Math.min(this.tape.at[i] + this.bytesOf(i), high);
        if (end <= start) return;
        pen.fillStyle = this.colourOf(block);
        this.fill(pen, start, end, true);
        if (!this.moment.isWaiting(block)) return;
        pen.fillStyle = hatching(pen);
        this.fill(pen, start, end, true);
    }

    /** Memory of blocks in views: pale at its home, underlined where the block has it. */
    private drawPieces(pen: CanvasRenderingContext2D, low: number, high: number): void {
        for (const { piece, at, block } of this.tape.pieces) {
            if (block < 0) continue;
            pen.fillStyle = this.colourOf(this.tape.blocks[block]);
            pen.globalAlpha = PALE;
            if (at < high && low < at + piece.bytes)
                this.fill(pen, Math.max(at, low), Math.min(at + piece.bytes, high), true);
            pen.globalAlpha = 1;
            const seen = this.tape.at[block] + piece.seen - this.addressOf(block);
            if (seen < high && low < seen + piece.bytes)
                this.forRows(Math.max(seen, low), Math.min(seen + piece.bytes, high), (x, y, width) =>
                    pen.fillRect(x, y + CELL + 1, Math.max(width - 1, 1), 2),
                );
        }
    }

    /** Fills a part of the tape, row by row. */
    private fill(pen: CanvasRenderingContext2D, start: number, end: number, isBlock = false): void {
        this.forRows(start, end, (x, y, width) => {
            const space = isBlock && width > 3 ? 1 : 0;
            pen.fillRect(x, y, Math.max(width - space, 1), CELL);
        });
    }

    private forRows(start: number, end: number, run: (x: number, y: number, width: number) => void): void {
        const { rowBytes, width } = this;
        for (let row = Math.floor(start / rowBytes); row * rowBytes < end; row++) {
            const from = Math.max(start - row * rowBytes, 0) / rowBytes;
            const to = Math.min(end - row * rowBytes, rowBytes) / rowBytes;
            run(GUTTER + from * width, row * ROW, (to - from) * width);
        }
    }

    /** Ticks below the rows where chunks begin and end, or may begin, if they are not too close. */
    private drawChunks(pen: CanvasRenderingContext2D, low: number, high: number): void {
        if (!this.moment.chunks) return this.drawParts(pen, low, high);
        pen.fillStyle = colour("--text");
        for (const { at, bytes } of this.tape.chunks) {
            if ((bytes / this.rowBytes) * this.width < LEAST_CHUNK) continue;
            for (const place of [at, at + bytes - 1])
                if (place >= low && place < high)
                    this.forRows(place, place + 1, (x, y) => pen.fillRect(x, y + CELL, 1, 5));
        }
    }

    private drawParts(pen: CanvasRenderingContext2D, low: number, high: number): void {
        const chunk = this.moment.recording.head.chunk_bytes;
        if (!chunk || (chunk / this.rowBytes) * this.width < LEAST_CHUNK) return;
        pen.fillStyle = colour("--muted");
        for (const { at, bytes, address } of this.tape.ranges) {
            const start = Math.max(at, low);
            const first = start + ((chunk - ((address + start - at) % chunk)) % chunk);
            for (let place = first; place < Math.min(at + bytes, high); place += chunk)
                this.forRows(place, place + 1, (x, y) => pen.fillRect(x, y + CELL, 1, 3));
        }
    }

    /** A line where the next bytes have another address, stream or pool. */
    private drawEdges(pen: CanvasRenderingContext2D, low: number, high: number): void {
        pen.fillStyle = colour("--text");
        for (const { at } of this.tape.ranges) {
            if (at <= low || at >= high) continue;
            this.forRows(at, at + 1, (x, y) => pen.fillRect(x - 1, y - 2, 1.5, CELL + 4));
        }
    }

    private drawAddresses(pen: CanvasRenderingContext2D, first: number, end: number): void {
        pen.font = FONT;
        pen.fillStyle = colour("--muted");
        pen.textBaseline = "middle";
        let range = 0;
        for (let row = first; row < end; row++) {
            const at = row * this.rowBytes;
            while (range + 1 < this.tape.ranges.length && this.tape.ranges[range + 1].at <= at) range++;
            const found = this.tape.ranges[range];
            pen.fillText(found ? addressText(found.address + at - found.at) : bytesText(at), 2, row * ROW + CELL / 2);
        }
    }

    private drawSelected(pen: CanvasRenderingContext2D, low: number, high: number): void {
        const i = this.tape.blocks.indexOf(this.store.choices.selected);
        if (i < 0) return;
        pen.strokeStyle = colour("--text");
        pen.lineWidth = 2;
        const mark = (start: number, end: number) =>
            this.forRows(Math.max(start, low), Math.min(end, high), (x, y, width) =>
                pen.strokeRect(x - 1, y - 1, Math.max(width, 2) + 1, CELL + 2),
            );
        mark(this.tape.at[i], this.tape.at[i] + this.bytesOf(i));
        for (const { piece, at, block } of this.tape.pieces) if (block === i) mark(at, at + piece.bytes);
    }

    /** The place on the tape below the pointer; -1: none. */
    private placeAt({ clientX, clientY }: PointerEvent): number {
        const box = this.scroller.getBoundingClientRect();
        const [x, y] = [clientX - box.left - GUTTER, clientY - box.top + this.scroller.scrollTop];
        if (x < 0 || x > this.width || y % ROW > CELL + 2) return -1;
        const place = (Math.floor(y / ROW) + x / this.width) * this.rowBytes;
        return place < this.tape.bytes ? place : -1;
    }

    /** The index of the block at a place; -1: none. A block of less than a pixel is wider here. */
    private hit(place: number): number {
        const slack = (1.5 * this.rowBytes) / this.width;
        const i = blockBefore(this.tape, place);
        if (i >= 0 && place < this.tape.at[i] + Math.max(this.bytesOf(i), slack)) return i;
        if (i + 1 < this.tape.blocks.length && this.tape.at[i + 1] - place < slack) return i + 1;
        return pieceAt(this.tape, place)?.block ?? -1;
    }

    private point(event: PointerEvent): void {
        const place = this.placeAt(event);
        const i = place < 0 ? -1 : this.hit(place);
        const range = rangeAt(this.tape, place);
        if (i >= 0) showTip(event.clientX, event.clientY, blockTip(this.moment, this.tape.blocks[i]));
        else if (place >= 0 && range) this.pointFree(event, place, range);
        else hideTip();
    }

    private pointFree({ clientX, clientY }: PointerEvent, place: number, range: TapeRange): void {
        const before = blockBefore(this.tape, place);
        let low = Math.max(before < 0 ? 0 : this.tape.at[before] + this.bytesOf(before), range.at);
        let high = Math.min(this.tape.at[before + 1] ?? Infinity, range.at + range.bytes);
        for (const { piece, at } of this.tape.pieces) {
            if (at + piece.bytes <= place) low = Math.max(low, at + piece.bytes);
            else high = Math.min(high, at);
        }
        const shift = range.address - range.at;
        showTip(clientX, clientY, freeTip(this.moment, place + shift, low + shift, high + shift, range));
    }

    private choose(event: PointerEvent): void {
        const place = this.placeAt(event);
        const i = place < 0 ? -1 : this.hit(place);
        this.store.set({ selected: i < 0 ? -1 : this.tape.blocks[i] });
    }

    private press(event: KeyboardEvent): void {
        if (event.ctrlKey || event.metaKey || event.altKey) return;
        const at = this.tape.blocks.indexOf(this.store.choices.selected);
        const step = (place: number) => this.select(blockBefore(this.tape, place));
        const actions: Record<string, () => void> = {
            ArrowLeft: () => this.select(at - 1),
            ArrowRight: () => this.select(at + 1),
            ArrowUp: () => step(this.tape.at[at] - this.rowBytes),
            ArrowDown: () => step(this.tape.at[at] + this.rowBytes),
            Home: () => this.select(0),
            End: () => this.select(this.tape.blocks.length - 1),
            "+": () => this.zoom(1),
            "=": () => this.zoom(1),
            "-": () => this.zoom(-1),
        };
        if (!actions[event.key]) return;
        event.preventDefault();
        actions[event.key]();
    }

    private select(i: number): void {
        const inside = Math.min(Math.max(i || 0, 0), this.tape.blocks.length - 1);
        if (inside >= 0) this.store.set({ selected: this.tape.blocks[inside] });
    }

    /** Scrolls to the selected block; with the keyboard here, its tip is shown. */
    private reveal(): void {
        const i = this.tape.blocks.indexOf(this.store.choices.selected);
        if (i >= 0) {
            const y = Math.floor(this.tape.at[i] / this.rowBytes) * ROW;
            const { scrollTop, clientHeight } = this.scroller;
            if (y < scrollTop || y + ROW > scrollTop + clientHeight) this.scroller.scrollTop = y - clientHeight / 2;
        }
        this.draw();
        if (i < 0 || !this.scroller.matches(":focus-visible")) return;
        const box = this.scroller.getBoundingClientRect();
        this.forRows(this.tape.at[i], this.tape.at[i] + 1, (x, y) =>
            showTip(
                box.left + x,
                box.top + y + ROW - this.scroller.scrollTop,
                blockTip(this.moment, this.tape.blocks[i]),
            ),
        );
    }
}

function introText({ recording: { hasAddresses, hasReserved, isSampled, head }, chunks }: Moment): string {
    if (isSampled)
        return "Samples have neither blocks nor addresses: each part is what one stream has live in one pool. A recording has them: start the program with VMM_TRACE=FILE.";
    if (!hasAddresses)
        return "This recording has no addresses: blocks lie in the order of their allocation, oldest first.";
    if (!hasReserved)
        return "Blocks at their addresses, with the 2 MiB around each. The recording does not say what was reserved.";
    const ticks = chunks
        ? " Ticks mark where chunks begin and end." + (chunks.pieces.length ? VIEWS : "")
        : head.chunk_bytes
          ? ` Ticks mark parts of ${bytesText(head.chunk_bytes)}.`
          : "";
    return `Reserved memory in the order of addresses. Empty parts are free; hatched blocks are freed, and their work is under way.${ticks}`;
}

function hatching(pen: CanvasRenderingContext2D): CanvasPattern {
    const tile = element<HTMLCanvasElement>("canvas", { width: 6, height: 6 });
    const stroke = tile.getContext("2d")!;
    stroke.strokeStyle = colour("--card");
    stroke.lineWidth = 1.5;
    for (const shift of [-6, 0, 6]) {
        stroke.moveTo(shift, 6);
        stroke.lineTo(shift + 6, 0);
    }
    stroke.stroke();
    return pen.createPattern(tile, "repeat")!;
}
