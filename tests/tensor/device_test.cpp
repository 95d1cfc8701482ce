#include <rlalgo/tensor/device.hpp>

#include <optional>
#include <string>

#include <rlalgo/tensor/cuda_library.hpp>
#include <rlalgo/tensor/detail/numbered_gpu.hpp>

#include <support/catch.hpp>
#include <support/not_run.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using support::exit_code_of;
using support::lacks;
using support::number_raised_by;
using support::raised_by;

TEST_CASE("names of devices") {
  for (const char* name : {"auto", "cpu", "cuda", "cuda:0", "cuda:12"}) CHECK(tensor::is_device_name(name));
  for (const char* name : {"", "gpu", "CUDA", "cuda:", "cuda:-1", "cuda:x", "cuda:1x", "cuda:99999", "cuda 0", "mps",
                           "meta", "cpu:0", "privateuseone"})
    CHECK_FALSE(tensor::is_device_name(name));
}

TEST_CASE("the CPU is chosen by name, and by auto where there is no GPU") {
  CHECK(tensor::choose_device("cpu").device.is_cpu());
  CHECK(tensor::choose_device("cpu").note.empty());
  const std::string unknown = raised_by([] { (void)tensor::choose_device("gpu", 0, 1, "config.yaml:3"); });
  CHECK(lacks(unknown, {"tensor.12", "found gpu", "cuda or cuda:N", "config.yaml:3"}) == "");
  CHECK(exit_code_of([] { (void)tensor::choose_device("gpu"); }) == 2);
  CHECK(lacks(raised_by([] { (void)tensor::choose_device("cuda:1", 0, 2); }), {"tensor.12", "for 2 ranks"}) == "");
  support::needs(!tensor::find_cuda_driver(), "this machine has a driver of NVIDIA's");
  CHECK(tensor::choose_device("auto").device.is_cpu());
  CHECK(tensor::choose_device("auto").note.empty());
  for (const char* name : {"cuda", "cuda:0"})
    CHECK(number_raised_by([&] { (void)tensor::choose_device(name); }) == "tensor.8");
}

TEST_CASE("a GPU that is not there is named with those that are") {
  CHECK(lacks(raised_by([] { (void)tensor::detail::numbered_gpu(2, 2, "device"); }),
              {"tensor.13", "cuda:2", "cuda:0 to cuda:1"}) == "");
  CHECK(lacks(raised_by([] { (void)tensor::detail::numbered_gpu(1, 1, "device"); }), {"tensor.13", "the only one"}) ==
        "");
  CHECK(tensor::detail::numbered_gpu(1, 2, "device") == at::Device("cuda:1"));
}

TEST_CASE("of the CPU's memory a device says nothing, and there is nothing to give back") {
  CHECK(tensor::device_memory(at::Device(at::kCPU)).total == 0);
  CHECK(tensor::device_memory(at::Device(at::kMeta)).total == 0);
  tensor::release_unused_memory(at::Device(at::kCPU));
}

TEST_CASE("running out of a device's memory says what was asked for and what helps") {
  const auto full = []() -> int {
    C10_THROW_ERROR(OutOfMemoryError,
                    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.18 GiB of which "
                    "1.50 GiB is free. If reserved but unallocated memory is large try setting X");
  };
  const std::string text =
      raised_by([&] { tensor::with_memory_errors(at::Device(at::kCPU), "lower micro_batch_size", full); });
  CHECK(lacks(text, {"tensor.14", "Tried to allocate 2.00 GiB", "1.50 GiB is free", "lower micro_batch_size"}) == "");
  CHECK(text.find("If reserved") == std::string::npos);
  CHECK(tensor::with_memory_errors(at::Device(at::kCPU), "", [] { return 7; }) == 7);
}
