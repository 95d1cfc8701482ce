// Calls of the asynchronous thread that are recorded, or repeated with the weights that they had: decorators of generator and policy
// around a gate (call_schedule.hpp says what is recorded). Calls of the trainer's own thread pass through.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include <rlalgo/inference/generator.hpp>
#include <rlalgo/sync/call_schedule.hpp>
#include <rlalgo/sync/concept.hpp>
#include <rlalgo/sync/weight_gate.hpp>

namespace rlalgo::sync {

template <inference::Generator G>
class ScheduledGenerator {
 public:
  static constexpr inference::WeightSource weights = G::weights;
  static constexpr inference::GeneratorHooks hooks{.quantizes = true};

  // `schedule`: null: everything passes through.
  ScheduledGenerator(G generator, std::shared_ptr<WeightGate> gate, std::shared_ptr<CallSchedule> schedule)
      : generator_(std::move(generator)), gate_(std::move(gate)), schedule_(std::move(schedule)) {}

  auto generate(std::span<const inference::Request> requests, const inference::SamplingConfig& sampling,
                inference::DrawKey key) {
    if (schedule_ == nullptr || gate_->on_trainer()) return generator_.generate(requests, sampling, key);
    try {
      schedule_->begin(key.step, gate_->stop());
      auto out = generator_.generate(requests, sampling, key);
      schedule_->end(out.empty() || out.front().empty() ? gate_->version() : out.front().front().weights_version);
      return out;
    } catch (...) {
      schedule_->give_up();
      throw;
    }
  }
  [[nodiscard]] inference::WeightSource source() const { return inference::source_of(generator_); }
  [[nodiscard]] bool quantizes() const { return inference::quantizes(generator_); }

 private:
  G generator_;
  std::shared_ptr<WeightGate> gate_;
  std::shared_ptr<CallSchedule> schedule_;
};

template <SyncPolicy Y>
class ScheduledSync {
 public:
  static constexpr bool reaches(inference::WeightSource source) { return Y::reaches(source); }
  static constexpr Hooks hooks{.serves = true};

  ScheduledSync(Y policy, std::shared_ptr<WeightGate> gate, std::shared_ptr<CallSchedule> schedule)
      : policy_(std::move(policy)), gate_(std::move(gate)), schedule_(std::move(schedule)) {}

  Published publish(std::int64_t version) {
    if (schedule_ == nullptr) return policy_.publish(version);
    if (version != gate_->version()) schedule_->before_publish(version);
    const Published out = policy_.publish(version);
    schedule_->published(version);
    return out;
  }
  [[nodiscard]] std::function<std::int64_t()> version_source() const { return policy_.version_source(); }
  [[nodiscard]] bool serves(inference::WeightSource source) const { return sync::serves(policy_, source); }

 private:
  Y policy_;
  std::shared_ptr<WeightGate> gate_;
  std::shared_ptr<CallSchedule> schedule_;
};

}  // namespace rlalgo::sync
