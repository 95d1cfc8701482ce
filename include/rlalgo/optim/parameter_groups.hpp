// Groups of parameters: those that move at a rate of their own, and those that do not decay.
//
//   rate of a parameter = rate of the schedule × factor of its group;   λ = 0 where its group does not decay
//
//   config.groups = optim::lora_plus(16.0);       // of any trainer's Config
//   config.groups = {{.name = "head", .has = [](const model::Parameter& p) { return p.name == "lm_head.weight"; }, .rate = 0.1}};
//
// A parameter belongs to the first group that has it; without one it moves at the rate of the schedule and decays as it says itself.
// Groups are asked of whole parameters, so that shards of them, whose shapes are others, are in the group of what they are parts of.
//
// Source of lora_plus: Hayou, Ghosh & Yu, "LoRA+: Efficient Low Rank Adaptation of Large Models", arXiv 2402.12354; which parameters
// belong to B is what PEFT's create_loraplus_optimizer says. module_rates has the groups of axolotl's trainers (lr_groups, embedding_lr).
//
// Errors (usage): [rlalgo.optim.10] a group has no trained parameter; [.11] groups have rates, and the optimizer has one for all.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/optim/concept.hpp>

namespace rlalgo::optim {

struct ParameterGroup {
  std::string name{};  // in messages
  std::function<bool(const model::Parameter&)> has{};
  double rate = 1.0;         // times that of the schedule
  bool weight_decay = true;  // as the parameter says; false: none
  bool required = true;      // a run in which no parameter is in it is an error
};
using ParameterGroups = std::vector<ParameterGroup>;

// Matrices B of adapters, and whatever has one dimension, move `ratio` times as fast as all else; nothing decays.
[[nodiscard]] ParameterGroups lora_plus(double ratio);

// Parameters whose names contain the name of a module.
struct ModuleRate {
  std::string name{};
  std::vector<std::string> modules{};
  double rate = 1.0;
};
// Embeddings, heads and the modules that an adapter saves whole (`saved`: ends of their paths) are a group that does not decay, whatever
// else names them. Of what decays, a parameter belongs to the first name of a module, in the order of the list, that its own contains;
// a name that two entries have is the later one's.
[[nodiscard]] ParameterGroups module_rates(std::vector<ModuleRate> rates, double of_embeddings = 1.0,
                                           std::vector<std::string> saved = {});

struct GroupedParameters {
  std::vector<model::Parameter> parameters{};  // decay as their groups say
  Rates rates{};                               // other than 1
};
// `own`: what an optimizer updates, parts of the parameters of the same names among `whole`.
[[nodiscard]] GroupedParameters grouped(const ParameterGroups& groups, std::span<const model::Parameter> whole,
                                        std::vector<model::Parameter> own);

// To an optimizer that was made of such parameters.
template <Optimizer O>
void set_rates(O& optimizer, const Rates& rates) {
  if constexpr (hooks_of<O>().set_rates)
    optimizer.set_rates(rates);
  else if (!rates.empty())
    core::raise_usage("optim", 11,
                      {.what = "groups of parameters have rates of their own, and this optimizer has one for all",
                       .found = rates.begin()->first,
                       .remedy = "give the optimizer a set_rates(const optim::Rates&), or take optim::AdamW"});
}

}  // namespace rlalgo::optim

#ifndef RLALGO_COMPILED
#include <rlalgo/optim/detail/parameter_groups_impl.hpp>
#endif
