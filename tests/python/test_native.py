"""The allocator class: compiled at its first use and installed into a fake PyTorch, or the reason why not."""
import fcntl
import glob
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import types
import unittest
from unittest import mock

import native_tree
import vmmcache
from support import FolderTest, ProgramTest, run_python
from vmmcache import _build

STARTUP = os.path.join(os.path.dirname(os.path.abspath(vmmcache.__file__)), "startup")
LOAD = """
import ctypes, os, warnings
import torch
c10 = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), 'lib', 'libc10.so'))
c10.fake_allocator_name.restype = ctypes.c_char_p
c10.fake_alloc.restype, c10.fake_alloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
c10.fake_free.restype, c10.fake_free.argtypes = None, [ctypes.c_void_p]
import vmmcache
"""
INSTALL = LOAD + """
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter('always')
    vmmcache.install()
for warning in told:
    print('warning:', warning.message)
print('allocator:', c10.fake_allocator_name())
print('native:', vmmcache.capabilities()['native'])
"""
SERVE = """
c10.fake_init(1)
block = c10.fake_alloc(5 << 20)
assert vmmcache.memory_allocated(0) >= 5 << 20
c10.fake_free(block)
assert vmmcache.memory_allocated(0) == 0
"""
TRACK = """
c10.fake_track.restype = ctypes.c_char_p
c10.fake_tracked_bytes.restype = ctypes.c_uint64
"""


made = tempfile.TemporaryDirectory()  # of a build that tests share: a compilation takes seconds


def tearDownModule():
    made.cleanup()


class NativeTest(ProgramTest, FolderTest):
    def setUp(self):
        super().setUp()
        self.cache = self.path("cache")
        self.packages = native_tree.make(self.folder)

    def environment(self, **more):
        path = os.pathsep.join([self.packages, os.environ.get("PYTHONPATH", "")])
        return {"PYTHONPATH": path, "VMMCACHE_CACHE": self.cache, "CXX": "c++ -O0", **more}

    def program(self, code, **more):
        return self.succeeds(code, fake=False, **self.environment(**more))

    def prepare(self):
        """Puts a build into the folder of builds. The first call compiles it, and what compiled it serves memory."""
        builds = os.path.join(made.name, "builds")
        if not os.path.exists(builds):
            said = self.program("import os; os.umask(0)" + INSTALL + SERVE)
            self.assertIn("allocator: b'vmmcache'", said)
            self.assertIn("native: True", said)
            self.assertNotIn("plug-in interface", said)
            self.assertEqual(self.leftovers(), [])
            shutil.copytree(self.cache, builds)
        else:
            shutil.copytree(builds, self.cache)

    def compiler(self, lines):
        """A program that takes the place of the compiler."""
        path = self.write("compiler", "#!/bin/sh\n" + lines)
        os.chmod(path, 0o755)
        return path

    def copier(self, seconds=0):
        """A compiler that takes its time and gives what was compiled before; and the file that has a line for each of
        its calls."""
        self.prepare()
        whole, calls = self.path("whole"), self.path("calls")
        shutil.move(self.builds()[0], whole)
        shutil.rmtree(self.cache)
        return self.compiler(f'echo called >>{calls}; sleep {seconds}\n'
                             f'while [ "$1" != -o ]; do shift; done\ncp {whole} "$2"\n'), calls

    def refusal(self, **more):
        """What install() says when it falls back to the plug-in."""
        said = self.program(INSTALL, **more)
        self.assertIn("allocator: None", said)
        self.assertIn("native: False", said)
        line, = [line for line in said.splitlines() if "warning:" in line]
        self.assertIn("uses PyTorch's plug-in interface, because its allocator class cannot be used: ", line)
        self.assertIn("; these do not work with it: torch.cuda.MemPool", line)
        return line

    def builds(self):
        return sorted(glob.glob(os.path.join(self.cache, "*.so")))

    def leftovers(self):
        return glob.glob(os.path.join(self.cache, "*.part"))


class InstallTest(NativeTest):
    def test_the_class_is_compiled_once_and_serves_memory(self):
        self.prepare()
        first = self.builds()
        self.assertEqual(len(first), 1)
        self.assertEqual(stat.S_IMODE(os.stat(self.cache).st_mode), 0o700)
        written = os.stat(first[0]).st_mtime_ns
        self.assertIn("native: True", self.program(INSTALL, CXX="/nowhere/compiler"))
        self.assertEqual(self.builds(), first)
        self.assertEqual(os.stat(first[0]).st_mtime_ns, written)
        self.assertEqual(self.leftovers(), [])

    def test_it_is_the_default_and_warns_of_nothing(self):
        self.prepare()
        said = self.program(INSTALL + "print(vmmcache.capabilities()['unsupported'])")
        self.assertIn("native: True", said)
        self.assertNotIn("warning:", said)
        self.assertIn("registration of all memory with NCCL", said)

    def automatic(self, **more):
        """The environment of a program that does not call install()."""
        path = os.pathsep.join([STARTUP, self.environment()["PYTHONPATH"]])
        return self.environment(**{"VMMCACHE_AUTOINSTALL": "1", "PYTHONPATH": path, **more})

    def test_the_environment_has_the_same_default(self):
        self.prepare()
        code = "import torch, vmmcache\nprint(vmmcache.capabilities()['native'])"
        for choice, is_native, warnings in (("", True, "error::UserWarning"), ("auto", True, "error::UserWarning"),
                                            ("1", True, "error::UserWarning"), ("0", False, "ignore")):
            said = self.succeeds(code, fake=False,
                                 **self.automatic(VMMCACHE_NATIVE=choice, PYTHONWARNINGS=warnings))
            self.assertEqual(said, f"{is_native}\n", choice)

    def test_a_program_cannot_undo_the_environment_s_choice(self):
        self.prepare()
        self.fails("import torch, vmmcache\nvmmcache.install()\nvmmcache.install(native=False)",
                   "installed already, with native=True", fake=False, **self.automatic())

    def test_the_class_uses_the_standard_library_of_the_process(self):
        # The class in its place takes longer and adds nothing.
        other = self.write("other.cpp", "#include <iostream>\nvoid tell() { std::cout << 1; }\n")
        self.program(INSTALL, CXX=self.compiler(f"""for word; do
    case $word in */shim.cpp) word={other} ;; esac
    set -- "$@" "$word"
    shift
done
exec c++ -static-libstdc++ "$@"
"""))
        with open(self.builds()[0], "rb") as file:
            self.assertTrue(b"libstdc++.so.6" in file.read(), "a second standard library is inside the build")

    def test_functions_of_pytorch_are_not_replaced(self):
        self.prepare()
        self.program(LOAD + """
vmmcache.install(native=True)
assert vmmcache.capabilities()['patched'] == []
assert vmmcache.capabilities()['cuda_graphs'] and vmmcache.capabilities()['record_stream']
vmmcache.install()
vmmcache.install(native=True)
try:
    vmmcache.install(native=False)
except vmmcache.InstallError as error:
    print(error)
else:
    raise SystemExit('a second install() with another allocator was accepted')
""")

    def test_regions_sleep(self):
        self.prepare()
        self.program(INSTALL + """
c10.fake_init(1)
with vmmcache.region('weights'):
    weights = c10.fake_alloc(5 << 20)
other = c10.fake_alloc(3 << 20)
vmmcache.sleep('weights')
state = vmmcache.sleep_state()
assert state['weights']['asleep_bytes'] >= 5 << 20 and state[None]['asleep'] is False
c10.fake_free(other)
vmmcache.sleep()
assert vmmcache.memory_reserved(0) == 0
vmmcache.wake()
c10.fake_free(weights)
assert vmmcache.memory_allocated(0) == 0
""")

    def test_trackers_hear_of_sleep(self):
        """So that NCCL drops its registration of memory that is unmapped."""
        self.prepare()
        self.program(INSTALL + TRACK + """
c10.fake_init(1)
assert c10.fake_track() is None
with vmmcache.region('weights'):
    weights = c10.fake_alloc(8 << 20)
other = c10.fake_alloc(4 << 20)
mapped = c10.fake_tracked_bytes()
assert mapped == vmmcache.memory_reserved(0) >= 12 << 20
for tags in ('weights', None):
    vmmcache.sleep(tags)
    assert c10.fake_tracked_bytes() == vmmcache.memory_reserved(0) < mapped
    vmmcache.wake()
    assert c10.fake_tracked_bytes() == vmmcache.memory_reserved(0) == mapped
""")

    def test_registration_of_all_memory_is_turned_off(self):
        self.prepare()
        for name in ("TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK", "NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK"):
            said = self.program(INSTALL + TRACK + f"""
c10.fake_init(1)
assert os.environ[{name!r}] == '0' and c10.fake_track() is None
os.environ[{name!r}] = '1'
print(c10.fake_track().decode())
vmmcache.sleep()
""", **{name: "true"})
            warning, = [line for line in said.splitlines() if "warning:" in line]
            self.assertIn(f"{name} has no effect on vmmcache", warning)
            self.assertIn("TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK does not work", said)
            self.assertNotIn("warning:", self.program(INSTALL, **{name: "0"}))

    def test_the_class_rounds_sizes_up(self):
        self.prepare()
        said = self.program(INSTALL, PYTORCH_ALLOC_CONF="roundup_power2_divisions:4,max_split_size_mb:64")
        warning, = [line for line in said.splitlines() if "warning:" in line]
        self.assertIn("PYTORCH_ALLOC_CONF has max_split_size_mb, without effect", warning)

    def test_the_plug_in_can_be_chosen(self):
        said = self.program(LOAD + "vmmcache.install(native=False)\n"
                                   "print(c10.fake_allocator_name(), torch._C.current is not None)")
        self.assertIn("None True", said)
        self.assertEqual(self.builds(), [])

    def test_a_wrong_choice_is_refused(self):
        self.fails(LOAD + "vmmcache.install(native='yes')", "TypeError", "native must be", fake=False,
                   **self.environment())

    def test_two_processes_make_one_build(self):
        compiler, calls = self.copier(seconds=2)
        environment = {**os.environ, **self.environment(CXX=compiler), "PYTHONWARNINGS": "ignore"}
        running = [subprocess.Popen([sys.executable, "-B", "-c", INSTALL], env=environment, text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for _ in range(2)]
        for process in running:
            said = process.communicate(timeout=100)[0]
            self.assertEqual(process.returncode, 0, said)
            self.assertIn("native: True", said)
        with open(calls, encoding="ascii") as file:
            self.assertEqual(file.read(), "called\n")
        self.assertEqual(len(self.builds()), 1)
        self.assertEqual(self.leftovers(), [])

    def test_each_version_of_pytorch_has_its_build(self):
        compiler, _ = self.copier()
        self.program(INSTALL, CXX=compiler)
        self.program("import torch\ntorch.version.git_version = 'abc'\n" + INSTALL, CXX=compiler)
        self.assertEqual(len(self.builds()), 2)

    def test_a_build_can_come_with_the_package(self):
        """As in a wheel: then no compiler is needed, nor a folder of builds."""
        command = "import vmmcache.__main__ as command; raise SystemExit(command.main(['build']))"
        status, said = run_python(command, **self.environment(CXX=self.copier()[0]))
        self.assertEqual(status, 0, said)
        build, = self.builds()
        self.assertEqual(build, said.strip())
        package = os.path.join(self.packages, "vmmcache")
        shutil.copytree(os.path.dirname(vmmcache.__file__), package, ignore=shutil.ignore_patterns("__pycache__"))
        for folder in ("src", "include"):  # as a wheel has the sources
            shutil.copytree(os.path.join(_build._CHECKOUT, folder), os.path.join(package, "shim"), dirs_exist_ok=True)
        os.mkdir(os.path.join(package, "prebuilt"))
        prebuilt = shutil.move(build, os.path.join(package, "prebuilt"))
        away = {"CXX": "/nowhere/c++", "VMMCACHE_CACHE": os.path.join(self.packages, "none")}
        self.assertIn("native: True", self.program(INSTALL, **away))
        with open(prebuilt, "r+b") as file:
            file.truncate(1000)  # a broken one is not used
        self.assertIn("there is no C++ compiler", self.refusal(CXX="/nowhere/c++"))

    def test_names_with_brackets_are_no_patterns(self):
        folder = self.path("a[1]")
        shutil.copytree(os.path.join(_build._CHECKOUT, "src", "torch", "shim"), os.path.join(folder, "torch", "shim"))
        names = [os.path.basename(path) for path in _build.source_files([folder])]
        self.assertEqual(names, sorted(os.listdir(os.path.join(folder, "torch", "shim"))))
        packages = native_tree.make(folder)
        torch = types.SimpleNamespace(__file__=os.path.join(packages, "torch", "__init__.py"),
                                      version=types.SimpleNamespace(cuda="0.0"))
        with mock.patch.dict(os.environ, {"CUDA_HOME": "", "CUDA_PATH": ""}):
            self.assertEqual(_build._cuda_folders(torch), [os.path.join(packages, "nvidia", "cu13", "include")])

    def test_what_cannot_be_built_is_said(self):
        command = "import vmmcache.__main__ as command; raise SystemExit(command.main(['build']))"
        status, said = run_python(command, **self.environment(CXX="/nowhere/c++"))
        self.assertEqual(status, 1)
        self.assertIn("python -m vmmcache build: there is no C++ compiler (/nowhere/c++)", said)

    def test_the_command_tells_whether_the_class_works(self):
        status, said = run_python("import vmmcache.__main__ as command; command.main([])", **self.environment())
        self.assertEqual(status, 0, said)
        self.assertIn("allocator class: the first install() compiles it", said)
        self.prepare()
        self.assertIn("allocator class: compiled",
                      run_python("import vmmcache.__main__ as command; command.main([])", **self.environment())[1])


class FallbackTest(NativeTest):
    """install() uses the plug-in and says in one line what is missing."""

    def test_no_compiler(self):
        self.assertIn("there is no C++ compiler (/nowhere/c++)", self.refusal(CXX="/nowhere/c++"))
        self.assertIn("there is no C++ compiler (c++, g++, clang++)", self.refusal(CXX="", PATH="/nowhere"))

    def test_a_malformed_compiler(self):
        self.assertIn("CXX=c++ ' is malformed: No closing quotation", self.refusal(CXX="c++ '"))

    def test_a_compiler_that_lacks_a_standard(self):
        """What it said of the first standard says more."""
        compiler = self.compiler(
            "case \"$*\" in\n*-std=c++17*) echo 'a.h:1: error: the first one';;\n"
            "*) echo \"cc1plus: error: unrecognized command-line option '-std=c++20'\";;\nesac\nexit 1\n")
        self.assertIn("does not compile against PyTorch 2.11.0+fake: a.h:1: error: the first one",
                      self.refusal(CXX=compiler))

    def test_a_folder_that_cannot_be_read(self):
        """Whatever the system refuses is a reason for the plug-in."""
        self.assertIn("its build failed: [Errno", self.program(LOAD + """
from vmmcache import _build
def refuse(*given):
    raise PermissionError(13, 'Permission denied', '/sources')
_build.source_files = refuse
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter('always')
    vmmcache.install()
print(told[0].message)
from vmmcache.__main__ import main
main([])
"""))

    def test_an_unknown_version(self):
        with open(os.path.join(self.packages, "torch", "__init__.py"), "a", encoding="utf-8") as file:
            file.write("\n__version__ = 'nightly'\n")
        self.assertIn("the version of PyTorch 'nightly' is unknown", self.refusal())

    def test_demanded_the_class_is_an_error(self):
        self.fails(LOAD + "vmmcache.install(native=True)", "InstallError", "there is no C++ compiler", fake=False,
                   **self.environment(CXX="/nowhere/c++"))

    def test_a_demand_that_fails_changes_no_settings(self):
        """Neither if the class cannot be compiled nor if PyTorch refuses it."""
        self.prepare()
        tell = LOAD + """
from vmmcache._figures import Figures
BEFORE
for given in ({'limit': '1GiB'}, {'limit': 0.25, 'footprint': 100}):
    try:
        vmmcache.install(native=True, **given)
    except vmmcache.InstallError as error:
        print(error)
assert not vmmcache.is_installed()
print(sorted(name for name in os.environ if name in ('VMM_LIMIT', 'VMM_FOOTPRINT')))
vmmcache.mem_get_info()
print(Figures(0).number('limit_bytes') >> 30)
"""
        refuse = """
from vmmcache import _native
def refuse(shim):
    raise _native.NativeError('PyTorch cannot use it')
_native.install = refuse
"""
        without = {"CXX": "/nowhere/c++", "VMMCACHE_CACHE": self.path("none")}
        for before, why, more in (("", "there is no C++ compiler", without),
                                  (refuse, "PyTorch cannot use it", {})):
            said = self.program(tell.replace("BEFORE", before), VMM_LIMIT="4GiB", VMM_FOOTPRINT="20", **more)
            first, second, *rest = said.splitlines()
            self.assertIn(why, first)
            self.assertIn(why, second)
            self.assertEqual(rest, ["['VMM_FOOTPRINT', 'VMM_LIMIT']", "4"])

    def test_no_headers(self):
        os.rename(os.path.join(self.packages, "torch", "include"), self.path("gone"))
        self.assertIn("PyTorch's headers are missing", self.refusal())

    def test_no_cuda_headers(self):
        for header in native_tree.CUDA_HEADERS:
            os.remove(os.path.join(self.packages, "nvidia", "cu13", "include", header))
        environment = {"CUDA_HOME": "", "CUDA_PATH": ""}
        if os.path.exists("/usr/local/cuda/include/cuda_runtime_api.h"):
            self.skipTest("this machine has a CUDA toolkit")
        self.assertIn("CUDA's header cuda_runtime_api.h is missing", self.refusal(**environment))

    def test_an_old_pytorch(self):
        with open(os.path.join(self.packages, "torch", "__init__.py"), "a", encoding="utf-8") as file:
            file.write("\n__version__ = '2.8.1'\n")
        self.assertIn("PyTorch 2.8.1 is older than 2.9", self.refusal())

    def test_a_class_with_a_new_function(self):
        path = os.path.join(self.packages, "torch", "include", "c10", "cuda", "CUDACachingAllocator.h")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace("virtual std::string name() = 0;",
                                    "virtual std::string name() = 0; virtual void later() = 0;"))
        told = self.refusal(CXX="c++ -fsyntax-only")
        self.assertIn("does not compile against PyTorch 2.11.0+fake", told)
        self.assertIn("error", told)
        self.assertEqual(self.builds() + self.leftovers(), [])

    def test_another_abi(self):
        """Its symbols have other names than those of the libraries."""
        with open(os.path.join(self.packages, "torch", "__init__.py"), "a", encoding="utf-8") as file:
            file.write("\ndef compiled_with_cxx11_abi():\n    return False\n")
        self.assertIn("its build cannot be loaded", self.refusal())

    def test_an_allocator_in_use(self):
        self.prepare()
        self.fails(INSTALL.replace("vmmcache.install()", """
    vmmcache.install()
    c10.fake_init(1)
    from vmmcache import _native
    _native.install(_native.load(torch))"""), "PyTorch has used its own allocator already", fake=False,
                   **self.environment())

    def test_a_folder_that_others_can_write(self):
        os.mkdir(self.cache)
        os.chmod(self.cache, 0o777)
        told = self.refusal()
        self.assertIn("other users can write to", told)
        self.assertIn("VMMCACHE_CACHE", told)
        self.assertEqual(os.listdir(self.cache), [])

    def test_a_build_that_others_can_replace(self):
        self.prepare()
        for path, mode in ((self.cache, 0o777), (self.cache, 0o770), (self.builds()[0], 0o666)):
            before = os.stat(path).st_mode
            os.chmod(path, mode)
            told = self.refusal()
            self.assertIn("other users can write to " + path, told)
            status, said = run_python("from vmmcache.__main__ import main; main([])", **self.environment())
            self.assertEqual((status, "other users can write to " + path in said), (0, True), said)
            os.chmod(path, before)
        self.assertIn("native: True", self.program(INSTALL))

    @unittest.skipUnless(os.getuid() == 0, "only root gives files away")
    def test_a_build_of_another_user(self):
        self.prepare()
        for path in (self.cache, self.builds()[0]):
            os.chown(path, 65534, -1)
            self.assertIn("other users can write to " + path, self.refusal())
            os.chown(path, 0, -1)

    def test_a_folder_that_is_a_file(self):
        with open(self.cache, "w", encoding="ascii"):
            pass
        self.assertIn("the folder of builds cannot be made", self.refusal())

    def test_a_build_that_is_broken_is_compiled_anew(self):
        """To load a file that was cut ends the process with SIGBUS."""
        compiler, _ = self.copier()
        self.prepare()
        build = self.builds()[0]
        with open(build, "rb") as file:
            data = file.read()
        killed = build + ".1.part"
        half = len(data) // 2
        for broken in (b"", b"not a library", data[:half], data[:half] + bytes(len(data) - half)):
            for path in (build, killed):
                with open(path, "wb") as file:
                    file.write(broken)
            self.assertIn("native: True", self.program(INSTALL, CXX=compiler))
            self.assertEqual(self.leftovers(), [])
        with open(build, "wb") as file:
            file.write(data[:half])
        self.assertIn("there is no C++ compiler", self.refusal(CXX="/nowhere/c++"))

    def test_a_linker_that_fails(self):
        """The compiler's last line says only that."""
        compiler = self.compiler("echo 'In file included from /errors/a.h'\n"
                                 "echo 'ld: cannot find -lc10_cuda: No such file'\n"
                                 "echo 'collect2: error: ld returned 1 exit status'\nexit 1\n")
        self.assertIn(": ld: cannot find -lc10_cuda: No such file;", self.refusal(CXX=compiler))

    def test_a_child_that_forked_does_not_keep_the_lock(self):
        path = self.path("lock")
        with _build._locked(path):
            child = os.fork()
            if child == 0:
                time.sleep(60)
        try:
            with open(path, "wb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


if __name__ == "__main__":
    unittest.main()
