#include <rlalgo/model/merge_adapter.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/model/adapter_files.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/lora.hpp>
#include <rlalgo/model/tree_builder.hpp>

#include <support/catch.hpp>
#include <support/quantised.hpp>
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
      {"plain", "llama3_rope"},    {"patterns", "qwen2"},        {"dora", "qwen3"},  {"pissa", "llama"},
      {"head", "llama"},           {"norms", "qwen3"},           {"parts", "qwen2"}, {"experts", "qwen3_moe"},
      {"experts_down", "mixtral"}, {"experts_joined", "gpt_oss"}};
  for (const auto& [name, base] : cases) {
    const rlalgo::support::ScratchDirectory scratch;
    const auto target = scratch.path() / "merged";
    model::merge_adapter(golden / "model" / base, golden / "adapter" / name, target);
    const auto merged = model::load_decoder(target);
    const auto expected = model::read_safetensors(golden / "adapter" / name / "expected.safetensors");
    INFO(name);
    // The qwen3 checkpoint is bfloat16: merged weights are rounded to it.
    const double tolerance = base == "qwen3" ? 0.2 : 1e-4;
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

TEST_CASE("a merged directory has the embeddings that lie beside the adapter, and their vocabulary") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"stored_tied", "llama3_rope"},   {"stored_untied", "llama"},  {"resized_tied", "llama3_rope"},
      {"resized_untied", "llama"},      {"resized_input", "llama"},  {"resized_head", "llama3_rope"},
      {"resized_saved", "llama3_rope"}, {"all_norms", "llama3_rope"}};
  for (const auto& [name, base] : cases) {
    const rlalgo::support::ScratchDirectory scratch;
    model::merge_adapter(golden / "model" / base, golden / "adapter" / name, scratch.path() / "merged");
    const auto merged = model::load_decoder(scratch.path() / "merged");
    const auto expected = model::read_safetensors(golden / "adapter" / name / "expected.safetensors");
    INFO(name);
    CHECK((logits(*merged, expected.at("ids")) - expected.at("logits")).abs().max().item<double>() < 1e-4);
  }
}

TEST_CASE("a merged directory has a card of its own, and nothing of what was there before") {
  const rlalgo::support::ScratchDirectory scratch;
  const auto base = scratch.path() / "base", target = scratch.path() / "merged";
  std::filesystem::copy(golden / "model/llama", base);
  scratch.write("base/README.md", "the base");
  scratch.write("base/LICENSE", "theirs");
  std::filesystem::create_directory(target);
  scratch.write("merged/adapter_config.json", "{}");
  scratch.write("merged/model-00001-of-00002.safetensors", "");
  scratch.write("merged/notes.txt", "mine");
  model::merge_adapter(base, golden / "adapter/pissa", target);
  std::set<std::string> names;
  for (const auto& one : std::filesystem::directory_iterator(target)) names.insert(one.path().filename().string());
  CHECK(names == std::set<std::string>{"LICENSE", "README.md", "config.json", "generation_config.json",
                                       "model.safetensors", "notes.txt"});
  std::ifstream in(target / "README.md");
  const std::string card(std::istreambuf_iterator<char>(in), {});
  CHECK(lacks(card, {"base_model: llama\n", "library_name: transformers\n"}) == "");
  CHECK(card.find("the base") == std::string::npos);
}

TEST_CASE("a merge that cannot be right is refused and leaves nothing") {
  const rlalgo::support::ScratchDirectory scratch;
  const auto base = golden / "model/llama", adapter = golden / "adapter/plain";
  CHECK(lacks(raised_by([&] { model::merge_adapter(base, adapter, scratch.path() / "some/out"); }),
              {"model.30", "[3,36]", "[3,44]"}) == "");
  CHECK(std::filesystem::is_empty(scratch.path()));
  // What was there stays, and so it is where the last of the files has no place.
  const auto target = scratch.path() / "target";
  std::filesystem::copy(golden / "model/llama3_rope", target);
  const auto read = [&] {
    std::map<std::string, std::string> out;
    for (const auto& one : std::filesystem::directory_iterator(target)) {
      std::ifstream in(one.path(), std::ios::binary);
      out[one.path().filename().string()] = {std::istreambuf_iterator<char>(in), {}};
    }
    return out;
  };
  const auto before = read();
  CHECK(lacks(raised_by([&] { model::merge_adapter(base, adapter, target); }), {"model.30"}) == "");
  CHECK(read() == before);
  std::filesystem::remove(target / "config.json");
  std::filesystem::create_directory(target / "config.json");
  CHECK(lacks(raised_by([&] { model::merge_adapter(golden / "model/llama", golden / "adapter/pissa", target); }),
              {"os.1", "config.json"}) == "");
  CHECK(std::filesystem::is_empty(target / "config.json"));
  std::filesystem::remove(target / "config.json");
  std::filesystem::copy_file(golden / "model/llama3_rope/config.json", target / "config.json");
  CHECK(read() == before);
  CHECK(lacks(raised_by([&] { model::merge_adapter(base, adapter, adapter); }), {"model.31"}) == "");
  CHECK(lacks(raised_by([&] { model::merge_adapter(base, base, scratch.path() / "out"); }), {"model.28"}) == "");
}

TEST_CASE(
    "over a base in 4 or 8 bits the merged model is what the adapter was trained on, and the rounding is counted") {
  using support::ScratchDirectory;
  const std::vector<std::int64_t> numbers = {3, 61, 7, 20, 33, 41, 2, 58};
  const at::Tensor ids = at::tensor(numbers);
  const std::vector<std::pair<std::string, model::Quantisation>> cases = {
      {"llama_nf4", {}},
      {"qwen2_int8", {.code = model::WeightCode::int8}},
      {"phi3_nf4", {.skip = {"lm_head", "model.layers.1.mlp"}}},
      {"qwen3_moe_nf4", {}}};
  for (const auto& [name, how] : cases)
    for (const bool dora : {false, true})
      for (const bool in_files : {true, false}) {
        INFO(name << ", dora " << dora << ", quantised in its files " << in_files);
        const ScratchDirectory scratch;
        const auto base = golden / "quantised" / (in_files ? name : name + "_whole");
        const auto decoder = model::load_decoder(base, {.quantisation = how});
        support::adapt_quantised(*decoder, name, dora, 0.03);
        model::save_adapter(*decoder, scratch.path() / "adapter", base.string());
        const at::Tensor expected = logits(*decoder, ids);
        const model::MergeReport exact = model::merge_adapter(base, scratch.path() / "adapter", scratch.path() / "wide",
                                                              {.quantisation = how, .dtype = at::kFloat});
        CHECK(exact.quantised > 5);
        CHECK(exact.largest == 0.0);
        const auto wide = model::load_decoder(scratch.path() / "wide");
        CHECK((logits(*wide, ids) - expected).abs().max().item<double>() < 1e-4);
        CHECK_FALSE(wide->hf_config().json.contains("quantization_config"));
        const model::MergeReport report =
            model::merge_adapter(base, scratch.path() / "adapter", scratch.path() / "low", {.quantisation = how});
        CHECK(report.dtype == "bfloat16");
        CHECK(report.largest > report.mean());
        CHECK(report.mean() > 0.0);
        // A bfloat16 has 8 bits: half a unit of the last is 2⁻⁹ of the largest power of two below a number.
        double largest = 0.0;
        const model::CheckpointFiles low(scratch.path() / "low"), whole(scratch.path() / "wide");
        for (const auto& [tensor, place] : low.places()) {
          CHECK(place.entry->dtype == at::kBFloat16);
          largest =
              std::max(largest, (low.read(tensor).to(at::kFloat) - whole.read(tensor)).abs().max().item<double>());
        }
        CHECK(report.largest == Approx(largest));
        CHECK((logits(*model::load_decoder(scratch.path() / "low"), ids) - expected).abs().max().item<double>() < 0.5);
      }
}
