// Whether a descriptor shows colours: it is a terminal, and nobody asked for none.
//
// Source: no-color.org: a variable NO_COLOR that is not empty means no colour, whatever its value; TERM=dumb is a
// terminal without escape sequences.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace rlalgo::run {

// `no_color`, `term`: the variables' values; null where they are not set.
[[nodiscard]] inline bool wants_colours(bool terminal, const char* no_color, const char* term) {
  return terminal && (no_color == nullptr || *no_color == '\0') &&
         (term == nullptr || std::string_view(term) != "dumb");
}

[[nodiscard]] inline bool shows_colours(int descriptor) {
  return wants_colours(::isatty(descriptor) == 1, std::getenv("NO_COLOR"), std::getenv("TERM"));
}

}  // namespace rlalgo::run
