// Ends a text at the first of several strings, and says how much of a growing text is safe to show.
//
// push() takes the text as it comes, in pieces of any size. A tail that could still become a stop string is held back
// until it is decided; what is shown never contains a stop string nor the beginning of one that was found. Where
// several are found at once, the one that begins first counts, the longest among those that begin together.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlalgo::inference {

class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {
    std::erase_if(strings_, [](const std::string& s) { return s.empty(); });
  }

  // Appends `piece`; what can be shown now. After a stop nothing more is shown. `may_stop` off: the piece is shown
  // without being looked at, together with what was held back.
  std::string push(std::string_view piece, bool may_stop = true) {
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

  // The text has ended without a stop string: what was held back.
  std::string finish() { return stopped_ ? std::string() : std::exchange(held_, {}); }

  [[nodiscard]] const std::optional<std::string>& stopped() const noexcept { return stopped_; }

 private:
  // Length of the longest tail that a stop string begins with.
  [[nodiscard]] std::size_t undecided() const {
    const std::string_view text = held_;
    std::size_t longest = 0;
    for (const std::string& s : strings_)
      for (std::size_t n = std::min(s.size() - 1, text.size()); n > longest; --n)
        if (text.ends_with(std::string_view(s).substr(0, n))) longest = n;
    return longest;
  }

  std::vector<std::string> strings_;
  std::string held_;
  std::optional<std::string> stopped_;
};

}  // namespace rlalgo::inference
