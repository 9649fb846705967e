"""A scratch copy of the sources, built so that a changed library needs no new test programs; and its tests, run until
one fails."""
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import time

FOLDERS = ("include", "src", "tests", "tools", "docs", "bench")
LIBRARY = "vmmcache_inside"
MEMORY_MOST = 6 << 30  # of a test: a fault can make it allocate without end
SLOWER_MOST, SECONDS_LEAST = 8, 5  # how many times its time without a fault a test may take
SLOW = "takes too long"
PATIENCE = 5  # a test that took too long runs again with so many times that limit, as other load may have slowed it


class Failure(Exception):
    pass


def command(*words, **options):
    done = subprocess.run(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    if done.returncode != 0:
        raise Failure("%s\n%s failed" % (done.stdout[-4000:], " ".join(words)))
    return done.stdout


def memory_bytes(process):
    try:
        with open("/proc/%d/statm" % process.pid) as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def limit_core_dumps():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Test:
    def __init__(self, found):
        properties = {entry["name"]: entry["value"] for entry in found.get("properties", ())}
        self.name, self.command = found["name"], found["command"]
        self.labels = properties.get("LABELS", [])
        self.folder = properties.get("WORKING_DIRECTORY")
        self.environment = {**os.environ, **dict(word.split("=", 1) for word in properties.get("ENVIRONMENT", ()))}
        self.is_timed = properties.get("RUN_SERIAL", False)  # other load may make it fail
        self.seconds = None

    def run(self, seconds):
        """Returns None if the test passed, else what happened."""
        end = time.monotonic() + seconds
        process = subprocess.Popen(self.command, cwd=self.folder, env=self.environment, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, start_new_session=True, preexec_fn=limit_core_dumps)
        try:
            return self.outcome(process, end)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    @staticmethod
    def outcome(process, end):
        while True:
            try:
                code = process.wait(0.05)
                return None if code == 0 else "fails" if code > 0 else signal.Signals(-code).name
            except subprocess.TimeoutExpired:
                if time.monotonic() > end:
                    return SLOW
                if memory_bytes(process) > MEMORY_MOST:
                    return "takes too much memory"

    def time(self):
        begin = time.monotonic()
        what = self.run(600)
        self.seconds = time.monotonic() - begin if what is None else None
        if what is not None:
            print("left out: %s %s here without a fault" % (self.name, what), flush=True)

    def fails(self):
        seconds = max(SECONDS_LEAST, SLOWER_MOST * self.seconds)
        what = self.run(seconds)
        return self.run(PATIENCE * seconds) if what == SLOW else what


class Trials:
    """The copy, its build and its tests. `kills` counts, for each file, the tests that found its faults."""

    def __init__(self, root, work, only, labels, slowest, flags):
        self.tree, self.build = os.path.join(work, "tree"), os.path.join(work, "build")
        self.kills = {}
        self.copy(root)
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        options = ["-DCMAKE_C_FLAGS_RELEASE=" + flags] if flags else []
        command("cmake", "--preset", "mutation", "-S", self.tree, "-B", self.build, *options, *generator)
        self.make(*self.targets(only))
        self.sound = self.fingerprint()
        self.tests = self.find_tests(only, labels)
        if not self.tests:
            raise Failure("no test is called %s and has one of the labels" % only)
        self.time(os.path.join(work, "seconds.json"))
        self.tests = [test for test in self.tests if test.seconds is not None and test.seconds <= slowest]
        if not self.tests:
            raise Failure("no test is left")

    def time(self, path):
        """Measures the tests' times without a fault, unless an earlier run measured them."""
        known = {}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                known = json.load(file).get(self.sound, {})
        for test in self.tests:
            test.seconds = known.get(test.name)
            if test.seconds is None:
                test.time()
        with open(path, "w", encoding="utf-8") as file:
            json.dump({self.sound: {test.name: test.seconds for test in self.tests}}, file, indent=0)

    def copy(self, root):
        """Leaves unchanged files alone, so that little is built again."""
        for folder in FOLDERS:
            for where, _, names in os.walk(os.path.join(self.tree, folder)):
                origin = os.path.join(root, os.path.relpath(where, self.tree))
                for name in names:
                    if not os.path.exists(os.path.join(origin, name)):
                        os.remove(os.path.join(where, name))
            for where, _, names in os.walk(os.path.join(root, folder)):
                to = os.path.join(self.tree, os.path.relpath(where, root))
                os.makedirs(to, exist_ok=True)
                for name in names:
                    self.copy_file(os.path.join(where, name), os.path.join(to, name))
        for name in ("CMakeLists.txt", "CMakePresets.json", "README.md", ".clang-format"):
            self.copy_file(os.path.join(root, name), os.path.join(self.tree, name))

    @staticmethod
    def copy_file(source, to):
        with open(source, "rb") as file:
            content = file.read()
        if os.path.exists(to):
            with open(to, "rb") as file:
                if file.read() == content:
                    return
        with open(to, "wb") as file:
            file.write(content)
        shutil.copymode(source, to)

    def make(self, *targets):
        command("cmake", "--build", self.build, "--target", *targets)

    def fingerprint(self):
        with open(os.path.join(self.build, "src", "lib%s.so" % LIBRARY), "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()

    def listing(self):
        return json.loads(command("ctest", "--show-only=json-v1", cwd=self.build))["tests"]

    def targets(self, only):
        """All targets, or the programs of the tests that `only` selects: NAME or NAME.DRIVER runs the program NAME."""
        if not only:
            return ["all"]
        names = {found["name"].split(".")[0] for found in self.listing() if re.search(only, found["name"])}
        known = command("cmake", "--build", self.build, "--target", "help").replace(":", " ").split()
        return [LIBRARY, *sorted(names & set(known))]

    def find_tests(self, only, labels):
        tests = [Test(found) for found in self.listing() if "command" in found]
        return [test for test in tests if labels & set(test.labels) and "gpu" not in test.labels and not test.is_timed
                and test.command[0].startswith(self.build) and re.search(only, test.name)]

    def order(self, path):
        """The tests, likely finders of a fault of this file first, and quick tests before slow ones."""
        module = os.path.splitext(os.path.basename(path))[0]
        found = self.kills.get(path, {})
        kinds = {"unit": 0, "api": 1}

        def rank(test):
            kind = min(kinds.get(label, 2) for label in test.labels)
            return (-found.get(test.name, 0), module not in test.name, kind, test.seconds)
        return sorted(self.tests, key=rank)

    def programs(self, path):
        """What to build for a fault of this file: the library; for a header also the tests of its module, which have
        its functions."""
        module, kind = os.path.splitext(os.path.basename(path))
        of_module = {os.path.basename(test.command[0]) for test in self.tests if module in test.name}
        return [LIBRARY, *sorted(of_module)] if kind == ".h" else [LIBRARY]

    def judge(self, mutant, code):
        """(verdict, test, how): killed, survived, equal (the library did not change) or unfit (it does not compile)."""
        place = os.path.join(self.tree, mutant.path)
        programs = self.programs(mutant.path)
        try:
            with open(place, "w", encoding="utf-8") as file:
                file.write(mutant.applied(code))
            self.make(*programs)
            if self.fingerprint() == self.sound:
                return "equal", "", ""
            return self.hunt(mutant)
        except Failure:
            return "unfit", "", ""
        finally:
            with open(place, "w", encoding="utf-8") as file:
                file.write(code)
            if programs != [LIBRARY]:
                self.make(*programs)

    def hunt(self, mutant):
        for test in self.order(mutant.path):
            what = test.fails()
            if what is not None:
                found = self.kills.setdefault(mutant.path, {})
                found[test.name] = found.get(test.name, 0) + 1
                return "killed", test.name, what
        return "survived", "", ""
