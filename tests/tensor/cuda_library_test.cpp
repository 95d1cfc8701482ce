#include <rlalgo/tensor/cuda_library.hpp>

#include <string>

#include <support/catch.hpp>
#include <support/fake_cuda_driver.hpp>
#include <support/not_run.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using support::lacks;
using support::number_raised_by;
using support::raised_by;
using support::ScopedVariable;

TEST_CASE("a driver says its version and its GPUs, and a machine without one has none") {
  CHECK_FALSE(tensor::find_cuda_driver("libno-such-driver.so.1").has_value());
  const ScopedVariable version("FAKE_CUDA_VERSION", "13010"), gpus("FAKE_CUDA_GPUS", "90 80");
  const auto driver = tensor::find_cuda_driver(support::fake_cuda_driver);
  REQUIRE(driver.has_value());
  CHECK(driver->version == 13010);
  CHECK(tensor::cuda_version_text(driver->version) == "13.1");
  REQUIRE(driver->gpus.size() == 2);
  CHECK(driver->gpus[1].name == "Fake GPU 1");
  CHECK((driver->gpus[0].major == 9 && driver->gpus[0].minor == 0 && driver->gpus[1].major == 8));
  CHECK(driver->gpus[0].bytes == std::size_t{80} << 30U);
  const ScopedVariable broken("FAKE_CUDA_INIT", "100");
  const auto none = tensor::find_cuda_driver(support::fake_cuda_driver);
  REQUIRE(none.has_value());
  CHECK(none->gpus.empty());
  CHECK(none->problem.find("error 100 (no GPU)") != std::string::npos);
  // A library that is no driver.
  CHECK(tensor::find_cuda_driver("libm.so.6")->problem.find("lacks functions") != std::string::npos);
}

TEST_CASE("what a wheel's version file says of its build") {
  const auto build =
      tensor::torch_build_of("/x/torch/lib",
                             "from typing import Optional\n__all__ = ['__version__']\n__version__ = '2.11.0+cu130'\n"
                             "debug = False\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n");
  CHECK(build.version == "2.11.0+cu130");
  CHECK(build.cuda == "13.0");
  CHECK(build.folder == "/x/torch/lib");
  CHECK(tensor::torch_build_of("", "cuda: Optional[str] = None\n").cuda.empty());
  CHECK(tensor::torch_build_of("", "").version.empty());
  CHECK(tensor::torch_build().folder.find("/lib") != std::string::npos);
}

TEST_CASE("what stands in the way of a GPU is said by number, with the remedy") {
  const tensor::TorchBuild build{.folder = "/x", .version = "2.11.0+cu130", .cuda = "13.0"};
  tensor::CudaDriver driver{.version = 13000, .gpus = {{"H100", 9, 0, 1}}, .problem = {}};
  CHECK_NOTHROW(tensor::check_cuda_driver(driver, build));
  CHECK(lacks(raised_by([&] { tensor::check_cuda_driver(std::nullopt, build); }),
              {"tensor.8", "no libcuda.so.1", "device: cpu"}) == "");
  driver.version = 12090;
  CHECK(lacks(raised_by([&] { tensor::check_cuda_driver(driver, build); }),
              {"tensor.9", "a driver for CUDA 12.9", "CUDA 13.0 or newer", "2.11.0+cu130"}) == "");
  // A LibTorch that says nothing of its CUDA is tried.
  CHECK_NOTHROW(tensor::check_cuda_driver(driver, {.folder = "/x", .version = {}, .cuda = {}}));
  driver = {.version = 13000, .gpus = {{"H100", 9, 0, 1}, {"V100", 7, 0, 1}}, .problem = {}};
  CHECK(lacks(raised_by([&] { tensor::check_cuda_driver(driver, build); }), {"tensor.11", "V100", "7.0", "cuda:1"}) ==
        "");
  driver.gpus.clear();
  CHECK(lacks(raised_by([&] { tensor::check_cuda_driver(driver, build); }), {"tensor.8", "CUDA_VISIBLE_DEVICES"}) ==
        "");
}

TEST_CASE("CUDA is not loaded where there is no driver") {
  support::needs(!tensor::find_cuda_driver(), "this machine has a driver of NVIDIA's");
  CHECK(number_raised_by([] { (void)tensor::load_cuda(); }) == "tensor.8");
  CHECK_FALSE(tensor::cuda_is_loaded());
}

TEST_CASE("a process whose LibTorch does not see its CUDA half is told to load it first") {
  support::needs(!tensor::find_cuda_driver(), "this machine has a driver of NVIDIA's");
  CHECK(lacks(raised_by([] { tensor::check_cuda_is_seen({.folder = "/lib"}); }),
              {"tensor.10", "too late", "/lib", "choose_device"}) == "");
}
