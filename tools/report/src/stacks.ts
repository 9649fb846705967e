// Bytes by stack: a tree with the bytes of each frame and of what it called. Without stacks, blocks are grouped by
// stream, then by size.

import { bytesText } from "./format";
import type { Moment } from "./moment";

export interface StackNode {
    text: string;
    bytes: number;
    blocks: number;
    children: StackNode[];
    parent: StackNode | null;
}

export function stackTree(moment: Moment): StackNode {
    return moment.recording.hasStacks ? treeOfFrames(moment) : treeOfSizes(moment);
}

function treeOfFrames({ matching, recording }: Moment): StackNode {
    const { parents, texts } = recording.head.frames;
    const nodes = texts.map(emptyNode);
    const unknown = emptyNode("no stack");
    nodes[0].text = "all";
    for (const block of matching) {
        const frame = recording.blocks.frame[block];
        add(frame ? nodes[frame] : unknown, recording.blocks.bytes[block]);
    }
    for (let frame = texts.length - 1; frame > 0; frame--) {
        // a frame's number is higher than its caller's
        const [node, parent] = [nodes[frame], nodes[parents[frame]]];
        if (node.bytes) adopt(parent, node);
    }
    if (unknown.bytes) adopt(nodes[0], unknown);
    return sorted(nodes[0]);
}

function treeOfSizes({ matching, recording }: Moment): StackNode {
    const { bytes, stream } = recording.blocks;
    const counts = recording.head.streams.map(() => new Map<number, number>()); // of blocks, by size
    for (const block of matching) {
        const sizes = counts[stream[block]];
        sizes.set(bytes[block], (sizes.get(bytes[block]) ?? 0) + 1);
    }
    const root = emptyNode("all");
    counts.forEach((sizes, number) => {
        if (sizes.size) adopt(root, treeOfStream(recording.head.streams[number], sizes));
    });
    return sorted(root);
}

function treeOfStream(name: string, sizes: Map<number, number>): StackNode {
    const ofStream = emptyNode(name);
    const classes = new Map<number, StackNode>(); // by their smallest size, a power of two
    for (const [size, blocks] of sizes) {
        const least = 2 ** Math.floor(Math.log2(size));
        if (!classes.has(least)) classes.set(least, emptyNode(`${bytesText(least)} to ${bytesText(2 * least)}`));
        adopt(classes.get(least)!, { ...emptyNode(`blocks of ${bytesText(size)}`), bytes: blocks * size, blocks });
    }
    for (const ofClass of classes.values()) adopt(ofStream, ofClass);
    return ofStream;
}

function emptyNode(text: string): StackNode {
    return { text, bytes: 0, blocks: 0, children: [], parent: null };
}

function add(node: StackNode, bytes: number): void {
    node.bytes += bytes;
    node.blocks++;
}

function adopt(parent: StackNode, node: StackNode): void {
    node.parent = parent;
    parent.bytes += node.bytes;
    parent.blocks += node.blocks;
    parent.children.push(node);
}

function sorted(node: StackNode): StackNode {
    node.children.sort((a, b) => b.bytes - a.bytes).forEach(sorted);
    return node;
}
