#include <rlalgo/serve/constrained_tokens.hpp>

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/serve/schema_pattern.hpp>

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

TEST_CASE("items of a list that must differ do, whatever tokens they are made of") {
  const auto tokenizer = served::model().tokenizer;
  const auto schema = data::Json::parse(
      R"({"type": "array", "items": {"type": "string", "maxLength": 2}, "uniqueItems": true, "minItems": 2, "maxItems": 5})");
  const serve::ConstrainedTokens tokens(serve::schema_pattern(schema), tokenizer, 530);
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    std::vector<TokenId> completion;
    std::uint64_t state = seed * 2654435761U + 1;
    for (int step = 0; step < 200; ++step) {
      const std::vector<TokenId> may = allowed(tokens, completion);
      state = state * 6364136223846793005U + 1442695040888963407U;
      TokenId chosen = may.at((state >> 33U) % may.size());
      // Few different characters, so that items would repeat themselves.
      for (const TokenId id : may) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        if (const auto bytes = tokenizer.token_bytes(id);
            bytes.find_first_not_of("ab\",]") == std::string_view::npos && (state >> 40U) % 3 == 0)
          chosen = id;
      }
      completion.push_back(chosen);
      if (chosen == 524) break;
    }
    REQUIRE(completion.back() == 524);
    completion.pop_back();
    const std::string text = tokenizer.decode(completion);
    INFO(text);
    const auto items = data::Json::parse(text).get<std::vector<std::string>>();
    CHECK(std::set<std::string>(items.begin(), items.end()).size() == items.size());
    CHECK(items.size() >= 2);
  }
}
