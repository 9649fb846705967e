// Light and dark: what the system prefers, or what the reader chose. Colours for canvases come from the style.

import { element } from "./dom";

const listeners: (() => void)[] = [];
const probe = element("span", { hidden: true }); // its computed colour has light-dark() resolved
let colours = new Map<string, string>();

/** A colour of the style, by the name of its custom property. */
export function colour(name: string): string {
    let found = colours.get(name);
    if (found === undefined) {
        if (!probe.isConnected) document.body.append(probe);
        probe.style.color = `var(${name})`;
        colours.set(name, (found = getComputedStyle(probe).color));
    }
    return found;
}

export function onThemeChange(run: () => void): void {
    listeners.push(run);
}

export function isDark(): boolean {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

export function themeButton(): HTMLElement {
    const text = () => (isDark() ? "Light" : "Dark");
    const button = element("button", { title: "Change between light and dark" }, text());
    const change = () => {
        colours = new Map();
        button.textContent = text();
        listeners.forEach(run => run());
    };
    button.onclick = () => {
        document.documentElement.dataset.theme = isDark() ? "light" : "dark";
        change();
    };
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", change);
    return button;
}
