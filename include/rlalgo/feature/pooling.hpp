// From the features of tokens to the feature of a text or a block: which tokens count.
//
//   last_token       the last token
//   mean_pooling     the mean over all tokens
//   completion_mean  the mean over the tokens after the prompt; without any, 0
//   concat           the tokens at ⌊v/4⌋, ⌊v/2⌋ and ⌊3v/4⌋ of v, one after the other
//
// Each is a list of stretches of tokens: a stretch is averaged, and the averages stand side by side. There is no
// padding, so none can be pooled. Source: axolotl 0.19 `embed_method`, where last_token and completion_mean assume a
// tokenizer that pads on the right.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace rlalgo::feature {

enum class Pooling { last_token, mean_pooling, completion_mean, concat };

struct Stretch {
  std::int64_t begin = 0, end = 0;  // tokens, counted from the start of the text; an empty one is 0
  friend bool operator==(const Stretch&, const Stretch&) = default;
};

// Of a text of `length` ≥ 1 tokens, `prompt_length` of which are the prompt's.
[[nodiscard]] inline std::vector<Stretch> stretches(Pooling pooling, std::int64_t length,
                                                    std::int64_t prompt_length = 0) {
  switch (pooling) {
    case Pooling::mean_pooling:
      return {{0, length}};
    case Pooling::completion_mean:
      return {{std::min(prompt_length, length), length}};
    case Pooling::concat: {
      std::vector<Stretch> out;
      for (const std::int64_t quarter : {1, 2, 3}) out.push_back({quarter * length / 4, quarter * length / 4 + 1});
      return out;
    }
    case Pooling::last_token:
      break;
  }
  return {{length - 1, length}};
}

}  // namespace rlalgo::feature
