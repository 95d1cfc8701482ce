// The model card of a run (run/model_card.hpp): what the file says of base, method, data sets and settings.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/data/hub_cache.hpp>
#include <rlalgo/os/home_path.hpp>
#include <rlalgo/os/regular_file.hpp>
#include <rlalgo/run/model_card.hpp>

namespace rlalgo::config {

// Of a run of `steps` optimizer steps. Base and kind are the language model's.
[[nodiscard]] inline run::ModelCard model_card(const RunConfig& c, std::int64_t steps) {
  const Recipe& recipe = recipe_of(c);
  run::ModelCard out;
  out.method = c.rl;
  out.summary = std::string(recipe.summary);
  for (const DatasetConfig& one : c.datasets) {
    const std::string& path = one.source.path;
    if (data::is_hub_id(path) && !os::exists(path) &&
        std::find(out.datasets.begin(), out.datasets.end(), path) == out.datasets.end())
      out.datasets.push_back(path);
  }
  const auto number = [](double value) { return data::Json(value).dump(); };
  out.settings = {{"learning_rate", number(c.learning_rate)},
                  {"optimizer", c.optimizer},
                  {"lr_scheduler_type", c.lr_scheduler},
                  {"train_batch_size", std::to_string(c.micro_batch_size)},
                  {"gradient_accumulation_steps", std::to_string(c.gradient_accumulation_steps)},
                  {"training_steps", std::to_string(steps)},
                  {"seed", std::to_string(c.seed)}};
  if (c.beta != 0.0) out.settings.emplace_back("beta", number(c.beta));
  return out;
}

}  // namespace rlalgo::config
