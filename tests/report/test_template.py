"""The template that is checked in is what was built last from the sources. tools/report/build.sh --check builds it."""
import hashlib
import os
import re
import unittest

from vmmcache import report_pack

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "report")


def hash_of_sources():
    """As build.mjs computes it."""
    names = sorted(["build.mjs", "package-lock.json", "package.json", "tsconfig.json",
                    *("src/" + name for name in os.listdir(os.path.join(SOURCES, "src")))])
    found = hashlib.sha256()
    for name in names:
        with open(os.path.join(SOURCES, name), "rb") as file:
            found.update(name.encode() + b"\0" + file.read() + b"\0")
    return found.hexdigest()


class TemplateTest(unittest.TestCase):
    def setUp(self):
        with open(report_pack.TEMPLATE, encoding="utf-8") as file:
            self.template = file.read()

    def test_it_is_built_from_these_sources(self):
        built = re.search(r'<meta name="source" content="(\w+)"', self.template).group(1)
        self.assertEqual(built, hash_of_sources(), "run tools/report/build.sh")

    def test_it_names_no_host_and_forbids_the_network(self):
        self.assertIn("default-src 'none'", self.template)
        for address in re.findall(r"(?:src|href|url)\s*[=(]\s*[\"']?\w+://[^\"' )]+", self.template):
            self.fail("it loads " + address)

    def test_the_lock_file_names_no_registry(self):
        with open(os.path.join(SOURCES, "package-lock.json"), encoding="utf-8") as file:
            lock = file.read()
        self.assertIn('"integrity"', lock)
        self.assertNotIn("resolved", lock)
        self.assertNotIn("registry", lock)


if __name__ == "__main__":
    unittest.main()
