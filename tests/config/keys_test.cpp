// Every key by its row: it is written, and its member changes; its bad values are refused; where it does not apply, that is said.
#include <support/scratch.hpp>

#include <map>
#include <set>
#include <string>
#include <vector>

#include <rlalgo/config/key_page.hpp>
#include <rlalgo/config/keys.hpp>
#include <rlalgo/config/parse.hpp>

using namespace rlalgo::config;
using rlalgo::data::Json;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

namespace {

const Json online =
    Json::parse(R"({"base_model": "./m", "rl": "grpo", "datasets": [{"path": "rows.jsonl"}], "learning_rate": 1e-6,
                                    "micro_batch_size": 8, "trl": {"reward_funcs": ["rewards.correct"], "num_generations": 4}})");
const Json pairs =
    Json::parse(R"({"base_model": "./m", "rl": "dpo", "datasets": [{"path": "rows.jsonl", "type": "chatml.intel"}],
                                   "learning_rate": 1e-6, "micro_batch_size": 8})");

const Json gym = Json::parse(
    R"({"base_model": "./m", "rl": "grpo", "learning_rate": 1e-6, "micro_batch_size": 8, "trl": {"num_generations": 4},
                                 "nemo_gym_enabled": true, "nemo_gym_datasets": [{"path": "r.jsonl"}], "nemo_gym_config_paths": ["a.yaml"]})");

Json with(Json base, const std::string& more) {
  base.merge_patch(Json::parse(more));
  return base;
}

// Configurations in which, between them, every key applies, and every key that has a condition does not.
const std::vector<Json>& bases() {
  static const std::vector<Json> all = {
      online,
      with(online, R"({"trl": {"loss_type": "vespo"}})"),
      with(online, R"({"trl": {"loss_type": "sapo"}})"),
      with(online, R"({"rl": "rloo"})"),
      with(online,
           R"({"trl": {"tools": ["calculator"], "beta": 0.1, "use_adaptive_entropy": true, "sync_ref_model": true}})"),
      with(online, R"({"trl": {"use_vllm": true}})"),
      with(online, R"({"trl": {"async_prefetch": true, "replay_buffer_size": 2, "reroll_start_fraction": 0.5}})"),
      with(online, R"({"trl": {"async_prefetch": true, "streaming_partial_batch": true, "async_schedule": "record"}})"),
      with(online, R"({"rl": "ebft", "ebft": {"mode": "structured"}, "trl": {"reward_funcs": null}})"),
      with(online, R"({"rl": "ebft", "ebft": {"mode": "strided"}, "trl": null})"),
      with(online,
           R"({"adapter": "lora", "lora_r": 8, "lora_alpha": 16, "lora_target_linear": true, "lora_dropout": 0.1})"),
      with(online,
           R"({"adapter": "lora", "lora_r": 8, "lora_alpha": 16, "lora_target_linear": true, "load_in_4bit": true})"),
      pairs,
      with(pairs, R"({"dpo_loss_type": ["discopop"], "trl": {"sync_ref_model": true}})"),
      with(
          pairs,
          R"({"dpo_loss_type": ["robust"], "precompute_ref_log_probs": true, "trl": {"f_divergence_type": "alpha_divergence"}})"),
      with(pairs, R"({"rl": "kto"})"),
      with(pairs, R"({"rl": "cpo", "trl": {"loss_type": "alphapo"}})"),
      with(pairs, R"({"rl": "simpo"})"),
      with(pairs, R"({"gradient_checkpointing": true})"),
      with(pairs, R"({"lr_scheduler": "polynomial"})"),
      with(pairs, R"({"lr_scheduler": "inverse_sqrt"})"),
      with(pairs, R"({"lr_scheduler": "one_cycle"})"),
      with(pairs, R"({"lr_scheduler": "reduce_lr_on_plateau", "val_set_size": 0.1})"),
      with(pairs, R"({"lr_scheduler": "warmup_stable_decay", "lr_scheduler_kwargs": {"num_decay_steps": 10}})"),
      with(pairs, R"({"lr_scheduler": "cosine_warmup_with_min_lr", "lr_scheduler_kwargs": {"min_lr_rate": 0.1}})"),
      with(pairs, R"({"optimizer": "muon"})"),
      with(pairs, R"({"optimizer": "adafactor"})"),
      with(pairs, R"({"optimizer": "sgd"})"),
      with(pairs, R"({"optimizer": "adagrad"})"),
      with(pairs, R"({"optimizer": "rmsprop"})"),
      with(pairs, R"({"val_set_size": 0.1, "loss_watchdog_threshold": 3.0})"),
      gym,
      with(gym, R"({"nemo_gym_multi_turn": true})"),
  };
  return all;
}

// A base as it is read, and the rows of its keys.
struct ReadBase {
  const Json& file;
  RunConfig config;
  Keys rows;
  [[nodiscard]] const Key* find(std::string_view name) const {
    const auto found = std::find_if(rows.begin(), rows.end(), [&](const Key& row) { return row.name == name; });
    return found == rows.end() ? nullptr : &*found;
  }
};

std::vector<ReadBase>& read_bases() {
  static std::vector<ReadBase> all = [] {
    std::vector<ReadBase> out;
    out.reserve(bases().size());
    for (const Json& base : bases()) {
      out.push_back({base, parse_run_config(parse_document(base.dump(), "c.yaml")), {}});
      out.back().rows = keys_of(out.back().config);
    }
    return out;
  }();
  return all;
}

// Every documented row, and every other one that a base reads.
const Keys& all_rows() {
  static const Keys rows = [] {
    Keys out = every_key();
    std::set<std::string_view> names;
    for (const Key& row : out) names.insert(row.name);
    for (const ReadBase& base : read_bases())
      for (const Key& row : base.rows)
        if (names.insert(row.name).second) out.push_back(row);
    return out;
  }();
  return rows;
}

// The configuration with `key: value`, as YAML.
std::string written(const Json& base, std::string_view key, const std::string& value) {
  Json file = base;
  Json* at = &file;
  std::string name(key);
  for (std::size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.')) {
    at = &(*at)[name.substr(0, dot)];
    if (at->is_null()) *at = Json::object();
    name.erase(0, dot + 1);
  }
  (*at)[name] = "<value>";
  std::string text = file.dump();
  return text.replace(text.find("\"<value>\""), 9, value);
}

RunConfig parsed(const std::string& text) { return parse_run_config(parse_document(text, "c.yaml")); }

Json value_in(RunConfig& c, std::string_view name) {
  for (const Key& row : keys_of(c))
    if (row.name == name && row.target.json != nullptr) return row.target.json(row.target.at);
  return "no such key";
}

// A value of each row's form that is not its default.
std::vector<std::string> good_values(const Key& row) {
  static const std::map<std::string_view, std::vector<std::string>> own = {
      {"trl.reward_clip_range", {"[-1, 1]"}},
      {"dpo_loss_type", {"[hinge]"}},
      {"trl.reward_weights", {"[0.5]"}},
      {"dpo_loss_weights", {"[0.5]"}},
      {"excess_length_strategy", {"Truncate"}},
      {"trl.generation_kwargs", {"{seed: 3}"}},
      {"trl.max_staleness", {"50"}},
      {"trl.generation_batch_size", {"16"}},
      {"trl.steps_per_generation", {"2"}},
      {"trl.num_generations", {"2"}},
      {"trl.vllm_importance_sampling_clip_max", {"1.5"}},
      {"lora_rank_pattern", {"{q_proj: 4}"}},
      {"lora_alpha_pattern", {"{q_proj: 4}"}},
      {"lora_target_modules", {"[lm_head]"}},
      {"peft_init_lora_weights", {"pissa"}},
      {"peft_layers_to_transform", {"[1]"}},
      {"added_tokens_overrides", {"{5: \"<x>\"}"}},
      {"seed", {"7"}},
      {"optimizer", {"lion"}},
      {"lr_scheduler", {"linear"}},
      {"device", {"cpu"}},
      {"bnb_4bit_compute_dtype", {"bfloat16"}},
      {"bnb_config_kwargs.bnb_4bit_compute_dtype", {"bfloat16"}},
      {"bnb_config_kwargs.blocksize", {"128"}},
      {"lr_scheduler_kwargs.warmup_type", {"cosine", "1-sqrt"}},
      {"lr_scheduler_kwargs.decay_type", {"linear"}},
      {"lr_scheduler_kwargs.anneal_strategy", {"linear"}},
      {"lr_scheduler_kwargs.mode", {"max"}},
      {"lr_scheduler_kwargs.threshold_mode", {"abs"}},
      {"context_parallel_size", {}},
      {"sequence_parallel_degree", {}},
      {"nemo_gym_enabled", {}},
      {"lr_groups", {"[{name: a, modules: [q_proj], lr: 1e-5}]"}},
      {"optim_args.decay_rate", {"-0.5"}}};
  if (const auto found = own.find(row.name); found != own.end()) return found->second;
  const Json now = row.target.json(row.target.at);
  const std::string form(row.target.form);
  std::vector<std::string> out;
  for (const std::string& word : row.words.supported)
    if (now != word) out.push_back(word);
  if (!out.empty()) return out;
  if (form == "true, false") return {"true", "false"};
  if (form == "text") return {"some.text"};
  if (form == "list of texts") return {"[some.text]"};
  if (form == "list of numbers") return {"[0.5]"};
  if (form == "section") return {"{a: 1}"};
  for (const double value : {0.5, 0.25, 2.0, 3.0, 1.5, 7.0, 100.0, 9000.0})
    if ((!row.ranged || row.range.holds(value)) && (form == "number" || std::floor(value) == value) && now != value)
      out.push_back(spelled(value));
  return out;
}

std::vector<std::string> bad_values(const Key& row) {
  const std::string form(row.form.empty() ? row.target.form : row.form);
  if (!row.words.known.empty()) return {"no_such_word", "[a, b]"};
  if (form == "true, false") return {"maybe", "[true]"};
  if (form == "text") return {"[a]", "{a: 1}"};
  if (form == "section") return {"some text", "[1]"};
  if (form == "list of texts") return {"some text", "[[a]]"};
  if (row.name == "trl.environment_factory") return {"[a]", "{a: [b]}", "1"};
  if (row.name == "device") return {"tpu"};
  if (row.name == "bf16") return {"some text"};
  if (row.name == "seed") return {"-1", "1.5", "some text", ".inf"};
  if (row.name == "optimizer") return {"no_such_word"};
  if (row.name == "lora_target_modules") return {"{a: 1}", "1"};
  if (row.name == "peft_init_lora_weights") return {};  // config.10
  if (row.name == "added_tokens_overrides") return {"{x: y}", "some text"};
  if (row.name == "peft_layers_to_transform") return {"[a]", "1", "[-1]"};
  if (row.name.find("_pattern") != std::string_view::npos && form == "section")
    return {"some text", "{q_proj: a}", "{q_proj: .inf}"};
  if (form == "word" || form == "linear, cosine, 1-sqrt") return {"no_such_word", "[a, b]"};
  if (form == "list of words" || form == "drop, truncate, raise") return {"[no_such_word]", "no_such_word"};
  if (form == "[lowest, highest]") return {"[1, -1]", "[1]", "[-.inf, .inf]", "[a, b]"};
  if (form == "list of numbers") return {"[.inf]", "[.nan]", "[a]", "[-.inf]"};
  std::vector<std::string> out = {".inf", "-.inf", ".nan", "some text", "[1]"};
  if (form == "whole number") out.push_back("1.25");
  if (std::isfinite(row.range.low)) out.push_back(spelled(row.range.low - (row.or_zero ? 2 : 1)));
  if (std::isfinite(row.range.high)) out.push_back(spelled(row.range.high * 2 + 1));
  return out;
}

// Read by means of its own, which keys_of() does not list.
bool is_read_alone(const Key& row) {
  static const std::set<std::string_view> names = {"device", "bf16"};
  return names.contains(row.name);
}

}  // namespace

TEST_CASE("every row says what it means, or another spelling of which key it is, or that it has no effect") {
  std::set<std::string_view> sentences;
  for (const Key& row : every_key()) {
    INFO(row.name);
    CHECK((!row.says.empty() || !row.stands_for.empty() || !row.idle_because().empty()));
    const bool number = row.target.form == "number" || row.target.form == "whole number";
    const bool of_ranks = row.name == "ddp_timeout" || row.name == "context_parallel_size";  // config/ranks.hpp
    if (number && row.stands_for.empty() && !row.reader) CHECK((row.ranged || of_ranks));
    if (!row.stands_for.empty())
      CHECK(
          std::any_of(every_key().begin(), every_key().end(), [&](const Key& k) { return k.name == row.stands_for; }));
    for (const auto& [list, names] :
         {std::pair{row.recipes, names_of(recipes()).known}, std::pair{row.losses, names_of(policy_objectives()).known},
          std::pair{row.estimators, names_of(estimators()).known},
          std::pair{row.modes, names_of(matching_modes()).known}}) {
      std::size_t letters = 0, words = 0;
      for (const std::string& name : names)
        if (among(name, list)) letters += name.size(), ++words;
      CHECK(letters + (words > 0 ? words - 1 : 0) == list.size());
    }
  }
}

TEST_CASE("every key that is written changes its member") {
  for (const Key& row : all_rows()) {
    if (row.target.json == nullptr || row.name == "bf16" || good_values(row).empty()) continue;
    // Their other values need a GPU (device_test.cpp).
    if (row.name == "device" || row.name == "trl.generation_kv_cache_dtype") continue;
    INFO(row.name);
    bool changed = false;
    std::string last;
    for (const ReadBase& base : read_bases()) {
      const Key* before = base.find(row.name);
      if (before == nullptr || !before->idle_because().empty()) continue;
      for (const std::string& value : good_values(row)) {
        const std::string error = raised_by([&] {
          RunConfig after = parsed(written(base.file, row.name, value));
          changed = before->target.json(before->target.at) != value_in(after, row.name) &&
                    after.was_set(std::string(row.name));
        });
        if (error != "nothing") last = error;
        if (changed) break;
      }
      if (changed) break;
    }
    INFO(last);
    CHECK(changed);
  }
}

TEST_CASE("bad values of every key are refused by its name") {
  // Where a base has a row of that name with another range, its values are tried, too.
  const auto kind_of = [](const Key& row) {
    return std::string(row.name) + row.range.text() + std::string(row.form) + std::string(row.target.form);
  };
  std::set<std::string> tried;
  std::set<std::string_view> read;
  for (const ReadBase& base : read_bases())
    for (const Key& row : base.rows) {
      if (row.target.json == nullptr || !row.idle_because().empty() || (row.in_use && !row.in_use().empty())) continue;
      if (!row.recipes.empty() && !among(base.config.rl, row.recipes)) continue;
      read.insert(row.name);
      if (row.name == "trl.generation_kwargs" || !tried.insert(kind_of(row)).second) continue;
      for (const std::string& value : bad_values(row)) {
        INFO(row.name << ": " << value << " in " << base.file.dump());
        const std::string error = raised_by([&] { (void)parsed(written(base.file, row.name, value)); });
        CHECK((error.find("config.5]") != std::string::npos || error.find("config.6]") != std::string::npos ||
               error.find("config.39]") != std::string::npos || error.find("config.40]") != std::string::npos));
        CHECK(error.find(std::string(row.name)) != std::string::npos);
      }
    }
  for (const Key& row : all_rows()) {
    INFO(row.name);
    CHECK((read.contains(row.name) || row.target.json == nullptr || bad_values(row).empty() || is_read_alone(row)));
  }
}

TEST_CASE("a key that does not apply is named: refused, or without effect") {
  for (const Key& row : all_rows()) {
    const bool conditional =
        row.gate || row.in_use || !row.losses.empty() || !row.recipes.empty() || !row.modes.empty();
    if (!conditional || row.target.json == nullptr) continue;
    INFO(row.name);
    bool named = false;
    for (const ReadBase& base : read_bases()) {
      const Key* here = base.find(row.name);  // as it stands there
      const bool applies =
          here != nullptr && here->idle_because().empty() && (!here->in_use || here->in_use().empty()) &&
          (here->recipes.empty() || among(base.config.rl, here->recipes)) &&
          (here->losses.empty() || among(base.config.trl.loss_type, here->losses)) && here->modes.empty();
      if (applies) continue;
      for (const std::string& value : good_values(row)) {
        std::string said;
        const std::string error = raised_by([&] {
          for (const std::string& warning : parsed(written(base.file, row.name, value)).warnings)
            said += warning + "\n";
        });
        if (error != "nothing") said = error;
        named = said.find(std::string(row.name) + " (c.yaml:1) has no effect") != std::string::npos ||
                said.find(std::string(row.name) + " has no effect") != std::string::npos ||
                said.find(std::string(row.name) + " does not go with rl") != std::string::npos;
        if (named) break;
      }
      if (named) break;
    }
    CHECK(named);
  }
}

TEST_CASE("a key that the recipe does not read is refused where another recipe of its kind reads it") {
  int refused = 0;
  for (const Recipe& recipe : recipes())
    for (const std::string& name : refused_keys(recipe)) {
      INFO("rl: " << recipe.name << ", " << name);
      const Json base =
          with(recipe.generates ? online : pairs, "{\"rl\": \"" + std::string(recipe.name) + "\", \"ebft\": {}}");
      if (recipe.matches_features) continue;  // its rewards are features
      const auto row =
          std::find_if(every_key().begin(), every_key().end(), [&](const Key& k) { return k.name == name; });
      const std::string value = row->target.json == nullptr ? "true" : good_values(*row).front();
      std::string text = raised_by([&] { (void)parsed(written(base, name, value)); });
      CHECK(lacks(text, {"config.8", name + " does not go with rl: "}) == "");
      ++refused;
    }
  CHECK(refused > 40);
}

TEST_CASE("readers are recipes of the same kind") {
  const Recipe &dpo = *find_row(recipes(), "dpo"), &grpo = *find_row(recipes(), "grpo");
  CHECK(readers_of("trl.delta", grpo) == std::vector<std::string>{"grpo", "gdpo", "ebft"});
  CHECK(readers_of("trl.delta", dpo).empty());
  CHECK(readers_of("trl.loss_type", dpo) == std::vector<std::string>{"kto", "simpo", "cpo"});
  CHECK(reads(*find_row(estimators(), "leave_one_out"), "trl.normalize_advantages"));
  CHECK_FALSE(reads(*find_row(estimators(), "leave_one_out"), "trl.scale_rewards"));
}
