#include <filesystem>

#include <support/scratch.hpp>

#include <rlalgo/assembly/load_prompts.hpp>
#include <rlalgo/assembly/prompt_tokens.hpp>

using namespace rlalgo::assembly;
using rlalgo::data::Dataset;
using rlalgo::data::Json;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;
using rlalgo::support::ScratchDirectory;

namespace {

constexpr const char* shown =
    "{% if tools %}[{{ tools | map(attribute='name') | join(',') }}]{% endif %}{% for d in documents or [] %}({{ "
    "d.text "
    "}}){% endfor %}{{ mode or '' }}{% if messages[0].content == 'bad' %}{{ raise_exception('no') }}{% endif %}{% for "
    "m in "
    "messages %}{{ m.role }}:{{ m.content }};{% endfor %}";

// Datasets, what their prompts are rendered with, and a model with that template.
struct Run {
  PromptsConfig rows;
  PromptTokensConfig tokens;
  LanguageModelConfig model;
};

Run run(const std::string& path, const char* chat_template = shown) {
  Run c;
  c.model.model.name = (std::filesystem::path(rlalgo::support::test_dir) / "../examples/quickstart/model").string();
  c.model.chat_template_jinja = chat_template;
  c.rows.shuffle = false;
  c.rows.to_functions = false;
  Dataset entry;
  entry.source.path = path;
  c.rows.train = {entry};
  return c;
}

// Whoever plays the rows, with tools.
class Playing final : public rlalgo::environment::Environments {
 public:
  [[nodiscard]] std::string reward_name() const override { return "playing"; }
  [[nodiscard]] Json tools() const override { return Json::array({{{"name", "calculator"}}}); }
  std::vector<Json> begin(std::span<const rlalgo::environment::Start>) override { return {}; }
  std::vector<rlalgo::environment::Turn> step(std::span<const rlalgo::environment::Said>) override { return {}; }
  std::vector<rlalgo::environment::Ending> finish() override { return {}; }
};

std::vector<std::string> texts(const Run& c, const rlalgo::environment::Environments* played = nullptr) {
  Prompts prompts = load_prompts(c.rows);
  const LanguageModel model = load_text_half(c.model, find_model(c.model.model));
  Conversations conversations(model, c.tokens.kwargs, played);
  tokenize_prompts(prompts.train, prompts.train_rows, model, c.tokens, conversations);
  std::vector<std::string> out;
  for (const auto& prompt : prompts.train) out.push_back(model.tokenizer.decode(prompt.ids, false));
  return out;
}

}  // namespace

TEST_CASE("a prompt is rendered with its row's tools and variables, which go before the run's") {
  const ScratchDirectory scratch;
  Run c = run(scratch.write(
      "rows.jsonl",
      R"({"prompt": [{"role": "user", "content": "a", "tool_calls": null}], "tools": [{"name": "f"}, {"name": "g"}]}
{"prompt": [{"role": "user", "content": "b"}], "tools": []}
{"prompt": [{"role": "user", "content": "c"}], "chat_template_kwargs": {"mode": "own ", "documents": [{"text": "D"}]}}
{"prompt": [{"role": "user", "content": "d"}], "chat_template_kwargs": {}}
)"));
  c.tokens.kwargs = {{"mode", "run "}};
  CHECK(texts(c) == std::vector<std::string>{"[f,g]run user:a;", "run user:b;", "(D)own user:c;", "run user:d;"});
  c.rows.train[0].fields.tools = "mine";
  c.rows.train[0].source.path = scratch.write(
      "mine.jsonl", "{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}], \"mine\": [{\"name\": \"h\"}]}\n");
  CHECK(texts(c).front() == "[h]run user:a;");
  c.rows.train[0].fields.tools = "tools";
  c.rows.train[0].source.path = (scratch.path() / "rows.jsonl").string();
  // Somebody who plays the row has the columns; the model sees the run's tools.
  c.tokens.columns = RowColumns::players;
  const Playing played;
  CHECK(texts(c, &played).front() == "[calculator]run user:a;");
}

TEST_CASE("each data set has its own chat template") {
  const ScratchDirectory scratch;
  Run c = run(scratch.write("a.jsonl", "{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}]}\n"));
  Dataset other = c.rows.train[0];
  other.source.path = scratch.write("b.jsonl", "{\"prompt\": [{\"role\": \"user\", \"content\": \"b\"}]}\n");
  other.chat_template_jinja = "<{{ messages[0].content }}>";
  Dataset bundled = other;
  bundled.source.path = scratch.write("c.jsonl", "{\"prompt\": [{\"role\": \"user\", \"content\": \"c\"}]}\n");
  bundled.chat_template_jinja.reset();
  bundled.chat_template = "chatml";
  c.rows.train = {other, c.rows.train[0], bundled};
  CHECK(texts(c) ==
        std::vector<std::string>{"<b>", "user:a;", "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n"});
  c.rows.held_out = 0.5;
  CHECK(load_prompts(c.rows).evaluation_rows.templates.back()->chat_template == "chatml");
  CHECK_FALSE(load_prompts(c.rows).evaluation[0].columns.contains(rlalgo::assembly::detail::template_mark));
  c.rows.held_out = 0;
  c.tokens.columns = RowColumns::players;
  const Playing played;
  CHECK(texts(c, &played)[0] == "<b>");
  c.tokens.without_templates = "completions that somebody plays";
  c.rows.held_out = 0;
  CHECK(lacks(raised_by([&] { (void)texts(c); }), {"config.8: ", "chat template of its own", "somebody plays"}) == "");
}

TEST_CASE("what cannot be rendered names file and line") {
  const ScratchDirectory scratch;
  const auto error = [&](const std::string& row) {
    const std::string path =
        scratch.write("rows.jsonl", "{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}]}\n" + row + "\n");
    return raised_by([&] { (void)texts(run(path)); });
  };
  CHECK(lacks(error(R"({"prompt": [{"role": "user", "content": "bad"}]})"), {"text.8: ", "no", "rows.jsonl:2"}) == "");
  CHECK(lacks(error(R"({"prompt": [{"role": "user", "content": "a"}], "tools": "calculator"})"),
              {"data.32: ", "rows.jsonl:2"}) == "");
  CHECK(lacks(error(R"({"prompt": [{"role": "user", "content": "a"}], "chat_template_kwargs": {"messages": []}})"),
              {"text.10: ", "rows.jsonl:2"}) == "");
  const std::string path = scratch.write("texts.jsonl", "{\"prompt\": \"a\", \"tools\": [{\"name\": \"f\"}]}\n");
  CHECK(lacks(raised_by([&] { (void)texts(run(path)); }), {"data.33: ", "texts.jsonl:1"}) == "");
}

TEST_CASE("shards of a data set") {
  const ScratchDirectory scratch;
  std::string rows;
  for (int i = 0; i < 10; ++i) rows += "{\"prompt\": \"" + std::to_string(i) + "\"}\n";
  Run c = run(scratch.write("rows.jsonl", rows));
  c.rows.train[0].shard = {3, 1};
  CHECK(texts(c) == std::vector<std::string>{"3", "2", "4"});
  c.rows.train[0].shard = {11, 10};
  CHECK(lacks(raised_by([&] { (void)texts(c); }), {"data.5: ", "shards"}) == "");
}

TEST_CASE("prompts that leave no room are named by their lines, or dropped with a note") {
  const ScratchDirectory scratch;
  const std::string text(4000, 'a');
  std::string lines;
  for (const int i : {0, 1, 2, 3}) lines += Json{{"prompt", i % 2 == 0 ? std::string("1 + 1 = ") : text}}.dump() + "\n";
  Run c = run(scratch.write("rows.jsonl", lines));
  CHECK(lacks(raised_by([&] { (void)texts(c); }),
              {"config.27", "rows.jsonl:2", "rows.jsonl:4", "the first of 2", "excess_length_strategy: drop"}) == "");
  c.tokens.drop_too_long = true;
  Prompts prompts = load_prompts(c.rows);
  const LanguageModel model = load_text_half(c.model, find_model(c.model.model));
  std::vector<std::string> notes;
  Conversations conversations(model);
  tokenize_prompts(prompts.train, prompts.train_rows, model, c.tokens, conversations,
                   [&](const std::string& line) { notes.push_back(line); });
  REQUIRE(prompts.train.size() == 2);
  CHECK(prompts.train[1].row == 1);
  REQUIRE(notes.size() == 1);
  CHECK(lacks(notes[0], {"2 of 4 prompts", "rows.jsonl:2"}) == "");
  c.rows.train[0].source.path = scratch.write("long.jsonl", Json{{"prompt", text}}.dump() + "\n");
  CHECK(lacks(raised_by([&] { (void)texts(c); }), {"config.27", "no prompt is left"}) == "");
}
