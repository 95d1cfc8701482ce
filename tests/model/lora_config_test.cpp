#include <rlalgo/model/lora_config.hpp>

#include <cmath>
#include <string>
#include <vector>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

namespace {

using Names = std::vector<std::string>;

const std::vector<std::string> linears = {"model.layers.0.self_attn.q_proj",  "model.layers.0.mlp.up_proj",
                                          "model.layers.1.self_attn.q_proj",  "model.layers.1.mlp.up_proj",
                                          "model.layers.11.self_attn.q_proj", "lm_head"};
std::vector<std::string> targets(const model::LoraConfig& config) {
  auto modules = linears;
  modules.push_back("model.embed_tokens");
  return model::lora_targets(config, linears, modules, model::TargetCheck::every);
}

}  // namespace

TEST_CASE("targets are names, ends of paths, patterns over whole paths, or all linear maps but the head") {
  CHECK(targets({.target_modules = {"q_proj"}}).size() == 3);
  CHECK(targets({.target_modules = {"mlp.up_proj", "lm_head"}}).size() == 3);
  CHECK(targets({.target_modules = {"model.layers.1.self_attn.q_proj"}}) == Names{linears[2]});
  CHECK(targets({.target_pattern = "all-linear"}).size() == 5);
  CHECK(targets({.target_pattern = ".*\\.1\\..*"}) == Names{linears[2], linears[3]});
  CHECK(targets({.target_modules = {"q_proj"}, .layers_to_transform = {1}}) == Names{linears[2]});
  CHECK(targets({.target_modules = {"q_proj"}, .layers_to_transform = {11}, .layers_pattern = {"layers"}}) ==
        Names{linears[4]});
  CHECK(targets({.target_modules = {"q_proj", "up_proj"}, .exclude_modules = {"up_proj"}}).size() == 3);
  // As in PEFT a text is a pattern over the whole path.
  CHECK(targets({.target_modules = {"q_proj", "up_proj"}, .exclude_pattern = "up_proj"}).size() == 5);
  CHECK(targets({.target_modules = {"q_proj", "up_proj"}, .exclude_pattern = ".*\\.up_proj"}).size() == 3);
  CHECK(targets({.target_pattern = ".*", .modules_to_save = {"lm_head"}}).size() == 5);
  // "proj" is the end of a word, not of a path; "oj" neither.
  CHECK(lacks(raised_by([] { (void)targets({.target_modules = {"proj"}}); }), {"model.23", "proj"}) == "");
  CHECK(lacks(raised_by([] { (void)targets({.target_pattern = "q_proj"}); }), {"model.23", "q_proj"}) == "");
  // One entry of several is enough for files of PEFT.
  CHECK(model::lora_targets({.target_modules = {"q_proj", "w1"}}, linears, linears, model::TargetCheck::some).size() ==
        3);
}

TEST_CASE("all linear maps of the layers are named beside the targets, whatever a family calls them") {
  const std::vector<std::string> fused = {"model.layers.0.self_attn.qkv_proj", "model.layers.0.mlp.gate_up_proj",
                                          "model.layers.1.self_attn.qkv_proj", "lm_head"};
  const auto named =
      model::with_every_linear({.target_modules = {"lm_head", "qkv_proj"}, .every_linear = true}, fused, fused);
  CHECK(named.target_modules == Names{"lm_head", "qkv_proj", "gate_up_proj"});
  CHECK_FALSE(named.every_linear);
  CHECK(model::with_every_linear({.every_linear = true}, linears, linears).target_modules ==
        Names{"q_proj", "up_proj"});
  CHECK(model::with_every_linear({.target_modules = {"x"}}, linears, linears).target_modules == Names{"x"});
}

TEST_CASE("a module to save is every module whose path ends with the entry, with what is in it, as in PEFT") {
  const auto saved = [](std::vector<std::string> entries, const std::string& path) {
    return model::is_saved_module({.modules_to_save = std::move(entries)}, path);
  };
  CHECK(saved({"norm"}, "model.norm"));
  CHECK(saved({"norm"}, "model.layers.0.input_layernorm"));
  CHECK(saved({"norm"}, "model.layers.1.self_attn.q_norm"));
  CHECK_FALSE(saved({"model.norm"}, "model.layers.0.input_layernorm"));
  CHECK(saved({"mlp"}, "model.layers.1.mlp.up_proj"));
  CHECK(saved({"1.mlp"}, "model.layers.11.mlp.up_proj"));
  CHECK_FALSE(saved({"layers.1"}, "model.layers.11.mlp.up_proj"));
  CHECK(saved({"layers.1"}, "model.layers.1.mlp.up_proj"));
  CHECK(saved({"head"}, "lm_head"));
  CHECK_FALSE(saved({"lm_head.weight"}, "lm_head"));
  CHECK_FALSE(saved({""}, "lm_head"));
  const auto refused = [](std::vector<std::string> entries) {
    return raised_by([&] { (void)targets({.target_modules = {"up_proj"}, .modules_to_save = std::move(entries)}); });
  };
  CHECK(refused({"q_proj", "head"}) == "nothing");
  CHECK(lacks(refused({"layers"}), {"model.36", "layers"}) == "");
  CHECK(lacks(refused({"self_attn"}), {"model.36", "self_attn", "o_proj"}) == "");
  CHECK(lacks(raised_by([] {
                (void)model::lora_targets({.target_modules = {"q_proj"}, .modules_to_save = {"linear_attn"}},
                                          {"model.layers.0.linear_attn.out_proj", "model.layers.1.self_attn.q_proj"},
                                          {"model.layers.0.linear_attn", "model.layers.0.linear_attn.out_proj"},
                                          model::TargetCheck::every);
              }),
              {"model.36", "linear_attn", "out_proj"}) == "");
  CHECK(lacks(refused({"proj"}), {"model.36", "proj", "model.layers.0.mlp.up_proj"}) == "");
  CHECK(lacks(refused({"lp"}), {"model.36", "lp", "model.layers.0.mlp.up_proj"}) == "");
  CHECK(lacks(refused({"head", "layers.0", "0.self_attn.q_proj"}), {"model.36", "layers.0 and", "q_proj"}) == "");
  CHECK(refused({"lm_head", "head"}) == "nothing");  // one module, named twice
  for (const char* entry : {"", "rotary_emb", "norms"})
    CHECK(lacks(refused({entry}), {"model.23", "modules_to_save", "embed_tokens"}) == "");
  // A part of a saved module is no target, and nothing to complain of.
  CHECK(targets({.target_modules = {"up_proj", "q_proj"}, .modules_to_save = {"mlp"}}).size() == 3);
}

TEST_CASE("the first pattern that fits the end of a path gives rank and alpha") {
  model::LoraConfig config = {.r = 4, .alpha = 8};
  config.rank_pattern = {{"1\\.self_attn.q_proj", 2}, {"q_proj", 9}};
  config.alpha_pattern = {{"^model.layers.0.mlp.up_proj", 3}};
  CHECK(model::lora_shape(config, linears[0]).r == 9);
  CHECK(model::lora_shape(config, linears[2]).r == 2);
  CHECK(model::lora_shape(config, linears[2]).scale == 8.0 / 2);
  CHECK(model::lora_shape(config, linears[1]).scale == 3.0 / 4);
  config.use_rslora = true;
  CHECK(model::lora_shape(config, linears[2]).scale == Approx(8 / std::sqrt(2.0)));
}

TEST_CASE("a pattern that never ends is stopped") {
  const model::detail::ModulePattern pattern("(a+)+$", true);
  CHECK(lacks(raised_by([&] { (void)pattern.matches(std::string(60, 'a') + "b"); }), {"model.26", "steps"}) == "");
  CHECK(pattern.matches("aaa"));
}

// As PEFT 0.21 and 0.19 have it with transformers 5.23: its config after get_peft_model of such a model (r 4, alpha 8).
TEST_CASE("names of an expert's maps stand for the parameters of all experts where PEFT takes them so") {
  const std::vector<std::string> linears = {"model.layers.0.self_attn.q_proj", "model.layers.0.mlp.shared_expert_gate",
                                            "lm_head"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), linears.begin(), linears.end());
    return more;
  };
  const Names next =
      with({"model.layers.0.mlp.gate", "model.layers.0.mlp.experts.0.gate_proj", "model.layers.0.mlp.experts.0.up_proj",
            "model.layers.0.mlp.experts.0.down_proj", "model.layers.0.mlp.shared_expert.gate_proj",
            "model.layers.0.mlp.shared_expert.up_proj", "model.layers.0.mlp.shared_expert.down_proj"});
  const auto taken = [&](Names targets, const Names& modules) {
    return model::with_expert_parameters({.r = 4, .alpha = 8.0, .target_modules = std::move(targets)}, linears,
                                         modules);
  };
  const auto all = taken({"gate_proj", "q_proj", "up_proj", "down_proj"}, next);
  CHECK(all.target_modules == Names{"q_proj"});
  CHECK(all.target_parameters == Names{"gate_up_proj", "down_proj"});
  const model::LoraShape both = model::lora_shape(all, "model.layers.0.mlp.experts.gate_up_proj"),
                         down = model::lora_shape(all, "model.layers.0.mlp.experts.down_proj");
  CHECK((both.r == 8 && both.scale == 2.0));
  CHECK((down.r == 4 && down.scale == 2.0));
  CHECK(taken({"down_proj"}, next).target_parameters == Names{"down_proj"});
  CHECK(taken({"q_proj"}, next).target_parameters.empty());
  // lora_target_linear names the linear maps of the model, as axolotl does, those of a shared expert among them.
  const auto every = model::with_every_linear({.every_linear = true}, linears, next);
  CHECK(every.target_modules == Names{"q_proj", "shared_expert_gate", "gate_proj", "up_proj", "down_proj"});
  const Names mixtral =
      with({"model.layers.0.block_sparse_moe.gate", "model.layers.0.block_sparse_moe.experts.0.w1",
            "model.layers.0.block_sparse_moe.experts.0.w2", "model.layers.0.block_sparse_moe.experts.0.w3"});
  CHECK(taken({"w1", "w2", "w3"}, mixtral).target_parameters == Names{"gate_up_proj", "down_proj"});
  CHECK(lacks(raised_by([&] { (void)taken({"w1", "w2"}, mixtral); }), {"model.40", "w1 and w3"}) == "");
  // Where the maps of a shared expert are targets themselves (Qwen2-MoE, Qwen3.5), names stay names; so do gpt-oss's.
  Names shared = linears;
  shared.emplace_back("model.layers.0.mlp.shared_expert.gate_proj");
  CHECK(model::with_expert_parameters({.target_modules = {"gate_proj"}}, shared, next).target_parameters.empty());
  Names routed = next;
  routed.emplace_back("model.layers.0.mlp.router");
  CHECK(taken({"gate_proj"}, routed).target_parameters.empty());
}

TEST_CASE(
    "experts get no adapter by a path or pattern, and routers none: what PEFT would take for them is refused, and "
    "all-linear") {
  const std::vector<std::string> attention = {"model.layers.0.self_attn.q_proj", "lm_head"};
  std::vector<std::string> modules = attention;
  for (const char* one : {"model.layers.0.mlp.gate", "model.layers.0.mlp.experts.0.gate_proj",
                          "model.layers.0.mlp.experts.0.up_proj", "model.layers.0.mlp.experts.0.down_proj"})
    modules.emplace_back(one);
  const auto chosen = [&](const model::LoraConfig& config) {
    return model::lora_targets(model::with_expert_parameters(config, attention, modules), attention, modules,
                               model::TargetCheck::every)
        .size();
  };
  CHECK(chosen({.target_modules = {"q_proj"}}) == 1);
  CHECK(chosen({.target_pattern = ".*q_proj"}) == 1);
  for (const char* name : {"gate", "gate_proj", "up_proj", "experts.0.down_proj", "mlp.experts.0.up_proj"})
    CHECK(lacks(raised_by([&] { (void)chosen({.target_modules = {"q_proj", name}}); }), {"model.40", name}) == "");
  for (const char* pattern : {"all-linear", ".*(q_proj|up_proj)", ".*\\.experts\\.gate_proj", ".*mlp\\.gate"})
    CHECK(lacks(raised_by([&] { (void)chosen({.target_pattern = pattern}); }), {"model.40", pattern}) == "");
  for (const char* name : {"mlp", "experts", "0.gate_proj"})
    CHECK(lacks(raised_by([&] { (void)chosen({.target_modules = {"q_proj"}, .modules_to_save = {name}}); }),
                {"model.40", name}) == "");
  // Where the router is gpt-oss's, all linear maps are those of the attention, as PEFT has it.
  std::vector<std::string> routed = modules;
  routed.emplace_back("model.layers.0.mlp.router");
  CHECK(model::lora_targets({.target_pattern = "all-linear"}, attention, routed, model::TargetCheck::every).size() ==
        1);
  // Parameters of all experts have names of their own.
  const std::vector<std::string> parameters = {"model.layers.0.mlp.experts.gate_up_proj",
                                               "model.layers.0.mlp.experts.down_proj"};
  CHECK(chosen({.target_parameters = {"mlp.experts.down_proj"}}) == 0);
  CHECK(model::is_target_parameter({.target_parameters = {"experts.down_proj"}}, parameters[1]));
  CHECK_FALSE(model::is_target_parameter({.target_parameters = {"down_proj_bias", "proj"}}, parameters[1]));
  const auto checked = [&](model::LoraConfig config) {
    config.target_parameters = {"mlp.experts.gate_up_proj"};
    return raised_by([&] { model::check_target_parameters(config, parameters); });
  };
  CHECK(checked({}) == "nothing");
  CHECK(lacks(checked({.dropout = 0.1}), {"model.43", "dropout"}) == "");
  CHECK(lacks(checked({.use_dora = true}), {"model.43", "DoRA"}) == "");
  CHECK(lacks(checked({.init = model::LoraInit::pissa}), {"model.43", "initialisation"}) == "");
  CHECK(
      lacks(raised_by([&] { model::check_target_parameters({.target_parameters = {"mlp.gate.weight"}}, parameters); }),
            {"model.23", "mlp.gate.weight"}) == "");
  CHECK(lacks(raised_by([&] { model::check_target_parameters({.target_parameters = {"experts.down_proj"}}, {}); }),
              {"model.23", "a model with experts"}) == "");
  // Beside an expert that all tokens pass, names are those of its maps.
  std::vector<std::string> shared = attention, all = modules;
  for (auto* list : {&shared, &all}) list->emplace_back("model.layers.0.mlp.shared_expert.gate_proj");
  CHECK(model::lora_targets({.target_modules = {"gate_proj"}}, shared, all, model::TargetCheck::every).size() == 1);
  CHECK(model::lora_targets({.target_pattern = "all-linear"}, shared, all, model::TargetCheck::every).size() == 2);
}
