"""A recipe for Conan 2: conan create tools/packages/conan"""
import os
import re

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")


class Vmmcache(ConanFile):
    name = "vmmcache"
    license = "MIT"
    description = "Device memory for CUDA programs, without fragmentation"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False]}
    default_options = {"shared": True}

    def set_version(self):
        with open(os.path.join(ROOT, "include", "vmmcache", "vmmcache.h"), encoding="utf-8") as file:
            self.version = ".".join(re.findall(r"#define VMM_VERSION_(?:MAJOR|MINOR|PATCH) +(\d+)", file.read()))

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "include/*", "src/*", "tools/cmake/*"):
            copy(self, pattern, ROOT, self.export_sources_folder)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.variables["BUILD_SHARED_LIBS"] = self.options.shared
        for name in ("VMM_BUILD_TOOLS", "VMM_BUILD_TESTS", "VMM_BUILD_BENCH", "VMM_BUILD_TORCH", "VMM_BUILD_PRELOAD"):
            toolchain.variables[name] = False
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))

    def package_info(self):
        self.cpp_info.set_property("cmake_find_mode", "none")  # it installs a package of its own
        self.cpp_info.builddirs = [os.path.join("lib", "cmake", "vmmcache")]
        self.cpp_info.libs = ["vmmcache"]
        self.cpp_info.system_libs = ["pthread", "dl"]
