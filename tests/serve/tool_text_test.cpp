#include <rlalgo/serve/detail/tool_text.hpp>

#include <string>

#include <support/catch.hpp>

using namespace rlalgo;

namespace {

struct Told {
  std::string text;
  data::Json calls;
};

// The text in pieces of `size` bytes.
Told told(const std::string& text, std::size_t size) {
  serve::detail::ToolText reader("call-");
  Told out;
  for (std::size_t i = 0; i < text.size(); i += size) out.text += reader.push(text.substr(i, size));
  out.text += reader.finish();
  out.calls = reader.calls();
  return out;
}

}  // namespace

TEST_CASE("calls are taken out of a growing text in every form, and other texts come whole") {
  for (const std::size_t size : {1, 2, 7, 1000}) {
    INFO(size);
    const Told hermes = told("See. <tool_call>{\"name\": \"a\", \"arguments\": {\"x\": 1}}</tool_call>", size);
    CHECK(hermes.text == "See. ");
    REQUIRE(hermes.calls.size() == 1);
    CHECK(hermes.calls[0]["function"]["arguments"] == "{\"x\":1}");
    for (const std::string text :
         {"{\"name\": \"a\", \"parameters\": {\"x\": 1}}",
          "<|python_tag|>{\"name\": \"a\", \"parameters\": {\"x\": 1}}", "<function=a>{\"x\": 1}</function>"}) {
      INFO(text);
      const Told llama = told(text, size);
      CHECK(llama.text == "");
      REQUIRE(llama.calls.size() == 1);
      CHECK(llama.calls[0]["id"] == "call-0");
      CHECK(llama.calls[0]["function"]["name"] == "a");
      CHECK(llama.calls[0]["function"]["arguments"] == "{\"x\":1}");
    }
    for (const std::string text :
         {"{\"name\": \"a\"}", "{\"answer\": 3}", "{", "<", "<|python", "a <func", "{\"name\": \"a\", \"age\": 3}"}) {
      INFO(text);
      CHECK(told(text, size).text == text);
      CHECK(told(text, size).calls.empty());
    }
  }
}
