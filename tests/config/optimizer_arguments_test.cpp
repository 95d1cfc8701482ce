// optimizer and optim_args (config/detail/read_optimizer.hpp), and the optimizer that a trainer gets.
#include <string>
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
    "base_model: ./m\nrl: dpo\ndatasets:\n  - {path: rows.jsonl, type: chatml.intel}\nlearning_rate: 1e-6\n"
    "micro_batch_size: 8\n";

RunConfig parse(const std::string& text, int ranks = 1) {
  return parse_run_config(parse_document(base + text, "c.yaml"), ranks);
}
std::string error_of(const std::string& text, int ranks = 1) {
  return raised_by([&] { (void)parse(text, ranks); });
}

// The names of the state of a matrix and a vector.
std::vector<std::string> state_of(const RunConfig& c) {
  using rlalgo::model::Parameter;
  const rlalgo::optim::AnyOptimizer made({Parameter{"w", at::zeros({8, 4}).requires_grad_(), true},
                                          Parameter{"v", at::zeros({4}).requires_grad_(), false}},
                                         optimizer_of(c));
  std::vector<std::string> out;
  for (const auto& [name, value] : made.state()) out.push_back(name);
  return out;
}

// Where one step with a rate of 0.1 moves a matrix of ones with the gradient sin(i).
at::Tensor moved(const RunConfig& c) {
  std::vector<rlalgo::model::Parameter> p = {{"w", at::ones({3, 4}).requires_grad_(), true},
                                             {"v", at::ones({4}).requires_grad_(), false}};
  rlalgo::optim::AnyOptimizer made(p, optimizer_of(c));
  for (int t = 0; t < 2; ++t) {
    for (auto& one : p)
      one.value.mutable_grad() = at::arange(one.value.numel(), at::kFloat).add(t).sin().view_as(one.value);
    made.step(0.1);
  }
  return at::cat({p[0].value.detach().flatten(), p[1].value.detach()});
}

}  // namespace

TEST_CASE("a name of an optimizer gives its state") {
  using Names = std::vector<std::string>;
  CHECK(state_of(parse("optimizer: lion\n")) == Names{"w.exp_avg", "v.exp_avg"});
  CHECK(state_of(parse("optimizer: adafactor\n")) ==
        Names{"w.exp_avg_sq_row", "w.exp_avg_sq_col", "w.step", "v.exp_avg_sq", "v.step"});
  CHECK(state_of(parse("optimizer: muon\n")) == Names{"w.momentum_buffer", "v.exp_avg", "v.exp_avg_sq", "v.step"});
  CHECK(state_of(parse("optimizer: sgd\n")).empty());
  CHECK(state_of(parse("optimizer: sgd\noptim_args: {momentum: 0.9}\n")) ==
        Names{"w.momentum_buffer", "w.step", "v.momentum_buffer", "v.step"});
  // The schedule sets one.
  CHECK(state_of(parse("optimizer: sgd\nlr_scheduler: one_cycle\n")).size() == 4);
  CHECK(state_of(parse("optimizer: adagrad\n")) == Names{"w.sum", "w.step", "v.sum", "v.step"});
  CHECK(state_of(parse("optimizer: rmsprop\n")) == Names{"w.square_avg", "v.square_avg"});
  CHECK(state_of(parse("optimizer: rmsprop\noptim_args: {centered: true, momentum: 0.5}\n")) ==
        Names{"w.square_avg", "w.grad_avg", "w.momentum_buffer", "v.square_avg", "v.grad_avg", "v.momentum_buffer"});
  const RunConfig eight = parse("optimizer: lion_8bit\n");
  REQUIRE(eight.warnings.size() == 1);
  CHECK(lacks(eight.warnings[0], {"lion_8bit", "trains as Lion", "float32"}) == "");
}

TEST_CASE("keys and arguments reach the optimizer") {
  const auto differs = [](const std::string& a, const std::string& b) {
    return !moved(parse(a)).equal(moved(parse(b)));
  };
  const std::string lion = "optimizer: lion\n", muon = "optimizer: muon\n", adafactor = "optimizer: adafactor\n";
  CHECK(differs(lion, lion + "weight_decay: 0.1\n"));
  CHECK(differs(lion, lion + "adam_beta2: 0.0\n"));
  CHECK(differs(lion + "adam_beta2: 0.0\n", lion + "adam_beta1: 0.0\nadam_beta2: 0.0\n"));
  for (const char* one : {"momentum: 0.1", "nesterov: false", "ns_steps: 3"})
    CHECK(differs(muon, muon + "optim_args: {" + one + "}\n"));
  CHECK(differs(muon, muon + "adam_beta1: 0.5\nadam_beta2: 0.5\n"));
  CHECK_FALSE(differs(muon, muon + "adam_beta1: 0.5\n"));  // Muon's own unless both are there
  CHECK(differs(muon, muon + "adam_epsilon: 0.5\n"));
  for (const char* one :
       {"clip_threshold: 0.1", "decay_rate: -0.1", "beta1: 0.9", "scale_parameter: true", "eps: [0.5, 1e-3]"})
    CHECK(differs(adafactor, adafactor + "optim_args: {" + one + "}\n"));
  const std::string sgd = "optimizer: sgd\n", adagrad = "optimizer: adagrad\n", rmsprop = "optimizer: rmsprop\n";
  for (const std::string& one : {sgd, adagrad, rmsprop}) CHECK(differs(one, one + "weight_decay: 0.1\n"));
  CHECK(differs(sgd, sgd + "optim_args: {momentum: 0.5}\n"));
  for (const char* one : {"dampening: 0.5", "nesterov: true"})
    CHECK(differs(sgd + "optim_args: {momentum: 0.5}\n", sgd + "optim_args: {momentum: 0.5, " + one + "}\n"));
  for (const char* one : {"lr_decay: 0.5", "eps: 0.5"})
    CHECK(differs(adagrad, adagrad + "optim_args: {" + one + "}\n"));
  for (const char* one : {"alpha: 0.5", "eps: 0.5", "momentum: 0.5", "centered: true"})
    CHECK(differs(rmsprop, rmsprop + "optim_args: {" + one + "}\n"));
  CHECK_FALSE(differs(sgd + "optim_args: {momentum: 0.5, nesterov: true}\n",
                      sgd + "optim_args: \"momentum=0.5,nesterov=True\"\n"));
  // As one text, as transformers has it.
  CHECK_FALSE(differs(muon + "optim_args: {momentum: 0.1, nesterov: false}\n",
                      muon + "optim_args: \"momentum=0.1, nesterov=False\"\n"));
}

TEST_CASE("arguments that an optimizer does not take are refused by name") {
  CHECK(lacks(error_of("optimizer: muon\noptim_args: {rank: 3}\n"), {"config.4: ", "optim_args.rank"}) == "");
  CHECK(lacks(error_of("optimizer: muon\noptim_args: \"momentum\"\n"), {"config.5: ", "optim_args", "name=value"}) ==
        "");
  CHECK(lacks(error_of("optimizer: muon\noptim_args: {momentum: 1}\n"), {"config.6: ", "optim_args.momentum"}) == "");
  CHECK(lacks(error_of("optimizer: muon\noptim_args: {ns_steps: 0}\n"), {"config.6: ", "optim_args.ns_steps"}) == "");
  CHECK(lacks(error_of("optimizer: adafactor\noptim_args: {eps: [1]}\n"), {"config.6: ", "optim_args.eps"}) == "");
  CHECK(lacks(error_of("optimizer: adafactor\noptim_args: {eps: [.inf, 1]}\n"), {"config.6: ", "optim_args.eps"}) ==
        "");
  CHECK(lacks(error_of("optimizer: adafactor\noptim_args: {decay_rate: 0.8}\n"), {"config.6: ", "decay_rate"}) == "");
  CHECK(lacks(error_of("optimizer: adafactor\noptim_args: {relative_step: true}\n"),
              {"config.10: ", "optim_args.relative_step", "lr_scheduler"}) == "");
  CHECK(lacks(error_of("optimizer: lion\noptim_args: {beta1: 0.5}\n"), {"config.10: ", "optim_args", "adam_beta1"}) ==
        "");
  CHECK(lacks(error_of("optim_args: {beta1: 0.5}\n"), {"config.10: ", "optim_args", "adam_epsilon"}) == "");
  CHECK(error_of("optim_args: {}\n") == "nothing");
  for (const char* name : {"sgd", "adagrad", "rmsprop"})
    CHECK(lacks(error_of(std::string("optimizer: ") + name + "\noptim_args: {weight_decay: 0.1}\n"),
                {"config.10: ", "optim_args.weight_decay", "the key weight_decay"}) == "");
  for (const char* args : {"{nesterov: true}", "{nesterov: true, momentum: 0.9, dampening: 0.1}"})
    CHECK(lacks(error_of(std::string("optimizer: sgd\noptim_args: ") + args + "\n"), {"config.8: ", "nesterov"}) == "");
  CHECK(lacks(error_of("optimizer: adagrad\noptim_args: {momentum: 0.9}\n"), {"config.4: ", "optim_args.momentum"}) ==
        "");
}

TEST_CASE("optimizers that are not here say why, and what their updates cannot do is refused") {
  for (const char* name : {"schedule_free_adamw", "schedule_free_sgd"})
    CHECK(lacks(error_of(std::string("optimizer: ") + name + "\n"), {"config.10: ", name, "average", "lr_scheduler"}) ==
          "");
  CHECK(lacks(error_of("optimizer: ademamix\n"), {"config.10: ", "optimizer ademamix", "muon"}) == "");
  const std::string cycle = "lr_scheduler: one_cycle\n";
  CHECK(lacks(error_of("optimizer: adafactor\n" + cycle), {"config.8: ", "cycle_momentum"}) == "");
  CHECK(error_of("optimizer: adafactor\n" + cycle + "lr_scheduler_kwargs: {cycle_momentum: false}\n") == "nothing");
  CHECK(error_of("optimizer: adafactor\n" + cycle + "optim_args: {beta1: 0.9}\n") == "nothing");
  CHECK(lacks(error_of("optimizer: adagrad\n" + cycle), {"config.8: ", "adagrad", "cycle_momentum"}) == "");
  for (const char* name : {"lion", "sgd", "rmsprop"})
    CHECK(error_of(std::string("optimizer: ") + name + "\n" + cycle) == "nothing");
  for (const char* name : {"adafactor", "muon"})
    CHECK(lacks(error_of(std::string("fsdp: [full_shard]\nfsdp_version: 2\noptimizer: ") + name + "\n", 2),
                {"config.37: ", name, "lion"}) == "");
  for (const char* name : {"lion", "sgd", "adagrad", "rmsprop"})
    CHECK(error_of(std::string("fsdp: [full_shard]\nfsdp_version: 2\noptimizer: ") + name + "\n", 2) == "nothing");
}

TEST_CASE("a resume compares what moves the weights") {
  const auto rule = [](const std::string& text) {
    const RunConfig c = parse(text);
    const auto settings = trainer_settings(c, make_plan(c, 20, false), 7, "dpo").loop.settings;
    return settings.contains("update rule") ? settings["update rule"].get<std::string>() : "none";
  };
  CHECK(rule("") == "none");
  CHECK(rule("optimizer: paged_lion_32bit\n") == "lion");
  CHECK(rule("optimizer: adafactor\n") == "adafactor");
  for (const char* name : {"muon", "sgd", "adagrad", "rmsprop"})
    CHECK(rule(std::string("optimizer: ") + name + "\n") == name);
}
