"""Runs checks in groups: the checks of a group share a process, and several processes run at a time.

Checks have the form of checks.py, and the group of a check is the first word of its name. A process ends after a
check that failed, and another one takes the rest: no check sees what a failed one has left. Each check runs once for
each kind. One that fails for the first kind too, the yardstick, is no failure of the others.
"""
import concurrent.futures
import os
import signal
import subprocess
import sys
import tempfile
import threading

import checks

GROUP_SECONDS = 240
MARK = "\x01"  # begins the lines that the process of a group writes for its parent
TAIL_LINES = 25


class Runner:
    """alone: groups whose checks have a process each. clean: what a process calls before each check."""

    def __init__(self, program, checks, kinds, alone=(), clean=None, jobs=6):
        self.program, self.checks, self.kinds, self.alone = os.path.abspath(program), checks, kinds, alone
        self.clean, self.jobs = clean, jobs
        self.results = {}  # (kind, name): PASS, FAIL or SKIP
        self.lock = threading.Lock()

    def groups(self, names):
        """Lists of names: each is for one process."""
        found = {}
        for name in names:
            group = name.split("_")[0]
            found.setdefault(name if group in self.alone else group, []).append(name)
        return list(found.values())

    # ---- In the process of a group

    def run_here(self, names):
        for name in names:
            print("\n%sRUN %s" % (MARK, name), flush=True)
            if self.clean:
                self.clean()
            word, detail = "PASS", ""
            try:
                detail = self.checks[name]() or ""
            except checks.Skip as reason:
                word, detail = "SKIP", str(reason)
            print("\n%s%s %s %s" % (MARK, word, name, detail.replace("\n", " ")), flush=True)

    # ---- In the parent

    def outputs(self, kind, names):
        """Runs a process; (its status or None for one that did not end, its lines)."""
        with tempfile.TemporaryFile() as file:
            process = subprocess.Popen([sys.executable, "-X", "faulthandler", self.program, "--one", kind, *names],
                                       stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
            try:
                status = process.wait(GROUP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                status = None
            file.seek(0)
            return status, file.read().decode(errors="replace").splitlines()

    def tell(self, kind, word, name, detail, lines=()):
        width = max(len(each) for each in self.checks)
        text = "%-5s %-9s %-*s %s" % (word, kind, width, name, self.checks[name].__doc__.splitlines()[0])
        with self.lock:
            self.results[kind, name] = word
            print(text + (": " + detail if detail else ""))
            print("".join("      | %s\n" % line for line in lines), end="", flush=True)

    def run_once(self, kind, names):
        """Runs a process and prints a line for each check; returns the checks that it did not run."""
        status, lines = self.outputs(kind, names)
        running, begun, left = None, 0, list(names)
        for number, line in enumerate(lines):
            word, _, rest = line[1:].partition(" ")
            if not line.startswith(MARK):
                continue
            name, _, detail = rest.partition(" ")
            if word == "RUN":
                running, begun = name, number + 1
                continue
            running = None
            left.remove(name)
            self.tell(kind, word, name, detail)
        if not left and status == 0:
            return left
        failed = running or (left or names[-1:])[0]  # none is left: the process failed at its end
        if failed in left:
            left.remove(failed)
        said = [line for line in lines[begun:] if line.strip() and not line.startswith(MARK)]
        why = "it did not end within %d s" % GROUP_SECONDS if status is None else "status %d" % status
        why += ": " + said[-1].strip() if said else ""
        self.tell(kind, "FAIL", failed, why, said[-TAIL_LINES:])
        return left

    def run_group(self, kind, names):
        while names:
            names = self.run_once(kind, names)

    def failed(self, kind):
        return {name for (each, name), word in self.results.items() if each == kind and word == "FAIL"}

    def summary(self, kinds):
        """Prints it; whether a kind fails where the yardstick does not."""
        yardstick = self.failed(self.kinds[0]) if len(kinds) > 1 else set()
        is_failed = False
        for kind in kinds:
            failed = self.failed(kind)
            if len(kinds) > 1 and kind == self.kinds[0]:
                continue
            alone, too = sorted(failed - yardstick), sorted(failed & yardstick)
            count = sum(each == kind for each, _ in self.results)
            print("%s: %d checks, %d failed%s" % (kind, count, len(alone), ": " + ", ".join(alone) if alone else ""))
            if too:
                print("%s: fails like %s, which is no failure: %s" % (kind, self.kinds[0], ", ".join(too)))
            is_failed = is_failed or bool(alone)
        if yardstick:
            print("%s: %d failed: %s" % (self.kinds[0], len(yardstick), ", ".join(sorted(yardstick))))
        return is_failed

    def run(self, kinds, names):
        """Runs the checks, and ends the program."""
        missing = checks.unusable()
        if missing:
            print("skipped:", missing)
            sys.exit(1 if os.environ.get("VMM_REQUIRE_GPU") == "1" else checks.SKIPPED)
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            runs = [pool.submit(self.run_group, kind, group) for group in self.groups(names) for kind in kinds]
            for each in runs:
                each.result()
        sys.exit(1 if self.summary(kinds) else 0)
