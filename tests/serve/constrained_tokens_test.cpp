#include <rlalgo/serve/constrained_tokens.hpp>

#include <string>
#include <vector>

#include <support/catch.hpp>

#include "serve/served.hpp"

using namespace rlalgo;
using data::TokenId;

namespace {

// The ids that may come after `completion`.
std::vector<TokenId> allowed(const serve::ConstrainedTokens& tokens, const std::vector<TokenId>& completion) {
  std::vector<float> logits(530, 0.0f);
  const std::vector<TokenId> ends = {524};
  tokens(logits, completion, ends);
  std::vector<TokenId> out;
  for (std::size_t v = 0; v < logits.size(); ++v)
    if (logits[v] == 0.0f) out.push_back(static_cast<TokenId>(v));
  return out;
}

}  // namespace

TEST_CASE("tokens may come whose bytes go on with a match, and the end when there is one") {
  const auto tokenizer = served::model().tokenizer;
  const serve::ConstrainedTokens tokens("[0-9]{2}", tokenizer, 530);
  std::vector<TokenId> completion;
  for (const int digits : {2, 1}) {
    const auto may = allowed(tokens, completion);
    CHECK(!may.empty());
    for (const TokenId id : may) {
      const std::string text = tokenizer.decode(std::span(&id, 1));
      CHECK(!text.empty());
      CHECK(text.find_first_not_of("0123456789") == std::string::npos);
      CHECK(text.size() <= static_cast<std::size_t>(digits));
    }
    completion.push_back(tokenizer.encode("7", false).at(0));
  }
  CHECK(allowed(tokens, completion) == std::vector<TokenId>{524});
  completion.push_back(524);  // an end that is ignored
  CHECK(allowed(tokens, completion) == std::vector<TokenId>{524});
  CHECK(allowed(tokens, tokenizer.encode("x", false)) == std::vector<TokenId>{524});  // nothing can follow
}
