// Token ids as text for people: what samples, pairs and offending rows are shown with.
#pragma once

#include <functional>
#include <span>
#include <string>

#include <rlalgo/data/rollout.hpp>

namespace rlalgo::data {

using Decode = std::function<std::string(std::span<const TokenId>)>;

// Token ids as decimal numbers: their text where there is no tokenizer.
[[nodiscard]] inline std::string ids_as_text(std::span<const TokenId> ids) {
  std::string text;
  for (const TokenId id : ids) text += (text.empty() ? "" : " ") + std::to_string(id);
  return text;
}

}  // namespace rlalgo::data
