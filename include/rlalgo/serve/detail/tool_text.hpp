// Takes tool calls out of a text that grows: what stands before the first is shown as it comes, what could become one is
// held back until it is decided.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include <rlalgo/data/rollout.hpp>
#include <rlalgo/environment/tool_calls.hpp>

namespace rlalgo::serve::detail {

using data::Json;

class ToolText {
 public:
  // Calls are named `prefix` and a number.
  explicit ToolText(std::string prefix = {}) : prefix_(std::move(prefix)) {}

  // What can be shown now.
  std::string push(std::string_view piece) {
    held_ += piece;
    if (opened_) return {};
    if (!shown_) {
      const environment::detail::BareStart start = environment::detail::bare_start(held_);
      opened_ = start == environment::detail::BareStart::yes;
      if (start != environment::detail::BareStart::no) return {};
    }
    std::size_t kept = 0;
    for (const std::string_view opening : openings) {
      if (const std::size_t at = held_.find(opening); at != std::string::npos) {
        opened_ = true;
        return take(at);
      }
      std::size_t undecided = std::min(held_.size(), opening.size() - 1);
      while (undecided > 0 && held_.compare(held_.size() - undecided, undecided, opening.substr(0, undecided)) != 0)
        --undecided;
      kept = std::max(kept, undecided);
    }
    return take(held_.size() - kept);
  }

  // The text has ended: what of it is text after all.
  std::string finish() {
    if (!opened_) return std::exchange(held_, {});
    const Json message = environment::assistant_message(held_);
    if (message.contains("tool_calls")) {
      calls_ = message["tool_calls"];
      for (std::size_t k = 0; k < calls_.size(); ++k) {
        Json& function = calls_[k]["function"];
        if (!function["arguments"].is_string()) function["arguments"] = function["arguments"].dump();
        calls_[k] = {{"id", prefix_ + std::to_string(k)}, {"type", "function"}, {"function", function}};
      }
      held_.clear();
      return {};
    }
    return std::exchange(held_, {});
  }

  [[nodiscard]] bool called() const { return !calls_.empty(); }
  [[nodiscard]] const Json& calls() const { return calls_; }

 private:
  static constexpr std::string_view openings[] = {"<tool_call>", "<function="};

  std::string take(std::size_t count) {
    std::string out = held_.substr(0, count);
    held_.erase(0, count);
    shown_ = shown_ || count > 0;
    return out;
  }

  std::string prefix_, held_;
  bool opened_ = false, shown_ = false;
  Json calls_ = Json::array();
};

}  // namespace rlalgo::serve::detail
