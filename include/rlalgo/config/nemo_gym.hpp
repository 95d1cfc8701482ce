// From a configuration to its NeMo Gym (assembly/gym.hpp).
//
// Errors: those of assembly/gym.hpp and gym_turn_limits.hpp.
#pragma once

#include <filesystem>
#include <string>

#include <rlalgo/assembly/gym.hpp>
#include <rlalgo/config/document.hpp>
#include <rlalgo/config/gym_turn_limits.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/os/home_path.hpp>

namespace rlalgo::config {

[[nodiscard]] inline std::filesystem::path gym_directory(const RunConfig& c) {
  return os::expand_home(c.nemo_gym.dir, c.place("nemo_gym_dir"));
}

[[nodiscard]] inline assembly::GymConfig gym_of(const RunConfig& c) {
  const NemoGymConfig& g = c.nemo_gym;
  const std::filesystem::path directory = gym_directory(c);
  assembly::GymConfig out{
      .directory = directory,
      .datasets = {},
      .held_out = c.val_set_size,
      .shuffle = c.shuffle_merged_datasets,
      .shuffle_each = c.shuffle_before_merging_datasets,
      .seed = c.seed,
      .head_port = g.head_port,
      .start_seconds = g.server_timeout,
      .verify_seconds = g.verify_timeout,
      .run_seconds = g.run_timeout,
      .retries = c.trl.reward_max_retries,
      .agents = g.multi_turn,
      .failures_end_the_run = c.trl.reward_on_failure == "error",
      .model = g.model_name.value_or(c.base_model),
      .read_yaml =
          [](const std::string& text) { return to_json(parse_document(text, "the head server's document").root); },
      .starts = g.auto_start,
      .config_paths = g.config_paths,
      .policy = g.model_name.value_or("policy"),
      .log_directory = c.output_dir};
  if (g.max_turns)
    out.turn_limits = [directory, paths = g.config_paths, turns = *g.max_turns] {
      return gym_turn_limits(directory, paths, turns);
    };
  for (const NemoGymDataset& one : g.datasets)
    out.datasets.push_back({one.path, one.server_name, one.max_samples, one.place.text()});
  return out;
}

}  // namespace rlalgo::config
