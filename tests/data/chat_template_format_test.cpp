#include <data/golden_formats.hpp>

#include <rlalgo/data/chat_template_format.hpp>

using namespace rlalgo::data;

TEST_CASE("chat-template formats: golden rows") {
  CHECK(golden_formats::check("chat_template", "dpo") == 16);
  CHECK(golden_formats::check("chat_template", "orpo") == 7);
}

TEST_CASE("a template whose header holds the answer's text, and that trims content") {
  const auto rendered = rlalgo::text::ChatTemplate::from_source(
      "Cutting knowledge: December 2023. Today: 26 Jul 2024.\n"
      "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</s>{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}\n");
  const Render render = [&](const Json& messages, bool prompt) {
    return rendered.render(messages, {.add_generation_prompt = prompt});
  };
  Json row = {{"messages", "What is 2+2?"}, {"chosen", " 4 "}, {"rejected", "5"}};
  chat_template_format("chat_template.default", PreferenceFamily::pairs, {}, render)(row, "r");
  CHECK(row["chosen"] == "4</s>");
  CHECK(row["rejected"] == "5</s>");
  CHECK_FALSE(row.contains("messages"));
}

TEST_CASE("an unknown role is data.22") {
  const Render render = [](const Json&, bool) { return std::string(); };
  Json row = {{"messages", Json::array({{{"role", "human"}, {"content", "Q"}}})}, {"chosen", "a"}, {"rejected", "b"}};
  CHECK_THROWS_WITH(chat_template_format("chat_template.default", PreferenceFamily::pairs, {}, render)(row, "r"),
                    Catch::StartsWith("[rlalgo.data.22]") && Catch::Contains("human"));
}
