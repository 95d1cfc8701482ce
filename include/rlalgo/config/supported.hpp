// The schedules and optimizers that the file format has, and those that this build runs. Methods: config/methods.hpp.
//
// A key whose value asks for something beyond these lists is an error (config.9 or config.10), never
// ignored: a run that silently lacks what its file says is worse than none.
#pragma once

#include <string>
#include <vector>

namespace rlalgo::config {

struct Names {
  std::vector<std::string> known;      // every name that the file format has
  std::vector<std::string> supported;  // those that this build runs
};

[[nodiscard]] inline const Names& schedulers() {
  static const std::vector<std::string> all = {"linear",
                                               "cosine",
                                               "constant",
                                               "constant_with_warmup",
                                               "cosine_with_restarts",
                                               "polynomial",
                                               "inverse_sqrt",
                                               "reduce_lr_on_plateau",
                                               "cosine_with_min_lr",
                                               "cosine_warmup_with_min_lr",
                                               "warmup_stable_decay",
                                               "one_cycle",
                                               "rex"};
  static const Names names = {.known = all, .supported = all};
  return names;
}

// Every AdamW spelling is one AdamW here; those with a smaller state (8-bit, paged …) train with the full one.
[[nodiscard]] inline const Names& optimizers() {
  static const Names names = {
      .known = {"adamw_torch_fused",
                "adamw_torch",
                "adamw_hf",
                "adamw_apex_fused",
                "adamw_anyprecision",
                "adamw_torch_4bit",
                "adamw_torch_8bit",
                "adamw_bnb_8bit",
                "adamw_8bit",
                "paged_adamw",
                "paged_adamw_32bit",
                "paged_adamw_8bit",
                "optimi_adamw",
                "ao_adamw_4bit",
                "ao_adamw_8bit",
                "ao_adamw_fp8",
                "flash_adamw",
                "adopt_adamw",
                "came_pytorch",
                "muon",
                "dion",
                "sinkgd",
                "flash_adam",
                "flash_sgd",
                "flash_sgdw",
                "flash_lion",
                "q_galore_adamw8bit",
                "ademamix",
                "ademamix_8bit",
                "adafactor",
                "sgd",
                "adagrad",
                "rmsprop",
                "lion",
                "lion_32bit",
                "lion_8bit",
                "paged_lion_32bit",
                "paged_lion_8bit",
                "paged_ademamix_32bit",
                "paged_ademamix_8bit",
                "galore_adamw",
                "galore_adamw_8bit",
                "galore_adafactor",
                "apollo_adamw",
                "lomo",
                "adalomo",
                "grokadamw",
                "schedule_free_adamw",
                "schedule_free_radam",
                "schedule_free_sgd",
                "stable_adamw"},
      .supported = {"adamw_torch_fused", "adamw_torch", "adamw_hf", "adamw_apex_fused", "adamw_anyprecision",
                    "adamw_torch_4bit", "adamw_torch_8bit", "adamw_bnb_8bit", "adamw_8bit", "paged_adamw",
                    "paged_adamw_32bit", "paged_adamw_8bit", "optimi_adamw", "ao_adamw_4bit", "ao_adamw_8bit",
                    "ao_adamw_fp8", "flash_adamw"},
  };
  return names;
}

}  // namespace rlalgo::config
