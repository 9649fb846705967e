// Elements made in a line. Text goes in as text only, never as HTML: a recording may hold anything.

type Child = Node | string | null | undefined | false;
type Props = Record<string, unknown>;

/** element("button.small", { onclick }, "Peak") */
export function element<T extends HTMLElement = HTMLElement>(what: string, props: Props = {}, ...children: Child[]): T {
    const [tag, ...classes] = what.split(".");
    const made = document.createElement(tag || "div") as T;
    made.className = classes.join(" ");
    for (const [name, value] of Object.entries(props)) {
        if (name.startsWith("on") || (name in made && !name.startsWith("aria")))
            (made as unknown as Props)[name] = value;
        else made.setAttribute(name, String(value));
    }
    made.append(
        ...children.filter((child): child is Node | string => child !== null && child !== undefined && child !== false),
    );
    return made;
}

export function byId<T extends HTMLElement>(id: string): T {
    return document.getElementById(id) as T;
}

/** Runs once before the next picture, however often it is asked for. */
export function beforePicture(run: () => void): () => void {
    let asked = false;
    return () => {
        if (asked) return;
        asked = true;
        requestAnimationFrame(() => {
            asked = false;
            run();
        });
    };
}
