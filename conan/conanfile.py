"""Conan 2 recipe of rlalgo. See README.md in this folder."""

import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load
from conan.tools.gnu import PkgConfigDeps
from conan.tools.scm import Version


class Rlalgo(ConanFile):
    name = "rlalgo"
    description = "Post-training of language models by reinforcement and preference learning, on LibTorch"
    license = "MIT"
    author = "The rlalgo authors"
    url = "https://github.com/rlalgo/rlalgo"
    homepage = "https://github.com/rlalgo/rlalgo"
    topics = ("reinforcement-learning", "language-models", "grpo", "libtorch", "header-only")
    settings = "os", "arch", "compiler", "build_type"
    # compiled: rlalgo::compiled and its parts, too: compiled here, which needs LibTorch (RLALGO_TORCH_ROOT). Without it the
    #     package holds headers, and neither LibTorch nor another dependency is needed to make it.
    # device: cuda adds the project's own CUDA kernels (rlalgo::cuda), for projects with the CUDA language.
    # system_dependencies: json, range-v3, PCRE2, Boost, ICU, Eigen and yaml-cpp come from the system instead of from Conan.
    options = {"compiled": [True, False], "device": ["cpu", "cuda"], "system_dependencies": [True, False]}
    default_options = {"compiled": False, "device": "cpu", "system_dependencies": False}
    no_copy_source = True
    minimum_compilers = {"gcc": "12", "clang": "14"}

    def set_version(self):
        project = load(self, os.path.join(self.recipe_folder, "..", "CMakeLists.txt"))
        self.version = re.search(r"project\(rlalgo VERSION (\S+)", project).group(1)

    def export_sources(self):
        root = os.path.join(self.recipe_folder, "..")
        for pattern in ("CMakeLists.txt", "LICENSE", "cmake/*", "include/*"):
            copy(self, pattern, src=root, dst=self.export_sources_folder)

    def configure(self):
        self.package_type = "static-library" if self.options.compiled else "header-library"

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
        least = self.minimum_compilers.get(str(self.settings.compiler))
        if least is None or Version(self.settings.compiler.version) < least:
            raise ConanInvalidConfiguration(f"rlalgo needs gcc {self.minimum_compilers['gcc']} or clang {self.minimum_compilers['clang']}, or newer; "
                                            f"this is {self.settings.compiler} {self.settings.compiler.version}")

    def package_id(self):
        if not self.info.options.compiled:
            device = str(self.info.options.device)
            self.info.clear()
            self.info.options.device = device

    def generate(self):
        compiled = bool(self.options.compiled)
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables.update(RLALGO_BUILD_TESTS=False, RLALGO_BUILD_EXAMPLES=False, RLALGO_INSTALL_COMPILED=compiled,
                                         RLALGO_FIND_DEPENDENCIES=compiled, RLALGO_CUDA="ON" if self.options.device == "cuda" else "OFF")
        toolchain.generate()
        if compiled and not self.options.system_dependencies:
            CMakeDeps(self).generate()
            PkgConfigDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        if self.options.compiled:
            cmake.build()

    def package(self):
        CMake(self).install(component="Development")
        copy(self, "LICENSE", src=self.source_folder, dst=os.path.join(self.package_folder, "licenses"))

    def package_info(self):
        # Our own rlalgoConfig.cmake defines the targets and finds the dependencies again.
        self.cpp_info.bindirs = []
        if not self.options.compiled:
            self.cpp_info.libdirs = []
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("lib", "cmake", "rlalgo")]
