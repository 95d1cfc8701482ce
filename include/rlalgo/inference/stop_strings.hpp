// Ends a text at the first of several strings, and says how much of a growing text is safe to show.
//
// push() takes the text as it comes, in pieces of any size. A tail that could still become a stop string is held back
// until it is decided; what is shown never contains a stop string nor the beginning of one that was found. Where
// several are found at once, the one that begins first counts, the longest among those that begin together.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlalgo::inference {

class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> strings);

  // Appends `piece`; what can be shown now. After a stop nothing more is shown. `may_stop` off: the piece is shown
  // without being looked at, together with what was held back.
  std::string push(std::string_view piece, bool may_stop = true);

  // The text has ended without a stop string: what was held back.
  std::string finish() { return stopped_ ? std::string() : std::exchange(held_, {}); }

  [[nodiscard]] const std::optional<std::string>& stopped() const noexcept { return stopped_; }

 private:
  // Length of the longest tail that a stop string begins with.
  [[nodiscard]] std::size_t undecided() const;

  std::vector<std::string> strings_;
  std::string held_;
  std::optional<std::string> stopped_;
};

}  // namespace rlalgo::inference

#ifndef RLALGO_COMPILED
#include <rlalgo/inference/detail/stop_strings_impl.hpp>
#endif
