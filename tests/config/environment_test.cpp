#include <filesystem>
#include <string>
#include <vector>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <rlalgo/config/environment.hpp>

using namespace rlalgo;
using data::Json;
using support::lacks;
using support::raised_by;
namespace fs = std::filesystem;

namespace {

const fs::path quickstart = fs::path(rlalgo::support::test_dir).parent_path() / "examples" / "quickstart" / "model";

config::LanguageModel model_with(const std::string& chat_template) {
  config::RunConfig run;
  run.base_model = quickstart.string();
  if (!chat_template.empty()) run.chat_template = chat_template;
  return config::load_language_model(run);
}

const Json calculator = Json::array({{{"type", "function"}, {"function", environment::calculator().schema}}});

// What the template ends a prompt with, for the model to go on.
std::string opening(const config::LanguageModel& model, const Json& kwargs = nullptr) {
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
    const config::LanguageModel model = model_with(name);
    const inference::Dialogue dialogue = config::dialogue(model, nullptr, calculator, true);
    CHECK(model.tokenizer.decode(dialogue.reply(Json::array({result("42"), result("7")})), false) ==
          expected + opening(model));
  }
}

TEST_CASE("an observation in words is the next user message, however the template shows earlier turns") {
  for (const std::string name : {"", "chatml", "qwen_25", "qwen3"}) {
    INFO(name);
    const config::LanguageModel model = model_with(name);
    const inference::Dialogue dialogue = config::dialogue(model, nullptr, nullptr, true);
    CHECK(model.tokenizer.decode(dialogue.reply("higher"), false) ==
          "\n<|im_start|>user\nhigher<|im_end|>\n" + opening(model));
    CHECK(opening(model).starts_with("<|im_start|>assistant\n"));
  }
  const config::LanguageModel model = model_with("qwen3");
  const Json brief = {{"enable_thinking", true}};
  CHECK(model.tokenizer.decode(config::dialogue(model, brief, nullptr, true).reply("higher"), false) ==
        "\n<|im_start|>user\nhigher<|im_end|>\n" + opening(model, brief));
}

TEST_CASE("the tokens of prompt, turn and observation are those of the whole conversation") {
  const config::LanguageModel model = model_with("chatml");
  const inference::Dialogue dialogue = config::dialogue(model, nullptr, nullptr, true);
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
  const config::LanguageModel model = model_with("chatml");
  const inference::Dialogue chat = config::dialogue(model, nullptr, nullptr, true);
  const Json prompt = Json::array({{{"role", "user"}, {"content", "Guess."}}});
  const Json opened = Json::array({{{"role", "user"}, {"content", "Guess. From 1 to 9."}}});
  CHECK(chat.open(environment::opened(prompt, " From 1 to 9.")) == model.encode(opened));
  const inference::Dialogue text = config::dialogue(model, nullptr, nullptr, false);
  CHECK(text.open(environment::opened("Guess.", " Now.")) == model.encode("Guess. Now."));
  CHECK(text.reply("lower") == model.tokenizer.encode("lower", false));
}

TEST_CASE("the model's tokens are read as its message, calls only where there are tools") {
  const config::LanguageModel model = model_with("qwen_25");
  const std::string words =
      "<tool_call>\n{\"name\": \"calculator\", \"arguments\": {\"expression\": \"2\"}}\n</tool_call>";
  std::vector<data::TokenId> ids = model.tokenizer.encode(words, false);
  ids.push_back(model.stop_ids.front());
  const Json called = config::dialogue(model, nullptr, calculator, true).read(ids);
  CHECK(called["content"] == "");
  CHECK(called["tool_calls"][0]["function"]["name"] == "calculator");
  const Json plain = config::dialogue(model, nullptr, nullptr, true).read(ids);
  CHECK(plain == Json{{"role", "assistant"}, {"content", words}});
}

TEST_CASE("environments come from the configuration, or not at all") {
  const support::ScratchDirectory folder;
  folder.write("games.py", R"(
class Steps:
    def reset(self, **row):
        pass
    def step(self, text):
        return None, 1.0, True

class Silent:
    def reset(self, **row):
        pass
    def look(self) -> str:
        """Looks around."""
        return "nothing"

def double(x: int) -> int:
    """Doubles.

    Args:
        x: A number
    """
    return 2 * x
)");
  config::RunConfig run;
  run.rl = "grpo";
  run.trl.reward_funcs = {"builtin.gsm8k_accuracy"};
  const auto made = [&] { return config::environments(run, {folder.path()}); };
  CHECK(made() == nullptr);
  run.trl.tools = {"calculator", "games.double"};
  CHECK(made()->tools().size() == 2);
  CHECK(made()->reward_name().empty());
  run.trl.tools = {};
  run.trl.environment_factory = "games.Steps";
  run.trl.reward_funcs = {};
  CHECK(made()->reward_name() == "Steps");
  CHECK(made()->tools().is_null());
  run.trl.tools = {"calculator"};
  CHECK(lacks(raised_by(made), {"config.25", "stepped", "trl.tools"}) == "");
  run.trl.tools = {};
  run.trl.environment_factory = "games.Silent";
  CHECK(lacks(raised_by(made), {"config.24", "reward_funcs"}) == "");
  run.trl.reward_funcs = {"builtin.gsm8k_accuracy"};
  CHECK(made()->tools().size() == 1);
}

TEST_CASE("several environments: each by its name, with the tools of all") {
  const support::ScratchDirectory folder;
  const char* code = R"(
class Steps:
    def reset(self, **row):
        self.keys = sorted(row)
    def step(self, text):
        return ",".join(self.keys), 1.0, False

class Shelf:
    def reset(self, **row):
        return None
    def take(self, title: str) -> str:
        """Takes.

        Args:
            title: A title
        """
        return title + " taken"
    def get_reward(self):
        return 0.5

class Silent(Shelf):
    get_reward = None
    def close(self):
        pass
)";
  folder.write("games.py", code);
  folder.write("other.py", code);
  config::RunConfig run;
  run.rl = "grpo";
  const auto made = [&] { return config::environments(run, {folder.path()}); };
  run.trl.environment_factories = {
      {"s", "games.Steps"}, {"x", "games.Shelf"}, {"y", "games.Shelf"}, {"q", "games.Silent"}};
  const auto all = made();
  REQUIRE(all->rewards().size() == 2);
  CHECK(all->rewards()[0].name == "Steps");
  CHECK(all->rewards()[1].name == "Shelf");
  CHECK(all->rewards()[1].environments == std::vector<std::string>{"x", "y"});
  CHECK(all->tools_of({{"environment", "s"}}).is_null());
  CHECK(all->tools_of({{"environment", "q"}}).size() == 1);
  const auto first = all->begin(std::vector<environment::Start>{
      {{{"environment", "y"}, {"prompt", "p"}}, 1, 2}, {{{"environment", "s"}, {"n", 1}, {"prompt", "p"}}, 1, 2}});
  CHECK(first == std::vector<Json>{nullptr, nullptr});
  Json call = {{"role", "assistant"}, {"content", ""}};
  call["tool_calls"] =
      Json::array({{{"type", "function"}, {"function", {{"name", "take"}, {"arguments", {{"title", "b"}}}}}}});
  const auto turns =
      all->step(std::vector<environment::Said>{{0, call}, {1, {{"role", "assistant"}, {"content", "x"}}}});
  CHECK(turns[0].observation[0]["content"] == "b taken");
  CHECK(turns[1].observation == "n,prompt,seed");
  const auto endings = all->finish();
  CHECK(endings[0].reward == 0.5);
  CHECK(endings[1].reward == 0.0);  // a stepped one's are those of its turns
  run.trl.environment_factories = {{"a", "games.Shelf"}, {"b", "other.Shelf"}};
  CHECK(made()->reward_name() == "games.Shelf, other.Shelf");
  run.trl.tools = {"calculator"};
  CHECK(made()->tools_of({{"environment", "b"}}).size() == 2);
  run.trl.environment_factories = {{"a", "games.Shelf"}, {"s", "games.Steps"}};
  CHECK(lacks(raised_by(made), {"config.25", "stepped", "s"}) == "");
  run.trl.tools = {};
  run.trl.environment_factories = {{"a", "games.Silent"}};
  CHECK(lacks(raised_by(made), {"config.24", "reward_funcs"}) == "");
  run.trl.environment_factories = {{"a", "games.Shelf"}, {"b", "games.Chess"}};
  CHECK(lacks(raised_by(made), {"remote.51", "Chess"}) == "");
  run.trl.environment_factories = {{"a", "Shelf"}};
  CHECK(lacks(raised_by(made), {"remote.51", "Shelf", "module"}) == "");
}

TEST_CASE("tools need messages, and a template that keeps its turns") {
  config::RunConfig run;
  run.trl.tools = {"calculator"};
  CHECK_NOTHROW(config::require_messages({.prompt = Json::array()}, run));
  CHECK(lacks(raised_by([&] { config::require_messages({.row = 3, .prompt = "text"}, run); }),
              {"config.25", "row 3"}) == "");
  config::LanguageModel model = model_with("");
  model.chat_template = text::ChatTemplate::from_source("{{ messages[0]['content'] }}");
  const inference::Dialogue dialogue = config::dialogue(model, nullptr, nullptr, true);
  CHECK(lacks(raised_by([&] { static_cast<void>(dialogue.reply("x")); }), {"config.26"}) == "");
}
