// What a reward function is: a batch of completions with their dataset columns in, one number per completion out.
//
// NaN = "does not apply to this completion" (Python None). Any other value is a finite number that float32 can hold, in
// which losses compute. `RewardFunction` is the run-time face that samplers hold; a C++ callable becomes one through
// `from()` (reward/functor.hpp), a Python function through the remote room.
//
// Errors, raised by evaluate(): [rlalgo.reward.1] the wrong number of values; [.2] the function threw; [.4] a logged
// column of the wrong length; [.10] a value that is infinite or too large.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/error.hpp>

namespace rlalgo::reward {

using Json = nlohmann::ordered_json;

// What reward functions may log beside their values.
struct RewardLog {
  // log_metric(name, value) of a user's function; a name that the run has itself becomes logged/<name>.
  std::vector<std::pair<std::string, double>> metrics;
  std::vector<std::pair<std::string, double>> own_metrics;  // of the run's own functions, by any name
  std::vector<std::pair<std::string, Json>> extras;         // log_extra(column, one entry per completion)
  std::vector<std::string> warnings;                        // one line each, for the log
  // Completions whose environment failed: they leave their group, whatever other functions say of them. Ascending.
  std::vector<std::size_t> failed;

  void append(RewardLog other) {
    metrics.insert(metrics.end(), other.metrics.begin(), other.metrics.end());
    own_metrics.insert(own_metrics.end(), other.own_metrics.begin(), other.own_metrics.end());
    extras.insert(extras.end(), other.extras.begin(), other.extras.end());
    warnings.insert(warnings.end(), other.warnings.begin(), other.warnings.end());
    failed.insert(failed.end(), other.failed.begin(), other.failed.end());
  }
};

// The arguments of one call: N completions, all views, row i of each belongs together.
struct RewardCall {
  std::span<const Json* const> prompts;  // [N] string, or list of messages; of one group the same object
  std::span<const Json> completions;     // [N] string, or [{"role": "assistant", "content": …}]
  std::span<const std::string> texts;    // [N] the completion as text in either case
  std::span<const std::span<const std::int32_t>> completion_ids;  // [N] token ids, end token included
  std::span<const Json> columns;                                  // [N] objects: the other dataset columns
  std::span<const std::uint8_t> failed =
      {};                    // [N] 1: its environment failed, its reward will not count; empty: none did
  std::int64_t step = 0;     // optimizer step, 0-based
  RewardLog* log = nullptr;  // where to log; null: nobody listens
  [[nodiscard]] std::size_t size() const noexcept { return texts.size(); }

  // Rows [begin, end) of this call, logging elsewhere.
  [[nodiscard]] RewardCall rows(std::size_t begin, std::size_t end, RewardLog* other_log) const {
    return {.prompts = prompts.subspan(begin, end - begin),
            .completions = completions.subspan(begin, end - begin),
            .texts = texts.subspan(begin, end - begin),
            .completion_ids = completion_ids.subspan(begin, end - begin),
            .columns = columns.subspan(begin, end - begin),
            .failed = failed.empty() ? failed : failed.subspan(begin, end - begin),
            .step = step,
            .log = other_log};
  }
};

// Joins what the parts of one call logged: a column is the parts' entries in order, null where a part did not log it.
void join_logs(const std::vector<std::pair<std::size_t, RewardLog>>& parts, RewardLog& out);

class RewardFunction {
 public:
  virtual ~RewardFunction() = default;
  // The name in metrics: rewards/<name>/mean.
  [[nodiscard]] virtual std::string name() const = 0;
  // One value per completion, NaN where the function does not apply.
  virtual std::vector<double> operator()(const RewardCall& call) = 0;
};

// Whether a value is one that advantages can be made of, or NaN.
[[nodiscard]] inline bool is_usable(double value) {
  return std::isnan(value) || std::abs(value) <= static_cast<double>(std::numeric_limits<float>::max());
}

namespace detail {

[[nodiscard]] std::string number_text(double value);

// Calls `function` and holds it to its contract but for the size of its values.
[[nodiscard]] std::vector<double> values_of(RewardFunction& function, const RewardCall& call);

}  // namespace detail

// Calls `function` and holds it to its contract. Numbered errors pass through as they are.
[[nodiscard]] std::vector<double> evaluate(RewardFunction& function, const RewardCall& call);

}  // namespace rlalgo::reward

#ifndef RLALGO_COMPILED
#include <rlalgo/reward/detail/function_impl.hpp>
#endif
