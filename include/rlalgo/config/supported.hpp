// The schedules and optimizers that the file format has, and those that this build runs. Methods: config/methods.hpp.
//
// A key whose value asks for something beyond these lists is an error (config.9 or config.10), never
// ignored: a run that silently lacks what its file says is worse than none.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlalgo::config {

struct Names {
  std::vector<std::string> known;      // every name that the file format has
  std::vector<std::string> supported;  // those that this build runs
};

// Of "a b c".
[[nodiscard]] inline std::vector<std::string> split_words(std::string_view list) {
  std::vector<std::string> out;
  while (!list.empty()) {
    const std::size_t end = list.find(' ');
    out.emplace_back(list.substr(0, end));
    list = end == std::string_view::npos ? std::string_view() : list.substr(end + 1);
  }
  return out;
}

// What datasets[].ds_type may say of a file.
[[nodiscard]] inline std::vector<std::string> dataset_formats() { return split_words("json text csv parquet arrow"); }

[[nodiscard]] inline const Names& schedulers() {
  static const std::vector<std::string> all = split_words(
      "linear cosine constant constant_with_warmup cosine_with_restarts polynomial inverse_sqrt reduce_lr_on_plateau "
      "cosine_with_min_lr cosine_warmup_with_min_lr warmup_stable_decay one_cycle rex");
  static const Names names = {.known = all, .supported = all};
  return names;
}

// How an optimizer holds its moments: as the master weights, or in blocks of 8 bits (optim/adamw_8bit.hpp).
enum class Moments { whole, blockwise_8bit };

// What moves a parameter: optim/adamw.hpp, lion.hpp, adafactor.hpp, muon.hpp, sgd.hpp, adagrad.hpp, rmsprop.hpp.
enum class UpdateRule { adamw, lion, adafactor, muon, sgd, adagrad, rmsprop };

// A spelling of an optimizer. Those that transformers hands to bitsandbytes' AdamW8bit have its moments; `smaller` are others whose
// state is smaller there: here they train with the whole one, and the run says so.
struct OptimizerName {
  std::string_view name;
  Moments moments = Moments::whole;
  bool smaller = false;
  UpdateRule rule = UpdateRule::adamw;
};

[[nodiscard]] inline std::span<const OptimizerName> optimizer_names() {
  static constexpr OptimizerName names[] = {
      {"adamw_torch_fused"},
      {"adamw_torch"},
      {"adamw_hf"},
      {"adamw_apex_fused"},
      {"adamw_anyprecision"},
      {"optimi_adamw"},
      {"flash_adamw"},
      {"adamw_bnb_8bit", Moments::blockwise_8bit},
      {"adamw_8bit", Moments::blockwise_8bit},
      {"paged_adamw_8bit", Moments::blockwise_8bit},
      {.name = "adamw_torch_4bit", .smaller = true},
      {.name = "adamw_torch_8bit", .smaller = true},
      {.name = "paged_adamw", .smaller = true},
      {.name = "paged_adamw_32bit", .smaller = true},
      {.name = "ao_adamw_4bit", .smaller = true},
      {.name = "ao_adamw_8bit", .smaller = true},
      {.name = "ao_adamw_fp8", .smaller = true},
      {.name = "lion", .rule = UpdateRule::lion},
      {.name = "lion_32bit", .rule = UpdateRule::lion},
      {.name = "paged_lion_32bit", .smaller = true, .rule = UpdateRule::lion},
      {.name = "lion_8bit", .smaller = true, .rule = UpdateRule::lion},
      {.name = "paged_lion_8bit", .smaller = true, .rule = UpdateRule::lion},
      {.name = "adafactor", .rule = UpdateRule::adafactor},
      {.name = "muon", .rule = UpdateRule::muon},
      {.name = "sgd", .rule = UpdateRule::sgd},
      {.name = "adagrad", .rule = UpdateRule::adagrad},
      {.name = "rmsprop", .rule = UpdateRule::rmsprop},
  };
  return names;
}

// Of one of those names; of any other, those that AdamW itself has.
[[nodiscard]] inline OptimizerName optimizer_named(std::string_view name) {
  for (const OptimizerName& row : optimizer_names())
    if (row.name == name) return row;
  return {name};
}
[[nodiscard]] inline Moments moments_of(std::string_view optimizer) { return optimizer_named(optimizer).moments; }

[[nodiscard]] inline const Names& optimizers() {
  static const Names names = [] {
    Names out;
    for (const OptimizerName& row : optimizer_names()) out.supported.emplace_back(row.name);
    out.known = out.supported;
    for (std::string& other :
         split_words("adopt_adamw came_pytorch dion sinkgd flash_adam flash_sgd flash_sgdw flash_lion "
                     "q_galore_adamw8bit ademamix ademamix_8bit "
                     "paged_ademamix_32bit paged_ademamix_8bit galore_adamw galore_adamw_8bit "
                     "galore_adafactor apollo_adamw "
                     "lomo adalomo grokadamw schedule_free_adamw schedule_free_radam schedule_free_sgd stable_adamw"))
      out.known.push_back(std::move(other));
    return out;
  }();
  return names;
}

}  // namespace rlalgo::config
