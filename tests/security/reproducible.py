"""Checks that the same sources give identical libraries, whatever folders hold the sources and the build.

usage: reproducible.py CMAKE ROOT WORK LIBRARY... -- OPTION...

Builds a copy of the sources in another folder, with the options, and compares each LIBRARY with its counterpart.
"""
import os
import shutil
import subprocess
import sys


def run(*command):
    environment = dict(os.environ, CCACHE_DISABLE="1")
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
    if done.returncode != 0:
        print(done.stdout)
        sys.exit("reproducible: %s failed" % " ".join(command))


def copy_sources(root, work):
    """Copies the sources of the library to a folder whose name has another length; returns it."""
    to = os.path.join(work, "a", "copy", "of", "the", "sources")
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(to)
    shutil.copy(os.path.join(root, "CMakeLists.txt"), to)
    for folder in ("include", "src", "tools"):
        shutil.copytree(os.path.join(root, folder), os.path.join(to, folder))
    return to


def find(folder, name):
    for where, _, names in os.walk(folder):
        if name in names:
            return os.path.join(where, name)
    sys.exit("reproducible: %s was not built" % name)


def content(path):
    with open(path, "rb") as file:
        return file.read()


def main(cmake, root, work, *rest):
    libraries, options = rest[:rest.index("--")], rest[rest.index("--") + 1:]
    source, build = copy_sources(root, work), os.path.join(work, "build")
    run(cmake, "-S", source, "-B", build, "-DVMM_BUILD_TOOLS=OFF", "-DVMM_BUILD_TESTS=OFF",
        "-DVMM_BUILD_BENCH=OFF", *options)
    run(cmake, "--build", build, "--parallel", "2")
    differ = [path for path in libraries
              if content(path) != content(find(build, os.path.basename(path)))]
    for path in differ:
        print("%s differs from the one built in %s" % (path, build))
    if not differ:
        shutil.rmtree(work)
    print("reproducible: %d libraries, %d differ" % (len(libraries), len(differ)))
    sys.exit(1 if differ or not libraries else 0)


main(*sys.argv[1:])
