// Reports the coefficient of an entropy bonus and, where it is adaptive, steers it after every optimizer step.
//
// The controller's state is {"entropy_coef", "last_world_entropy"} in entropy_ctrl_state.json of each checkpoint, the
// file of TRL's GRPOTrainer.
// Metric: entropy_coef, after the step's update.
// Errors: [rlalgo.trainer.30] a checkpoint without that file, or with another content.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <utility>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/loss/entropy_bonus.hpp>
#include <rlalgo/os/atomic_file.hpp>
#include <rlalgo/os/regular_file.hpp>
#include <rlalgo/trainer/companion.hpp>

namespace rlalgo::trainer {

class EntropyControl final : public Companion {
 public:
  explicit EntropyControl(std::shared_ptr<loss::EntropyCoefficient> coefficient)
      : coefficient_(std::move(coefficient)) {}

  void after_step(std::int64_t /*step*/, core::Metrics& metrics) override {
    coefficient_->observe(metrics.value("entropy_bonus/entropy"));
    metrics.last("entropy_coef", coefficient_->value());
  }

  void save(const std::filesystem::path& directory) const override {
    if (!coefficient_->is_adaptive()) return;
    const double last = coefficient_->last_entropy();
    const data::Json state = {{"entropy_coef", coefficient_->value()},
                              {"last_world_entropy", std::isfinite(last) ? data::Json(last) : data::Json(nullptr)}};
    os::write_file(directory / file, state.dump());
  }

  void restore(const std::filesystem::path& directory) override {
    if (!coefficient_->is_adaptive()) return;
    constexpr std::uint64_t most = 4096;  // bytes
    const data::Json state = core::read_json<data::Json>(os::read_regular_file(directory / file, most).text).value;
    if (!state.is_object() || !state.contains("entropy_coef") || !state["entropy_coef"].is_number() ||
        !state.contains("last_world_entropy"))
      core::raise("trainer", 30,
                  {.what = "the checkpoint has no state of the adaptive entropy bonus",
                   .expected = R"({"entropy_coef": …, "last_world_entropy": …})",
                   .where = (directory / file).string(),
                   .remedy = "resume with the settings that the run was started with"});
    const data::Json& last = state["last_world_entropy"];
    coefficient_->restore(state["entropy_coef"].get<double>(),
                          last.is_number() ? last.get<double>() : std::numeric_limits<double>::infinity());
  }

 private:
  static constexpr const char* file = "entropy_ctrl_state.json";
  std::shared_ptr<loss::EntropyCoefficient> coefficient_;
};

}  // namespace rlalgo::trainer
