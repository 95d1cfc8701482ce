#include <rlalgo/serve/prompts.hpp>

#include <string>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include "serve/served.hpp"

using namespace rlalgo;
using serve::Fields;
using serve::Json;

namespace {

std::vector<serve::Prompt> read(const Json& prompt) {
  static const serve::ServedModel model = served::model();
  const Json object = {{"prompt", prompt}};
  Fields fields(object);
  auto out = serve::read_prompts(fields, "prompt", model, true);
  for (const auto& one : out) serve::check_length(one, model);
  return out;
}

std::string refused(const Json& prompt) {
  return support::number_raised_by([&] { (void)read(prompt); });
}

std::string refused_messages(const Json& messages) {
  return support::number_raised_by([&] { (void)serve::checked_messages(messages, "messages"); });
}

}  // namespace

TEST_CASE("a prompt is a text, ids, or a list of either") {
  const auto ids = read("one two")[0].ids;
  CHECK(!ids.empty());
  CHECK(read("one two")[0].text == "one two");
  CHECK(read(Json(ids))[0].ids == ids);
  CHECK(read({"one two", "three"}).size() == 2);
  CHECK(read({{1, 2}, {3}})[1].ids == std::vector<data::TokenId>{3});
}

TEST_CASE("what is no prompt is refused") {
  for (const char* text :
       {"5", "{\"a\": 1}", "[]", "[1, \"a\"]", "[[1], \"a\"]", "[true, {}]", "[1.5]", "[\"a\", 1]"}) {
    INFO(text);
    CHECK(refused(Json::parse(text)) == "serve.3");
  }
  CHECK(refused(nullptr) == "serve.2");
  for (const char* text : {"[-1]", "[1000000000]", "[[1, 530]]", "[1e30]"})
    CHECK(refused(Json::parse(text)) == "serve.4");
  CHECK(refused(Json::parse("[[]]")) == "serve.13");
  CHECK(refused("") == "serve.13");
  CHECK(refused(Json(std::vector<int>(200, 1))) == "serve.13");
  CHECK_NOTHROW(read(Json(std::vector<int>(199, 1))));
  CHECK(refused(std::string(1 << 20, 'a')) == "serve.13");  // not tokenized at all
}

TEST_CASE("messages are checked, their parts joined, arguments of calls made objects") {
  const Json out = serve::checked_messages(
      Json::parse(R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                      {"role": "assistant", "content": null, "tool_calls":
                       [{"id": "1", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]}])"),
      "messages");
  CHECK(out[0]["content"] == "a\nb");
  CHECK(out[1]["content"] == "");
  CHECK(out[1]["tool_calls"][0]["function"]["arguments"]["x"] == 1);
  for (const char* text :
       {"5", "[5]", "[{\"content\": \"x\"}]", "[{\"role\": \"user\", \"content\": 5}]", "\"text\"",
        "{\"role\": \"user\"}", "[]", "[{\"role\": \"user\", \"content\": \"x\", \"tool_calls\": 5}]"}) {
    INFO(text);
    CHECK(refused_messages(Json::parse(text)) == "serve.3");
  }
  CHECK(refused_messages(Json::parse(R"([{"role": "user"}])")) == "serve.2");
  CHECK(refused_messages(Json::parse(R"([{"role": "user", "content": [{"type": "image_url"}]}])")) == "serve.12");
}

TEST_CASE("a conversation goes through the model's template, or the request's") {
  const serve::ServedModel model = served::model();
  const Json messages = Json::parse(R"([{"role": "user", "content": "hi"}])");
  const auto text = [&](const Json& object) {
    Fields fields(object);
    return serve::render_chat(fields, messages, model).text;
  };
  CHECK(text(Json::object()) == "<user>hi<assistant>");
  CHECK(text({{"add_generation_prompt", false}}) == "<user>hi");
  CHECK(text({{"continue_final_message", true}, {"add_generation_prompt", false}}) == "<user>hi");
  CHECK(text({{"chat_template", "{{ messages[0].content }}{{ x }}"}, {"chat_template_kwargs", {{"x", "!"}}}}) == "hi!");
  CHECK(support::raised_by([&] {
          (void)text({{"continue_final_message", true}, {"add_generation_prompt", true}});
        }).starts_with("serve.4"));
}
