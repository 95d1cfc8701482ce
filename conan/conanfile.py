"""Conan 2 recipe of rlalgo, a header-only library. See README.md in this folder."""

import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load
from conan.tools.gnu import PkgConfigDeps


class Rlalgo(ConanFile):
    name = "rlalgo"
    description = "Post-training of language models by reinforcement and preference learning, on LibTorch"
    license = "MIT"
    topics = ("reinforcement-learning", "language-models", "grpo", "libtorch", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    # system_dependencies: json, range-v3, PCRE2, Boost, ICU, Eigen and yaml-cpp come from the system instead of from Conan.
    options = {"system_dependencies": [True, False]}
    default_options = {"system_dependencies": False}
    no_copy_source = True

    def set_version(self):
        project = load(self, os.path.join(self.recipe_folder, "..", "CMakeLists.txt"))
        self.version = re.search(r"project\(rlalgo VERSION (\S+)", project).group(1)

    def export_sources(self):
        root = os.path.join(self.recipe_folder, "..")
        for pattern in ("CMakeLists.txt", "LICENSE", "cmake/*", "include/*"):
            copy(self, pattern, src=root, dst=self.export_sources_folder)

    def layout(self):
        cmake_layout(self)

    def requirements(self):
        if self.options.system_dependencies:
            return
        self.requires("nlohmann_json/3.11.3", transitive_headers=True)
        self.requires("range-v3/0.12.0", transitive_headers=True)
        self.requires("pcre2/10.42", transitive_headers=True)
        self.requires("icu/72.1", transitive_headers=True)
        self.requires("zlib/[>=1.2.13 <2]", transitive_headers=True)
        self.requires("boost/1.86.0", transitive_headers=True, options={"header_only": True})
        self.requires("eigen/3.4.0", transitive_headers=True)
        self.requires("yaml-cpp/0.7.0", transitive_headers=True)

    def validate(self):
        check_min_cppstd(self, 20)
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("rlalgo is built and tested on Linux only")

    def package_id(self):
        self.info.clear()

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables.update(RLALGO_BUILD_TESTS=False, RLALGO_BUILD_EXAMPLES=False)
        toolchain.generate()
        if not self.options.system_dependencies:
            CMakeDeps(self).generate()
            PkgConfigDeps(self).generate()

    def build(self):
        CMake(self).configure()  # finds the dependencies, LibTorch among them; there is nothing to compile

    def package(self):
        CMake(self).install(component="Development")
        copy(self, "LICENSE", src=self.source_folder, dst=os.path.join(self.package_folder, "licenses"))

    def package_info(self):
        # Our own rlalgoConfig.cmake defines the targets and finds the dependencies again.
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("lib", "cmake", "rlalgo")]
