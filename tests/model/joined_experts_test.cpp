#include <rlalgo/model/joined_experts.hpp>

#include <cmath>
#include <filesystem>
#include <map>
#include <string>

#include <ATen/ATen.h>

#include <rlalgo/model/checkpoint_files.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/save.hpp>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

namespace {

const std::filesystem::path golden = std::filesystem::path(rlalgo::support::test_dir) / "golden/model";

std::map<std::string, at::Tensor> tensors_of(const std::filesystem::path& directory) {
  return model::read_safetensors(directory / "model.safetensors");
}

}  // namespace

TEST_CASE("MXFP4 by hand: low nibbles first, signs, a power of two for each block") {
  auto blocks = at::zeros({1, 1, 2, 16}, at::kByte), scales = at::zeros({1, 1, 2}, at::kByte);
  blocks[0][0][0][0] = 0x21;   // ½, 1
  blocks[0][0][0][1] = 0xF7;   // 6, −6
  blocks[0][0][1][15] = 0x9C;  // −2, −½
  scales[0][0][0] = 127;
  scales[0][0][1] = 120;
  const auto out = model::from_mxfp4(blocks, scales, 0);
  REQUIRE(out.sizes() == at::IntArrayRef{1, 64});
  CHECK(out[0][0].item<float>() == 0.5F);
  CHECK(out[0][1].item<float>() == 1.0F);
  CHECK(out[0][2].item<float>() == 6.0F);
  CHECK(out[0][3].item<float>() == -6.0F);
  CHECK(out[0][62].item<float>() == -2.0F / 128.0F);
  CHECK(out[0][63].item<float>() == -0.5F / 128.0F);
}

TEST_CASE("files of gpt-oss are saved as they were: one tensor for the maps of all experts") {
  const rlalgo::support::ScratchDirectory scratch;
  model::save_decoder(*model::load_decoder(golden / "gpt_oss"), scratch.path());
  const auto before = tensors_of(golden / "gpt_oss"), after = tensors_of(scratch.path());
  REQUIRE(before.size() == after.size());
  for (const auto& [name, value] : before) {
    INFO(name);
    REQUIRE(after.contains(name));
    CHECK(after.at(name).equal(value));
  }
}

TEST_CASE("a model read from MXFP4 is saved in bfloat16, and its configuration does not speak of MXFP4") {
  const rlalgo::support::ScratchDirectory scratch;
  const auto decoder = model::load_decoder(golden / "gpt_oss_mxfp4", at::kBFloat16);
  model::save_decoder(*decoder, scratch.path());
  const auto after = tensors_of(scratch.path());
  CHECK(after.at("model.layers.0.mlp.experts.gate_up_proj").scalar_type() == at::kBFloat16);
  CHECK(after.at("model.layers.0.mlp.experts.gate_up_proj").sizes() == at::IntArrayRef{3, 32, 64});
  CHECK_FALSE(after.contains("model.layers.0.mlp.experts.gate_up_proj_blocks"));
  CHECK_FALSE(model::read_hf_config(scratch.path()).json.contains("quantization_config"));
  const auto again = model::load_decoder(scratch.path(), at::kBFloat16);
  for (const auto& [name, value] : decoder->named_tensors())
    for (const auto& [other, kept] : again->named_tensors())
      if (name == other) CHECK(value.equal(kept));
}

TEST_CASE("joined tensors of transformers are read by the names of each expert, and the router with them") {
  for (const std::string name : {"qwen3_moe_joined", "mixtral_joined"}) {
    const model::CheckpointFiles files(golden / name);
    const std::string block = name == "mixtral_joined" ? "model.layers.0.block_sparse_moe." : "model.layers.0.mlp.";
    const std::string up = name == "mixtral_joined" ? "w3" : "up_proj",
                      down = name == "mixtral_joined" ? "w2" : "down_proj";
    const auto stored = tensors_of(golden / name);
    const auto joined = stored.at("model.layers.0.mlp.experts.gate_up_proj");
    const auto read = files.read(block + "experts.2." + up + ".weight");
    CHECK(read.is_contiguous());
    CHECK(read.equal(joined.select(0, 2).narrow(0, joined.size(1) / 2, joined.size(1) / 2)));
    CHECK(files.map(block + "experts.1." + down + ".weight")
              .equal(stored.at("model.layers.0.mlp.experts.down_proj").select(0, 1)));
    CHECK(files.read(block + "gate.weight").equal(stored.at("model.layers.0.mlp.gate.weight")));
    CHECK_FALSE(files.contains("model.layers.0.mlp.experts.gate_up_proj"));
    CHECK(files.convert(block + "experts.0." + down + ".weight", at::kDouble).scalar_type() == at::kDouble);
  }
}

TEST_CASE("tensors are joined and taken apart again, and stay apart where some are missing") {
  const auto decoder = model::load_decoder(golden / "gpt_oss");
  const auto tensors = decoder->named_tensors();
  std::vector<model::NamedTensor> joined, some;
  for (const model::PendingTensor& one : model::with_joined_experts(decoder->config(), tensors)) {
    const auto shape = model::joined_shape(decoder->config(), one.name);
    if (one.name.find(".experts.") != std::string::npos) CHECK(shape == one.shape);
    joined.emplace_back(one.name, one.make());
  }
  std::map<std::string, at::Tensor> again;
  for (const auto& [name, value] : model::without_joined_experts(decoder->config(), joined)) again[name] = value;
  REQUIRE(again.size() == tensors.size());
  for (const auto& [name, value] : tensors) CHECK(again.at(name).equal(value));
  for (const auto& one : tensors)
    if (one.first.find(".experts.3.up_proj") == std::string::npos) some.push_back(one);
  std::size_t apart = 0;
  for (const model::PendingTensor& one : model::with_joined_experts(decoder->config(), some))
    apart += one.name.find(".experts.2.gate_proj.weight") != std::string::npos ? 1 : 0;
  CHECK(apart == 2);
}

TEST_CASE("a joined tensor of a wrong shape is refused by its name") {
  const rlalgo::support::ScratchDirectory scratch;
  std::filesystem::copy(golden / "qwen3_moe_joined", scratch.path(), std::filesystem::copy_options::recursive);
  std::vector<model::NamedTensor> tensors;
  for (const auto& [name, value] : tensors_of(golden / "qwen3_moe_joined"))
    tensors.emplace_back(name, name.ends_with("gate_up_proj") ? value.narrow(1, 0, 7).contiguous() : value);
  model::write_safetensors(scratch.path() / "model.safetensors", tensors);
  CHECK(lacks(raised_by([&] { (void)model::load_decoder(scratch.path()); }),
              {"model.21", "mlp.experts.gate_up_proj", "[4,7,16]", "[4,20,16]"}) == "");
}
