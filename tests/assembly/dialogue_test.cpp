#include <filesystem>
#include <string>
#include <vector>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <rlalgo/assembly/dialogue.hpp>
#include <rlalgo/environment/calculator.hpp>
#include <rlalgo/environment/concept.hpp>

using namespace rlalgo;
using data::Json;
using support::lacks;
using support::raised_by;
namespace fs = std::filesystem;

namespace {

const fs::path quickstart = fs::path(rlalgo::support::test_dir).parent_path() / "examples" / "quickstart" / "model";

assembly::LanguageModel model_with(const std::string& chat_template) {
  assembly::LanguageModelConfig run;
  run.model.name = quickstart.string();
  if (!chat_template.empty()) run.chat_template = chat_template;
  return assembly::LanguageModel::load(run);
}

const Json calculator = Json::array({{{"type", "function"}, {"function", environment::calculator().schema}}});

// What the template ends a prompt with, for the model to go on.
std::string opening(const assembly::LanguageModel& model, const Json& kwargs = nullptr) {
  const std::string text = model.render(Json::array({{{"role", "user"}, {"content", "x"}}}), true, kwargs);
  const std::string end = "x<|im_end|>\n";
  return text.substr(text.rfind(end) + end.size());
}

Json result(const std::string& content) { return {{"role", "tool"}, {"name", "calculator"}, {"content", content}}; }

}  // namespace

// Expected: what TRL's _get_tool_suffix_ids makes of qwen_25 and this tokenizer, decoded; it refuses qwen3's own
// template and trains with one that renders the same here.
TEST_CASE("a tool's result continues the conversation where the model's turn ended") {
  const std::string expected =
      "\n<|im_start|>user\n<tool_response>\n42\n</tool_response>\n<tool_response>\n7\n</tool_response><|im_end|>\n";
  for (const std::string name : {"qwen_25", "qwen3"}) {
    INFO(name);
    const assembly::LanguageModel model = model_with(name);
    const inference::Dialogue dialogue = assembly::dialogue(model, {.tools = calculator});
    CHECK(model.tokenizer.decode(dialogue.reply(Json::array({result("42"), result("7")})), false) ==
          expected + opening(model));
  }
}

TEST_CASE("an observation in words is the next user message, however the template shows earlier turns") {
  for (const std::string name : {"", "chatml", "qwen_25", "qwen3"}) {
    INFO(name);
    const assembly::LanguageModel model = model_with(name);
    const inference::Dialogue dialogue = assembly::dialogue(model);
    CHECK(model.tokenizer.decode(dialogue.reply("higher"), false) ==
          "\n<|im_start|>user\nhigher<|im_end|>\n" + opening(model));
    CHECK(opening(model).starts_with("<|im_start|>assistant\n"));
  }
  const assembly::LanguageModel model = model_with("qwen3");
  const Json brief = {{"enable_thinking", true}};
  CHECK(model.tokenizer.decode(assembly::dialogue(model, {.kwargs = brief}).reply("higher"), false) ==
        "\n<|im_start|>user\nhigher<|im_end|>\n" + opening(model, brief));
}

TEST_CASE("the tokens of prompt, turn and observation are those of the whole conversation") {
  const assembly::LanguageModel model = model_with("chatml");
  const inference::Dialogue dialogue = assembly::dialogue(model);
  const Json prompt = Json::array({{{"role", "user"}, {"content", "Guess."}}});
  std::vector<data::TokenId> ids = model.encode(prompt);
  for (const data::TokenId id : model.tokenizer.encode("4 apples", false)) ids.push_back(id);
  ids.push_back(model.stop_ids.front());
  for (const data::TokenId id : dialogue.reply("lower")) ids.push_back(id);
  Json whole = prompt;
  whole.push_back({{"role", "assistant"}, {"content", "4 apples"}});
  whole.push_back({{"role", "user"}, {"content", "lower"}});
  CHECK(ids == model.encode(whole));
}

TEST_CASE("what the environment says first belongs to the last user message; text prompts go on as text") {
  const assembly::LanguageModel model = model_with("chatml");
  const inference::Dialogue chat = assembly::dialogue(model);
  const Json prompt = Json::array({{{"role", "user"}, {"content", "Guess."}}});
  const Json opened = Json::array({{{"role", "user"}, {"content", "Guess. From 1 to 9."}}});
  CHECK(chat.open(environment::opened(prompt, " From 1 to 9.")) == model.encode(opened));
  const inference::Dialogue text = assembly::dialogue(model, {.messages = false});
  CHECK(text.open(environment::opened("Guess.", " Now.")) == model.encode("Guess. Now."));
  CHECK(text.reply("lower") == model.tokenizer.encode("lower", false));
}

TEST_CASE("the model's tokens are read as its message, calls only where there are tools") {
  const assembly::LanguageModel model = model_with("qwen_25");
  const std::string words =
      "<tool_call>\n{\"name\": \"calculator\", \"arguments\": {\"expression\": \"2\"}}\n</tool_call>";
  std::vector<data::TokenId> ids = model.tokenizer.encode(words, false);
  ids.push_back(model.stop_ids.front());
  const Json called = assembly::dialogue(model, {.tools = calculator}).read(ids);
  CHECK(called["content"] == "");
  CHECK(called["tool_calls"][0]["function"]["name"] == "calculator");
  const Json plain = assembly::dialogue(model).read(ids);
  CHECK(plain == Json{{"role", "assistant"}, {"content", words}});
}

TEST_CASE("a conversation needs a template that keeps its turns") {
  assembly::LanguageModel model = model_with("");
  model.chat_template = text::ChatTemplate::from_source("{{ messages[0]['content'] }}");
  const inference::Dialogue dialogue = assembly::dialogue(model);
  CHECK(lacks(raised_by([&] { static_cast<void>(dialogue.reply("x")); }), {"config.26"}) == "");
}
