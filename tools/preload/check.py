#!/usr/bin/env python3
"""Runs CUDA programs with and without libvmmcache_preload on a GPU, and compares what they print.

usage: check.py [--rounds N] LIBRARY [CHECK...]

LIBRARY is libvmmcache_preload.so. Each check runs a program twice in processes of its own and prints a line: PASS,
FAIL and why, or SKIP and why. A table then says for each program how long it ran and how much GPU memory was in use,
above what was before, plain and preloaded. With --rounds each program runs N times both ways, and the table has the
shortest time and the largest peak: the first run of a program also fills caches of CUDA, CuPy or Numba. The exit
status is 1 if a check fails, and 77 without a GPU; with VMM_REQUIRE_GPU=1 that is a failure. The programs are
tools/preload/program.cu, with the static and the shared runtime, driver.c, and the functions script_... below for
CuPy, Numba, PyTorch and ONNX Runtime. The checks adapter_... do without the library's preloading: they use the
adapters of docs/adapters.md. They need libvmmcache_torch.so and libvmmcache.a beside LIBRARY, as in a build tree.
"""
import os
import shutil
import subprocess
import sys
import tempfile

import measure

HERE = os.path.dirname(os.path.abspath(__file__))
CHECK_SECONDS = 300
SKIPPED = 77


class Skip(Exception):
    """What this machine cannot do."""


class Fail(Exception):
    """What went wrong."""


# ---- Scripts of Python, which run in processes of their own ------------------------------------


def need(name):
    """Imports a package, or skips."""
    try:
        return __import__(name, fromlist=["_"])
    except Exception as error:
        raise Skip("%s: %s" % (name, str(error).splitlines()[0] if str(error) else type(error).__name__)) from error


def cupy_work(cupy):
    """Prints sums that depend on every byte of many arrays of changing sizes."""
    total = 0
    kept = []
    for step in range(200):
        x = cupy.arange(1000 + step * 9973, dtype=cupy.int64)
        kept.append(x * step)
        if len(kept) > 8:
            total += int(kept.pop(step % 8).sum())
    a = cupy.linspace(0, 1, 512 * 512).reshape(512, 512)
    print(total, sum(int(x.sum()) for x in kept), "%.6f" % float((a @ a.T).sum()))
    print(cupy.sort(cupy.arange(100000) % 977)[::9973].tolist())


def script_cupy():
    """CuPy with its own pool"""
    cupy_work(need("cupy"))


def script_cupy_malloc():
    """CuPy with cudaMalloc for each array"""
    cupy = need("cupy")
    cupy.cuda.set_allocator(None)
    cupy_work(cupy)


def script_cupy_async():
    """CuPy with cudaMallocAsync"""
    cupy = need("cupy")
    cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    cupy_work(cupy)
    with cupy.cuda.Stream(non_blocking=True):
        cupy_work(cupy)


def need_numba_cuda():
    """numba.cuda, also where NumPy has dropped names that this Numba uses."""
    numpy = need("numpy")
    for old, new in (("row_stack", "vstack"), ("trapz", "trapezoid"), ("in1d", "isin")):
        if not hasattr(numpy, old):
            setattr(numpy, old, getattr(numpy, new))
    return need("numba.cuda")


def script_numba():
    """Numba"""
    cuda = need_numba_cuda()
    numpy = need("numpy")

    @cuda.jit
    def scale(out, values, factor):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = values[i] * factor + i

    total = 0
    for step in range(60):
        values = numpy.arange(1000 + step * 7919, dtype=numpy.int64)
        device = cuda.to_device(values)
        out = cuda.device_array_like(device)
        scale[(values.size + 255) // 256, 256](out, device, step)
        total += int(out.copy_to_host().sum())
    print(total)
    free, everything = cuda.current_context().get_memory_info()
    print(0 < free <= everything)


def script_cache():
    """vmmcache.Cache in PyTorch, CuPy and Numba"""
    import vmmcache
    torch = need("torch")
    torch.cuda.init()
    with vmmcache.Cache(limit="1GiB") as cache:
        tensor = torch.from_dlpack(cache.alloc(1 << 20))
        tensor.fill_(3)
        print(int(tensor.sum()), cache.stats()["requested_bytes"]["current"])
        del tensor
        print(cache.stats()["requested_bytes"]["current"])
        block = cache.alloc(1000)
        print(int(torch.as_tensor(block, device="cuda").fill_(5).sum()))
        try:
            cupy = need("cupy")
            print(int(cupy.asarray(block).sum()), int(cupy.from_dlpack(block).sum()))
            print(int(need_numba_cuda().as_cuda_array(block).copy_to_host().sum()))
        except Skip as reason:
            print(reason)
        torch.cuda.synchronize()


def torch_work():
    """A small training with growing batches."""
    torch = need("torch")
    torch.manual_seed(3)
    torch.backends.cuda.matmul.allow_tf32 = False
    model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.Tanh(), torch.nn.Linear(1024, 8)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    side = torch.cuda.Stream()
    for step in range(40):
        data = torch.linspace(-1, 1, 256 * (16 + 8 * step)).reshape(-1, 256).cuda()
        loss = (model(data) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            check = data.sum()
        torch.cuda.current_stream().wait_stream(side)
        if step % 10 == 9:
            torch.cuda.empty_cache()
            print("%.4f %.3f" % (loss.item(), check.item()))


def script_torch():
    """PyTorch with its own allocator"""
    torch_work()


def script_torch_async():
    """PyTorch with cudaMallocAsync"""
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = "backend:cudaMallocAsync"
    torch_work()


def script_torch_malloc():
    """PyTorch without caching"""
    os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    torch_work()


def script_torch_graph():
    """PyTorch, CUDA graphs"""
    torch = need("torch")
    static = torch.ones(1 << 20, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = (static * 3 + 1).sum()
    for step in range(5):
        static.fill_(step)
        noise = torch.full((1 << 22,), -1.0, device="cuda")
        graph.replay()
        print(out.item(), noise[0].item())


def varint(value):
    """Protocol buffers: a number."""
    out = b""
    while value >= 128:
        out += bytes((value % 128 + 128,))
        value //= 128
    return out + bytes((value,))


def field(number, value):
    """Protocol buffers: a field that is a number, a text or a message."""
    if isinstance(value, int):
        return varint(number * 8) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number * 8 + 2) + varint(len(data)) + data


def onnx_model():
    """The bytes of a model: y = matmul(matmul(x, x), x) + x, for x of any square shape."""
    def node(kind, inputs, output):
        return field(1, b"".join(field(1, name) for name in inputs) + field(2, output) + field(4, kind))

    def value(place, name):
        shape = b"".join(field(1, field(2, "n")) for _ in range(2))
        return field(place, field(1, name) + field(2, field(1, field(1, 1) + field(2, shape))))

    graph = (node("MatMul", ("x", "x"), "a") + node("MatMul", ("a", "x"), "b") + node("Add", ("b", "x"), "y") +
             field(2, "graph") + value(11, "x") + value(12, "y"))
    return field(1, 8) + field(7, graph) + field(8, field(1, "") + field(2, 13))


def script_onnxruntime():
    """ONNX Runtime"""
    need("torch")  # loads the CUDA libraries that it needs
    onnxruntime = need("onnxruntime")
    numpy = need("numpy")
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        raise Skip("onnxruntime has no CUDAExecutionProvider")
    session = onnxruntime.InferenceSession(onnx_model(), providers=["CUDAExecutionProvider"])
    if session.get_providers()[0] != "CUDAExecutionProvider":
        raise Skip("onnxruntime cannot use CUDA here")
    for size in (64, 700, 128, 1500, 300):
        x = numpy.arange(size * size, dtype=numpy.float32).reshape(size, size) % 7 / size
        print("%.3f" % session.run(None, {"x": x})[0].sum())


SCRIPTS = {name[len("script_"):]: function for name, function in list(globals().items())
           if name.startswith("script_")}
PARTS = ("blocks", "threads", "queries", "pitch", "free_waits", "streams", "mixed", "pools", "graphs", "other_memory",
         "errors", "fault", "reset")


# ---- Running -----------------------------------------------------------------------------------


def need_nvcc():
    """Returns the path of nvcc; skips the check without one."""
    path = shutil.which("nvcc")
    if path is None:
        raise Skip("there is no nvcc")
    return path


class Runner:
    """Compiles the programs, and runs commands with and without the library."""

    def __init__(self, library, folder, rounds=1, meter=None):
        self.library = os.path.abspath(library)
        self.folder = folder
        self.rounds, self.meter = rounds, meter
        self.check = ""  # the one that runs
        self.results = measure.Results()
        self.built = {}

    def compile(self, name, source, *options):
        if name not in self.built:
            path = os.path.join(self.folder, name)
            command = [need_nvcc(), "-std=c++17", "-O2", "-arch=native", *options, "-o", path,
                       os.path.join(HERE, source)]
            done = subprocess.run(command, text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            if done.returncode != 0:
                raise Fail("nvcc: " + done.stdout.strip()[-300:])
            self.built[name] = path
        return self.built[name]

    def program(self, runtime):
        return self.compile("program_" + runtime, "program.cu", "-cudart", runtime)

    def driver(self):
        if "driver" not in self.built:
            root = os.path.dirname(os.path.dirname(os.path.realpath(need_nvcc())))
            stubs = [path for path in (os.path.join(root, lib, "stubs") for lib in ("lib64", "lib",
                     "targets/x86_64-linux/lib", "targets/sbsa-linux/lib")) if os.path.isdir(path)]
            self.compile("driver", "driver.c", *("-L" + path for path in stubs), "-lcuda")
        return self.built["driver"]

    def run(self, command, preloaded, **settings):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("VMM_")}
        environment.update(settings)
        if preloaded:
            environment["LD_PRELOAD"] = self.library
        try:
            done = subprocess.run(command, env=environment, text=True, check=False, timeout=CHECK_SECONDS,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        except subprocess.TimeoutExpired as error:
            raise Fail("ran longer than %d s" % CHECK_SECONDS) from error
        if done.returncode == SKIPPED:
            raise Skip(done.stdout.strip().splitlines()[-1])
        if done.returncode < 0:
            done.stdout += "signal %d\n%s" % (-done.returncode, done.stderr[-500:])
        return done

    def measure(self, command, preloaded, **settings):
        """run(), with a place in the table."""
        with measure.Measured(self.meter) as measured:
            done = self.run(command, preloaded, **settings)
        if done.returncode == 0:
            self.results.add(self.check, preloaded, measured)
        return done

    def plain(self, command):
        done = self.measure(command, False)
        if done.returncode != 0:
            raise Skip("fails without the library, too: %s" % (done.stdout + done.stderr).strip()[-200:])
        return done.stdout

    def served(self, command, **settings):
        """The output under the library, and the lines of the cache's log."""
        log = os.path.join(self.folder, "log")
        if os.path.exists(log):
            os.remove(log)
        done = self.measure(command, True, VMM_LOG=log, **settings)
        if done.returncode != 0:
            raise Fail("status %d: %s" % (done.returncode, (done.stdout + done.stderr).strip()[-400:]))
        if "libvmmcache_preload:" in done.stderr:
            raise Fail(done.stderr.strip())
        lines = []
        if os.path.exists(log):
            with open(log, encoding="utf-8") as file:
                lines = file.read().splitlines()
        return done.stdout, lines

    def compare(self, command, expects_cache=True, **settings):
        plain = self.plain(command)
        ours, log = self.served(command, **settings)
        if plain != ours:
            raise Fail("printed %r, without the library %r" % (ours[-300:], plain[-300:]))
        if expects_cache and not log:
            raise Fail("the cache served nothing")
        for _ in range(self.rounds - 1):
            self.plain(command)
            self.served(command, **settings)
        return "%d lines of log" % len(log)


def check_ipc(runner, runtime):
    command = (runner.program(runtime), "ipc")
    plain = runner.plain(command).strip()
    ours, log = runner.served(command)
    if (plain, ours.strip()) != ("cudaSuccess", "cudaErrorNotSupported"):
        raise Fail("%s, without the library %s" % (ours.strip(), plain))
    if not any("cuIpcGetMemHandle" in line for line in log):
        raise Fail("the log does not name the call")


def check_shown(runner, part):
    """Both outputs, which differ."""
    command = (runner.program("static"), part)
    plain = runner.plain(command).strip()
    ours, _ = runner.served(command)
    return "%s; without the library: %s" % (ours.strip(), plain)


def check_resource(runner):
    """The memory resource of CCCL."""
    build = os.path.dirname(os.path.dirname(runner.library))
    archive = os.path.join(build, "libvmmcache.a")
    if not os.path.exists(archive):
        raise Skip("%s is not built" % archive)
    program = runner.compile("resource", "resource.cu", "-I" + os.path.join(HERE, "..", "..", "include"), archive,
                             "-lpthread", "-ldl")
    done = runner.run((program,), False)
    if done.returncode != 0:
        raise Fail((done.stdout + done.stderr)[-400:])
    return done.stdout.strip()


def python_settings(runner):
    """The environment of scripts that import vmmcache."""
    library = os.path.join(os.path.dirname(os.path.dirname(runner.library)), "torch", "libvmmcache_torch.so")
    library = os.environ.get("VMMCACHE_LIBRARY", library)
    if not os.path.exists(library):
        raise Skip("%s is not built" % library)
    paths = [os.path.join(HERE, "..", "python"), os.environ.get("PYTHONPATH")]
    return {"VMMCACHE_LIBRARY": library, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def script_command(name):
    return sys.executable, os.path.abspath(__file__), "--script", name


def check_cache(runner):
    """The results that the script must print."""
    done = runner.run(script_command("cache"), False, **python_settings(runner))
    wanted = "%d %d\n0\n5000\n" % (3 << 20, 1 << 20)
    if done.returncode != 0 or not done.stdout.startswith(wanted):
        raise Fail("printed %r; %s" % (done.stdout, done.stderr[-400:]))
    return "; ".join(done.stdout.split("\n")[3:]).strip("; ")


def check_numba(runner):
    """The script for Numba with and without the memory manager."""
    log = os.path.join(runner.folder, "numba.log")
    plain = runner.plain(script_command("numba"))
    done = runner.run(script_command("numba"), False, NUMBA_CUDA_MEMORY_MANAGER="vmmcache.numba", VMM_LOG=log,
                      **python_settings(runner))
    if done.returncode != 0 or done.stdout != plain:
        raise Fail("printed %r, without the manager %r; %s" % (done.stdout, plain, done.stderr[-400:]))
    if not os.path.exists(log):
        raise Fail("the cache served nothing")


def check_record(runner):
    trace = os.path.join(runner.folder, "out.trace")
    command = (runner.program("static"), "streams")
    plain = runner.plain(command)
    ours, _ = runner.served(command, VMM_PRELOAD="record", VMM_TRACE=trace)
    with open(trace, encoding="utf-8") as file:
        lines = [line for line in file if line[0] in "+-"]
    if plain != ours or len(lines) != 1002:
        raise Fail("printed %r and recorded %d operations" % (ours, len(lines)))
    fragtest = shutil.which("fragtest", path=os.environ.get("FRAGTEST_FOLDER", "build/release/bin"))
    if fragtest is None:
        return "1002 operations; no fragtest in FRAGTEST_FOLDER"
    done = runner.run((fragtest, "--trace", trace, "--driver", "sim", "--quiet"), False)
    if done.returncode != 0:
        raise Fail("fragtest: " + (done.stdout + done.stderr)[-300:])
    return "1002 operations, replayed by fragtest"


def checks():
    """{name: function of a runner}"""
    found = {}
    for runtime in ("static", "shared"):
        for part in PARTS:
            found["%s.%s" % (part, runtime)] = (
                lambda runner, part=part, runtime=runtime: runner.compare((runner.program(runtime), part)))
        found["ipc." + runtime] = lambda runner, runtime=runtime: check_ipc(runner, runtime)
    found["stream_wait"] = lambda runner: runner.compare((runner.program("static"), "mixed"),
                                                         VMM_REUSE="stream_wait", VMM_ZERO="1")
    found["limit"] = lambda runner: runner.compare((runner.program("static"), "blocks"), VMM_LIMIT="1G")
    found["no_caching"] = lambda runner: runner.compare((runner.program("static"), "blocks"), VMM_NO_CACHING="1")
    found["debug"] = lambda runner: runner.compare((runner.program("static"), "blocks"), VMM_DEBUG="on")
    found["driver.primary"] = lambda runner: runner.compare((runner.driver(), "primary"))
    found["driver.own"] = lambda runner: runner.compare((runner.driver(), "own"), expects_cache=False)
    found["off"] = lambda runner: runner.compare((runner.program("static"), "blocks"), expects_cache=False,
                                                 VMM_PRELOAD="off")
    found["record"] = check_record
    found["adapter_resource"] = check_resource
    found["adapter_cache"] = check_cache
    found["adapter_numba"] = check_numba
    for part in ("fragments", "times"):
        found[part] = lambda runner, part=part: check_shown(runner, part)
    for script in SCRIPTS:
        if script != "cache":
            found[script] = lambda runner, script=script: runner.compare(script_command(script))
    return found


def run_script(name):
    sys.path.remove(HERE)  # a package that a script imports could take a file of this folder for its own
    try:
        SCRIPTS[name]()
    except Skip as reason:
        print(reason)
        sys.exit(SKIPPED)


def unusable():
    """What is missing on this machine; empty: nothing."""
    return "" if os.path.exists("/dev/nvidiactl") else "there is no GPU"


def run_check(runner, name, function):
    """Prints the line of a check; whether it did not fail."""
    runner.check = name
    try:
        line, is_right = "PASS  %-22s %s" % (name, function(runner) or ""), True
    except Skip as reason:
        line, is_right = "SKIP  %-22s %s" % (name, reason), True
    except Fail as reason:
        line, is_right = "FAIL  %-22s %s" % (name, reason), False
    print(line, flush=True)
    return is_right


def main(library, names, rounds):
    missing = unusable()
    if missing:
        print("SKIP  " + missing)
        sys.exit(1 if os.environ.get("VMM_REQUIRE_GPU") == "1" else SKIPPED)
    known = checks()
    unknown = [name for name in names if name not in known]
    if unknown or not os.path.isfile(library):
        sys.exit("no such check or library: %s; there are %s" % (unknown or library, " ".join(known)))
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(library, folder, rounds, measure.open_meter())
        results = [run_check(runner, name, known[name]) for name in names or known]
        print("", *runner.results.lines(), sep="\n")
    if runner.meter is None:
        print("NVML does not say how much memory is in use")
    print("\n%d of %d checks did not fail" % (sum(results), len(results)))
    sys.exit(0 if all(results) else 1)


def arguments_read(arguments):
    """(library, names of checks, rounds)"""
    rounds = "1"
    if arguments[:1] == ["--rounds"]:
        rounds, arguments = "".join(arguments[1:2]), arguments[2:]
    if not arguments or arguments[0].startswith("-") or not rounds.isdigit() or rounds == "0":
        sys.exit(__doc__)
    return arguments[0], arguments[1:], int(rounds)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--script":
        run_script(sys.argv[2])
    else:
        main(*arguments_read(sys.argv[1:]))
