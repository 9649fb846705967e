#!/usr/bin/env python3
"""Pictures of the page, which test_page.py compares with: whole windows, which docs/report.md shows, and its graphics
alone, which hardly depend on the fonts of the machine.

usage: pictures.py       writes docs/report/*.png and tests/report/expected/*.png
"""
import base64
import os
import pickle
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path[:0] = [HERE, os.path.join(ROOT, "tools", "python")]
import browser  # noqa: E402
import scenes  # noqa: E402
from vmmcache import report  # noqa: E402

WINDOWS = os.path.join(ROOT, "docs", "report")
GRAPHICS = os.path.join(HERE, "expected")
# (name, element, pixels at its left that have text)
ELEMENTS = (("chart", ".plot .u-over", 0), ("strip", ".strip .u-over", 0), ("map", ".map .scroller", 118),
            ("shares", ".words .bar", 0))
CHUNKS = (("chunks", ".map .scroller", 118),)
WIDTH, HEIGHT = 1280, 1100
SCALE = 2  # pictures are compared at half their size, so that the edges of lines and letters count little
NOTABLE = 48  # of 255: by how much a colour must differ to count

# The share of points that differ between two pictures; 1 if their sizes do.
COMPARE = """
(async (pictures) => {
    const points = await Promise.all(pictures.map(async data => {
        const image = new Image();
        image.src = 'data:image/png;base64,' + data;
        await image.decode();
        const canvas = document.createElement('canvas');
        canvas.width = image.width / SCALE, canvas.height = image.height / SCALE;
        const pen = canvas.getContext('2d');
        pen.imageSmoothingQuality = 'high';
        pen.drawImage(image, 0, 0, canvas.width, canvas.height);
        return pen.getImageData(0, 0, canvas.width, canvas.height).data;
    }));
    const [one, other] = points;
    if (one.length !== other.length) return 1;
    let different = 0;
    for (let i = 0; i < one.length; i += 4)
        different += [0, 1, 2].some(part => Math.abs(one[i + part] - other[i + part]) > NOTABLE);
    return different / (one.length / 4);
})(PICTURES)
"""


def write_page(folder, snapshot=None, name="training"):
    """A page of the scene in a folder; returns its path."""
    path = os.path.join(folder, name + ".pickle")
    with open(path, "wb") as file:
        pickle.dump(snapshot or scenes.training(), file, 4)
    page = os.path.join(folder, name + ".html")
    if report.main([path, "-o", page]) != 0:
        raise RuntimeError("no page was written")
    return page


def write_chunks(folder):
    """The page of a trace with chunks and a view."""
    path = os.path.join(folder, "chunks.trace")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(scenes.chunks()) + "\n")
    page = os.path.join(folder, "chunks.html")
    if report.main([path, "-o", page]) != 0:
        raise RuntimeError("no page was written")
    return page


def _open(chromium, page, dark):
    chromium.resize(WIDTH, HEIGHT, dark)
    chromium.open(page)
    if dark:
        chromium.click("button[aria-label='Go to the end']")
        chromium.run("document.querySelector('#map').scrollIntoView()")
        chromium.settle()


def take_windows(chromium, page):
    """{name: PNG}"""
    found = {}
    for name in ("light", "dark"):
        _open(chromium, page, name == "dark")
        found[name] = chromium.screenshot()
    return found


def take_map(chromium, page):
    """{name: PNG}"""
    _open(chromium, page, False)
    chromium.click("button[aria-label='Go to the end']")
    box = chromium.box("#map")
    chromium.settle()
    return {"chunks": chromium.screenshot(box)}


def take_graphics(chromium, page, elements=ELEMENTS):
    """{name: PNG}"""
    found = {}
    for theme in ("light", "dark"):
        _open(chromium, page, theme == "dark")
        chromium.mouse("mouseMoved", 0, 0)
        for name, selector, text in elements:
            left, top, width, height = chromium.box(selector)
            chromium.settle()
            found[f"{name}-{theme}"] = chromium.screenshot((left + text, top, width - text, height))
    return found


def difference(chromium, one, other):
    """The share of points that differ between two PNGs."""
    chromium.call("Page.navigate", url="about:blank")
    data = str([base64.b64encode(png).decode() for png in (one, other)])
    code = COMPARE.replace("SCALE", str(SCALE)).replace("NOTABLE", str(NOTABLE)).replace("PICTURES", data)
    return chromium.run(code)


def main():
    with tempfile.TemporaryDirectory() as folder, browser.Browser() as chromium:
        page = write_page(folder)
        chunks = write_chunks(folder)
        for place, pictures in ((WINDOWS, take_windows(chromium, page)), (GRAPHICS, take_graphics(chromium, page)),
                                (WINDOWS, take_map(chromium, chunks)),
                                (GRAPHICS, take_graphics(chromium, chunks, CHUNKS))):
            os.makedirs(place, exist_ok=True)
            for name, png in pictures.items():
                with open(os.path.join(place, name + ".png"), "wb") as file:
                    file.write(png)


if __name__ == "__main__":
    main()
