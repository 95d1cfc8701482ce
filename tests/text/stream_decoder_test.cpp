#include <support/catch.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include <rlalgo/text/stream_decoder.hpp>

namespace {

using rlalgo::text::StreamDecoder;
using rlalgo::text::Tokenizer;

const std::filesystem::path golden = std::filesystem::path(rlalgo::support::test_dir) / "golden/text";

}  // namespace

TEST_CASE("a stream adds up to the whole text and never shows half a character") {
  const std::string style = GENERATE("qwen2", "sentencepiece", "metaspace");
  const Tokenizer tokenizer = Tokenizer::from_directory(golden / style);
  for (const std::string text : {"Hello, 日本語 😀😀 wörld", " two  spaces ", "<|endoftext|>a", "", "𝔘𝔫𝔦"}) {
    const std::vector<std::int32_t> ids = tokenizer.encode(text);
    StreamDecoder stream(tokenizer, false);
    std::string all;
    for (const std::int32_t id : ids) {
      const std::string piece = stream.push(id);
      CHECK(rlalgo::text::detail::is_valid_utf8(piece));
      CHECK(piece.find("\xEF\xBF\xBD") == std::string::npos);
      all += piece;
    }
    all += stream.finish();
    CHECK(all == tokenizer.decode(ids, false));
  }
}

TEST_CASE("holds bytes back until their character is whole") {
  const Tokenizer tokenizer = Tokenizer::from_directory(golden / "gpt2");
  // 日 is E6 97 A5; its bytes are single tokens of the byte alphabet
  const std::int32_t e6 = *tokenizer.token_id("æ"), x97 = *tokenizer.token_id("Ĺ"), a5 = *tokenizer.token_id("¥"),
                     a = *tokenizer.token_id("a");
  StreamDecoder stream(tokenizer);
  CHECK(stream.push(e6).empty());
  CHECK(stream.push(x97).empty());
  CHECK(stream.push(a5) == "日");
  CHECK(stream.push(e6).empty());
  CHECK(stream.push(a) ==
        "\xEF\xBF\xBD"
        "a");  // the character cannot come any more
  CHECK(stream.push(e6).empty());
  CHECK(stream.finish() == "\xEF\xBF\xBD");
  CHECK(stream.finish().empty());
  CHECK(stream.push(a) == "a");  // usable again
}

TEST_CASE("bytes of a fallback wait for the run's end") {
  const Tokenizer tokenizer = Tokenizer::from_directory(golden / "sentencepiece");
  const auto id = [&](const char* token) { return *tokenizer.token_id(token); };
  StreamDecoder stream(tokenizer);
  CHECK(stream.push(id("<0x61>")).empty());  // with the next byte it is no longer an a
  CHECK(stream.push(id("<0xFF>")).empty());
  CHECK(stream.push(id("e")) ==
        "\xEF\xBF\xBD\xEF\xBF\xBD"
        "e");
  CHECK(stream.push(id("<0x61>")).empty());
  CHECK(stream.finish() == "a");
}

TEST_CASE("leaves special tokens out when asked") {
  const Tokenizer tokenizer = Tokenizer::from_directory(golden / "qwen2");
  const std::int32_t end = *tokenizer.token_id("<|im_end|>");
  StreamDecoder with(tokenizer, false), without(tokenizer);
  CHECK(with.push(end) == "<|im_end|>");
  CHECK(without.push(end).empty());
}
