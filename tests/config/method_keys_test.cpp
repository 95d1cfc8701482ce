#include <support/scratch.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include <rlalgo/config/method_keys.hpp>
#include <rlalgo/config/parse.hpp>

using namespace rlalgo::config;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;
namespace fs = std::filesystem;

namespace {

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

const MethodKey* find_key(std::string_view name) { return find_row(method_keys(), name); }

// A minimal configuration of a recipe with `key: value`, wherever it belongs.
std::string error_of(const Recipe& recipe, std::string_view key, const std::string& value) {
  const auto in = [&](std::string_view prefix) {
    return key.starts_with(prefix) ? "  " + std::string(key.substr(prefix.size())) + ": " + value + "\n" : "";
  };
  const std::string line = key.find('.') == std::string_view::npos ? std::string(key) + ": " + value + "\n" : "";
  std::string text = "base_model: ./m\nrl: " + std::string(recipe.name) +
                     "\ndatasets: [{path: rows.jsonl, type: chatml.intel}]\nlearning_rate: 1e-6\nmicro_batch_size: 8\n";
  text += line + "trl:\n  chat_template_kwargs: {}\n" + in("trl.");
  if (recipe.matches_features) {
    const bool strided = reads(*find_row(matching_modes(), "strided"), key);
    text += std::string("ebft:\n  mode: ") + (strided ? "strided\n" : "structured\n") + in("ebft.");
  } else if (recipe.generates)
    text += "  reward_funcs: [rewards.correct]\n";
  return raised_by([&] { (void)parse_run_config(parse_document(text, "c.yaml")); });
}

// A value of the key that is on and, by itself, valid.
std::string value_of(const MethodKey& key, const Recipe& recipe) {
  if (key.name == "trl.loss_type") return recipe.generates ? "dapo" : "kto";
  if (key.name == "trl.scale_rewards") return "batch";
  if (key.name == "trl.importance_sampling_level") return "sequence";
  if (key.name == "trl.advantage_estimator") return "pass_through";
  if (key.name == "trl.multi_objective_aggregation") return "normalize_then_sum";
  if (key.name == "trl.reward_clip_range") return "[-1, 1]";
  if (key.name == "trl.f_divergence_type") return "js_divergence";
  if (key.name == "dpo_loss_type") return "[hinge]";
  if (key.name == "dpo_loss_weights") return "[0.5]";
  if (key.name == "trl.delta") return "2.0";
  if (key.value != nullptr) return "0.5";
  return "true";
}

}  // namespace

TEST_CASE("every key of a row is in the table, and every key of the table is a row's") {
  std::set<std::string_view> used;
  const auto take = [&](const auto& rows) {
    for (const auto& row : rows)
      for (const std::string_view key : row.keys) {
        INFO(row.name << ": " << key);
        CHECK(find_key(key) != nullptr);
        used.insert(key);
      }
  };
  take(recipes());
  take(policy_objectives());
  take(estimators());
  take(matching_modes());
  std::set<std::string_view> all;
  for (const MethodKey& key : method_keys()) {
    INFO(key.name);
    CHECK(all.insert(key.name).second);
    CHECK_FALSE(key.meaning.empty());
    CHECK((key.value == nullptr) == key.range.expected.empty());
  }
  CHECK(used == all);
}

TEST_CASE("docs/configuration.md lists every key of a method and every name of a table") {
  const std::string text = read(fs::path(rlalgo::support::test_dir).parent_path() / "docs/configuration.md");
  REQUIRE_FALSE(text.empty());
  const auto has = [&](std::string_view word) { return text.find("`" + std::string(word) + "`") != std::string::npos; };
  for (const MethodKey& key : method_keys()) {
    INFO(key.name);
    CHECK((has(key.name) || (key.name.starts_with("trl.") && has(key.name.substr(4)))));
  }
  const auto name_anywhere = [&](const auto& rows) {
    for (const auto& row : rows) {
      INFO(row.name);
      CHECK(text.find(row.name) != std::string::npos);
    }
  };
  name_anywhere(policy_objectives());
  name_anywhere(ratio_levels());
  name_anywhere(estimators());
  name_anywhere(aggregations());
  name_anywhere(pair_objectives());
  name_anywhere(matching_modes());
  name_anywhere(matching_estimators());
  name_anywhere(poolings());
  name_anywhere(preference_losses());
  for (const Recipe& row : recipes()) CHECK((!row.supported || text.find(row.name) != std::string::npos));
}

TEST_CASE("a key that the recipe does not read is refused where another recipe of its kind reads it") {
  int refused = 0;
  for (const Recipe& recipe : recipes()) {
    if (!recipe.supported) continue;
    for (const MethodKey& key : method_keys()) {
      if (!key.exclusive || readers_of(key.name, recipe).empty()) continue;
      INFO("rl: " << recipe.name << ", " << key.name);
      const std::string error = error_of(recipe, key.name, value_of(key, recipe));
      const bool other = error.find("config.8") != std::string::npos &&
                         error.find(std::string(key.name) + " does not go with rl: ") != std::string::npos;
      CHECK(other == !reads(recipe, key.name));
      refused += other ? 1 : 0;
    }
  }
  CHECK(refused > 40);
}

TEST_CASE("ranges hold at their ends as they say") {
  const Range half_open{"more than 0, at most 1", 0.0, 1.0, true};
  CHECK_FALSE(half_open.holds(0.0));
  CHECK(half_open.holds(1.0));
  CHECK_FALSE(half_open.holds(std::nan("")));
  CHECK_FALSE(Range{"finite"}.holds(std::numeric_limits<double>::infinity()));
  CHECK(Range{"0 or more", 0.0}.holds(0.0));
  const Range open{"less than 1", 0.0, 1.0, false, true};
  CHECK(open.holds(0.0));
  CHECK_FALSE(open.holds(1.0));
}

TEST_CASE("every number of a method has its range checked") {
  for (const Recipe& recipe : recipes()) {
    if (!recipe.supported) continue;
    for (const MethodKey& key : method_keys()) {
      const bool of_a_mode = key.name.starts_with("ebft.") && recipe.matches_features;
      if (key.value == nullptr || !(of_a_mode || reads(recipe, key.name))) continue;
      INFO("rl: " << recipe.name << ", " << key.name);
      const bool whole = key.range.expected == "1 or more" || key.name == "ebft.min_completion_prefix";
      const std::string value = std::isinf(key.range.low) ? ".inf" : whole ? "-1" : "-1.5";
      CHECK(lacks(error_of(recipe, key.name, value),
                  {"config.6: ", std::string(key.name), std::string(key.range.expected)}) == "");
    }
  }
}
