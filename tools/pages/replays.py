"""Runs programs of the build, each command once.

Imported by: plot_footprint.py, bars/bars.py, metatrace/report.py.
"""
import functools
import json
import subprocess
import sys


@functools.lru_cache(maxsize=None)
def output(*command):
    """What a program prints."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, text=True)
    if done.returncode not in (0, 1):  # fragtest ends with 1 if a policy failed
        sys.exit("error: %s ended with %d\n%s" % (" ".join(command), done.returncode, done.stderr[-2000:]))
    return done.stdout


def replay(fragtest, *options):
    """{(trace, policy): run}"""
    text = output(fragtest, "--driver", "sim", "--quiet", *options, "--json", "-")
    return {(run["trace"], run["policy"]): run for run in json.loads(text)["runs"]}
