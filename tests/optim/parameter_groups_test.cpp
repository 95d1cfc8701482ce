#include <rlalgo/optim/parameter_groups.hpp>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/optim/adafactor.hpp>
#include <rlalgo/optim/adagrad.hpp>
#include <rlalgo/optim/adamw.hpp>
#include <rlalgo/optim/adamw_8bit.hpp>
#include <rlalgo/optim/any_optimizer.hpp>
#include <rlalgo/optim/lion.hpp>
#include <rlalgo/optim/rmsprop.hpp>
#include <rlalgo/optim/sgd.hpp>

#include "optim/rule_path.hpp"

using namespace rlalgo;
using model::Parameter;
using optim::GroupedParameters;
using optim::ParameterGroups;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

namespace {

Parameter trained(const std::string& name, std::vector<std::int64_t> shape, bool decays = true) {
  return {name, at::ones(shape).requires_grad_(), decays};
}

// What a group makes of each name: factor, and whether it decays.
std::map<std::string, std::pair<double, bool>> shown(const ParameterGroups& groups, std::vector<Parameter> parameters) {
  const GroupedParameters made = optim::grouped(groups, parameters, parameters);
  std::map<std::string, std::pair<double, bool>> out;
  for (const Parameter& p : made.parameters)
    out[p.name] = {made.rates.contains(p.name) ? made.rates.at(p.name) : 1.0, p.weight_decay};
  return out;
}

// One matrix at 16 times the rate and without decay, the vector at a tenth: `rated` of scripts/fixtures/optim_rules.py.
ParameterGroups sixteen_times() {
  return {{.name = "w", .has = [](const Parameter& p) { return p.name == "w"; }, .rate = 16.0, .weight_decay = false},
          {.name = "plain", .has = [](const Parameter& p) { return p.name == "plain"; }, .rate = 0.1}};
}

template <class O>
double worst(const typename O::Config& config, const rule_path::Values& expected) {
  auto p = rule_path::parameters();
  const GroupedParameters made = optim::grouped(sixteen_times(), p, p);
  O optimizer(made.parameters, config);
  optim::set_rates(optimizer, made.rates);
  rule_path::walk(optimizer, p, 0, 5);
  return rule_path::difference(p, expected);
}

struct OneRate {
  struct Config {};
  OneRate(std::vector<Parameter>, Config) {}
  void step(double) {}
  void zero_grad() {}
  [[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> state() const { return {}; }
  void load_state(const std::map<std::string, at::Tensor>&) {}
};

}  // namespace

// The groups of PEFT's create_loraplus_optimizer: B and whatever has one dimension.
TEST_CASE("LoRA+ moves B, magnitudes and norms faster, and nothing decays") {
  const auto of = shown(optim::lora_plus(16.0), {trained("base_model.model.q_proj.lora_A.weight", {2, 4}),
                                                 trained("base_model.model.q_proj.lora_B.weight", {4, 2}),
                                                 trained("base_model.model.q_proj.lora_magnitude_vector.weight", {4}),
                                                 trained("base_model.model.model.norm.weight", {4}, false),
                                                 trained("base_model.model.lm_head.weight", {8, 4})});
  CHECK(of.at("base_model.model.q_proj.lora_A.weight") == std::pair{1.0, false});
  CHECK(of.at("base_model.model.q_proj.lora_B.weight") == std::pair{16.0, false});
  CHECK(of.at("base_model.model.q_proj.lora_magnitude_vector.weight") == std::pair{16.0, false});
  CHECK(of.at("base_model.model.model.norm.weight") == std::pair{16.0, false});
  CHECK(of.at("base_model.model.lm_head.weight") == std::pair{1.0, false});
}

// axolotl's create_optimizer_grouped_parameters.
TEST_CASE("modules have rates of their own, embeddings do not decay, and what does not decay keeps the rate") {
  const std::vector<Parameter> p = {trained("model.embed_tokens.weight", {8, 4}),
                                    trained("model.layers.0.self_attn.q_proj.weight", {4, 4}),
                                    trained("model.layers.1.self_attn.k_proj.weight", {4, 4}),
                                    trained("model.layers.0.self_attn.q_proj.bias", {4}, false),
                                    trained("model.layers.0.mlp.up_proj.weight", {4, 4}),
                                    trained("model.layers.1.mlp.up_proj.weight", {4, 4}),
                                    trained("lm_head.weight", {8, 4})};
  const auto of =
      shown(optim::module_rates({{.name = "a", .modules = {"q_proj", "embed_tokens", "k_proj"}, .rate = 2.0},
                                 {.name = "b", .modules = {"layers.0", "q_proj"}, .rate = 3.0},
                                 {.name = "c", .modules = {"up_proj"}, .rate = 5.0}},
                                0.5),
            p);
  CHECK(of.at("model.embed_tokens.weight") == std::pair{0.5, false});
  CHECK(of.at("lm_head.weight") == std::pair{0.5, false});
  // The first module that the name contains is q_proj, which the later group has.
  CHECK(of.at("model.layers.0.self_attn.q_proj.weight") == std::pair{3.0, true});
  CHECK(of.at("model.layers.1.self_attn.k_proj.weight") == std::pair{2.0, true});
  CHECK(of.at("model.layers.0.self_attn.q_proj.bias") == std::pair{1.0, false});
  CHECK(of.at("model.layers.0.mlp.up_proj.weight") == std::pair{3.0, true});
  CHECK(of.at("model.layers.1.mlp.up_proj.weight") == std::pair{5.0, true});
}

TEST_CASE("a module that an adapter saves whole is with the embeddings, its low-rank matrices are not") {
  const auto of = shown(optim::module_rates({{.name = "all", .modules = {"layers"}, .rate = 2.0}}, 0.5, {"up_proj"}),
                        {trained("base_model.model.model.layers.0.mlp.up_proj.weight", {4, 4}),
                         trained("base_model.model.model.layers.0.mlp.up_proj.lora_A.weight", {4, 4}),
                         trained("base_model.model.model.layers.0.mlp.down_proj.weight", {4, 4})});
  CHECK(of.at("base_model.model.model.layers.0.mlp.up_proj.weight") == std::pair{0.5, false});
  CHECK(of.at("base_model.model.model.layers.0.mlp.up_proj.lora_A.weight") == std::pair{2.0, true});
  CHECK(of.at("base_model.model.model.layers.0.mlp.down_proj.weight") == std::pair{2.0, true});
}

TEST_CASE("shards are in the groups of what they are parts of, and without groups nothing changes") {
  const std::vector<Parameter> whole = {trained("lora_A.weight", {2, 4}), trained("lora_B.weight", {4, 2}),
                                        trained("norm", {4})};
  const GroupedParameters made =
      optim::grouped(optim::lora_plus(4.0), whole, {trained("lora_A.weight", {8}), trained("norm", {2})});
  CHECK(made.rates == optim::Rates{{"norm", 4.0}});
  CHECK_FALSE(made.parameters[0].weight_decay);
  const GroupedParameters plain = optim::grouped({}, whole, whole);
  CHECK(plain.rates.empty());
  CHECK(plain.parameters[0].weight_decay);
}

TEST_CASE("a group without a trained parameter is an error that names it") {
  const std::vector<Parameter> p = {trained("a.weight", {2, 2}), {"frozen.weight", at::ones({2, 2}), true}};
  for (const char* module : {"b.weight", "frozen"})
    CHECK(lacks(raised_by([&] {
                  (void)optim::grouped(optim::module_rates({{"lost", {module}, 2.0}}), p, p);
                }),
                {"optim.10", "lost", "a.weight"}) == "");
  CHECK(lacks(raised_by([&] { (void)optim::grouped(optim::lora_plus(2.0), p, p); }), {"optim.10", "LoRA+"}) == "");
}

// Reference: torch 2.11 and transformers 5.23 (scripts/fixtures/optim_rules.py).
TEST_CASE("optimizers walk the paths of torch's with groups of parameters") {
  CHECK(worst<optim::AdamW>({.weight_decay = 0.1},
                            {{"w",
                              {0.774076164f, 0.365068585f, -0.113338374f, -0.106597088f, -0.952259839f, -0.892295957f,
                               -0.86716193f, 0.262914985f, 1.0229044f, 1.2459352f, 0.824927986f, -0.220264807f,
                               -0.468206197f, -0.969999194f, -0.530382454f}},
                             {"tall",
                              {0.516300321f, -0.147055656f, -0.738252044f, -0.97480309f, -0.811929107f, -0.186891615f,
                               0.451994658f, 0.898817062f, 0.947019279f, 0.524460912f, -0.169882387f, -0.75989151f}},
                             {"plain", {-0.417290956f, -0.904635489f, -0.964296997f, -0.573965073f}}}) < 1e-6);
  CHECK(worst<optim::Adafactor>(
            {.weight_decay = 0.1},
            {{"w",
              {0.947583199f, 0.680163801f, 0.0683117211f, -0.430999935f, -0.947508216f, -0.906506598f, -0.548164248f,
               0.15943101f, 0.813016057f, 1.03202307f, 0.926513314f, 0.0198920742f, -0.479368091f, -0.952210665f,
               -0.842629433f}},
             {"tall",
              {0.533951283f, -0.130473793f, -0.734006405f, -0.990823328f, -0.793941796f, -0.204890728f, 0.462049216f,
               0.919155121f, 0.948746264f, 0.525006175f, -0.150230467f, -0.748497605f}},
             {"plain", {-0.416192412f, -0.904060066f, -0.965783715f, -0.57483238f}}}) < 1e-6);
  CHECK(worst<optim::Sgd>({.momentum = 0.9, .weight_decay = 0.1},
                          {{"w",
                            {0.658630371f, 0.342247188f, -0.148299232f, -0.115482524f, -1.15883303f, -0.650455296f,
                             -0.936610162f, 0.119906418f, 1.02185297f, 1.24359834f, 0.678275347f, -0.291925341f,
                             -0.217234433f, -1.18788803f, -0.525720537f}},
                           {"tall",
                            {0.48188141f, -0.171215296f, -0.718670785f, -0.94027257f, -0.838815689f, -0.153530195f,
                             0.436441243f, 0.867637396f, 0.918403864f, 0.498027295f, -0.195360214f, -0.767222345f}},
                           {"plain", {-0.418401986f, -0.903255999f, -0.958964646f, -0.574120402f}}}) < 1e-6);
  CHECK(worst<optim::Adagrad>({.weight_decay = 0.1},
                              {{"w",
                                {0.909485519f, 0.561879814f, 0.0730758533f, -0.277814716f, -0.904579937f, -0.987698734f,
                                 -0.646670163f, 0.22071068f, 0.857644558f, 1.08144391f, 0.787517071f, 0.00053158775f,
                                 -0.575053632f, -0.90646857f, -0.713292301f}},
                               {"tall",
                                {0.531523287f, -0.135246739f, -0.73861444f, -0.99085182f, -0.80089885f, -0.201310828f,
                                 0.463171214f, 0.913430154f, 0.951464653f, 0.527713716f, -0.158644676f, -0.752467811f}},
                               {"plain", {-0.416515589f, -0.904297411f, -0.965503514f, -0.574538052f}}}) < 1e-6);
  CHECK(worst<optim::RmsProp>({.weight_decay = 0.1},
                              {{"w",
                                {0.100522757f, -1.25854623f, -0.794699728f, 1.75945401f, -0.562473893f, -1.45378637f,
                                 -2.04780245f, 0.527666986f, 1.59270799f, 1.81208122f, 1.08943629f, -1.36851668f,
                                 -1.08211505f, -0.531260192f, 1.23480833f}},
                               {"tall",
                                {0.453873456f, -0.191748098f, -0.749462187f, -0.917534947f, -0.888725817f, -0.11741221f,
                                 0.415977359f, 0.788559139f, 0.962732017f, 0.542595148f, -0.275371403f, -0.785966814f}},
                               {"plain", {-0.419814706f, -0.906316578f, -0.953889966f, -0.57198f}}}) < 1e-6);
}

TEST_CASE("AdamW, also behind any optimizer and with moments in 8 bits, has rates of parameters") {
  rule_path::expect_rates<optim::AdamW>({.weight_decay = 0.1});
  rule_path::expect_rates<optim::AnyOptimizer>(optim::AnyOptimizer::of<optim::Lion>({.weight_decay = 0.1}));
  rule_path::expect_rates<optim::AdamW8bit>({.adam = {.weight_decay = 0.1}, .min_elements = 1});
}

TEST_CASE("rates for an optimizer that has one for all parameters are an error") {
  OneRate optimizer({}, {});
  CHECK(lacks(raised_by([&] { optim::set_rates(optimizer, {{"w", 2.0}}); }), {"optim.11", "set_rates", "w"}) == "");
  CHECK(raised_by([&] { optim::set_rates(optimizer, {}); }) == "nothing");
}
