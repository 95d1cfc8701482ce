// Damaged texts for tests of what reads anything: counter-based, so that a failing input is found again by its index.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include <rlalgo/core/philox.hpp>

namespace rlalgo::support {

// The inputs of a test: RLALGO_FUZZ_COUNT sets how many there are of each kind, RLALGO_FUZZ_FIRST the first index.
struct FuzzInputs {
  std::uint64_t first, count;
};
inline FuzzInputs fuzz_inputs(std::uint64_t count) {
  const auto setting = [](const char* name, std::uint64_t otherwise) {
    const char* value = std::getenv(name);
    return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
  };
  return {setting("RLALGO_FUZZ_FIRST", 0), setting("RLALGO_FUZZ_COUNT", count)};
}

// Draws of one input.
class Draw {
 public:
  Draw(std::uint64_t seed, std::uint64_t input) : seed_(seed), input_(input) {}
  std::uint64_t below(std::uint64_t n) {
    return static_cast<std::uint64_t>(core::uniform({seed_, core::Stream::test}, input_, next_++) *
                                      static_cast<double>(n));
  }

 private:
  std::uint64_t seed_, input_, next_ = 0;
};

// Values that a JSON text can be damaged with, and `more`.
inline std::vector<std::string> json_pieces(const std::vector<std::string>& more) {
  std::vector<std::string> all = {"-1",
                                  "0",
                                  "1e999",
                                  "-1e308",
                                  "18446744073709551615",
                                  "9223372036854775807",
                                  "9223372036854775808",
                                  "-9223372036854775808",
                                  "null",
                                  "true",
                                  "[]",
                                  "{}",
                                  "\"\"",
                                  "[[[[[[[[",
                                  "}",
                                  ",",
                                  ":",
                                  "\xff",
                                  "\"x\"",
                                  "1e-9",
                                  "2147483647",
                                  "NaN",
                                  "Infinity",
                                  "\"\\u0000\"",
                                  "\\u0000",
                                  "0.5",
                                  "[0,1]"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// One to four changes: of a byte, by a piece put in, a stretch taken out, repeated or cut off, or, most often, of a
// whole value into a piece.
inline std::string damaged_json(std::string text, Draw& draw, const std::vector<std::string>& pieces) {
  const std::uint64_t changes = 1 + draw.below(4);
  for (std::uint64_t c = 0; c < changes && !text.empty(); ++c) {
    const std::size_t at = draw.below(text.size());
    const std::string& piece = pieces[draw.below(pieces.size())];
    switch (draw.below(9)) {
      case 0:
        text[at] = static_cast<char>(draw.below(256));
        break;
      case 1:
        text.insert(at, piece);
        break;
      case 2:
        text.erase(at, 1 + draw.below(12));
        break;
      case 3:
        text.insert(at, text.substr(draw.below(text.size()), draw.below(40)));
        break;
      case 4:
        text.resize(at);
        break;
      default: {
        const std::size_t end = text.find_first_of(",]}", at);
        const std::size_t begin = text.find_last_of(":[,", at);
        if (begin != std::string::npos && end != std::string::npos && begin < end)
          text.replace(begin + 1, end - begin - 1, piece);
      }
    }
  }
  return text;
}

}  // namespace rlalgo::support
