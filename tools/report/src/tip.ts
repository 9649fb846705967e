// The one tip that follows the pointer or the keyboard's choice. Escape hides it.

import { element } from "./dom";

const DISTANCE = 14;
const box = element("div.tip.small", { role: "status", hidden: true });

document.addEventListener("keydown", event => event.key === "Escape" && hideTip());

export function showTip(x: number, y: number, content: HTMLElement): void {
    if (!box.isConnected) document.body.append(box);
    box.replaceChildren(content);
    box.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = box;
    const left = x + DISTANCE + width > innerWidth ? x - DISTANCE - width : x + DISTANCE;
    const top = y + DISTANCE + height > innerHeight ? y - DISTANCE - height : y + DISTANCE;
    box.style.left = `${Math.max(left, 4)}px`;
    box.style.top = `${Math.max(top, 4)}px`;
}

export function hideTip(): void {
    box.hidden = true;
}
