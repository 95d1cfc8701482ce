// A configuration that runs, written for a model, data and a method: asked for on a terminal, or given as options.
//
// What is written is read back and judged as `train` would. Nothing that is there is ever replaced.
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/assembly/model_places.hpp>
#include <rlalgo/config/methods.hpp>
#include <rlalgo/config/parse.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/nearest.hpp>
#include <rlalgo/data/load.hpp>
#include <rlalgo/os/atomic_file.hpp>
#include <rlalgo/os/home_path.hpp>
#include <rlalgo/os/regular_file.hpp>

#include "log.hpp"
#include "verbs.hpp"

namespace rlalgo::cli {

namespace {

using Strings = std::vector<std::string>;

struct InitOptions {
  std::string file = "config.yaml", model, data, method, output_dir = "out", adapter;
};

// `rl` and, where the name is one of a loss, trl.loss_type.
struct MethodChoice {
  const config::Recipe* recipe = nullptr;
  std::string loss_type;
};

Strings method_names() {
  Strings names;
  for (const config::Recipe& recipe : config::recipes())
    if (!recipe.matches_features) names.push_back(std::string(recipe.name));
  for (const config::PolicyObjective& objective : config::policy_objectives())
    if (std::find(names.begin(), names.end(), objective.name) == names.end())
      names.push_back(std::string(objective.name));
  return names;
}

MethodChoice method_named(const std::string& name) {
  for (const config::Recipe& recipe : config::recipes())
    if (recipe.name == name && !recipe.matches_features) return {&recipe, ""};
  for (const config::PolicyObjective& objective : config::policy_objectives())
    if (objective.name == name) return {&config::recipes().front(), name};
  std::string all;
  for (const std::string& one : method_names()) all += (all.empty() ? "" : ", ") + one;
  const std::string nearest = core::nearest_name(name, method_names());
  core::raise_usage("cli", 29,
                    {.what = "there is no such method to write a configuration for",
                     .found = name,
                     .expected = all,
                     .where = "--method",
                     .remedy = nearest.empty() ? "rl: ebft has a page of its own, docs/algorithms/ebft.md"
                                               : "did you mean " + nearest + "?"});
}

// A column that a row has and that is a text, or a list of messages.
std::optional<std::string> first_column(const data::Json& row, const Strings& names) {
  for (const std::string& name : names)
    if (const auto at = row.find(name); at != row.end() && (at->is_string() || (at->is_array() && !at->empty())))
      return name;
  return std::nullopt;
}

[[noreturn]] void refuse_columns(const data::Json& row, const std::string& data, const std::string& expected) {
  std::string found;
  for (const auto& [name, value] : row.items()) found += (found.empty() ? "" : ", ") + name;
  core::raise_usage(
      "cli", 30,
      {.what = "the rows have no columns that this method learns from",
       .found = found,
       .expected = expected,
       .where = data,
       .remedy = "rename columns, or write the configuration by hand: datasets[].type says how rows are read"});
}

// The line `type: …` of the data set, with its indentation; empty: the columns have the names that are read without one.
struct DataShape {
  std::string type;
  std::string answer;  // the column that rewards compare with
};

DataShape shape_of_prompts(const data::Json& row, const std::string& data) {
  const Strings answers = {"answer", "solution", "output", "response", "target", "label", "completion"};
  const auto answer = first_column(row, answers);
  const bool marked = answer && row[*answer].is_string() &&
                      row[*answer].get_ref<const std::string&>().find("####") != std::string::npos;
  if (row.contains("prompt") && !marked) return {"", answer.value_or("")};
  const auto prompt = first_column(row, {"prompt", "question", "problem", "instruction", "input", "query", "text"});
  if (!prompt) refuse_columns(row, data, "prompt, question, problem, instruction, input, query or text");
  std::string type = "    type:\n      field_prompt: " + *prompt + "            # becomes the user's message\n";
  if (answer && *answer != *prompt)
    type += "      field_answer: " + *answer + "            # rewards get it as `answer`\n";
  if (marked) type += "      answer_after: \"####\"             # what stands behind the last one\n";
  return {type, answer ? "answer" : ""};
}

DataShape shape_of_preferences(const data::Json& row, const std::string& data, bool unpaired) {
  const Strings needed = unpaired ? Strings{"completion", "label"} : Strings{"chosen", "rejected"};
  for (const std::string& name : needed)
    if (!row.contains(name))
      refuse_columns(row, data, unpaired ? "prompt, completion, label" : "prompt, chosen, rejected");
  if (row.contains("prompt")) return {};
  const auto prompt = first_column(row, {"question", "instruction", "input", "query"});
  if (prompt && unpaired)
    return {"    type:\n      field_prompt: " + *prompt +
                "\n      field_completion: completion\n      field_label: label\n",
            ""};
  if (prompt)
    return {
        "    type:\n      field_prompt: " + *prompt + "\n      field_chosen: chosen\n      field_rejected: rejected\n",
        ""};
  if (!unpaired && row["chosen"].is_array())
    return {"    type: chat_template.argilla_chat   # chosen and rejected are whole conversations\n", ""};
  refuse_columns(row, data, "prompt beside " + needed[0] + " and " + needed[1]);
}

// A YAML scalar for any text.
std::string quoted(const std::string& text) {
  const bool plain = !text.empty() &&
                     text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-") ==
                         std::string::npos &&
                     text.find_first_not_of("0123456789.") != std::string::npos && text.front() != '-';
  return plain ? text : data::Json(text).dump();
}

std::string common_part(const InitOptions& o, const MethodChoice& method, const DataShape& shape) {
  const std::string& rl = std::string(method.recipe->name);
  return "# rlalgo train " + o.file + " --dry-run    shows the plan; without --dry-run it trains\n" +
         "base_model: " + quoted(o.model) + "\n" + "rl: " + rl + "                               # " +
         std::string(method.recipe->summary) + "\n" + "datasets:\n  - path: " + quoted(o.data) + "\n" + shape.type +
         "val_set_size: 0.05                     # held out, for evaluation\n\n";
}

std::string adapter_part(const InitOptions& o) {
  if (o.adapter == "none")
    return "# adapter: lora would train a small addition to frozen weights; without it all weights are trained\n\n";
  return "adapter: lora                          # trains a small addition; the base stays as it is\n"
         "lora_r: 16\nlora_alpha: 32\nlora_target_linear: true\n\n";
}

std::string end_part(const InitOptions& o) {
  return "lr_scheduler: cosine\n"
         "bf16: auto                             # bfloat16 where the device multiplies it, else float32\n\n"
         "logging_steps: 1\n"
         "evals_per_epoch: 2\n"
         "saves_per_epoch: 1\n"
         "output_dir: " +
         quoted(o.output_dir) + "\n";
}

std::string online_file(const InitOptions& o, const MethodChoice& method, const DataShape& shape) {
  const bool lora = o.adapter != "none";
  return common_part(o, method, shape) + "trl:\n" +
         (method.loss_type.empty() ? "" : "  loss_type: " + method.loss_type + "\n") +
         "  num_generations: 8                   # completions of each prompt, compared with each other\n"
         "  max_completion_length: 256           # tokens\n"
         "  temperature: 1.0\n"
         "  reward_funcs: [rewards.correct]      # rewards.py beside this file\n\n" +
         adapter_part(o) +
         "micro_batch_size: 8                    # completions in one pass\n"
         "gradient_accumulation_steps: 4         # passes of a step: 32 completions of 4 prompts\n"
         "learning_rate: " +
         std::string(lora ? "1e-5" : "1e-6") + "\n" + "num_epochs: 1\n" + end_part(o);
}

std::string preference_file(const InitOptions& o, const MethodChoice& method, const DataShape& shape) {
  const bool lora = o.adapter != "none";
  return common_part(o, method, shape) +
         "sequence_len: 1024                     # tokens of a prompt and an answer; longer rows are dropped\n\n" +
         adapter_part(o) +
         "micro_batch_size: 2                    # rows in one pass\n"
         "gradient_accumulation_steps: 8         # passes of a step: 16 rows\n"
         "learning_rate: " +
         std::string(lora ? "1e-5" : "1e-6") + "\n" + "num_epochs: 1\n" + end_part(o);
}

std::string rewards_file(const DataShape& shape) {
  std::string out =
      "\"\"\"Rewards: a function gets all completions of a step and returns a number for each; greater is "
      "better.\"\"\"\n\n\n"
      "def text_of(completion):\n"
      "    \"\"\"A completion is a text, or of a conversation a list of messages.\"\"\"\n"
      "    return completion if isinstance(completion, str) else completion[-1][\"content\"]\n\n\n";
  if (shape.answer.empty())
    return out +
           "def correct(completions, **kwargs):\n"
           "    \"\"\"Every column of the data is a keyword, a list with an item for each completion. Say here what is "
           "good.\"\"\"\n"
           "    return [1.0 if text_of(c).strip() else 0.0 for c in completions]\n";
  return out + "def correct(completions, " + shape.answer + ", **kwargs):\n" +
         "    \"\"\"1 where the known answer stands in the completion. `" + shape.answer +
         "` is a column of the data; others are in kwargs.\"\"\"\n" +
         "    return [float(str(known).strip() in text_of(c)) for c, known in zip(completions, " + shape.answer +
         ")]\n";
}

std::string ask(const std::string& what, const std::string& otherwise) {
  std::cout << what << (otherwise.empty() ? "" : " [" + otherwise + "]") << ": " << std::flush;
  std::string line;
  if (!std::getline(std::cin, line)) return otherwise;
  const std::size_t from = line.find_first_not_of(" \t");
  line = from == std::string::npos ? "" : line.substr(from, line.find_last_not_of(" \t\r") - from + 1);
  return line.empty() ? otherwise : line;
}

void complete(InitOptions& o) {
  const bool terminal = ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1;
  std::string missing;
  for (const auto& [option, value] :
       {std::pair("--model", &o.model), std::pair("--data", &o.data), std::pair("--method", &o.method)})
    if (value->empty()) missing += (missing.empty() ? "" : ", ") + std::string(option);
  if (missing.empty()) return;
  if (!terminal)
    core::raise_usage("cli", 27,
                      {.what = "`rlalgo init` asks on a terminal; elsewhere options say everything",
                       .found = "no " + missing,
                       .expected = "rlalgo init [FILE] --model DIR --data FILE --method grpo"});
  if (o.model.empty()) o.model = ask("model (a directory, or an id in the local cache)", "");
  if (o.data.empty()) o.data = ask("data (a file, a directory, or an id in the local cache)", "");
  if (o.method.empty()) {
    for (const config::Recipe& recipe : config::recipes())
      if (!recipe.matches_features)
        std::cout << "  " << recipe.name << std::string(8 - std::min<std::size_t>(7, recipe.name.size()), ' ')
                  << recipe.summary << "\n";
    o.method = ask("method", "grpo");
  }
}

void require_absent(const std::filesystem::path& file) {
  if (!os::exists(file)) return;
  core::raise_usage("cli", 31,
                    {.what = "a file that would be written is there already",
                     .where = file.string(),
                     .remedy = "name another file, or move it away: nothing is replaced"});
}

// A large model is trained through an adapter unless something else is said.
std::string adapter_for(const std::filesystem::path& model) {
  constexpr std::uintmax_t large = 1'500'000'000;  // bytes of weights
  std::uintmax_t bytes = 0;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(model, none))
    if (entry.path().extension() == ".safetensors") bytes += std::filesystem::file_size(entry.path(), none);
  return bytes > large ? "lora" : "none";
}

int initialise(InitOptions o) {
  complete(o);
  const std::filesystem::path file = os::expand_home(o.file, "FILE");
  const std::filesystem::path rewards = (file.has_parent_path() ? file.parent_path() : ".") / "rewards.py";
  const MethodChoice method = method_named(o.method);
  const bool online = method.recipe->generates;
  require_absent(file);
  const std::filesystem::path model = assembly::resolve_model(o.model, "--model");
  if (o.adapter.empty()) o.adapter = adapter_for(model);
  if (o.adapter != "lora" && o.adapter != "none")
    core::raise_usage(
        "cli", 7,
        {.what = "an option has no such value", .found = "--adapter " + o.adapter, .expected = "lora or none"});
  data::DatasetSource source;
  source.path = os::expand_home(o.data, "--data");
  const data::Table rows = data::load(source);
  if (rows.size() == 0) core::raise_usage("cli", 30, {.what = "the data have no rows", .where = o.data});
  const data::Json& row = rows.row(0);
  const DataShape shape =
      online ? shape_of_prompts(row, o.data)
             : shape_of_preferences(row, o.data, method.recipe->family == data::PreferenceFamily::unpaired);
  const bool writes_rewards = online && !os::exists(rewards);
  os::write_file(file, online ? online_file(o, method, shape) : preference_file(o, method, shape));
  if (writes_rewards) os::write_file(rewards, rewards_file(shape));
  std::cout << "wrote " << file.string() << (writes_rewards ? " and " + rewards.string() : "") << "\n";
  if (online && !writes_rewards) note(rewards.string() + " is there already and stays: it needs a function `correct`");
  for (const std::string& text : config::load_run_config(file.string()).warnings) warning(text);
  std::cout << "next: rlalgo train " << file.string() << " --dry-run\n";
  return 0;
}

}  // namespace

Run init(CLI::App& app) {
  const auto o = std::make_shared<InitOptions>();
  app.add_option("FILE", o->file, "the configuration that is written")->type_name("")->capture_default_str();
  app.add_option("--model", o->model, "a Hugging Face directory, or an id in the local cache")->type_name("DIR");
  app.add_option("--data", o->data, "a file, a directory, or an id in the local cache")->type_name("PATH");
  app.add_option("--method", o->method, "grpo, dapo, gdpo, rloo, dpo, kto, orpo …; docs/algorithms/");
  app.add_option("--output-dir", o->output_dir, "output_dir of the training")->capture_default_str();
  app.add_option("--adapter", o->adapter, "lora or none; default: lora for models above 1.5 GB");
  app.footer(R"(
Writes a configuration with comments for the columns that the data have, and for methods that generate rewards.py beside it, with a
function to begin with. On a terminal it asks for what is not given. Files that are there are never replaced.)");
  return [o] { return initialise(*o); };
}

}  // namespace rlalgo::cli
