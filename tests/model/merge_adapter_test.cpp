#include <rlalgo/model/merge_adapter.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/model/load.hpp>
#include <rlalgo/model/tree_builder.hpp>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

namespace {

const std::filesystem::path golden = std::filesystem::path(rlalgo::support::test_dir) / "golden";

at::Tensor logits(model::Decoder& decoder, const at::Tensor& ids) {
  const std::vector<std::int32_t> tokens(ids.const_data_ptr<std::int64_t>(),
                                         ids.const_data_ptr<std::int64_t>() + ids.numel());
  const std::vector<model::Sequence> rows = {{tokens, {}}};
  return decoder.logits(model::build_tree(rows, {.keep_last = true}));
}

}  // namespace

TEST_CASE("a merged directory computes what base and adapter do, sharded, tied or not") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"plain", "llama3_rope"}, {"patterns", "qwen2"}, {"dora", "qwen3"}, {"pissa", "llama"}, {"head", "llama"}};
  for (const auto& [name, base] : cases) {
    const rlalgo::support::ScratchDirectory scratch;
    const auto target = scratch.path() / "merged";
    model::merge_adapter(golden / "model" / base, golden / "adapter" / name, target);
    const auto merged = model::load_decoder(target);
    const auto expected = model::read_safetensors(golden / "adapter" / name / "expected.safetensors");
    INFO(name);
    // The qwen3 checkpoint is bfloat16: merged weights are rounded to it.
    const double tolerance = name == "dora" ? 0.2 : 1e-4;
    CHECK((logits(*merged, expected.at("ids")) - expected.at("logits")).abs().max().item<double>() < tolerance);
    CHECK(std::filesystem::exists(target / "generation_config.json"));
    CHECK_FALSE(std::filesystem::exists(target / "adapter_config.json"));
    const model::CheckpointFiles before(golden / "model" / base), after(target);
    for (const auto& [tensor, place] : before.places()) {
      CHECK(after.places().at(tensor).entry->dtype == place.entry->dtype);
      CHECK(after.places().at(tensor).file->path().filename() == place.file->path().filename());
    }
  }
}

TEST_CASE("a merge that cannot be right is refused and writes no config.json") {
  const rlalgo::support::ScratchDirectory scratch;
  const auto base = golden / "model/llama", adapter = golden / "adapter/plain";
  CHECK(lacks(raised_by([&] { model::merge_adapter(base, adapter, scratch.path() / "out"); }),
              {"model.30", "[3,36]", "[3,44]"}) == "");
  CHECK_FALSE(std::filesystem::exists(scratch.path() / "out/config.json"));
  CHECK(lacks(raised_by([&] { model::merge_adapter(base, adapter, adapter); }), {"model.31"}) == "");
  CHECK(lacks(raised_by([&] { model::merge_adapter(base, base, scratch.path() / "out"); }), {"model.28"}) == "");
}
