// Rewards for a right final answer: whether it is right, right after the reasoning, and scaled by length.
//
//   accuracy             1 right, 0 wrong or no answer found; NaN when the solution holds no answer that can be read
//   reasoning_accuracy   the same on what follows the last occurrence of the first delimiter (in list order) that
//                        occurs;
//                        0 when none occurs
//   cosine_scaled        v = lo + ½·(hi − lo)·(1 + cos(π·min(n/max_len, 1))), n completion tokens, end token included;
//                        right: (lo, hi) = (min_value_correct, max_value_correct); wrong: (max_value_wrong,
//                        min_value_wrong)
//   length_reward        λ = ½ − (n − shortest)/(longest − shortest) among the completions of one prompt; right: λ;
//                        wrong: min(0, λ); all of one length: 0
//
// Source: trl.rewards (accuracy_reward, reasoning_accuracy_reward, get_cosine_scaled_reward: Yeo et al., arXiv
// 2502.03373, appendix C.1); length_reward: Kimi k1.5, arXiv 2501.12599, section 2.3.3. The answer is compared with
// column `solution` (maths/answer.hpp). Logged columns: solution, gold_parsed, answer_parsed.
// Errors: [rlalgo.reward.5] the dataset has no column `solution`.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <numbers>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/maths/answer.hpp>
#include <rlalgo/reward/function.hpp>

namespace rlalgo::reward {

namespace detail {

inline constexpr double not_applicable = std::numeric_limits<double>::quiet_NaN();

// What a call's rows came to.
struct Judged {
  std::vector<double> values;  // 1, 0, NaN
  std::vector<std::string> gold, answer;
  std::size_t given_up = 0;  // rows whose solution or answer takes too long to read or to compare
};

// Column `solution` as text; null where the row has none.
inline std::optional<std::string> solution_text(const RewardCall& call, std::size_t i, const char* who) {
  const Json& columns = call.columns[i];
  const auto found = columns.is_object() ? columns.find("solution") : columns.end();
  if (found == columns.end())
    core::raise("reward", 5,
                {.what = std::string("the reward function '") + who + "' needs the dataset column 'solution'",
                 .found = "row " + std::to_string(i) + " has no such column",
                 .remedy = "name it so in the dataset, or with a transform"});
  if (found->is_null()) return std::nullopt;
  return found->is_string() ? found->get<std::string>() : found->dump();
}

inline std::string shown(const maths::Answer& answer) {
  return answer.read() ? answer.text : answer.text + " [not read]";
}

// Solutions repeat within a group: each text is read once per call.
class SolutionCache {
 public:
  struct Entry {
    std::optional<maths::Answer> answer;
    bool gave_up = false;
  };
  const Entry& operator()(const std::optional<std::string>& text) {
    static const Entry none;
    if (!text) return none;
    const auto [at, added] = cache_.try_emplace(*text);
    if (added) at->second.answer = maths::solution_answer(*text, &at->second.gave_up);
    return at->second;
  }

 private:
  std::map<std::string, Entry> cache_;
};

inline void judge(std::string_view text, const SolutionCache::Entry& solution, Judged& out) {
  const std::optional<maths::Answer>& gold = solution.answer;
  if (!gold) {
    out.given_up += solution.gave_up ? 1 : 0;
    out.values.push_back(not_applicable);
    out.gold.emplace_back("[unparseable]");
    out.answer.emplace_back("[skipped]");
    return;
  }
  bool gave_up = false;
  const std::optional<maths::Answer> answer = maths::completion_answer(text, &gave_up);
  const std::optional<bool> right = maths::agrees(*gold, answer, &gave_up);
  out.given_up += gave_up ? 1 : 0;
  out.values.push_back(right ? (*right ? 1.0 : 0.0) : not_applicable);
  out.gold.push_back(shown(*gold));
  out.answer.push_back(answer ? shown(*answer) : "[unparseable]");
}

inline void warn_of_given_up(const RewardCall& call, const Judged& judged, const char* who) {
  if (call.log == nullptr || judged.given_up == 0) return;
  call.log->warnings.push_back(
      std::string(who) + ": " + std::to_string(judged.given_up) + " of " + std::to_string(call.size()) +
      " rows take too long to read as mathematics: a solution counts as not known, an answer as wrong");
}

inline void log_judged(const RewardCall& call, const Judged& judged, const char* who) {
  if (call.log == nullptr) return;
  warn_of_given_up(call, judged, who);
  Json solutions = Json::array();
  for (std::size_t i = 0; i < call.size(); ++i) {
    const auto text = solution_text(call, i, who);
    solutions.push_back(text ? Json(*text) : Json(nullptr));
  }
  call.log->extras.emplace_back("solution", std::move(solutions));
  call.log->extras.emplace_back("gold_parsed", judged.gold);
  call.log->extras.emplace_back("answer_parsed", judged.answer);
}

}  // namespace detail

struct Accuracy {
  std::vector<double> operator()(const RewardCall& call) const {
    const detail::Judged judged = judge(call, "accuracy_reward");
    detail::log_judged(call, judged, "accuracy_reward");
    return judged.values;
  }

  // Without logging.
  static detail::Judged judge(const RewardCall& call, const char* who) {
    detail::Judged out;
    detail::SolutionCache solutions;
    for (std::size_t i = 0; i < call.size(); ++i) {
      const auto solution = detail::solution_text(call, i, who);
      detail::judge(call.texts[i], solutions(solution), out);
    }
    return out;
  }
};

struct ReasoningAccuracy {
  std::vector<std::string> reasoning_delimiters = {"</think>"};

  std::vector<double> operator()(const RewardCall& call) const {
    constexpr const char* who = "reasoning_accuracy_reward";
    detail::Judged out;
    detail::SolutionCache solutions;
    for (std::size_t i = 0; i < call.size(); ++i) {
      const auto solution = detail::solution_text(call, i, who);
      const std::string& text = call.texts[i];
      std::size_t after = std::string::npos;
      for (const std::string& delimiter : reasoning_delimiters)
        if (const std::size_t at = delimiter.empty() ? std::string::npos : text.rfind(delimiter);
            at != std::string::npos) {
          after = at + delimiter.size();
          break;
        }
      if (after == std::string::npos) {
        out.values.push_back(0.0);
        out.gold.emplace_back("[incomplete reasoning]");
        out.answer.emplace_back("[incomplete reasoning]");
        continue;
      }
      detail::judge(std::string_view(text).substr(after), solutions(solution), out);
    }
    detail::log_judged(call, out, who);
    return out.values;
  }
};

struct CosineScaled {
  std::int64_t max_len = 512;  // tokens; longer completions count as this long
  double min_value_wrong = -1.0;
  double max_value_wrong = -0.5;
  double min_value_correct = 0.5;
  double max_value_correct = 1.0;

  [[nodiscard]] double value(bool right, std::int64_t length) const {
    const double progress = std::min(static_cast<double>(length) / static_cast<double>(max_len), 1.0);
    const double cosine = std::cos(progress * std::numbers::pi);
    const double low = right ? min_value_correct : max_value_wrong;
    const double high = right ? max_value_correct : min_value_wrong;
    return low + 0.5 * (high - low) * (1.0 + cosine);
  }

  std::vector<double> operator()(const RewardCall& call) const {
    const detail::Judged judged = Accuracy::judge(call, "cosine_scaled_reward");
    detail::warn_of_given_up(call, judged, "cosine_scaled_reward");
    std::vector<double> values = judged.values;
    for (std::size_t i = 0; i < values.size(); ++i)
      if (!std::isnan(values[i]))
        values[i] = value(values[i] > 0, static_cast<std::int64_t>(call.completion_ids[i].size()));
    return values;
  }
};

struct RelativeLength {
  std::vector<double> operator()(const RewardCall& call) const {
    const detail::Judged judged = Accuracy::judge(call, "length_reward");
    detail::warn_of_given_up(call, judged, "length_reward");
    std::vector<double> values = judged.values;
    for (std::size_t begin = 0, end = 0; begin < call.size(); begin = end) {
      auto shortest = static_cast<double>(call.completion_ids[begin].size()), longest = shortest;
      for (end = begin; end < call.size() && *call.prompts[end] == *call.prompts[begin]; ++end) {
        shortest = std::fmin(shortest, static_cast<double>(call.completion_ids[end].size()));
        longest = std::fmax(longest, static_cast<double>(call.completion_ids[end].size()));
      }
      for (std::size_t i = begin; i < end; ++i) {
        if (std::isnan(values[i])) continue;
        const double length = static_cast<double>(call.completion_ids[i].size());
        const double relative = longest > shortest ? 0.5 - (length - shortest) / (longest - shortest) : 0.0;
        values[i] = values[i] > 0 ? relative : std::fmin(0.0, relative);
      }
    }
    return values;
  }
};

}  // namespace rlalgo::reward
