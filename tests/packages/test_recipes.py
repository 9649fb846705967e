"""Man pages say what the programs do; recipes and pyproject.toml name options and versions that there are.

usage: test_recipes.py ROOT CMAKE BUILD VERSION WHEEL_PY FRAGTEST VMMTOP CC CASE

CASE is one of the classes below. The exit status is 77 if one of its tests was skipped, so what a machine may be unable
to run is a class of its own.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT, CMAKE, BUILD, VERSION, WHEEL_PY, FRAGTEST, VMMTOP, CC, CASE = sys.argv[1:10]
SKIPPED = 77
CONSUMER = """cmake_minimum_required(VERSION 3.21)
project(consumer C)
find_package(vmmcache REQUIRED)
add_executable(consumer example.c)
target_link_libraries(consumer PRIVATE vmmcache::vmmcache)
"""
MAN = os.path.join(ROOT, "docs", "man")


def text(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def output(*command, **settings):
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE,
                          env={**os.environ, **settings}).stdout


def build(source, folder, *options):
    """Configures and builds, without optimisation, which takes less time."""
    output(CMAKE, "-S", source, "-B", folder, "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS_DEBUG=-O0",
           "-DCMAKE_C_COMPILER=" + CC, *options)
    output(CMAKE, "--build", folder, "--parallel", "2")


class ManPages(unittest.TestCase):
    def expect_options(self, page, help_text):
        shown = text("docs", "man", page).replace("\\-", "-")
        options = set(re.findall(r"(?<![\w-])--[a-z]+", help_text))
        self.assertTrue(options)
        self.assertEqual(options, set(re.findall(r"(?<![\w-])--[a-z]+", shown)), page)

    def test_fragtest_has_these_options(self):
        self.expect_options("fragtest.1", output(FRAGTEST, "--help"))

    def test_vmmtop_has_these_options(self):
        self.expect_options("vmmtop.1", output(VMMTOP, "--help"))

    def test_vmmtop_has_the_statistics_of_the_header(self):
        shown = text(BUILD, "man", "vmmtop.1")
        found = re.findall(r"X\((\w+), (?:BYTES|COUNT|NANOSECONDS), (\w+),", text("include", "vmmcache", "vmmcache.h"))
        self.assertTrue(found)
        for name, kind in found:
            self.assertEqual(".B %s\n" % name in shown, kind != "SCAN", name)
        self.assertNotRegex(shown, r"@|semicolon")

    def test_the_report_has_these_options(self):
        self.expect_options("vmmcache-report.1", output(
            sys.executable, "-B", os.path.join(ROOT, "tools", "python", "vmmcache-report"), "--help",
            PYTHONPATH=os.path.join(ROOT, "tools", "python")))


class ManLayout(unittest.TestCase):
    def test_pages_are_laid_out_without_a_warning(self):
        if shutil.which("groff") is None:
            self.skipTest("groff is missing (Debian, Ubuntu: apt-get install groff)")
        for page in (os.path.join(folder, page) for folder in (MAN, os.path.join(BUILD, "man"))
                     for page in sorted(os.listdir(folder))):
            done = subprocess.run(["groff", "-ww", "-man", "-Tutf8", page], text=True, check=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.assertEqual(done.stderr, "", page)
            self.assertIn("libvmmcache", done.stdout)


class Recipes(unittest.TestCase):
    def options(self):
        return set(re.findall(r"(?:option\(|set\()(VMM_\w+)", text("CMakeLists.txt")))

    def test_they_name_options_that_there_are(self):
        for recipe in (("tools", "packages", "conan", "conanfile.py"), ("tools", "python", "pyproject.toml"),
                       ("tools", "packages", "vcpkg", "vmmcache", "portfile.cmake")):
            named = set(re.findall(r"VMM_(?:BUILD|WITH)_\w+", text(*recipe)))
            self.assertTrue(named, recipe)
            self.assertEqual(named - self.options(), set(), recipe)

    def test_versions_are_that_of_the_header(self):
        self.assertIn('"version": "%s"' % VERSION, text("tools", "packages", "vcpkg", "vmmcache", "vcpkg.json"))
        pattern = re.search(r"regex = '''(.*)'''", text("tools", "python", "pyproject.toml")).group(1)
        found = re.search(pattern, text("include", "vmmcache", "vmmcache.h"))
        self.assertEqual(".".join(found.groups()), VERSION)

    def test_conan_compiles_and_exports_what_a_build_needs(self):
        recipe = text("tools", "packages", "conan", "conanfile.py")
        compile(recipe, "conanfile.py", "exec")
        for needed in ("CMakeLists.txt", "include/*", "src/*", "tools/cmake/*"):
            self.assertIn('"%s"' % needed, recipe)

    def test_what_conan_exports_serves_a_program(self):
        recipe = text("tools", "packages", "conan", "conanfile.py")
        patterns = re.findall(r'"([^"]+)"', re.search(r"for pattern in \((.*)\):", recipe).group(1))
        with tempfile.TemporaryDirectory() as folder:
            for needed in (pattern.split("/*")[0] for pattern in patterns):
                source, target = os.path.join(ROOT, needed), os.path.join(folder, "source", needed)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                (shutil.copytree if os.path.isdir(source) else shutil.copy)(source, target)
            package = os.path.join(folder, "package")
            build(os.path.join(folder, "source"), os.path.join(folder, "build"), "-DCMAKE_INSTALL_PREFIX=" + package,
                  "-DBUILD_SHARED_LIBS=OFF", *("-D%s=OFF" % name for name in re.findall(r"VMM_BUILD_\w+", recipe)))
            output(CMAKE, "--install", os.path.join(folder, "build"))
            self.use(package, os.path.join(folder, "consumer"))

    def use(self, package, folder):
        """Builds the example of README.md with an installed package, and runs it."""
        os.makedirs(folder)
        shutil.copy(os.path.join(ROOT, "tests", "install", "example.c"), folder)
        with open(os.path.join(folder, "CMakeLists.txt"), "w", encoding="utf-8") as file:
            file.write(CONSUMER)
        build(folder, os.path.join(folder, "build"), "-DCMAKE_PREFIX_PATH=" + package)
        self.assertIn("live", output(os.path.join(folder, "build", "consumer")))


class Wheel(unittest.TestCase):
    def folder_with(self, library):
        """Of a wheel's contents."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        os.mkdir(os.path.join(folder.name, "vmmcache"))
        with open(os.path.join(folder.name, "vmmcache", "libvmmcache_torch.so"), "wb") as file:
            file.write(library)
        return folder.name

    def test_its_name_says_for_which_processor_the_library_is(self):
        for number, machine in ((62, "x86_64"), (183, "aarch64")):
            folder = self.folder_with(b"\x7fELF" + bytes(14) + number.to_bytes(2, "little"))
            path = output(sys.executable, "-B", WHEEL_PY, folder, VERSION, folder).split()[-1]
            self.assertTrue(path.endswith("-py3-none-linux_%s.whl" % machine), path)
            with zipfile.ZipFile(path) as archive:
                name = next(name for name in archive.namelist() if name.endswith("/WHEEL"))
                self.assertIn("Tag: py3-none-linux_%s\n" % machine, archive.read(name).decode())

    def test_what_is_no_library_is_refused(self):
        for content in (b"", b"\x7fELF", b"\x7fELF" + bytes(16), b"text, which is no library"):
            folder = self.folder_with(content)
            ended = subprocess.run([sys.executable, "-B", WHEEL_PY, folder, VERSION, folder], capture_output=True,
                                   text=True, check=False)
            self.assertEqual(ended.returncode, 1)
            self.assertIn("is no library for x86_64 or aarch64", ended.stderr)
            self.assertEqual(os.listdir(folder), ["vmmcache"])


class WheelBackend(unittest.TestCase):
    def test_a_wheel_by_the_backend(self):
        try:
            __import__("scikit_build_core")
        except ImportError:
            self.skipTest("scikit-build-core is missing (pip install scikit-build-core)")
        with tempfile.TemporaryDirectory() as folder:
            output(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", folder,
                   os.path.join(ROOT, "tools", "python"))
            self.assertEqual([name.split("-")[:2] for name in os.listdir(folder)], [["vmmcache", VERSION]])


def main():
    tests = unittest.defaultTestLoader.loadTestsFromTestCase(globals()[CASE])
    result = unittest.TextTestRunner(verbosity=2).run(tests)
    if not result.wasSuccessful() or not result.testsRun:
        return 1
    return SKIPPED if result.skipped else 0


sys.exit(main())
