#include <rlalgo/model/save.hpp>

#include <fstream>
#include <sstream>
#include <string>

#include <ATen/ATen.h>

#include <rlalgo/model/load.hpp>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;

namespace {

const auto golden = std::filesystem::path(rlalgo::support::test_dir) / "golden/model";

std::string read_file(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream out;
  out << stream.rdbuf();
  return out.str();
}

}  // namespace

TEST_CASE("loading and saving gives the bytes that transformers wrote") {
  const rlalgo::support::ScratchDirectory scratch;
  for (const std::string name : {"llama", "llama3_rope"}) {
    model::save_decoder(*model::load_decoder(golden / name), scratch.path());
    CHECK(read_file(scratch.path() / "model.safetensors") == read_file(golden / name / "model.safetensors"));
    CHECK(read_file(scratch.path() / "config.json") == read_file(golden / name / "config.json"));
  }
  // A bf16 file that is trained in bf16 stays one.
  model::save_decoder(*model::load_decoder(golden / "qwen3", at::kBFloat16), scratch.path());
  CHECK(read_file(scratch.path() / "model.safetensors") == read_file(golden / "qwen3/model.safetensors"));
  CHECK(read_file(scratch.path() / "config.json") == read_file(golden / "qwen3/config.json"));
}

TEST_CASE("config.json names the dtype of the file in the spelling it came in") {
  const rlalgo::support::ScratchDirectory scratch;
  model::save_decoder(*model::load_decoder(golden / "qwen3"), scratch.path());
  auto json = model::Json::parse(read_file(scratch.path() / "config.json"));
  CHECK(json["dtype"] == "float32");
  CHECK_FALSE(json.contains("torch_dtype"));
  model::save_decoder(*model::load_decoder(golden / "llama", at::kBFloat16), scratch.path());
  json = model::Json::parse(read_file(scratch.path() / "config.json"));
  CHECK(json["torch_dtype"] == "bfloat16");
  CHECK_FALSE(json.contains("dtype"));
  CHECK(json["rope_theta"] == 500.0);
  CHECK_FALSE(json.contains("rope_parameters"));
  CHECK(model::load_decoder(scratch.path())->dtype() == at::kFloat);
}

TEST_CASE("a model computed in float32 is saved in the dtype of its files, if asked") {
  const rlalgo::support::ScratchDirectory scratch;
  const model::SaveOptions stored{.dtype = model::SavedDtype::stored};
  model::save_decoder(*model::load_decoder(golden / "qwen3"), scratch.path(), stored);
  CHECK(read_file(scratch.path() / "model.safetensors") == read_file(golden / "qwen3/model.safetensors"));
  CHECK(read_file(scratch.path() / "config.json") == read_file(golden / "qwen3/config.json"));
  // Each tensor for itself: norms of float32 in a file of bfloat16.
  auto mixed = model::read_safetensors(golden / "qwen3/model.safetensors");
  std::vector<model::NamedTensor> tensors;
  for (const auto& [name, value] : mixed)
    tensors.emplace_back(name, value.dim() == 1 ? value.to(at::kFloat).add(1e-4) : value);
  std::filesystem::copy_file(
      golden / "qwen3/config.json", scratch.path() / "mixed/config.json",
      (std::filesystem::create_directory(scratch.path() / "mixed"), std::filesystem::copy_options::none));
  model::write_safetensors(scratch.path() / "mixed/model.safetensors", tensors);
  model::save_decoder(*model::load_decoder(scratch.path() / "mixed"), scratch.path() / "again", stored);
  CHECK(read_file(scratch.path() / "again/model.safetensors") == read_file(scratch.path() / "mixed/model.safetensors"));
  CHECK(model::Json::parse(read_file(scratch.path() / "again/config.json"))["dtype"] == "bfloat16");
  // Bits that are not there are not added.
  model::save_decoder(*model::load_decoder(golden / "llama", at::kBFloat16), scratch.path() / "low", stored);
  for (const auto& [name, value] : model::read_safetensors(scratch.path() / "low/model.safetensors"))
    CHECK(value.scalar_type() == at::kBFloat16);
  // A decoder of no file is saved as it is.
  auto json = model::Json::parse(read_file(golden / "qwen3/config.json"));
  model::save_decoder(*model::random_decoder(model::parse_hf_config(json, "test"), 1), scratch.path() / "none", stored);
  CHECK(model::Json::parse(read_file(scratch.path() / "none/config.json"))["dtype"] == "float32");
}

TEST_CASE("generation_config.json is the given one, or holds the token ids of config.json") {
  const rlalgo::support::ScratchDirectory scratch;
  const auto policy = model::load_decoder(golden / "llama3_rope");
  model::save_decoder(*policy, scratch.path() / "deep/er");
  CHECK(model::read_generation_config(scratch.path() / "deep/er")->eos_token_ids == std::vector<std::int64_t>{2, 4});
  model::save_decoder(*policy, scratch.path(),
                      {.generation_config = model::Json{{"eos_token_id", 9}, {"temperature", 0.5}}});
  CHECK(model::eos_token_ids(scratch.path()) == std::vector<std::int64_t>{9});
}

TEST_CASE("a sharded save loads to the same weights") {
  const rlalgo::support::ScratchDirectory scratch;
  const auto policy = model::load_decoder(golden / "qwen2");
  model::save_decoder(*policy, scratch.path(), {.shard_limit = 30'000});
  CHECK_FALSE(std::filesystem::exists(scratch.path() / "model.safetensors"));
  const auto back = model::load_decoder(scratch.path());
  const auto a = policy->named_tensors(), b = back->named_tensors();
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) CHECK((a[i].first == b[i].first && a[i].second.equal(b[i].second)));
}

TEST_CASE("a place that cannot be written is an error with the system's reason") {
  const rlalgo::support::ScratchDirectory scratch;
  scratch.write("file", "");
  const auto policy = model::load_decoder(golden / "llama");
  CHECK(rlalgo::support::lacks(
            rlalgo::support::raised_by([&] { model::save_decoder(*policy, scratch.path() / "file/model"); }),
            {"os.1", "Not a directory"}) == "");
}
