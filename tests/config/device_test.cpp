#include <rlalgo/config/device.hpp>

#include <string>

#include <rlalgo/config/parse.hpp>
#include <rlalgo/tensor/cuda_library.hpp>

#include <support/catch.hpp>
#include <support/not_run.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using support::lacks;
using support::raised_by;

namespace {

config::RunConfig read(const support::ScratchDirectory& scratch, const std::string& more) {
  return config::load_run_config(scratch.write("c.yaml",
                                               "rl: grpo\nbase_model: m\nlearning_rate: 1e-5\ndatasets: [{path: "
                                               "d.jsonl}]\nmicro_batch_size: 8\ntrl: {reward_funcs: [r.f]}\n" +
                                                   more));
}

}  // namespace

TEST_CASE("the CPU is the device where there is no GPU, and none of its settings") {
  const support::ScratchDirectory scratch;
  CHECK(config::device_of(read(scratch, "device: cpu\n")).is_cpu());
  CHECK_FALSE(read(scratch, "device: cpu\n").settings.contains("device"));
  support::needs(!tensor::find_cuda_driver(), "this machine has a driver of NVIDIA's");
  CHECK(config::device_of(read(scratch, "")).is_cpu());
  CHECK(config::device_of(read(scratch, "device: auto\n")).is_cpu());
  CHECK(lacks(raised_by([&] { (void)read(scratch, "device: cuda\n"); }), {"tensor.8"}) == "");
  CHECK(lacks(raised_by([&] { (void)read(scratch, "device: cuda:3\n"); }), {"tensor.8"}) == "");
}

TEST_CASE("a name of no device is refused with its line") {
  const support::ScratchDirectory scratch;
  for (const char* name : {"gpu", "cuda:", "cuda:-1", "mps", "CUDA"})
    CHECK(lacks(raised_by([&] { (void)read(scratch, "device: \"" + std::string(name) + "\"\n"); }),
                {"config.6", "auto, cpu, cuda or cuda:N", "c.yaml:7"}) == "");
}

TEST_CASE("what a device does not compute is refused by its key") {
  config::RunConfig run;
  run.device = "cuda:0";
  CHECK_NOTHROW(config::check_device(run));
  for (const char* name : {"adamw_bnb_8bit", "adamw_8bit", "paged_adamw_8bit", "lion_32bit", "adafactor", "muon"}) {
    run.optimizer = name;
    CHECK_NOTHROW(config::check_device(run));
  }
  const auto said = [&] { return raised_by([&] { config::check_device(run); }); };
  for (const char* name : {"none", "int8", "fp8"})
    for (const char* element : {"auto", "fp8", "fp8_e4m3"}) {
      run.trl.generation_quantization = name;
      run.trl.generation_kv_cache_dtype = element;
      run.device = "cuda:0";
      CHECK_NOTHROW(config::check_device(run));
      run.device = "cpu";
      if (std::string(name) == "fp8")
        CHECK(lacks(said(), {"config.44", "trl.generation_quantization: fp8", "device: cpu", "set int8"}) == "");
      else if (std::string(element) != "auto")
        CHECK(lacks(said(), {"config.44", "trl.generation_kv_cache_dtype", "device: cpu", "leave it out"}) == "");
      else
        CHECK_NOTHROW(config::check_device(run));
    }
}

TEST_CASE("a rank's GPU is that of its place on the machine") {
  {
    const support::ScopedVariable rank("LOCAL_RANK", "3");
    CHECK(config::local_rank() == 3);
  }
  if (std::getenv("LOCAL_RANK") == nullptr) CHECK(config::local_rank() == 0);
}
