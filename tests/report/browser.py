"""Chromium without a window, driven over a pipe with the DevTools protocol. Needs nothing but Python and Chromium.

VMM_CHROMIUM names the program; otherwise it is looked for. Without one, open_browser() raises: a test that needs the
browser fails.
"""
import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--mute-audio",
         "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
         "--force-device-scale-factor=1", "--font-render-hinting=none", "--remote-debugging-pipe")
PATIENCE = 60  # seconds
STARTS = 3  # on a busy machine Chromium may end as it starts


def program():
    """The path of Chromium."""
    asked = os.environ.get("VMM_CHROMIUM")
    found = asked or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise RuntimeError("there is no Chromium, which the tests of the report need: install the package chromium, "
                           "or set VMM_CHROMIUM to the program")
    return found


class Browser:
    """One page of a browser of its own. Use it in a `with`."""

    def __init__(self):
        for start in range(1, STARTS + 1):
            self._start()
            try:
                self._attach()
                return
            except (BrokenPipeError, EOFError) as error:
                self.__exit__()
                if start == STARTS:
                    raise RuntimeError(f"Chromium ended as it started, {STARTS} times") from error

    def _start(self):
        self._profile = tempfile.TemporaryDirectory(prefix="vmm-browser-", ignore_cleanup_errors=True)
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        command = f'exec "$@" 3<&{to_read} 4>&{to_write}'
        self._process = subprocess.Popen(
            ["sh", "-c", command, "sh", program(), *FLAGS, "--user-data-dir=" + self._profile.name, "about:blank"],
            pass_fds=(to_read, to_write), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self._rest, self._number, self._session = b"", 0, None
        self.complaints = []  # what the page wrote as errors or warnings, and what it asked of the network

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._to)
        os.close(self._from)
        self._process.kill()
        self._process.wait()
        self._profile.cleanup()

    def _attach(self):
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def call(self, method, **parameters):
        """One command; returns its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def _receive(self):
        while b"\0" not in self._rest:
            piece = os.read(self._from, 1 << 16)
            if not piece:
                raise EOFError("Chromium ended")
            self._rest += piece
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)

    def _note(self, event):
        parameters = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(parameters["exceptionDetails"].get("exception", {}).get("description", "exception"))
        elif event.get("method") == "Log.entryAdded":
            self.complaints.append(parameters["entry"]["text"])
        elif event.get("method") == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(parameters["args"]))
        elif event.get("method") == "Network.requestWillBeSent":
            url = parameters["request"]["url"]
            if not url.startswith(("file:", "data:", "about:")):
                self.complaints.append("asked the network for " + url)

    def resize(self, width, height, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = "dark" if dark else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme},
                                                          {"name": "prefers-reduced-motion", "value": "reduce"}])

    def open(self, path):
        """Loads a page and waits until it is drawn."""
        self.call("Page.navigate", url="file://" + os.path.abspath(path))
        self.wait_for("document.getElementById('page') && !document.getElementById('page').hasAttribute('aria-busy')"
                      " || !!document.querySelector('.fatal')")
        self.settle()

    def run(self, expression):
        """The value of an expression, which may be a promise."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description"))
        return answer["result"].get("value")

    def wait_for(self, expression):
        end = time.monotonic() + PATIENCE
        while not self.run(expression):
            if time.monotonic() > end:
                raise RuntimeError("not within %d s: %s" % (PATIENCE, expression))
            time.sleep(0.02)

    def settle(self):
        """Waits until the page has drawn what was asked of it."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0))))")

    def box(self, selector):
        """(left, top, width, height) of an element in the window, which is scrolled to it."""
        return self.run("(() => { const found = document.querySelector(%s); found.scrollIntoView({block: 'center'}); "
                        "const box = found.getBoundingClientRect(); "
                        "return [box.left, box.top, box.width, box.height]; })()"
                        % json.dumps(selector))

    def mouse(self, kind, x, y, buttons=0, shift=False, count=1, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, buttons=buttons, clickCount=count,
                  button="left" if buttons or kind == "mouseReleased" else "none", modifiers=8 if shift else 0, **more)

    def click(self, selector):
        left, top, width, height = self.box(selector)
        self.click_at(left + width / 2, top + height / 2)

    def click_at(self, x, y, count=1):
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, buttons=1, count=count)
        self.mouse("mouseReleased", x, y, count=count)
        self.settle()

    def drag(self, start, end, steps=8, shift=False):
        self.mouse("mouseMoved", *start)
        self.mouse("mousePressed", *start, buttons=1, shift=shift)
        for step in range(1, steps + 1):
            self.mouse("mouseMoved", *(a + (b - a) * step / steps for a, b in zip(start, end)), buttons=1, shift=shift)
        self.mouse("mouseReleased", *end, shift=shift)
        self.settle()

    def press(self, key, text=None):
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **more)
        self.settle()

    def screenshot(self, box=None):
        """PNG of the window, or of a (left, top, width, height) in it."""
        more = {}
        if box is not None:
            scrolled = self.run("[scrollX, scrollY]")
            left, top, width, height = map(round, box)
            more = {"clip": {"x": left + scrolled[0], "y": top + scrolled[1], "width": width, "height": height,
                             "scale": 1}}
        return base64.b64decode(self.call("Page.captureScreenshot", format="png", **more)["data"])
