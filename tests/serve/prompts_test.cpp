#include <rlalgo/serve/prompts.hpp>

#include <initializer_list>
#include <string>
#include <vector>

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
  CHECK_FALSE(out[1].contains("content"));
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

namespace {

using Ids = std::vector<data::TokenId>;
using Messages = std::vector<Json>;

Ids joined(std::initializer_list<Ids> parts) {
  Ids out;
  for (const Ids& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

// Conversations of a model whose template ends every message.
struct Talk {
  static constexpr data::TokenId end = 522;  // <|im_end|>
  serve::ServedModel model = served::model();

  explicit Talk(const std::string& opening = "<|im_start|>{{ m.role }}\n", const std::string& ending = "<|im_end|>\n") {
    model.chat_template = text::ChatTemplate::from_source(
        "{% for m in messages %}" + opening +
            "{{ m.content }}{% if m.tool_calls %}[{{ m.tool_calls[0].function.name }}]{% endif %}" + ending +
            "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
        model.tokenizer.special_tokens());
    model.stop_ids = {520, end};
  }
  [[nodiscard]] Ids encode(const std::string& text) const { return model.tokenizer.encode(text, false); }
  // A text as nobody would tokenize it: a token for each letter.
  [[nodiscard]] Ids letters(const std::string& text) const {
    Ids out;
    for (const char c : text) out.push_back(encode(std::string(1, c)).at(0));
    return out;
  }
  [[nodiscard]] serve::Prompt ask(const Messages& messages, const Json& object = Json::object()) const {
    Fields fields(object);
    return serve::render_chat(fields, Json(messages), model);
  }
  static Json said(const std::string& text) { return {{"role", "user"}, {"content", text}}; }
  static Json answered(const std::string& text, const Ids& shown, const Ids& drawn) {
    return {{"role", "assistant"},
            {"content", text},
            {"prompt_token_ids", shown},
            {"generation_token_ids", drawn},
            {"generation_log_probs", std::vector<double>(drawn.size(), -0.5)}};
  }
};

}  // namespace

TEST_CASE("answers that say their tokens are those tokens, whatever their text is tokenized to") {
  const Talk talk;
  const Ids shown = talk.ask({Talk::said("hi")}).ids;
  const Ids drawn = joined({talk.letters("there"), {Talk::end}});
  const std::string next = "\n<|im_start|>user\nand?<|im_end|>\n<|im_start|>assistant\n";
  const Messages two = {Talk::said("hi"), Talk::answered("there", shown, drawn), Talk::said("and?")};
  const serve::Prompt second = talk.ask(two);
  CHECK(second.ids == joined({shown, drawn, talk.encode(next)}));
  CHECK(second.text.ends_with("assistant\nthere<|im_end|>" + next));
  CHECK(second.ids != talk.encode(second.text));  // it would be other ids

  SECTION("of several turns, each goes on from the one before") {
    const Ids again = joined({talk.letters("yes"), {Talk::end}});
    Messages three = two;
    three.push_back(Talk::answered("yes", second.ids, again));
    three.push_back(Talk::said("and?"));
    CHECK(talk.ask(three).ids == joined({second.ids, again, talk.encode(next)}));
    // an answer in between without tokens is text; the later one was shown that text
    Messages gap = {Talk::said("hi"), {{"role", "assistant"}, {"content", "there"}}, Talk::said("and?")};
    const Ids plain = talk.ask(gap).ids;
    CHECK(plain == talk.encode(second.text));
    gap.push_back(Talk::answered("yes", plain, again));
    gap.push_back(Talk::said("and?"));
    CHECK(talk.ask(gap).ids == joined({plain, again, talk.encode(next)}));
  }
  SECTION("one that was cut off gets the end that the template writes") {
    const Ids cut = talk.letters("there");
    CHECK(talk.ask({Talk::said("hi"), Talk::answered("there", shown, cut), Talk::said("and?")}).ids ==
          joined({shown, cut, talk.encode("<|im_end|>" + next)}));
  }
  SECTION("a call is what was written, not what the template makes of it") {
    const Ids call = joined({talk.letters("<tool_call>{}</tool_call>"), {Talk::end}});
    Json answer = Talk::answered("", shown, call);
    answer["tool_calls"] = Json::parse(R"([{"type": "function", "function": {"name": "f", "arguments": {}}}])");
    const Json result = {{"role", "tool"}, {"content", "5"}};
    CHECK(talk.ask({Talk::said("hi"), answer, result}).ids ==
          joined({shown, call, talk.encode("\n<|im_start|>tool\n5<|im_end|>\n<|im_start|>assistant\n")}));
  }
  SECTION("what was edited is text") {
    const auto text_alone = [&](const Messages& messages) {
      const serve::Prompt prompt = talk.ask(messages);
      return prompt.ids == talk.encode(prompt.text);
    };
    CHECK(text_alone({Talk::said("ho"), Talk::answered("there", shown, drawn), Talk::said("and?")}));
    CHECK(text_alone({Talk::said("hi"), Talk::answered("here", shown, drawn), Talk::said("and?")}));
    CHECK(text_alone({Talk::said("hi"), Talk::said("so"), Talk::answered("there", shown, drawn)}));
    CHECK(text_alone({Talk::said("hi"), Talk::answered("there", joined({shown, shown}), drawn)}));
    CHECK(text_alone({Talk::said("hi"), Talk::answered("there", shown, {530})}));
    CHECK(text_alone({Talk::said("hi"), Talk::answered("there", shown, {})}));
    CHECK(text_alone({Talk::said("hi"), Talk::answered("there", {}, drawn)}));
    CHECK(text_alone({Talk::answered("there", shown, drawn), Talk::said("and?")}));
  }
  SECTION("a message that is gone on with has no end yet") {
    const Json object = {{"continue_final_message", true}, {"add_generation_prompt", false}};
    const serve::Prompt open = talk.ask({Talk::said("hi"), Talk::answered("there", shown, drawn)}, object);
    CHECK(open.ids == talk.encode(open.text));
    Messages more = two;
    more.push_back({{"role", "assistant"}, {"content", "we"}});
    CHECK(talk.ask(more, object).ids == joined({shown, drawn, talk.encode(next + "we")}));
  }
  SECTION("ids of another form are refused") {
    for (const Json& wrong : {Json("5"), Json({{"a", 1}}), Json({1.5}), Json({"a"})}) {
      Json answer = Talk::answered("there", shown, drawn);
      answer["generation_token_ids"] = wrong;
      INFO(wrong.dump());
      CHECK(support::number_raised_by([&] { (void)talk.ask({Talk::said("hi"), answer}); }) == "serve.3");
    }
    Json answer = Talk::answered("there", shown, drawn);
    answer["generation_token_ids"] = nullptr;
    CHECK_NOTHROW(talk.ask({Talk::said("hi"), answer}));
  }
}

TEST_CASE(
    "answers are known by their tokens where the template ends none, and are text where it tells them otherwise "
    "later") {
  const Talk endless("<{{ m.role }}>", "");
  const Ids shown = endless.ask({Talk::said("hi")}).ids;
  const Ids drawn = endless.letters("there");
  CHECK(endless.ask({Talk::said("hi"), Talk::answered("there", shown, drawn), Talk::said("and?")}).ids ==
        joined({shown, drawn, endless.encode("<user>and?<|im_start|>assistant\n")}));

  // The last message is told with a mark, as thoughts of the last turn are.
  const Talk marked("{% if loop.last %}!{% endif %}<|im_start|>{{ m.role }}\n");
  const Ids first = marked.ask({Talk::said("hi")}).ids;
  const Ids answer = joined({marked.letters("there"), {Talk::end}});
  const serve::Prompt later =
      marked.ask({Talk::said("hi"), Talk::answered("there", first, answer), Talk::said("and?")});
  CHECK(later.ids == marked.encode(later.text));

  // A template that tells no conversation that ends with the other side.
  Talk strict;
  strict.model.chat_template = text::ChatTemplate::from_source(
      "{% if messages | length < 3 %}{{ raise_exception('too short') }}{% endif %}"
      "{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}",
      strict.model.tokenizer.special_tokens());
  const serve::Prompt whole =
      strict.ask({Talk::said("hi"), Talk::answered("there", first, answer), Talk::said("and?")});
  CHECK(whole.ids == strict.encode("hi<|im_end|>there<|im_end|>and?<|im_end|>"));
}
