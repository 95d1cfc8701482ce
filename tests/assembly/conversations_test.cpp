#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <support/scratch.hpp>

#include <rlalgo/assembly/conversations.hpp>

using namespace rlalgo;
using assembly::Conversations;
using data::Dataset;
using data::Json;
using support::lacks;
using support::raised_by;

namespace {

const std::filesystem::path quickstart =
    std::filesystem::path(rlalgo::support::test_dir).parent_path() / "examples" / "quickstart" / "model";

constexpr const char* shown =
    "{% if tools is not none and tools is defined %}[{% for t in tools %}{{ t.function.name }};{% endfor %}]{% endif "
    "%}{% for m in "
    "messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt "
    "%}<|im_start|>assistant\n{% endif %}";

Json tool(const std::string& name) { return {{"type", "function"}, {"function", {{"name", name}}}}; }

class Playing final : public environment::Environments {
 public:
  explicit Playing(Json tools) : tools_(std::move(tools)) {}
  [[nodiscard]] std::string reward_name() const override { return "playing"; }
  [[nodiscard]] Json tools() const override { return tools_; }
  std::vector<Json> begin(std::span<const environment::Start>) override { return {}; }
  std::vector<environment::Turn> step(std::span<const environment::Said>) override { return {}; }
  std::vector<environment::Ending> finish() override { return {}; }

 private:
  Json tools_;
};

data::TokenizedPrompt row(const Json& columns, Json prompt = Json::array({{{"role", "user"}, {"content", "x"}}})) {
  return {.row = 3, .ids = {}, .prompt = std::move(prompt), .columns = columns};
}

}  // namespace

TEST_CASE("rows of one environment, template and form share a dialogue") {
  assembly::LanguageModelConfig run;
  run.model.name = quickstart.string();
  run.chat_template_jinja = shown;
  const assembly::LanguageModel model = assembly::load_text_half(run, assembly::find_model(run.model));
  const environment::Several all({{"a", std::make_shared<Playing>(Json::array({tool("f"), tool("g")}))},
                                  {"b", std::make_shared<Playing>(nullptr)},
                                  {"c", std::make_shared<Playing>(Json::array())}});
  Conversations conversations(model, nullptr, &all, "c.yaml:5");
  Dataset other;
  other.chat_template_jinja = "<{{ messages[-1].content }}|im_end|>";
  const auto enter = [&](const Json& columns, const Dataset* entry = nullptr) {
    return conversations.enter(row(columns), entry, "rows.jsonl:7");
  };
  CHECK(enter({{"environment", "a"}, {"n", 1}}) == 0);
  CHECK(enter({{"environment", "b"}}) == 1);
  CHECK(enter({{"environment", "a"}}) == 0);
  CHECK(enter({{"environment", "a"}}, &other) == 2);
  CHECK(enter({{"environment", "c"}}) == 3);
  CHECK(conversations.enter(row({{"environment", "b"}}, "text"), nullptr, "") == 4);
  CHECK(conversations.tools(0).size() == 2);
  CHECK(conversations.tools(1).is_null());
  CHECK(conversations.tools(3).is_null());  // an empty list would show the frame of one
  CHECK(conversations.chat_template(0) == nullptr);
  REQUIRE(conversations.chat_template(2) != nullptr);
  const std::vector<inference::Dialogue> dialogues = conversations.dialogues();
  REQUIRE(dialogues.size() == 5);
  const Json opened = Json::array({{{"role", "user"}, {"content", "y"}}});
  const auto text = [&](const std::vector<data::TokenId>& ids) { return model.tokenizer.decode(ids, false); };
  CHECK(text(dialogues[0].open(opened)) == "[f;g;]<|im_start|>user\ny<|im_end|>\n<|im_start|>assistant\n");
  CHECK(text(dialogues[1].open(opened)) == "<|im_start|>user\ny<|im_end|>\n<|im_start|>assistant\n");
  CHECK(text(dialogues[2].open(opened)) == "<y|im_end|>");
  CHECK(text(dialogues[4].open("plain")) == "plain");
  // Calls are read where the environment has tools, if none of them is its own.
  const std::vector<data::TokenId> call =
      model.tokenizer.encode("<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>", false);
  CHECK(dialogues[0].read(call).contains("tool_calls"));
  CHECK_FALSE(dialogues[1].read(call).contains("tool_calls"));
  CHECK(dialogues[3].read(call).contains("tool_calls"));
  CHECK(lacks(raised_by([&] { enter(Json::object()); }), {"environment.3", "rows.jsonl:7", "a, b, c"}) == "");
  CHECK(lacks(raised_by([&] {
                (void)conversations.enter(row({{"environment", "a"}}, "text"), nullptr, "");
              }),
              {"config.25", "row 3", "c.yaml:5"}) == "");
}

TEST_CASE("without environments all rows are shown alike") {
  assembly::LanguageModelConfig run;
  run.model.name = quickstart.string();
  const assembly::LanguageModel model = assembly::load_text_half(run, assembly::find_model(run.model));
  Conversations conversations(model);
  CHECK(conversations.enter(row({{"environment", 1}}), nullptr, "") == 0);
  CHECK(conversations.enter(row(Json::object()), nullptr, "") == 0);
  CHECK(conversations.tools(0).is_null());
}
