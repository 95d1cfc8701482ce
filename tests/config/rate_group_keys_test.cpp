#include <rlalgo/config/rate_group_keys.hpp>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/config/parse.hpp>
#include <rlalgo/config/trainer_settings.hpp>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo::config;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

namespace {

const std::string base =
    "base_model: ./m\nrl: dpo\ndatasets:\n  - {path: rows.jsonl, type: chatml.intel}\nlearning_rate: 1e-4\n"
    "micro_batch_size: 8\n";
const std::string adapter = "adapter: lora\nlora_r: 4\nlora_alpha: 8\nlora_target_modules: [q_proj]\n";

RunConfig parse(const std::string& text) { return parse_run_config(parse_document(base + text, "c.yaml")); }
std::string error_of(const std::string& text) {
  return raised_by([&] { (void)parse(text); });
}

// The factor of a parameter, and whether it decays.
std::pair<double, bool> of(const RunConfig& c, const std::string& name, std::vector<std::int64_t> shape = {2, 2}) {
  std::vector<rlalgo::model::Parameter> p = {{name, at::ones(shape).requires_grad_(), true}};
  auto groups = parameter_groups_of(c);
  for (auto& group : groups) group.required = false;
  const auto made = rlalgo::optim::grouped(groups, p, p);
  return {made.rates.empty() ? 1.0 : made.rates.begin()->second, made.parameters[0].weight_decay};
}

}  // namespace

TEST_CASE("keys of groups become factors of learning_rate") {
  const RunConfig plus = parse(adapter + "loraplus_lr_ratio: 16\n");
  CHECK(plus.warnings.empty());
  CHECK(of(plus, "q_proj.lora_B.weight") == std::pair{16.0, false});
  CHECK(of(plus, "q_proj.lora_A.weight") == std::pair{1.0, false});
  const RunConfig rate = parse("embedding_lr: 5e-5\nlr_groups:\n  - {name: q, modules: [q_proj], lr: \"2e-4\"}\n");
  CHECK(of(rate, "model.embed_tokens.weight").first == Approx(0.5));
  CHECK_FALSE(of(rate, "lm_head.weight").second);
  CHECK(of(rate, "model.layers.0.self_attn.q_proj.weight").first == Approx(2.0));
  CHECK(of(rate, "model.layers.0.self_attn.k_proj.weight") == std::pair{1.0, true});
  CHECK(of(parse("embedding_lr_scale: 0.25\n"), "lm_head.weight") == std::pair{0.25, false});
  // The head does not decay where there are groups, whatever its rate.
  CHECK(of(parse("lr_groups: [{name: q, modules: [q_proj], lr: 0}]\n"), "lm_head.weight") == std::pair{1.0, false});
  CHECK(of(parse("lr_groups: [{name: q, modules: [q_proj], lr: 0}]\n"), "q_proj.weight") == std::pair{0.0, true});
  CHECK(parameter_groups_of(parse("")).empty());
  const RunConfig saved = parse(adapter + "lora_modules_to_save: [mlp.up_proj, lm_head]\nembedding_lr: 1e-5\n");
  CHECK(of(saved, "base_model.model.model.layers.0.mlp.up_proj.weight").first == Approx(0.1));
  CHECK(of(saved, "base_model.model.model.layers.0.mlp.up_proj.lora_B.weight") == std::pair{1.0, true});
}

TEST_CASE("keys of groups without effect are named") {
  const auto said = [](const std::string& text, const std::string& key, const std::string& why) {
    for (const std::string& warning : parse(text).warnings)
      if (lacks(warning, {key + " (c.yaml:", "has no effect", why}) == "") return true;
    return false;
  };
  const std::string plus = adapter + "loraplus_lr_ratio: 16\n";
  CHECK(said(plus + "embedding_lr: 1e-5\n", "embedding_lr", "makes the groups"));
  CHECK(said(plus + "embedding_lr_scale: 0.5\n", "embedding_lr_scale", "makes the groups"));
  CHECK(said(plus + "weight_decay: 0.1\n", "weight_decay", "nothing decays"));
  CHECK(said(plus + "loraplus_lr_embedding: 1e-5\n", "loraplus_lr_embedding", "on an embedding"));
  CHECK(said("loraplus_lr_embedding: 1e-5\n", "loraplus_lr_embedding", "is not set"));
  CHECK(said("embedding_lr: 1e-5\nembedding_lr_scale: 0.5\n", "embedding_lr", "embedding_lr_scale"));
  CHECK(said(adapter + "embedding_lr: 1e-5\n", "embedding_lr", "lora_modules_to_save"));
  CHECK_FALSE(said(adapter + "lora_modules_to_save: [embed_tokens]\nembedding_lr: 1e-5\n", "embedding_lr", ""));
  CHECK_FALSE(said("embedding_lr: 1e-5\n", "embedding_lr", ""));
}

TEST_CASE("groups that contradict each other or lack something are refused") {
  const std::string groups = "lr_groups: [{name: q, modules: [q_proj], lr: 1e-5}]\n";
  CHECK(lacks(error_of(adapter + "loraplus_lr_ratio: 16\n" + groups),
              {"config.8: ", "loraplus_lr_ratio", "lr_groups"}) == "");
  CHECK(lacks(error_of("loraplus_lr_ratio: 16\n"), {"config.14: ", "loraplus_lr_ratio", "adapter: lora"}) == "");
  for (const char* one : {"{name: q, modules: [q_proj]}", "{name: q, lr: 1}", "{modules: [q_proj], lr: 1}"})
    CHECK(lacks(error_of(std::string("lr_groups: [") + one + "]\n"), {"config.7: ", "lr_groups[0]."}) == "");
  CHECK(lacks(error_of("lr_groups: [{name: q, modules: [q_proj], lr: 1, rate: 2}]\n"),
              {"config.6: ", "lr_groups[0]", "rate", "modules"}) == "");
  CHECK(lacks(error_of("lr_groups: [{name: q, modules: [q_proj], lr: -1}]\n"), {"config.6: ", "lr_groups[0].lr"}) ==
        "");
  CHECK(lacks(error_of("lr_groups: [{name: q, modules: [], lr: 1}]\n"), {"config.6: ", "lr_groups[0].modules"}) == "");
  CHECK(lacks(error_of("lr_groups: 3\n"), {"config.5: ", "lr_groups"}) == "");
  CHECK(lacks(raised_by([&] {
                (void)parse_run_config(parse_document(
                    "base_model: ./m\nrl: dpo\ndatasets: [{path: r.jsonl}]\nlearning_rate: 0\nmicro_batch_size: 8\n" +
                        groups,
                    "c.yaml"));
              }),
              {"config.8: ", "lr_groups", "learning_rate above 0"}) == "");
}

TEST_CASE("a resume compares the groups, and runs without them are what they were") {
  const auto settings = [](const std::string& text) {
    const RunConfig c = parse(text);
    return trainer_settings(c, make_plan(c, 20, false), 7, "dpo").loop.settings;
  };
  CHECK_FALSE(settings("").contains("lr_groups"));
  CHECK_FALSE(settings("").contains("embedding_lr"));
  const std::string one = "lr_groups: [{name: q, modules: [q_proj], lr: 1e-5}]\n";
  CHECK(settings(one).at("lr_groups").at(0).at("lr") == 1e-5);
  CHECK(settings("embedding_lr: 1e-5\n").at("embedding_lr") == 1e-5);
}
