// Training batches from a dataset of preferences: pairs, or single answers with labels.
//
// An optimizer step takes the next micro_batch_size · gradient_accumulation_steps examples of the epoch's order
// (epoch_order.hpp), the last step of an epoch what is left. Unpaired data with mismatched completions (KTO) is taken in
// dataset order: the mismatched completion of an example is the one of the example before
// it among those of its step, the first takes the last one's: the whole of it, cut where it leaves `max_length` behind
// the prompt it follows. It belongs to the example, so neither the split into micro-batches nor their order
// changes it.
//
// Metric: num_tokens, prompt and completion tokens of all answers trained on so far (a prompt counts once per answer,
// as in TRL). Warnings: a step whose unpaired rows all have one label.
// Errors: [rlalgo.sampler.20] no examples, or a size below 1; [rlalgo.sampler.21] a checkpoint of another dataset.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/error.hpp>
#include <rlalgo/core/metrics.hpp>
#include <rlalgo/data/answer_set.hpp>
#include <rlalgo/loss/concept.hpp>
#include <rlalgo/sampler/answer_rows.hpp>
#include <rlalgo/sampler/batch.hpp>
#include <rlalgo/sampler/concept.hpp>
#include <rlalgo/sampler/epoch_order.hpp>

namespace rlalgo::sampler {

struct PreferencesConfig {
  std::int64_t micro_batch_size = 1;  // examples
  std::int64_t gradient_accumulation_steps = 1;
  bool shuffle = true;
  std::uint64_t seed = 42;
  bool mismatched = false;      // give every answer its mismatched completion
  std::int64_t max_length = 0;  // tokens of a prompt and its mismatched completion; 0: any number
  bool count_tokens = true;     // num_tokens
};

template <loss::RowKind kind>
class Preferences {
 public:
  using Rows = AnswerRows<kind>;  // a pair is two answers in turn
  using Batch = sampler::Batch<data::Answer>;
  static constexpr Hooks hooks{.has_reference = true};

  Preferences(std::shared_ptr<const data::AnswerSet> answers, const PreferencesConfig& config)
      : answers_(std::move(answers)),
        config_(config),
        order_({.examples = answers_->examples(),
                .micro_batch_size = config.micro_batch_size,
                .gradient_accumulation_steps = config.gradient_accumulation_steps,
                .shuffle = config.shuffle,
                .seed = config.seed}) {
    if (answers_->per_example() != (kind == loss::RowKind::pairs ? 2 : 1))
      core::raise("sampler", 20,
                  {.what = "no batch can be drawn",
                   .found = std::to_string(answers_->per_example()) + " answers per example",
                   .expected = kind == loss::RowKind::pairs ? "pairs" : "single answers"});
  }

  [[nodiscard]] const PreferencesConfig& config() const noexcept { return config_; }
  // Optimizer steps of one pass over the dataset.
  [[nodiscard]] std::int64_t steps() const { return order_.steps(); }
  [[nodiscard]] double last_step_share() const { return order_.last_step_share(); }
  // Whether every answer brings its reference log-prob.
  [[nodiscard]] bool has_reference() const { return answers_->has_reference(); }

  Batch next(std::int64_t step) {
    const std::span<const std::size_t> chosen = order_.step(step);
    const std::size_t unit = answers_->per_example();
    Batch batch;
    const auto rows = std::make_shared<std::vector<data::Answer>>();
    batch.owners.push_back(rows);
    rows->reserve(chosen.size() * unit);
    std::int64_t tokens = 0;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      for (std::size_t k = 0; k < unit; ++k) {
        data::Answer answer = answers_->answer(chosen[i] * unit + k);
        if (config_.mismatched) {
          auto other = answers_->whole_completion(chosen[i == 0 ? chosen.size() - 1 : i - 1]);
          const std::int64_t room = std::max<std::int64_t>(config_.max_length - answer.prompt_tokens, 1);
          if (config_.max_length > 0) other = other.first(std::min(other.size(), static_cast<std::size_t>(room)));
          answer.mismatched.assign(other.begin(), other.end());
        }
        tokens += answer.tokens();
        rows->push_back(std::move(answer));
      }
    }
    const auto part_rows = static_cast<std::size_t>(config_.micro_batch_size) * unit;
    for (std::size_t at = 0; at < rows->size(); at += part_rows) {
      auto& part = batch.parts.emplace_back();
      for (std::size_t r = at; r < std::min(at + part_rows, rows->size()); ++r) part.push_back(&(*rows)[r]);
    }
    num_tokens_ += tokens;
    if (config_.count_tokens) batch.metrics.last("num_tokens", static_cast<double>(num_tokens_));
    if constexpr (kind == loss::RowKind::unpaired) warn_of_one_label(*rows, step, batch.warnings);
    next_step_ = step + 1;
    return batch;
  }

  [[nodiscard]] nlohmann::ordered_json state() const {
    nlohmann::ordered_json out = fingerprint();
    out["next_step"] = next_step_;
    out["num_tokens"] = num_tokens_;
    return out;
  }

  void restore(const nlohmann::ordered_json& state) {
    const nlohmann::ordered_json expected = fingerprint();
    for (const auto& [key, value] : expected.items()) {
      if (state.contains(key) && state.at(key) == value) continue;
      core::raise("sampler", 21,
                  {.what = "the checkpoint was made with other data or batch sizes",
                   .found = key + " " + (state.contains(key) ? state.at(key).dump() : "missing"),
                   .expected = value.dump(),
                   .remedy = "resume with the dataset and sizes of the run, or start a new output_dir"});
    }
    next_step_ = state.at("next_step").template get<std::int64_t>();
    num_tokens_ = state.at("num_tokens").template get<std::int64_t>();
  }

 private:
  [[nodiscard]] nlohmann::ordered_json fingerprint() const {
    return {{"examples", answers_->examples()},
            {"tokens", answers_->all_tokens()},
            {"micro_batch_size", config_.micro_batch_size},
            {"gradient_accumulation_steps", config_.gradient_accumulation_steps},
            {"shuffle", config_.shuffle},
            {"seed", config_.seed}};
  }

  static void warn_of_one_label(const std::vector<data::Answer>& rows, std::int64_t step,
                                std::vector<std::string>& warnings) {
    const auto desirable = std::count_if(rows.begin(), rows.end(), [](const data::Answer& a) { return a.desirable; });
    if (desirable != 0 && desirable != static_cast<std::ptrdiff_t>(rows.size())) return;
    warnings.push_back("step " + std::to_string(step + 1) + ": all rows are " +
                       (desirable == 0 ? "undesirable" : "desirable") +
                       "; mix the labels, or raise micro_batch_size or gradient_accumulation_steps");
  }

  std::shared_ptr<const data::AnswerSet> answers_;
  PreferencesConfig config_;
  EpochOrder order_;
  std::int64_t next_step_ = 0;
  std::int64_t num_tokens_ = 0;
};

using Pairs = Preferences<loss::RowKind::pairs>;
using UnpairedAnswers = Preferences<loss::RowKind::unpaired>;
static_assert(Finite<Pairs> && Finite<UnpairedAnswers>);

}  // namespace rlalgo::sampler
