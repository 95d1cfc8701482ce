#include <rlalgo/inference/text_streams.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using rlalgo::support::lacks;

namespace {

const std::filesystem::path golden = std::filesystem::path(rlalgo::support::test_dir) / "golden/text";

std::string shown(const inference::TextStream& stream, const std::vector<data::TokenId>& ids) {
  std::string out;
  for (const data::TokenId id : ids) out += stream.push(id);
  return out + stream.finish();
}

}  // namespace

TEST_CASE("a completion's text comes as its ids do, without those that end it") {
  const auto tokenizer = text::Tokenizer::from_directory(golden / "gpt2");
  const std::vector<data::TokenId> prompt = tokenizer.encode("one two"), ids = tokenizer.encode(" three, four");
  const auto streams = inference::text_streams(tokenizer, prompt, {ids.back()}, true);
  const std::string all = tokenizer.decode(ids, false);
  const std::string end = tokenizer.decode(std::vector<data::TokenId>{ids.back()}, false);
  CHECK(shown(streams(), ids) == all.substr(0, all.size() - end.size()));
  // Every call is a new completion.
  CHECK(shown(streams(), {ids.front()}) == tokenizer.decode(std::vector<data::TokenId>{ids.front()}, false));
}

TEST_CASE("a tokenizer of words goes on where the prompt ends") {
  const auto tokenizer = text::Tokenizer::from_directory(golden / "sentencepiece");
  const std::vector<data::TokenId> whole = tokenizer.encode("one two three", false);
  const std::vector<data::TokenId> prompt(whole.begin(), whole.end() - 1), rest(whole.end() - 1, whole.end());
  const std::string text = tokenizer.decode(whole, false), before = tokenizer.decode(prompt, false);
  CHECK(shown(inference::text_streams(tokenizer, prompt, {}, false)(), rest) == text.substr(before.size()));
}
