// Reference log-probs of a whole preference dataset, computed before training and kept on disk.
//
//   per answer: Σ over the completion of log-probs under the reference (tokens beyond the shorter completion of a pair
//   count `ld_alpha` where that is set), and the same of its mismatched completion for a loss that needs it
//
// The mismatched completion of an answer depends on the rows of its optimizer step, so the step's size is part of the
// key, as are ld_alpha, the data's tokens and the reference's weights (by the caller's `model_identity`).
// Errors: [rlalgo.data.27] the file on disk is damaged or does not fit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/digest.hpp>
#include <rlalgo/data/answer_file.hpp>
#include <rlalgo/data/answer_set.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/sampler/answer_rows.hpp>
#include <rlalgo/sampler/preferences.hpp>

namespace rlalgo::sampler {

struct PrecomputeConfig {
  std::int64_t batch_size = 1;         // examples per forward pass
  std::int64_t examples_per_step = 1;  // of training, for mismatched completions
  bool mismatched = false;
  std::int64_t max_length = 0;  // as PreferencesConfig has it
  std::optional<double> ld_alpha = {};
  std::filesystem::path directory = {};  // of the cache; empty: nothing is read or written
  std::string model_identity = {};       // what the reference's weights are
  // Called after every forward pass; mismatched completions count as examples of their own.
  std::function<void(std::int64_t examples)> progress = {};
};

namespace detail {

// Σ over a completion, tokens beyond `shorter` counting `tail`.
[[nodiscard]] inline double weighted_sum(const std::vector<float>& tokens, std::size_t shorter, double tail) {
  double sum = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) sum += (i < shorter ? 1.0 : tail) * static_cast<double>(tokens[i]);
  return sum;
}

template <loss::RowKind kind>
data::ReferenceColumns reference_columns(model::Policy& reference, std::shared_ptr<const data::AnswerSet> set,
                                         const PrecomputeConfig& config) {
  const std::size_t unit = set->per_example();
  sampler::Preferences<kind> steps(set, {.micro_batch_size = config.batch_size,
                                         .gradient_accumulation_steps = 1,
                                         .shuffle = false,
                                         .mismatched = false,
                                         .count_tokens = false});
  data::ReferenceColumns out;
  std::int64_t done = 0;
  const auto passed = [&](std::size_t rows) {
    done += static_cast<std::int64_t>(rows / unit);
    if (config.progress) config.progress(done);
  };
  for (std::int64_t s = 0; s < steps.steps(); ++s) {
    auto batch = steps.next(s);
    for (const auto& part : batch.parts) {
      for (data::Answer* a : part) a->reference_row = data::unknown;  // whatever was known before
      sampler::score_references(reference, part, 1.0);
      for (std::size_t i = 0; i < part.size(); i += unit) {
        std::size_t shorter = part[i]->reference_log_probs.size();
        if (unit == 2) shorter = std::min(shorter, part[i + 1]->reference_log_probs.size());
        for (std::size_t k = 0; k < unit; ++k)
          out.rows.push_back(weighted_sum(part[i + k]->reference_log_probs, shorter, config.ld_alpha.value_or(1.0)));
      }
      passed(part.size());
    }
  }
  if (!config.mismatched) return out;
  sampler::Preferences<kind> blocks(set, {.micro_batch_size = config.examples_per_step,
                                          .gradient_accumulation_steps = 1,
                                          .shuffle = false,
                                          .mismatched = true,
                                          .max_length = config.max_length,
                                          .count_tokens = false});
  for (std::int64_t s = 0; s < blocks.steps(); ++s) {
    auto batch = blocks.next(s);
    const auto size = static_cast<std::size_t>(config.batch_size) * unit;
    for (const auto& part : batch.parts)
      for (std::size_t at = 0; at < part.size(); at += size) {
        const sampler::Answers rows = sampler::Answers(part).subspan(at, std::min(size, part.size() - at));
        const std::vector<double> sums = sampler::mismatched_log_probs(reference, rows, 1.0);
        out.mismatched.insert(out.mismatched.end(), sums.begin(), sums.end());
        passed(rows.size());
      }
  }
  return out;
}

}  // namespace detail

// Fills the reference columns of `set`, from the cache where it has them. True: they came from the cache.
template <loss::RowKind kind>
bool precompute_reference(model::Policy& reference, const std::shared_ptr<data::AnswerSet>& set,
                          const PrecomputeConfig& config) {
  std::string key = config.model_identity + " " + data::identity_of(*set);
  if (config.ld_alpha) key += " ld " + std::to_string(*config.ld_alpha);
  if (config.mismatched)
    key += " step " + std::to_string(config.examples_per_step) + " within " + std::to_string(config.max_length);
  const std::filesystem::path file = config.directory / ("reference-" + core::Digest().add(key).hex() + ".bin");
  if (!config.directory.empty()) {
    if (auto known = data::read_reference(file, key, set->answers())) {
      set->set_reference(std::move(known->rows), std::move(known->mismatched));
      return true;
    }
  }
  data::ReferenceColumns made = detail::reference_columns<kind>(reference, set, config);
  if (!config.directory.empty()) data::write_reference(file, key, made);
  set->set_reference(std::move(made.rows), std::move(made.mismatched));
  return false;
}

}  // namespace rlalgo::sampler
