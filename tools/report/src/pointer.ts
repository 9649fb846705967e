// The pointer on the chart: drag pans, Shift and drag zooms into a range, the wheel zooms, a click picks the moment.

import type uPlot from "uplot";

const CLICK_PIXELS = 4;
const WHEEL_RATE = 0.0018;

export interface PointerTarget {
    range(): { from: number; to: number };
    show(from: number, to: number): void;
    pick(x: number): void;
    zoom(factor: number, x: number): void;
    all(): void;
}

export function attachPointer(plot: uPlot, target: PointerTarget): void {
    const over = plot.over;
    over.addEventListener(
        "wheel",
        event => {
            event.preventDefault();
            const { from, to } = target.range();
            if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
                const shift = ((to - from) * event.deltaX) / over.clientWidth;
                target.show(from + shift, to + shift);
            } else {
                target.zoom(Math.exp(-event.deltaY * WHEEL_RATE), plot.posToVal(leftOf(over, event), "x"));
            }
        },
        { passive: false },
    );
    over.addEventListener("dblclick", () => target.all());
    over.addEventListener("pointerdown", event => {
        if (event.button !== 0 || (event.target !== over && (event.target as Element).closest("button"))) return;
        over.setPointerCapture(event.pointerId);
        drag(plot, target, event);
    });
}

function leftOf(over: HTMLElement, event: MouseEvent): number {
    return event.clientX - over.getBoundingClientRect().left;
}

function drag(plot: uPlot, target: PointerTarget, down: PointerEvent): void {
    const over = plot.over;
    const edge = over.getBoundingClientRect().left;
    const start = down.clientX - edge;
    const { from, to } = target.range();
    const rate = (to - from) / over.clientWidth;
    let isClick = true;
    over.onpointermove = event => {
        const left = event.clientX - edge;
        isClick &&= Math.abs(left - start) < CLICK_PIXELS;
        if (isClick) return;
        if (down.shiftKey) select(plot, start, left);
        else target.show(from + (start - left) * rate, to + (start - left) * rate);
    };
    over.onpointerup = over.onpointercancel = event => {
        over.onpointermove = over.onpointerup = over.onpointercancel = null;
        const left = event.clientX - edge;
        const [low, high] = [Math.min(start, left), Math.max(start, left)].map(pixels => plot.posToVal(pixels, "x"));
        select(plot, 0, 0);
        if (isClick) target.pick(plot.posToVal(left, "x"));
        else if (down.shiftKey) target.show(low, high);
    };
}

function select(plot: uPlot, start: number, end: number): void {
    plot.setSelect(
        { left: Math.min(start, end), width: Math.abs(end - start), top: 0, height: plot.over.clientHeight },
        false,
    );
}
