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

namespace {

// chatml with calls, thoughts and tools; what a thought-less answer begins with is not in the generation prompt.
struct Chat {
  rlalgo::text::ChatTemplate chat = rlalgo::text::ChatTemplate::from_source(
      "{% if tools %}[{{ tools | map(attribute='function.name') | join }}]{% endif %}{% for m in messages %}<{{ m.role "
      "}}>"
      "{% if m.role == 'assistant' and loop.last %}<think>{{ m.reasoning_content or '' }}</think>{% endif %}{{ "
      "m.content }}"
      "{% for c in m.tool_calls or [] %}<call>{{ c.function.name }}</call>{% endfor %}</s>\n{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{{ mode or '' }}{% endif %}");
  [[nodiscard]] Render render() const {
    return [this](const Json& messages, bool prompt, const TemplateColumns& columns) {
      return chat.render(messages, {.add_generation_prompt = prompt, .tools = columns.tools, .kwargs = columns.kwargs});
    };
  }
  [[nodiscard]] Json made(const std::string& name, const char* row, const MessageFields& fields = {},
                          PreferenceFamily family = PreferenceFamily::pairs) const {
    Json out = Json::parse(row);
    chat_template_format(name, family, fields, render())(out, "r");
    return out;
  }
};

constexpr const char* call = R"({"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "add"}}]})";

std::string with_call(const std::string& before, const std::string& after) { return before + call + after; }

}  // namespace

TEST_CASE("calls and thoughts of an answer stay in it") {
  const Chat chat;
  const Json row =
      chat.made("chat_template.default", with_call(R"({"messages": [{"role": "user", "content": "q"}], "chosen": )",
                                                   R"(, "rejected": {"role": "assistant", "content": "8"}})")
                                             .c_str());
  CHECK(row["prompt"] == "<user>q</s>\n<assistant>");
  CHECK(row["chosen"] == "<think></think><call>add</call></s>");
  CHECK(row["rejected"] == "<think></think>8</s>");
  const Json nothing =
      chat.made("chat_template.default", R"({"messages": "q", "chosen": [{"role": "assistant", "content": null,
      "tool_calls": [{"function": {"name": "add"}}]}], "rejected": "8"})");
  CHECK(nothing["chosen"] == "<think></think><call>add</call></s>");
  const Json thought = chat.made("chat_template.argilla_chat", R"({"chosen": [{"role": "user", "content": "q"},
      {"role": "assistant", "content": "7", "reasoning_content": "3 and 4"}], "rejected": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "8"}]})");
  CHECK(thought["chosen"] == "<think>3 and 4</think>7</s>");
  CHECK(thought["rejected"] == "<think></think>8</s>");
  // Fields that the template does not show change nothing.
  const Json plain =
      chat.made("chat_template.default",
                R"({"messages": "q", "chosen": {"role": "assistant", "content": "7", "id": 5}, "rejected": "8"})");
  CHECK(plain["chosen"] == "7</s>");
}

TEST_CASE("calls of the history, and fields by other names") {
  const Chat chat;
  const Json history = chat.made("chat_template.default",
                                 with_call(R"({"messages": [{"role": "user", "content": "q"}, )",
                                           R"(, {"role": "tool", "content": "7"}], "chosen": "7", "rejected": "8"})")
                                     .c_str());
  CHECK(history["prompt"] == "<user>q</s>\n<assistant><call>add</call></s>\n<tool>7</s>\n<assistant>");
  const Json mapped = chat.made("chat_template.default",
                                R"({"talk": [{"from": "user", "value": "q"}], "good": {"from": "assistant", "value": "",
      "calls": [{"function": {"name": "add"}}], "thoughts": "hm"}, "bad": "8"})",
                                {.messages = "talk",
                                 .chosen = "good",
                                 .rejected = "bad",
                                 .role = "from",
                                 .content = "value",
                                 .properties = {{"tool_calls", "calls"}, {"reasoning_content", "thoughts"}}});
  CHECK(mapped["chosen"] == "<think>hm</think><call>add</call></s>");
  CHECK_FALSE(mapped.contains("good"));
}

TEST_CASE("an answer of several messages is the answer, a repeated history is not") {
  const Chat chat;
  const Json several = chat.made(
      "chat_template.default",
      with_call(
          R"({"messages": "q", "chosen": [)",
          R"(, {"role": "tool", "content": "7"}, {"role": "assistant", "content": "It is 7."}], "rejected": "8"})")
          .c_str());
  CHECK(several["prompt"] == "<user>q</s>\n<assistant>");
  CHECK(several["chosen"] == "<call>add</call></s>\n<tool>7</s>\n<assistant><think></think>It is 7.</s>");
  const Json repeated = chat.made(
      "chat_template.default",
      R"({"messages": "q", "chosen": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "7"}],
      "rejected": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "8"}]})");
  CHECK(repeated["chosen"] == "7</s>");
  const Json longer = chat.made("chat_template.argilla_chat",
                                with_call(R"({"chosen": [{"role": "user", "content": "q"}, )",
                                          R"(, {"role": "tool", "content": "7"}, {"role": "assistant", "content": "7"}],
      "rejected": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "8"}]})")
                                    .c_str());
  CHECK(longer["prompt"] == "<user>q</s>\n<assistant>");
  CHECK(longer["chosen"].get<std::string>().starts_with("<call>add</call>"));
}

TEST_CASE("the row's tools and variables are rendered, and gone") {
  const Chat chat;
  const char* const columns =
      R"({"messages": "q", "chosen": "7", "rejected": "8", "tools": [{"function": {"name": "add"}}], "chat_template_kwargs": {"mode": "M"}})";
  const Json row = chat.made("chat_template.default", columns);
  CHECK(row["prompt"] == "[add]<user>q</s>\n<assistant>M");
  CHECK(row["chosen"] == "7</s>");
  CHECK_FALSE((row.contains("tools") || row.contains("chat_template_kwargs")));
  const Json odds =
      chat.made("chat_template.argilla",
                with_call(R"({"chosen": [{"role": "user", "content": "q"}, )",
                          R"(], "rejected": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "8"}],
      "tools": [{"function": {"name": "add"}}]})")
                    .c_str(),
                {}, PreferenceFamily::odds);
  CHECK(odds["prompt"] == "[add]<user>q</s>\n<assistant>");
  CHECK(odds["chosen"] == "<think></think><call>add</call></s>");
}

TEST_CASE("an unknown role is data.22") {
  const Render render = [](const Json&, bool) { return std::string(); };
  Json row = {{"messages", Json::array({{{"role", "human"}, {"content", "Q"}}})}, {"chosen", "a"}, {"rejected", "b"}};
  CHECK_THROWS_WITH(chat_template_format("chat_template.default", PreferenceFamily::pairs, {}, render)(row, "r"),
                    Catch::StartsWith("[rlalgo.data.22]") && Catch::Contains("human"));
}
