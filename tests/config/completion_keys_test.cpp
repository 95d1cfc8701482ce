#include <support/catch.hpp>

#include <rlalgo/config/completion_keys.hpp>

using namespace rlalgo::config;

TEST_CASE("defaults of completions are TRL's") {
  const CompletionConfig t;
  CHECK(t.num_generations == 8);
  CHECK(t.num_iterations == 1);
  CHECK(t.shuffle_dataset);
  CHECK(t.temperature == 1.0);
  CHECK(t.top_p == 1.0);
  CHECK(t.top_k == 0);
  CHECK(t.min_p == 0.0);
  CHECK(t.repetition_penalty == 1.0);
  CHECK(t.max_turns == 0);
  CHECK_FALSE(t.max_tool_calling_iterations.has_value());
}

TEST_CASE("a group has two completions where they are compared, and a temperature where log-probs need one") {
  CompletionConfig t;
  CHECK_FALSE(geometry_keys(t).front().range.holds(1));
  CHECK(geometry_keys(t, true).front().range.holds(1));
  const auto heat = [&](bool greedy) { return sampling_keys(t, greedy)[1]; };
  CHECK(heat(false).name == "trl.temperature");
  CHECK_FALSE(heat(false).range.holds(0));
  CHECK(heat(true).range.holds(0));
}

TEST_CASE("keys of several turns apply where there are turns") {
  CompletionConfig t;
  const Keys rows = turn_keys(t);
  const auto idle = [&](std::string_view name) {
    for (const Key& row : rows)
      if (row.name == name) return !row.idle_because().empty();
    return false;
  };
  CHECK(idle("trl.max_turns"));
  CHECK(idle("trl.environment_timeout"));
  t.rollout_func = "a.b";
  CHECK(idle("trl.max_turns"));
  CHECK_FALSE(idle("trl.environment_timeout"));
  t.tools = {"calculator"};
  CHECK_FALSE(idle("trl.max_turns"));
}
