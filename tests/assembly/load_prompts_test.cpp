#include <support/scratch.hpp>

#include <rlalgo/assembly/load_prompts.hpp>

using namespace rlalgo::assembly;
using rlalgo::data::Dataset;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;
using rlalgo::support::ScratchDirectory;

namespace {
std::string questions(int from, int to) {
  std::string out;
  for (int i = from; i < to; ++i)
    out += "{\"question\": \"" + std::to_string(i) + "?\", \"answer\": \"so #### " + std::to_string(i) + "\"}\n";
  return out;
}
Dataset entry(const std::string& path) {
  Dataset out;
  out.source.path = path;
  out.type = "rewards.oai_gsm8k_transform";
  out.where = "c.yaml:4";
  return out;
}
std::vector<std::string> answers(const std::vector<rlalgo::data::TokenizedPrompt>& prompts) {
  std::vector<std::string> out;
  for (const auto& prompt : prompts) out.push_back(prompt.columns["answer"].get<std::string>());
  return out;
}
}  // namespace

TEST_CASE("rows are transformed, shuffled with the seed and the last are held out") {
  const ScratchDirectory scratch;
  PromptsConfig config;
  config.train = {entry(scratch.write("rows.jsonl", questions(0, 16)))};
  config.seed = 0;
  config.held_out = 0.25;
  const Prompts prompts = load_prompts(config);
  // numpy.random.default_rng(0).permutation(16)
  CHECK(answers(prompts.train) ==
        std::vector<std::string>{"2", "11", "3", "10", "0", "4", "7", "5", "14", "12", "6", "9"});
  CHECK(answers(prompts.evaluation) == std::vector<std::string>{"13", "8", "1", "15"});
  CHECK(prompts.train[0].prompt->at(0)["content"] == "2?");
  CHECK(prompts.evaluation[0].row == 0);
  config.shuffle = false;
  config.held_out = 0;
  CHECK(answers(load_prompts(config).train).front() == "0");
  CHECK(load_prompts(config).evaluation.empty());
}

TEST_CASE("test_datasets, several entries and deduplication") {
  const ScratchDirectory scratch;
  PromptsConfig config;
  config.shuffle = false;
  config.train = {entry(scratch.write("a.jsonl", questions(0, 3))), entry(scratch.write("b.jsonl", questions(2, 5)))};
  config.test = {entry(scratch.write("t.jsonl", questions(4, 7)))};
  CHECK(load_prompts(config).train.size() == 6);
  CHECK(load_prompts(config).evaluation.size() == 3);
  config.deduplicate = true;
  const Prompts unique = load_prompts(config);
  CHECK(answers(unique.train) == std::vector<std::string>{"0", "1", "2", "3", "4"});
  CHECK(answers(unique.evaluation) == std::vector<std::string>{"5", "6"});
  REQUIRE(unique.notes.size() == 3);
  CHECK(unique.notes[1] == "datasets: 1 duplicate rows dropped");
}

TEST_CASE("the user's transform is the one that runs; a built-in only where no file has it, which is said") {
  const ScratchDirectory scratch;
  PromptsConfig config;
  config.train = {entry(scratch.write("rows.jsonl", questions(0, 2)))};
  config.test = config.train;
  config.shuffle = false;
  config.search_paths = python_search_paths(scratch.path() / "config.yaml");
  const Prompts alone = load_prompts(config);
  REQUIRE(alone.notes.size() == 1);
  CHECK(lacks(alone.notes[0], {"type: rewards.oai_gsm8k_transform is the built-in transform", "no file rewards.py in",
                               scratch.path().string()}) == "");
  CHECK(answers(alone.train) == std::vector<std::string>{"0", "1"});
  // A file of that name without the function, which names it in a comment.
  scratch.write("rewards.py", "# oai_gsm8k_transform\ndef correct(completions, **kwargs):\n    return []\n");
  const Prompts other = load_prompts(config);
  REQUIRE(other.notes.size() == 1);
  CHECK(answers(other.train) == std::vector<std::string>{"0", "1"});
  scratch.write("rewards.py",
                "def oai_gsm8k_transform(cfg, *args, **kwargs):\n"
                "    def row(example, tokenizer=None):\n"
                "        return {'prompt': [{'role': 'system', 'content': 'mine'}], 'answer': 'changed'}\n"
                "    return row\n");
  const Prompts own = load_prompts(config);
  CHECK(own.notes.empty());
  CHECK(own.train[0].prompt->front().at("content") == "mine");
  CHECK(answers(own.train) == std::vector<std::string>{"changed", "changed"});
  CHECK(answers(own.evaluation) == std::vector<std::string>{"changed", "changed"});
}

TEST_CASE("every built-in transform of prompts gives way to a file of the user's") {
  const ScratchDirectory scratch;
  PromptsConfig config;
  config.train = {entry(scratch.write("rows.jsonl", questions(0, 1)))};
  config.search_paths = python_search_paths(scratch.path() / "config.yaml");
  std::vector<std::string> names = rlalgo::data::transform_names();
  names.insert(names.end(), rlalgo::data::matching_transform_names().begin(),
               rlalgo::data::matching_transform_names().end());
  names.push_back("alone");
  for (const std::string& name : names) {
    const std::size_t dot = name.find('.');
    const std::string module = name.substr(0, dot);
    const std::string function = dot == std::string::npos ? "default" : name.substr(dot + 1);
    scratch.write(module + ".py",
                  "def " + function + "(cfg, **kwargs):\n    return lambda row: {'prompt': '" + name + "'}\n");
    config.train[0].type = name;
    CHECK(load_prompts(config).train[0].prompt->get<std::string>() == name);
    std::filesystem::remove(scratch.path() / (module + ".py"));
  }
}

TEST_CASE("an unknown transform is placed in the configuration") {
  PromptsConfig config;
  config.train = {entry("none.jsonl")};
  config.train[0].type = "rewards.mine";
  CHECK(lacks(raised_by([&] { (void)load_prompts(config); }), {"data.9: ", "datasets[0].type at c.yaml:4"}) == "");
}

TEST_CASE("rows without a prompt are an environment's; images and reserved names are said") {
  const ScratchDirectory scratch;
  PromptsConfig config;
  config.shuffle = false;
  Dataset plain;
  plain.source.path = scratch.write(
      "rows.jsonl", "{\"environment\": \"a\"}\n{\"environment\": \"b\", \"prompt\": null}\n{\"prompt\": \"p\"}\n");
  config.train = {plain};
  CHECK(lacks(raised_by([&] { (void)load_prompts(config); }), {"data.10", "rows.jsonl:1"}) == "");
  config.optional = true;
  const Prompts prompts = load_prompts(config);
  REQUIRE(prompts.train.size() == 3);
  CHECK_FALSE(prompts.train[0].has_prompt);
  CHECK_FALSE(prompts.train[1].has_prompt);
  CHECK(prompts.train[2].has_prompt);
  CHECK(prompts.train[0].prompt->at(0)["content"] == "");
  CHECK(prompts.train[0].columns["environment"] == "a");

  PromptsConfig other;
  plain.source.path = scratch.write(
      "names.jsonl", "{\"prompt\": \"p\", \"completion\": \"c\", \"prompts\": 1, \"log_extra\": 2, \"answer\": 3}\n");
  other.train = {plain};
  const std::vector<std::string> notes = load_prompts(other).notes;
  REQUIRE(notes.size() == 1);
  CHECK(lacks(notes[0], {"prompts, completion, log_extra", "names.jsonl:1"}) == "");
  other.train[0].source.path =
      scratch.write("seen.jsonl", "{\"prompt\": \"p\"}\n{\"prompt\": \"q\", \"images\": [1]}\n");
  CHECK(lacks(raised_by([&] { (void)load_prompts(other); }), {"data.37", "images", "seen.jsonl:2"}) == "");
  other.columns_as_data = true;
  CHECK(load_prompts(other).train.size() == 2);
}
