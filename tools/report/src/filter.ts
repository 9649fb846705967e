// Which blocks match the reader's filter.

import type { Recording } from "./recording";
import type { Choices } from "./store";

export class Filter {
    readonly isOn: boolean;
    private readonly frames: boolean[] | null;
    private readonly labels: boolean[] | null;

    constructor(
        private readonly recording: Recording,
        private readonly choices: Choices,
    ) {
        const text = choices.text.trim().toLowerCase();
        this.isOn = choices.stream >= 0 || choices.least > 0 || text !== "";
        this.frames = text ? framesWith(recording, text) : null;
        this.labels = text ? recording.head.labels.map(label => label.toLowerCase().includes(text)) : null;
    }

    matches = (block: number): boolean => {
        const { stream, bytes, frame, label } = this.recording.blocks;
        return (
            (this.choices.stream < 0 || stream[block] === this.choices.stream) &&
            bytes[block] >= this.choices.least &&
            (!this.frames || this.frames[frame[block]] || this.labels![label[block]])
        );
    };
}

/** Whether a frame or one that called it has the text. A caller's number is lower. */
function framesWith(recording: Recording, text: string): boolean[] {
    const { parents, texts } = recording.head.frames;
    const found = [false];
    for (let frame = 1; frame < texts.length; frame++)
        found.push(found[parents[frame]] || texts[frame].toLowerCase().includes(text));
    return found;
}
