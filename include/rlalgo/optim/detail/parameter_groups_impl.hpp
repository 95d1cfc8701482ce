// Definitions of parameter_groups.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/optim/parameter_groups.hpp>

namespace rlalgo::optim {

RLALGO_INLINE ParameterGroups lora_plus(double ratio) {
  return {
      {.name = "B of LoRA+",
       .has =
           [](const model::Parameter& p) { return p.name.find("lora_B") != std::string::npos || p.value.dim() == 1; },
       .rate = ratio,
       .weight_decay = false},
      {.name = "A of LoRA+",
       .has = [](const model::Parameter&) { return true; },
       .weight_decay = false,
       .required = false}};
}

namespace detail {

inline bool is_embedding(const std::string& name, const std::vector<std::string>& saved) {
  if (name.find("embed_tokens") != std::string::npos || name.find("lm_head") != std::string::npos) return true;
  constexpr std::string_view end = ".weight";
  if (!name.ends_with(end) || name.find(".lora_") != std::string::npos) return false;
  const std::string_view path = std::string_view(name).substr(0, name.size() - end.size());
  return std::any_of(saved.begin(), saved.end(), [&](const std::string& one) { return path.ends_with(one); });
}

}  // namespace detail

RLALGO_INLINE ParameterGroups module_rates(std::vector<ModuleRate> rates, double of_embeddings,
                                           std::vector<std::string> saved) {
  // Names of modules in the order in which they come, and whose they are.
  std::vector<std::pair<std::string, std::size_t>> modules;
  for (std::size_t i = 0; i < rates.size(); ++i)
    for (const std::string& module : rates[i].modules) {
      const auto known =
          std::find_if(modules.begin(), modules.end(), [&](const auto& one) { return one.first == module; });
      if (known != modules.end())
        known->second = i;
      else
        modules.emplace_back(module, i);
    }
  ParameterGroups out;
  out.push_back(
      {.name = "embeddings",
       .has = [saved = std::move(saved)](const model::Parameter& p) { return detail::is_embedding(p.name, saved); },
       .rate = of_embeddings,
       .weight_decay = false,
       .required = false});
  for (std::size_t i = 0; i < rates.size(); ++i)
    out.push_back({.name = std::move(rates[i].name),
                   .has =
                       [modules, i](const model::Parameter& p) {
                         const auto first = std::find_if(modules.begin(), modules.end(), [&](const auto& one) {
                           return p.name.find(one.first) != std::string::npos;
                         });
                         return p.weight_decay && first != modules.end() && first->second == i;
                       },
                   .rate = rates[i].rate});
  return out;
}

RLALGO_INLINE GroupedParameters grouped(const ParameterGroups& groups, std::span<const model::Parameter> whole,
                                        std::vector<model::Parameter> own) {
  GroupedParameters out{std::move(own)};
  if (groups.empty()) return out;
  std::vector<bool> filled(groups.size());
  std::map<std::string, const ParameterGroup*> of;
  for (const model::Parameter& p : whole) {
    if (!p.value.requires_grad()) continue;
    const auto group =
        std::find_if(groups.begin(), groups.end(), [&](const ParameterGroup& one) { return one.has(p); });
    if (group == groups.end()) continue;
    filled[static_cast<std::size_t>(group - groups.begin())] = true;
    of[p.name] = &*group;
  }
  for (std::size_t i = 0; i < groups.size(); ++i)
    if (groups[i].required && !filled[i])
      core::raise_usage("optim", 10,
                        {.what = "a group of parameters is empty",
                         .found = groups[i].name,
                         .expected = "a trained parameter, such as " +
                                     (whole.empty() ? std::string("the weight of a layer") : whole.front().name),
                         .remedy = "remove the group, or name what is trained"});
  for (model::Parameter& p : out.parameters) {
    const auto found = of.find(p.name);
    if (found == of.end()) continue;
    p.weight_decay = p.weight_decay && found->second->weight_decay;
    if (found->second->rate != 1.0) out.rates[p.name] = found->second->rate;
  }
  return out;
}

}  // namespace rlalgo::optim
