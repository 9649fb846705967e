"""Ends programs in every way while a cache is in every state; each must exit with the expected status, not by a signal.

usage: exit_matrix.py DRIVER RUNS LIFE_EXIT LIFE_DLCLOSE LIBRARY

DRIVER is sim, host or cuda. Without a GPU cuda is skipped (77), unless VMM_REQUIRE_GPU=1.
"""
import os
import subprocess
import sys
import time

WAYS = ("return", "destroy", "thread", "_exit", "atexit_before", "atexit_after", "destructor",
        "first_thread", "signal")
STATES = ("live", "pending", "decay", "capture")
EXPECTED = 7
SKIPPED = 77
SECONDS = 60


def run(command):
    """Says how the program ended; empty if it ended as expected."""
    try:
        result = subprocess.run(command, timeout=SECONDS, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, check=False)
    except subprocess.TimeoutExpired:
        return "did not end within %d s" % SECONDS
    if result.returncode == EXPECTED:
        return ""
    if result.returncode < 0:
        return "ended by signal %d: %s" % (-result.returncode, result.stdout.strip())
    return "ended with status %d: %s" % (result.returncode, result.stdout.strip())


def device_is_missing(life_exit, driver):
    result = subprocess.run([life_exit, driver, "_exit", "live"], timeout=SECONDS,
                            stdout=subprocess.DEVNULL, check=False)
    return result.returncode == SKIPPED


def main(driver, runs, life_exit, life_dlclose, library):
    if device_is_missing(life_exit, driver) and os.environ.get("VMM_REQUIRE_GPU") != "1":
        print("exit_matrix: SKIPPED: no device for %s" % driver)
        return SKIPPED
    commands = [[life_exit, driver, way, state] for way in WAYS for state in STATES]
    commands += [[life_dlclose, library, driver, state] for state in STATES]
    faults = 0
    begin = time.monotonic()
    for command in commands * runs:
        fault = run(command)
        if fault:
            faults += 1
            print("%s: %s" % (" ".join(command[1:]), fault))
    print("exit_matrix: %s: %d programs in %.1f s, %d failed" %
          (driver, len(commands) * runs, time.monotonic() - begin, faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:]))
