// All settings of a run, as plain values: axolotl's keys, its defaults, and the `trl:` section.
//
// A field has the name of its key, and stands beside the key's row in config/*_keys.hpp. A field without a key of its own is marked
// "derived". Where a key's default depends on the recipe or on other keys, the field is optional and config/plan.hpp or the recipe
// resolves it. `given` tells which keys were set and where. Defaults departing from axolotl's are marked (≠).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/config/adapter_keys.hpp>
#include <rlalgo/config/data_keys.hpp>
#include <rlalgo/config/ebft_keys.hpp>
#include <rlalgo/config/gym_keys.hpp>
#include <rlalgo/config/model_keys.hpp>
#include <rlalgo/config/node.hpp>
#include <rlalgo/config/output_keys.hpp>
#include <rlalgo/config/preference_keys.hpp>
#include <rlalgo/config/quantisation_keys.hpp>
#include <rlalgo/config/sharding_keys.hpp>
#include <rlalgo/config/training_keys.hpp>
#include <rlalgo/config/trl_config.hpp>
#include <rlalgo/model/lora_config.hpp>
#include <rlalgo/os/outside.hpp>

namespace rlalgo::distributed {
class World;
}

namespace rlalgo::config {

struct RunConfig : ModelConfig, DataConfig, TrainingConfig, OutputConfig {
  // Adapter: lora_* and peft_* keys, which lora_model_dir overrides
  std::optional<model::LoraConfig> lora;  // set by adapter: lora
  QuantisedBase bnb;                      // the base below it
  // Of the base's weights, where the files have them whole.
  [[nodiscard]] std::optional<model::Quantisation> quantisation() const {
    if (!bnb.on()) return std::nullopt;
    return bnb.quantisation();
  }

  // Recipe
  std::string rl;  // required: a name of recipes() in config/methods.hpp
  std::optional<double> rl_beta;
  double beta = 0.0;  // derived: trl.beta, else rl_beta, else the recipe's default

  ShardingConfig sharding;  // fsdp, fsdp_config, deepspeed, dp_shard_size, dp_replicate_size

  // Whether a rank may hold a part of the weights, gradients or optimizer states.
  [[nodiscard]] bool divides_model() const { return sharding.on() || expert_parallel_size > 1; }

  TrlConfig trl;
  PreferenceConfig preference;  // rl: dpo, ipo, kto, orpo, simpo, cpo
  EbftConfig ebft;              // rl: ebft
  NemoGymConfig nemo_gym;       // nemo_gym_enabled: true

  // Derived
  std::vector<std::string> warnings;           // to be shown once, in order
  std::map<std::string, Place> given;          // full key → where it was set
  std::string file;                            // the configuration file
  data::Json keys = nullptr;                   // everything it says, overrides included
  data::Json settings = data::Json::object();  // full key → effective value of every key that was read and has one
  os::Outside outside = {};                    // what the run reads of the world around it (config/outside.hpp)
  bool outside_kept = false;                   // it is a checkpoint's
  std::shared_ptr<distributed::World> world = nullptr;  // the ranks of the run; null: one
  std::int64_t ranks = 1;                               // that it was read for: of a dry run, which has no world

  [[nodiscard]] bool was_set(const std::string& key) const { return given.contains(key); }
  // Of trl.async_schedule: record, recorded.
  [[nodiscard]] std::string schedule_file() const {
    return trl.async_schedule_file.value_or(output_dir + "/async_schedule.jsonl");
  }
  // Where `key` was set, for error texts; the key itself when it has its default.
  [[nodiscard]] std::string place(const std::string& key) const {
    const auto found = given.find(key);
    return found == given.end() ? key + " (default)" : found->second.text();
  }
};

}  // namespace rlalgo::config
