// Numbers as people read them.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** 1536 is "1.5 KiB": three digits at most, no zeros at the end. */
export function bytesText(bytes: number): string {
    let unit = 0;
    let size = Math.abs(bytes);
    while (size >= 1000 && unit < UNITS.length - 1) {
        size /= 1024;
        unit++;
    }
    const digits = size >= 100 || unit === 0 ? 0 : size >= 10 ? 1 : 2;
    return `${bytes < 0 ? "-" : ""}${Number(size.toFixed(digits))} ${UNITS[unit]}`;
}

/** 1234567 is "1 234 567". */
export function countText(count: number): string {
    return String(Math.round(count)).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

/** 2500000 is "2.5 M". */
export function shortCountText(count: number): string {
    if (count >= 1e6) return `${Number((count / 1e6).toPrecision(6))} M`;
    if (count >= 1e4) return `${Number((count / 1e3).toPrecision(6))} k`;
    return countText(count);
}

export function secondsText(seconds: number, digits = 4): string {
    const text = (value: number) => String(Number(value.toPrecision(digits)));
    if (seconds >= 120) return `${Math.floor(seconds / 60)} min ${text(seconds % 60)} s`;
    if (seconds >= 1 || seconds === 0) return `${text(seconds)} s`;
    if (seconds >= 1e-3) return `${text(seconds * 1e3)} ms`;
    return `${Math.round(seconds * 1e6)} us`;
}

export function percentText(part: number, whole: number): string {
    if (!whole) return "0 %";
    const percent = (100 * part) / whole;
    return `${percent >= 10 ? percent.toFixed(0) : percent.toPrecision(2)} %`;
}

/** "1 block", "2 blocks" */
export function plural(count: number, noun: string): string {
    return `${countText(count)} ${noun}${count === 1 ? "" : "s"}`;
}

export function addressText(address: number): string {
    return "0x" + address.toString(16);
}
