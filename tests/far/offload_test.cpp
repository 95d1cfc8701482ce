// Inputs of layers that leave the device between the passes: to the host's memory, to a file. The weights that a run ends with are the same.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/config/parse.hpp>
#include <rlalgo/config/train.hpp>

#include <support/catch.hpp>
#include <support/far_device.hpp>
#include <support/far_kernels.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
namespace fs = std::filesystem;

namespace {

const fs::path quickstart = fs::path(support::test_dir).parent_path() / "examples" / "quickstart";
constexpr int layers = 4;  // of its model

struct Run {
  std::string bytes;  // of the weights
  support::far::Counts counts;
};

// A step of two micro-batches.
Run run(const support::ScratchDirectory& scratch, const std::string& more) {
  std::string pairs;
  for (int i = 0; i < 8; ++i)
    pairs += nlohmann::json{{"prompt", std::to_string(i) + " + 1 ="},
                            {"chosen", " " + std::to_string(i + 1)},
                            {"rejected", " apples and pears"}}
                 .dump() +
             "\n";
  const fs::path data = scratch.write("pairs.jsonl", pairs), out = scratch.path() / "out";
  fs::remove_all(out);
  const auto config = config::load_run_config(scratch.write(
      "c.yaml", "base_model: " + (quickstart / "model").string() +
                    "\nrl: dpo\nmicro_batch_size: 2\ngradient_accumulation_steps: 2\nmax_steps: 1\n"
                    "save_strategy: \"no\"\nsequence_len: 64\nlearning_rate: 1.0e-3\ndatasets:\n  - path: " +
                    data.string() + "\noutput_dir: " + out.string() + "\ndevice: far:0\n" + more));
  const auto before = support::far::counts();
  (void)config::train(config);
  Run found{{}, support::far::counts().since(before)};
  const fs::path file =
      fs::exists(out / "model.safetensors") ? out / "model.safetensors" : out / "adapter_model.safetensors";
  std::ifstream in(file, std::ios::binary);
  found.bytes.assign(std::istreambuf_iterator<char>(in), {});
  return found;
}

}  // namespace

TEST_CASE(
    "activation_offloading leaves the bytes of the weights what they are, with kernels and a base in bits, and adds no "
    "wait") {
  support::far::device();
  const support::ScratchDirectory scratch;
  const std::string again = "gradient_checkpointing: true\n",
                    qlora = "adapter: qlora\nload_in_4bit: true\nlora_r: 4\nlora_alpha: 8\nlora_target_linear: true\n",
                    dropout = "lora_dropout: 0.1\n";
  struct Case {
    std::string keys;
    bool kernels;
  };
  for (const auto& [keys, kernels] : {Case{"", false}, Case{"bf16: true\n", true}, Case{qlora, false},
                                      Case{qlora + dropout + "bf16: true\n", true}}) {
    std::unique_ptr<support::far::WithKernels> with;
    if (kernels) with = std::make_unique<support::far::WithKernels>();
    const Run device = run(scratch, keys + again), host = run(scratch, keys + again + "activation_offloading: true\n"),
              disk = run(scratch, keys + again + "activation_offloading: disk\n");
    CAPTURE(keys, kernels);
    CHECK(device.bytes.size() > 1000);
    CHECK(host.bytes == device.bytes);
    CHECK(disk.bytes == device.bytes);
    // Of each micro-batch the input of each layer goes out and comes back, once; asked for behind each other, no host waits.
    const std::int64_t moved = 2 * layers;
    for (const Run* one : {&host, &disk}) {
      CHECK(one->counts.copies_out == device.counts.copies_out + moved);
      CHECK(one->counts.copies_in == device.counts.copies_in + moved);
      CHECK(one->counts.scalars == device.counts.scalars);
      CHECK(one->counts.waits == device.counts.waits);
    }
    if (kernels) CHECK(device.counts.kernels > 0);
  }
}
