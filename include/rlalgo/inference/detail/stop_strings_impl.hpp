// Definitions of stop_strings.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/inference/stop_strings.hpp>

namespace rlalgo::inference {

RLALGO_INLINE StopStrings::StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {
  std::erase_if(strings_, [](const std::string& s) { return s.empty(); });
}

RLALGO_INLINE std::string StopStrings::push(std::string_view piece, bool may_stop) {
  if (stopped_) return {};
  held_ += piece;
  if (!may_stop) return std::exchange(held_, {});
  std::size_t first = std::string::npos;
  for (const std::string& s : strings_) {
    const std::size_t at = held_.find(s);
    if (at == std::string::npos) continue;
    if (first == std::string::npos || at < first || (at == first && s.size() > stopped_->size())) {
      first = at;
      stopped_ = s;
    }
  }
  if (stopped_) {
    held_.resize(first);
    return std::exchange(held_, {});
  }
  const std::size_t safe = held_.size() - undecided();
  std::string shown = held_.substr(0, safe);
  held_.erase(0, safe);
  return shown;
}

RLALGO_INLINE std::size_t StopStrings::undecided() const {
  const std::string_view text = held_;
  std::size_t longest = 0;
  for (const std::string& s : strings_)
    for (std::size_t n = std::min(s.size() - 1, text.size()); n > longest; --n)
      if (text.ends_with(std::string_view(s).substr(0, n))) longest = n;
  return longest;
}

}  // namespace rlalgo::inference
