# Copyright lopt contributors
#
# SPDX-License-Identifier: Apache-2.0

from spack.package import *

try:  # Spack 1.0 and later
    from spack_repo.builtin.build_systems.cmake import CMakePackage, generator
except ImportError:  # earlier ones have them in spack.package
    pass


class Lopt(CMakePackage):
    """Meta-training of learned optimizers: optimizers whose update rule is a small
    neural network, trained so that it trains other models well."""

    # There is no public home yet: a version is installed from a checkout, by
    # `spack dev-build lopt@0.2.0` there.

    license("Apache-2.0")

    version("0.2.0")

    variant("mpi", default=True, description="Meta-training on many processes by MPI")
    variant("grpc", default=True, description="Workers that come and go, over gRPC")
    variant("torch", default=False, description="Tasks and optimizers written with LibTorch")
    variant("python", default=False, description="The Python package")
    variant("shared", default=False, description="Shared libraries; static ones are faster")

    depends_on("c", type="build", when="+mpi")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")

    # What the library's headers include, and what its static libraries are linked with, a
    # program that is built on it needs as well.
    depends_on("eigen@3.4")
    depends_on("fmt")
    depends_on("nlohmann-json")
    depends_on("spdlog+fmt_external")
    depends_on("highway@1.0.3:")
    depends_on("libzip")
    depends_on("libpng")
    depends_on("zlib-api")
    depends_on("protobuf")
    depends_on("boost+context+program_options")
    depends_on("tbb")

    depends_on("mpi", when="+mpi")
    depends_on("grpc", when="+grpc")
    depends_on("py-torch", when="+torch")

    with when("+python"):
        extends("python")
        depends_on("python@3.10:", type=("build", "link", "run"))
        depends_on("py-nanobind@3:", type="build")
        depends_on("py-numpy@1.24:", type=("build", "run"))

    # The kernels have std::bit_cast, std::span and concepts.
    conflicts("%gcc@:11", msg="lopt is written in C++20, which g++ has from version 12 on")

    generator("ninja")

    def cmake_args(self):
        return [
            self.define_from_variant("LOPT_MPI", "mpi"),
            self.define_from_variant("LOPT_GRPC", "grpc"),
            self.define_from_variant("LOPT_TORCH", "torch"),
            self.define_from_variant("LOPT_PYTHON", "python"),
            self.define_from_variant("BUILD_SHARED_LIBS", "shared"),
            self.define("LOPT_CUDA", False),
            self.define("BUILD_TESTING", False),
            self.define("CMAKE_UNITY_BUILD", True),
            self.define("CMAKE_INSTALL_LIBDIR", "lib"),  # and not lib64, for LOPT_MODULE_DIR
        ]

    @run_after("install", when="+python")
    def install_python(self):
        cmake = which("cmake")
        cmake("--install", self.builder.build_directory, "--component", "python",
              "--prefix", python_platlib)
        install_tree(join_path(self.stage.source_path, "python", "lopt"),
                     join_path(python_platlib, "lopt"))

    def setup_run_environment(self, env):
        # Programs of others find the torch module wherever the prefix is.
        if self.spec.satisfies("+torch"):
            env.set("LOPT_MODULE_DIR", self.prefix.lib.lopt)

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_install(self):  # spack install --test=root
        Executable(self.prefix.bin.lopt)("selftest", *self.selftest_words())

    def test_selftest(self):  # spack test run
        """lopt does here what it is known to do"""
        Executable(self.prefix.bin.lopt)("selftest", *self.selftest_words())

    def selftest_words(self):
        if self.spec.satisfies("+mpi"):
            return ["--mpiexec", self.spec["mpi"].prefix.bin.mpiexec]
        return []
