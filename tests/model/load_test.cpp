#include <rlalgo/model/load.hpp>

#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <support/catch.hpp>
#include <support/decoders.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

namespace {

const auto golden = std::filesystem::path(rlalgo::support::test_dir) / "golden/model";

std::vector<model::NamedTensor> tensors_of(const std::filesystem::path& directory) {
  std::vector<model::NamedTensor> out;
  const model::CheckpointFiles files(directory);
  for (const auto& [name, place] : files.places()) out.emplace_back(name, files.read(name));
  return out;
}

}  // namespace

TEST_CASE("a sharded checkpoint and a bf16 file load into the compute dtype") {
  const auto sharded = model::load_decoder(golden / "qwen2");
  CHECK(sharded->dtype() == at::kFloat);
  CHECK(sharded->config().model_type == "qwen2");
  const auto wide = model::load_decoder(golden / "qwen3"),
             stored = model::load_decoder(golden / "qwen3", at::kBFloat16);
  CHECK(stored->dtype() == at::kBFloat16);
  CHECK(wide->weights().layers[1].k_norm.equal(stored->weights().layers[1].k_norm.to(at::kFloat)));
  for (const auto& p : wide->parameters())
    CHECK((p.value.is_leaf() && p.value.requires_grad() && p.value.scalar_type() == at::kFloat));
}

TEST_CASE("missing, unexpected and misshapen tensors are named") {
  const rlalgo::support::ScratchDirectory scratch;
  std::filesystem::copy_file(golden / "llama/config.json", scratch.path() / "config.json");
  const auto tensors = tensors_of(golden / "llama");
  const auto error = [&](const std::vector<model::NamedTensor>& changed) {
    model::write_checkpoint_files(scratch.path(), changed);
    return raised_by([&] { (void)model::load_decoder(scratch.path()); });
  };
  CHECK(error(tensors) == "nothing");

  auto missing = tensors;
  std::erase_if(missing, [](const auto& entry) { return entry.first.find("layers.1.mlp") != std::string::npos; });
  CHECK(lacks(error(missing),
              {"model.19", "3 tensors", "model.layers.1.mlp.gate_proj.weight", scratch.path().string()}) == "");

  auto unexpected = tensors;
  unexpected.emplace_back("model.layers.0.self_attn.q_proj.bias", at::zeros({60}));
  CHECK(lacks(error(unexpected), {"model.20", "model.layers.0.self_attn.q_proj.bias"}) == "");

  auto misshapen = tensors;
  for (auto& [name, value] : misshapen)
    if (name == "model.norm.weight") value = at::zeros({31});
  CHECK(lacks(error(misshapen), {"model.21", "[31]", "[30]", "model.norm.weight", "model.safetensors"}) == "");

  auto old = tensors;
  old.emplace_back("model.layers.0.self_attn.rotary_emb.inv_freq", at::zeros({6}));
  CHECK(error(old) == "nothing");

  CHECK(lacks(raised_by([&] { (void)model::load_decoder(scratch.path() / "none"); }), {"model.7"}) == "");
  std::filesystem::remove(scratch.path() / "model.safetensors");
  CHECK(lacks(raised_by([&] { (void)model::load_decoder(scratch.path()); }), {"model.13"}) == "");
}

TEST_CASE("a tied checkpoint may carry lm_head: the same, another, or alone") {
  const rlalgo::support::ScratchDirectory scratch;
  std::filesystem::copy_file(golden / "llama3_rope/config.json", scratch.path() / "config.json");
  const auto tensors = tensors_of(golden / "llama3_rope");
  const auto own = model::load_decoder(golden / "llama3_rope");
  const at::Tensor embedding = own->weights().embedding.detach().clone();
  const auto load = [&](std::vector<model::NamedTensor> all, const at::Tensor& head, bool embedded = true) {
    if (!embedded) std::erase_if(all, [](const auto& entry) { return entry.first == "model.embed_tokens.weight"; });
    all.emplace_back("lm_head.weight", head);
    model::write_checkpoint_files(scratch.path(), all);
    return model::load_decoder(scratch.path());
  };
  const auto same = load(tensors, embedding);
  CHECK(same->weights().lm_head.is_same(same->weights().embedding));
  CHECK(same->config().tied_embeddings);

  // As transformers: not tied then, in what is saved as well.
  at::Tensor changed = embedding.clone();
  changed[7][3] += 1.0;
  const auto other = load(tensors, changed);
  CHECK_FALSE(other->config().tied_embeddings);
  CHECK(other->hf_config().json["tie_word_embeddings"] == false);
  CHECK(other->weights().lm_head.equal(changed));
  CHECK(other->weights().embedding.equal(embedding));

  const auto alone = load(tensors, changed, false);
  CHECK(alone->config().tied_embeddings);
  CHECK(alone->weights().lm_head.is_same(alone->weights().embedding));
  CHECK(alone->weights().embedding.equal(changed));

  CHECK(lacks(raised_by([&] {
                (void)load(tensors, at::zeros({64, 24}));
              }),
              {"model.21", "[64,24]", "lm_head.weight"}) == "");
}

TEST_CASE("weights under the names of wrappers and of other classes are found, or what is there is named") {
  const rlalgo::support::ScratchDirectory scratch;
  std::filesystem::copy_file(golden / "llama/config.json", scratch.path() / "config.json");
  const auto tensors = tensors_of(golden / "llama");
  const auto own = model::load_decoder(golden / "llama");
  const auto under = [&](const std::function<std::string(const std::string&)>& rename) {
    std::vector<model::NamedTensor> changed;
    for (const auto& [name, value] : tensors) changed.emplace_back(rename(name), value);
    model::write_checkpoint_files(scratch.path(), changed);
    return raised_by([&] {
      const auto read = model::load_decoder(scratch.path());
      const auto expected = own->named_tensors(), found = read->named_tensors();
      for (std::size_t i = 0; i < expected.size(); ++i) CHECK(found[i].second.equal(expected[i].second));
    });
  };
  const auto without_model = [](const std::string& name) { return name.starts_with("model.") ? name.substr(6) : name; };
  CHECK(under([](const std::string& name) { return "module." + name; }) == "nothing");
  CHECK(under([](const std::string& name) { return "_orig_mod." + name; }) == "nothing");
  CHECK(under([](const std::string& name) { return "module._orig_mod." + name; }) == "nothing");
  CHECK(under([](const std::string& name) { return "pretrained_model." + name; }) == "nothing");
  CHECK(under(without_model) == "nothing");
  CHECK(under([&](const std::string& name) {
          const std::string inner = "layers.0.";
          const std::size_t at = name.find(inner);
          return at == std::string::npos ? name
                                         : std::string(name).insert(at + inner.size(), "_checkpoint_wrapped_module.");
        }) == "nothing");
  CHECK(lacks(under([](const std::string& name) { return "x." + name + ".y"; }),
              {"model.19", "model.embed_tokens.weight", "x.lm_head.weight.y (model.safetensors)"}) == "");
}

TEST_CASE("random weights have the initialiser's moments and depend on the seed alone") {
  auto json = rlalgo::support::small_config("llama");
  json["vocab_size"] = 500;
  json["initializer_range"] = 0.02;
  const auto hf = model::parse_hf_config(json, "test");
  const auto a = model::random_decoder(hf, 1), b = model::random_decoder(hf, 1), c = model::random_decoder(hf, 2);
  const auto e = a->weights().embedding.detach();
  CHECK(std::abs(e.mean().item<double>()) < 0.02 * 4 / std::sqrt(6000.0));
  CHECK(e.std().item<double>() == Approx(0.02).epsilon(0.04));
  CHECK(e.abs().max().item<double>() > 0.05);
  CHECK(e.equal(b->weights().embedding.detach()));
  CHECK_FALSE(e.equal(c->weights().embedding.detach()));
  CHECK_FALSE(a->weights().layers[0].q_proj.weight.equal(a->weights().layers[1].q_proj.weight));
  CHECK(a->weights().final_norm.equal(at::ones({12})));
  CHECK(a->weights().layers[0].q_proj.bias.equal(at::zeros({24})));
}
