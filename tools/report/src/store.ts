// What the reader of the page has chosen. Parts of the page listen to changes; each hears of all changes between two
// pictures at once.

import { beforePicture } from "./dom";

export interface Choices {
    from: number; // the part of the chart's axis that is shown
    to: number;
    axis: "operations" | "time";
    moment: number; // state
    stream: number; // -1: all
    least: number; // bytes of a block
    text: string; // part of a frame or name
    selected: number; // block; -1: none
}

export type Key = keyof Choices;

export class Store {
    private readonly listeners: { keys: Key[]; run: () => void }[] = [];
    private readonly changed = new Set<Key>();
    private readonly announce = beforePicture(() => this.notify());

    constructor(readonly choices: Choices) {}

    set(changes: Partial<Choices>): void {
        for (const key of Object.keys(changes) as Key[]) {
            if (this.choices[key] !== changes[key]) this.changed.add(key);
        }
        Object.assign(this.choices, changes);
        if (this.changed.size) this.announce();
    }

    listen(keys: Key[], run: () => void): void {
        this.listeners.push({ keys, run });
    }

    private notify(): void {
        const changed = new Set(this.changed);
        this.changed.clear();
        for (const { keys, run } of this.listeners) if (keys.some(key => changed.has(key))) run();
    }
}
