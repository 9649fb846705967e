"""Programs that do not call install(): VMMCACHE_AUTOINSTALL and `python -m vmmcache run`, with a fake PyTorch."""
import os
import sys
import textwrap
import unittest

import vmmcache
from support import FAKE, FolderTest, ProgramTest, run_python, start_python

PACKAGE = os.path.dirname(os.path.abspath(vmmcache.__file__))
STARTUP = os.path.join(PACKAGE, "startup")
PTH = os.path.join(os.path.dirname(PACKAGE), "vmmcache.pth")

TELL = """
import sys
early = ('torch', 'ctypes', 'vmmcache', 'importlib.util')
print('early', [name for name in sys.modules if name.split('.')[0] in early])
import torch
vmmcache = sys.modules.get('vmmcache')
print('installed', vmmcache is not None and vmmcache.is_installed())
"""


class AutoTest(ProgramTest, FolderTest):
    """Each program finds startup/sitecustomize.py on its path, which does what vmmcache.pth does."""

    def paths(self, *more):
        return os.pathsep.join([STARTUP, *more, FAKE, os.environ.get("PYTHONPATH", "")])

    def told(self, code, *more, **environment):
        return self.succeeds(code, fake=False, **{"PYTHONPATH": self.paths(*more), "VMMCACHE_AUTOINSTALL": "1",
                                                  **environment})

    def test_import_torch_installs(self):
        self.assertEqual(self.told(TELL).splitlines(), ["early []", "installed True"])

    def test_unset_it_does_nothing(self):
        for value in ("", "0", "off"):
            self.assertEqual(self.told(TELL, VMMCACHE_AUTOINSTALL=value).splitlines(), ["early []", "installed False"])

    def test_the_loader_of_torch_is_its_own_again(self):
        self.told("""
import sys, torch
for loader in (torch.__loader__, torch.__spec__.loader):
    assert type(loader).__module__ == '_frozen_importlib_external', loader
assert not any(type(finder).__name__ == '_Watch' for finder in sys.meta_path)
""")

    def test_a_program_without_torch_is_left_alone(self):
        self.assertEqual(self.told("import sys, json\nprint('vmmcache' in sys.modules)"), "False\n")

    def test_a_program_may_look_for_torch_before(self):
        """transformers and others do, to know whether it is there."""
        self.assertEqual(self.told("""
import importlib.util, os
for _ in range(2):
    spec = importlib.util.find_spec('torch')
    assert spec.loader.get_filename('torch') == spec.origin and os.path.exists(spec.origin)
import torch, vmmcache
print(vmmcache.is_installed())
""", VMMCACHE_AUTOINSTALL="strict"), "True\n")

    def test_a_failed_import_of_torch_can_be_tried_again(self):
        self.write("torch/__init__.py", "raise ImportError('not yet')\n")
        self.told(f"""
import importlib, sys
try:
    import torch
except ImportError as error:
    assert 'not yet' in str(error), error
sys.path.remove({self.folder!r})
importlib.invalidate_caches()
import torch, vmmcache
assert vmmcache.is_installed()
""", self.folder)

    def test_what_fails_is_told_in_one_line(self):
        said = self.told(TELL, VMMCACHE_LIBRARY="/nowhere/none.so").splitlines()
        self.assertEqual([line.partition(": ")[0] for line in said], ["early []", "vmmcache", "installed False"])
        self.assertIn("PyTorch keeps its own allocator: vmmcache.install(): /nowhere/none.so is missing", said[1])

    def test_settings_come_from_the_environment(self):
        said = self.told("import torch, vmmcache\nvmmcache.mem_get_info()\nfrom vmmcache._figures import Figures\n"
                         "print(Figures(0).number('limit_bytes') >> 20)", VMM_LIMIT="64MiB")
        self.assertEqual(said, "64\n")

    def test_a_wrong_choice_is_told(self):
        self.assertIn("keeps its own allocator: VMMCACHE_NATIVE='maybe' is not one of 0, 1, off, on, auto",
                      self.told("import torch", VMMCACHE_NATIVE="maybe"))

    def test_without_a_compiler_the_plug_in_is_taken_and_the_class_is_not(self):
        said = self.told("import torch, vmmcache\nprint(vmmcache.is_installed())", CXX="/nowhere/c++",
                         PYTHONWARNINGS="default")
        self.assertIn("uses PyTorch's plug-in interface, because its allocator class cannot be used", said)
        self.assertTrue(said.endswith("True\n"), said)
        said = self.told("import torch, vmmcache\nprint(vmmcache.is_installed())", VMMCACHE_NATIVE="1",
                         CXX="/nowhere/c++")
        self.assertEqual(said.count("\n"), 2, said)
        self.assertIn("keeps its own allocator: the allocator class cannot be used", said)

    def test_strict_ends_a_program_that_would_run_without(self):
        for wrong in ({"VMMCACHE_NATIVE": "1", "CXX": "/nowhere/c++"}, {"VMM_LIMIT": "8GB"},
                      {"VMMCACHE_NATIVE": "maybe"},
                      {"VMMCACHE_LIBRARY": "/nowhere/none.so"}):
            status, said = run_python("try:\n    import torch\nexcept Exception:\n    pass\nprint('ran')",
                                      PYTHONPATH=self.paths(),
                                      VMMCACHE_AUTOINSTALL="strict", **wrong)
            self.assertEqual((status, said.count("\n")), (1, 1), said)
            self.assertTrue(said.startswith("vmmcache: "), said)
        self.assertEqual(self.told(TELL, VMMCACHE_AUTOINSTALL="strict").splitlines(), ["early []", "installed True"])

    def test_strict_ends_the_process_also_from_a_thread(self):
        code = """
import threading
print('before')
thread = threading.Thread(target=lambda: __import__('torch'))
thread.start()
thread.join()
print('ran')
"""
        status, said = run_python(code, PYTHONPATH=self.paths(), VMMCACHE_AUTOINSTALL="strict", VMM_LIMIT="8GB")
        self.assertEqual((status, sorted(line.partition(": ")[0] for line in said.splitlines())),
                         (1, ["before", "vmmcache"]), said)

    def test_strict_stays_when_torch_is_imported_again(self):
        said = self.told("""
for _ in range(2):
    try:
        import torch
    except SystemExit as error:
        print(error.code)
""", VMMCACHE_AUTOINSTALL="strict", VMM_LIMIT="8GB")
        self.assertEqual(said.count("VMM_LIMIT=8GB"), 2, said)

    def test_peers_and_the_thread_of_decay(self):
        code = ("import torch\nfrom vmmcache import _install\n"
                "print(_install._settings['peers'], _install._settings['decay_thread'])")
        for peers, read in (("", "auto"), ("auto", "auto"), ("none", "None"), ("0", "[0]"), ("0,3", "[0, 3]")):
            self.assertEqual(self.told(code, VMMCACHE_PEERS=peers), f"{read} None\n")
        self.assertEqual(self.told(code, VMMCACHE_DECAY_THREAD="1", VMM_DECAY_MS="100"), "auto True\n")
        self.assertEqual(self.told(code, VMMCACHE_DECAY_THREAD="off", VMM_DECAY_MS="100"), "auto False\n")
        for wrong, why in (({"VMMCACHE_PEERS": "0,x"},
                            "VMMCACHE_PEERS='0,x' is not auto, none or ordinals such as 0,1"),
                           ({"VMMCACHE_PEERS": "99"}, "peers=99 is outside 0 to 63"),
                           ({"VMMCACHE_DECAY_THREAD": "yes"},
                            "VMMCACHE_DECAY_THREAD='yes' is not one of 0, 1, off, on"),
                           ({"VMMCACHE_DECAY_THREAD": "1"}, "decay_ms is 0")):
            self.assertIn(why, self.told("import torch", **wrong))

    def test_plain_graphs(self):
        self.assertIn("False", self.told("import torch, torch._inductor.config as config\n"
                                         "print(config.triton.cudagraph_trees)", VMMCACHE_PLAIN_GRAPHS="1"))

    def test_another_sitecustomize_runs_too(self):
        self.write("sitecustomize.py", "print('the other one')\n")
        told = f"print(sys.modules['sitecustomize'].__file__.startswith({self.folder!r}))"
        said = self.told(TELL + told, self.folder)
        self.assertEqual(said.splitlines(), ["the other one", "early []", "installed True", "True"])

    def test_a_program_may_call_install_itself(self):
        self.told("""
import vmmcache
vmmcache.install(limit='64MiB')
vmmcache.install(limit='64MiB')
vmmcache.mem_get_info()
from vmmcache._figures import Figures
assert Figures(0).number('limit_bytes') == 64 << 20
try:
    vmmcache.install(limit='32MiB')
except vmmcache.InstallError as error:
    assert 'installed already' in str(error)
else:
    raise SystemExit('other settings were accepted')
""")
        self.told("""
import os, torch, vmmcache
from vmmcache._figures import Figures
try:
    vmmcache.install(native=True, limit='64MiB')
except vmmcache.InstallError as error:
    assert 'installed already, with native=False' in str(error), error
assert os.environ['VMM_LIMIT'] == '128MiB'
vmmcache.mem_get_info()
assert Figures(0).number('limit_bytes') == 128 << 20
""", VMM_LIMIT="128MiB")
        self.fails("import torch, vmmcache\nvmmcache.mem_get_info()\nvmmcache.install(limit='64MiB')",
                   "a device was opened before", fake=False, PYTHONPATH=self.paths(), VMMCACHE_AUTOINSTALL="1")
        self.fails("import torch, vmmcache\nvmmcache.install(native=True)", "installed already, with native=False",
                   fake=False, PYTHONPATH=self.paths(), VMMCACHE_AUTOINSTALL="1")


WORKER = """
import multiprocessing, sys

def work(queue):
    import torch, vmmcache
    block = torch.cuda.caching_allocator_alloc(1 << 20)
    queue.put((vmmcache.is_installed(), vmmcache.memory_allocated()))

if __name__ == '__main__':
    for method in ('spawn', 'forkserver', 'fork'):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        worker = context.Process(target=work, args=(queue,))
        worker.start()
        print(method, *queue.get(timeout=50), flush=True)
        worker.join()
"""


class RunTest(FolderTest):
    def run_command(self, *arguments, status=0, flags=(), **environment):
        ended, said = start_python(*flags, "-m", "vmmcache", "run", *arguments, fake=True, cwd=self.folder,
                                   **environment)
        self.assertEqual(ended, status, said)
        return said

    def program(self, code, name="program.py"):
        return self.write(name, textwrap.dedent(code))

    def test_a_program_runs_as_without(self):
        path = self.program(TELL + "print(__name__, sys.argv[1:], sys.flags.dev_mode)\nsys.exit(3)")
        said = self.run_command("--limit", "64MiB", path, "--limit", "-m", "x", status=3, flags=["-X", "dev"],
                                PYTHONWARNINGS="ignore").splitlines()
        self.assertEqual(said, ["early []", "installed True", "__main__ ['--limit', '-m', 'x'] True"])

    def test_a_module_runs(self):
        self.program(TELL + "print(sys.argv[1:])", "some_module.py")
        self.assertEqual(self.run_command("-m", "some_module", "--plugin").splitlines()[1:],
                         ["installed True", "['--plugin']"])

    def test_workers_have_it_too(self):
        said = self.run_command(self.program(WORKER)).splitlines()
        self.assertEqual(said, [f"{method} True {1 << 20}" for method in ("spawn", "forkserver", "fork")])

    def test_only_the_first_process_warns(self):
        path = self.program("import subprocess, sys, torch\n"
                            "subprocess.run([sys.executable, '-c', "
                            "'import torch, vmmcache; print(vmmcache.is_installed())'])")
        said = self.run_command(path, PYTHONWARNINGS="default::UserWarning")
        self.assertEqual(said.count("these do not work with it"), 1, said)
        self.assertIn("True", said)

    def test_choices(self):
        path = self.program("import os\nprint([os.environ.get(name) for name in ('VMMCACHE_NATIVE', 'VMM_LIMIT', "
                            "'VMMCACHE_PLAIN_GRAPHS', 'VMMCACHE_AUTOINSTALL')])")
        for options, told in (((), [None, None, None, "strict"]), (("--native",), ["1", None, None, "strict"]),
                              (("--auto", "--limit", "80%"), ["auto", "80%", None, "strict"]),
                              (("--plugin", "--plain-graphs"), ["0", None, "1", "strict"])):
            self.assertEqual(self.run_command(*options, path), f"{told}\n")

    def test_a_program_that_would_run_without_does_not(self):
        path = self.program("import torch\nprint('ran')")
        for options, why in ((("--limit", "8GB"), "VMM_LIMIT=8GB"),
                             (("--native",), "the allocator class cannot be used")):
            said = self.run_command(*options, path, status=1, CXX="/nowhere/c++")
            self.assertEqual(said.count("\n"), 1, said)
            self.assertIn(why, said)

    def test_misuse_is_told(self):
        self.assertIn("there is no program", self.run_command(status=2))
        self.assertIn("there is no program", self.run_command("-m", status=2))
        self.assertIn("not allowed with", self.run_command("--native", "--plugin", "x.py", status=2))

    def test_a_python_that_reads_nothing_at_its_start_is_told(self):
        path = self.program("print('ran')")
        code = f"import sys; sys.path[:0] = {sys.path!r}; from vmmcache._run import main; sys.exit(main([{path!r}]))"
        for flag, why in (("-S", "with -S, Python does not load it"), ("-E", "only if its wheel is installed")):
            status, said = start_python(flag, "-c", code)
            self.assertEqual((status, said.count("\n")), (2, 1), said)
            self.assertIn(why, said)


class CostTest(unittest.TestCase):
    def test_the_line_for_python_s_start_imports_nothing(self):
        with open(PTH, encoding="ascii") as file:
            line, = file.read().splitlines()
        code = f"import sys\nbefore = set(sys.modules)\n{line}\nprint(set(sys.modules) - before)"
        for value, imported in (("0", "set()"), ("", "set()"), ("off", "set()"), ("1", "{'vmmcache_auto'}")):
            self.assertEqual(run_python(code, VMMCACHE_AUTOINSTALL=value), (0, imported + "\n"))


if __name__ == "__main__":
    unittest.main()
