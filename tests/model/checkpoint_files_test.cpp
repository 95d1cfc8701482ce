#include <rlalgo/model/checkpoint_files.hpp>

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

namespace {

std::set<std::string> names_in(const std::filesystem::path& directory) {
  std::set<std::string> out;
  for (const auto& item : std::filesystem::directory_iterator(directory)) out.insert(item.path().filename().string());
  return out;
}

}  // namespace

TEST_CASE("tensors above the limit are spread over shards with an index, and read back") {
  const rlalgo::support::ScratchDirectory scratch;
  const std::vector<model::NamedTensor> tensors = {
      {"a", at::randn({4})}, {"b", at::randn({4})}, {"c", at::randn({100})}, {"d", at::randn({1})}};
  model::write_checkpoint_files(scratch.path(), tensors, 40);
  CHECK(names_in(scratch.path()) ==
        std::set<std::string>{"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                              "model-00003-of-00003.safetensors", "model.safetensors.index.json"});
  std::ifstream stream(scratch.path() / "model.safetensors.index.json");
  const auto index = model::Json::parse(stream);
  CHECK(index["metadata"]["total_size"] == 4 * (4 + 4 + 100 + 1));
  CHECK(index["weight_map"]["b"] == "model-00001-of-00003.safetensors");
  CHECK(index["weight_map"]["c"] == "model-00002-of-00003.safetensors");
  const model::CheckpointFiles files(scratch.path());
  for (const auto& [name, value] : tensors) CHECK(files.read(name).equal(value));

  // A later save in one file removes the shards, and back.
  model::write_checkpoint_files(scratch.path(), tensors);
  CHECK(names_in(scratch.path()) == std::set<std::string>{"model.safetensors"});
  model::write_checkpoint_files(scratch.path(), tensors, 40);
  CHECK(names_in(scratch.path()).size() == 4);
}

TEST_CASE("tensors are spread over as many files of about the same size as are asked for, in their order") {
  const rlalgo::support::ScratchDirectory scratch;
  std::vector<model::NamedTensor> tensors;
  for (int i = 0; i < 10; ++i) tensors.emplace_back("w" + std::to_string(i), at::full({8}, i, at::kFloat));
  const auto files_of = [&](std::int64_t files, std::uint64_t limit = 100000) {
    model::write_checkpoint_files(scratch.path(), tensors, limit, files);
    const model::CheckpointFiles read(scratch.path());
    for (const auto& [name, value] : tensors) CHECK(read.read(name).equal(value));
    std::vector<std::size_t> sizes;
    for (const std::string& name : names_in(scratch.path()))
      if (name.ends_with(".safetensors"))
        sizes.push_back(model::SafetensorsFile(scratch.path() / name).entries().size());
    return sizes;
  };
  CHECK(files_of(1) == std::vector<std::size_t>{10});
  CHECK(files_of(2) == std::vector<std::size_t>{5, 5});
  CHECK(files_of(4) == std::vector<std::size_t>{3, 2, 3, 2});
  CHECK(files_of(10) == std::vector<std::size_t>(10, 1));
  CHECK(files_of(64) == std::vector<std::size_t>(10, 1));
  CHECK(files_of(2, 64) == std::vector<std::size_t>{2, 2, 1, 2, 2, 1});  // the limit holds, too
  tensors[9].second = at::zeros({1000});                                 // larger than a part
  CHECK(files_of(4) == std::vector<std::size_t>{9, 1});
}

TEST_CASE("a directory without weights is refused, a pickle by name") {
  const rlalgo::support::ScratchDirectory scratch;
  const auto error = [&] { return raised_by([&] { const model::CheckpointFiles files(scratch.path()); }); };
  CHECK(lacks(error(), {"model.13", "model.safetensors", scratch.path().string()}) == "");
  scratch.write("pytorch_model.bin", "");
  CHECK(lacks(error(), {"model.13", "pytorch_model.bin", "convert"}) == "");
}

TEST_CASE("an index that disagrees with its shards is refused") {
  const rlalgo::support::ScratchDirectory scratch;
  model::write_safetensors(scratch.path() / "s1.safetensors", {{"a", at::ones({1})}, {"b", at::ones({1})}});
  model::write_safetensors(scratch.path() / "s2.safetensors", {{"b", at::ones({1})}});
  const auto error = [&](const std::string& index) {
    scratch.write("model.safetensors.index.json", index);
    return raised_by([&] { const model::CheckpointFiles files(scratch.path()); });
  };
  const std::string one = R"("a":"s1.safetensors","b":"s1.safetensors")";
  CHECK(error("{\"weight_map\":{" + one + "}}") == "nothing");
  CHECK(lacks(error("{"), {"model.8", "index.json"}) == "");
  CHECK(lacks(error("{}"), {"model.14", "weight_map"}) == "");
  CHECK(lacks(error("{\"weight_map\":{\"a\":3}}"), {"model.14", "tensor a"}) == "");
  CHECK(lacks(error("{\"weight_map\":{\"a\":\"../s1.safetensors\"}}"), {"model.14", "outside"}) == "");
  CHECK(lacks(error("{\"weight_map\":{\"a\":\"s3.safetensors\"}}"), {"model.14", "s3.safetensors", "missing"}) == "");
  CHECK(lacks(error("{\"weight_map\":{" + one + ",\"c\":\"s1.safetensors\"}}"), {"model.14", "c"}) == "");
  CHECK(lacks(error("{\"weight_map\":{" + one + ",\"c\":\"s2.safetensors\"}}"), {"model.14", "two shards", "b"}) == "");
}

TEST_CASE("a file of weights that is not read holds nothing that the others lack") {
  const rlalgo::support::ScratchDirectory scratch;
  const auto write = [&](const char* name, const std::vector<model::NamedTensor>& tensors) {
    model::write_safetensors(scratch.path() / name, tensors);
  };
  const auto error = [&] { return raised_by([&] { const model::CheckpointFiles files(scratch.path()); }); };
  write("s1.safetensors", {{"a", at::ones({1})}});
  scratch.write("model.safetensors.index.json", R"({"weight_map":{"a":"s1.safetensors"}})");
  write("model-00002-of-00002.safetensors", {{"a", at::zeros({1})}});
  CHECK(error() == "nothing");
  write("model-00002-of-00002.safetensors", {{"b", at::zeros({1})}});
  CHECK(lacks(error(), {"model.14", "found b", "model-00002-of-00002.safetensors", "index.json"}) == "");
  write("model.safetensors", {{"a", at::ones({1})}});
  CHECK(error() == "nothing");
  scratch.write("model.safetensors.index.json", R"({"weight_map":{"a":"s1.safetensors","c":"s1.safetensors"}})");
  CHECK(lacks(error(), {"model.14", "c in", "index.json"}) == "");
}
