"""Makes the wheel, checks its RECORD, installs it offline into an environment of its own and uses it there.

usage: use_wheel.py CMAKE BUILD CONFIG WHEEL_PY VERSION FOLDER
"""
import base64
import csv
import hashlib
import io
import os
import shutil
import subprocess
import sys
import venv
import zipfile

SKIPPED = 77
USE = "import vmmcache; print(vmmcache.version(), vmmcache.memory_stats(0)['num_ooms'])"


def check_record(path):
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        record = next(name for name in names if name.endswith("/RECORD"))
        for name, digest, size in csv.reader(io.StringIO(archive.read(record).decode())):
            names.remove(name)
            if name == record:
                continue
            data = archive.read(name)
            found = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert digest == "sha256=" + found and int(size) == len(data), name
    assert not names, "RECORD does not know %s" % names


def output(*command, **more):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    for name in ("VMMCACHE_LIBRARY", "VMMCACHE_AUTOINSTALL"):
        environment.pop(name, None)
    environment.update(VMM_DRIVER="sim", PIP_DISABLE_PIP_VERSION_CHECK="1", **more)
    return subprocess.run(command, check=True, text=True, env=environment,
                          stdout=subprocess.PIPE).stdout.strip()


def use_start(python):
    """vmmcache.pth is read where packages are installed, and run needs nothing else there."""
    code = "import os, sys; print('vmmcache_auto' in sys.modules, os.environ.get('PYTHONPATH'))"
    assert output(python, "-c", code) == "False None"
    assert output(python, "-c", code, VMMCACHE_AUTOINSTALL="1") == "True None"
    with open("program.py", "w", encoding="ascii") as program:
        program.write(code)
    said = output(python, "-m", "vmmcache", "run", "program.py")
    assert said == "True None", said


def use_plug_in(python):
    """vLLM loads it in each of its processes, and it does nothing unless it is asked for."""
    code = ("from importlib.metadata import distribution\n"
            "found, = [point for point in distribution('vmmcache').entry_points "
            "if point.group == 'vllm.general_plugins']\n"
            "found.load()()\nimport vmmcache\nprint(found.name, vmmcache.is_installed())")
    said = output(python, "-c", code, VLLM_PLUGINS="")
    assert said == "vmmcache False", said


def use_report(command):
    with open("one.trace", "w", encoding="utf-8") as trace:
        trace.write("+ 1 4096 0\n- 1\n")
    output(command, "one.trace", "-o", "one.html")
    with open("one.html", encoding="utf-8") as page:
        assert '"operations":2' in page.read()


def main(cmake, build, config, wheel_py, version, folder):
    shutil.rmtree(folder, ignore_errors=True)
    contents = os.path.join(folder, "contents")
    output(cmake, "--install", build, "--config", config, "--prefix", contents, "--component", "python")
    path = output(sys.executable, "-B", wheel_py, contents, version, folder)
    check_record(path)
    try:
        import ensurepip  # noqa: F401
    except ImportError:
        print("skipped: this Python has no ensurepip")
        sys.exit(SKIPPED)
    place = os.path.join(folder, "environment")
    venv.create(place, with_pip=True)
    python = os.path.join(place, "bin", "python")
    output(python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", path)
    os.chdir(folder)
    said = output(python, "-c", USE)
    assert said == version + " 0", said
    use_start(python)
    use_plug_in(python)
    use_report(os.path.join(place, "bin", "vmmcache-report"))
    print("installed and used", path)


main(*sys.argv[1:])
