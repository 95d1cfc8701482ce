#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <support/catch.hpp>
#include <support/prompts.hpp>
#include <support/scratch.hpp>

#include <rlalgo/remote/reward_functions.hpp>

using namespace rlalgo;
using remote::make_reward_functions;

namespace {
constexpr const char* mine =
    "def int_reward_func(completions, **kwargs):\n    return [7.0 for _ in completions]\n"
    "def other(completions, **kwargs):\n    return [8.0 for _ in completions]\n";

double first_value(reward::RewardFunction& function) {
  const std::vector<std::string> texts = {"<answer>42</answer>"};
  const rlalgo::support::Prompts prompts = {"p"};
  const std::vector<reward::Json> completions = {texts[0]}, columns = {reward::Json::object()};
  const std::vector<std::span<const std::int32_t>> ids(1);
  return reward::evaluate(function, {.prompts = prompts,
                                     .completions = completions,
                                     .texts = texts,
                                     .completion_ids = ids,
                                     .columns = columns})
      .at(0);
}
}  // namespace

TEST_CASE("built-ins and Python functions by name, a user's file before a built-in") {
  rlalgo::support::ScratchDirectory directory;
  remote::PythonConfig python;
  python.search_paths = {directory.path()};
  {
    // No rewards.py: rewards.<name> is a built-in, and Python is not even looked for.
    remote::PythonConfig absent = python;
    absent.python = "/no/such/python";
    const auto f =
        make_reward_functions({"rewards.int_reward_func", "gsm8k_grpo.format_reward"}, {.pool = {.python = absent}});
    CHECK(first_value(*f[0]) == 0.5);
    CHECK(first_value(*f[1]) == 1.0);
  }
  directory.write("rewards.py", mine);
  const auto f = make_reward_functions({"rewards.int_reward_func", "builtin.int_reward_func", "rewards.other"},
                                       {.pool = {.python = python}});
  REQUIRE(f.size() == 3);
  CHECK(first_value(*f[0]) == 7.0);
  CHECK(first_value(*f[1]) == 0.5);
  CHECK(first_value(*f[2]) == 8.0);
  CHECK(f[2]->name() == "other");
}

TEST_CASE("TRL's names are built in, with parameters") {
  rlalgo::support::ScratchDirectory directory;
  remote::PythonConfig absent;
  absent.search_paths = {directory.path()};
  absent.python = "/no/such/python";
  const auto make = [&](const std::vector<std::string>& names, reward::Json kwargs) {
    return make_reward_functions(names,
                                 {.pool = {.python = absent}, .max_completion_length = 4, .kwargs = std::move(kwargs)});
  };
  const auto f = make({"think_format_reward", "trl.rewards.get_soft_overlong_punishment", "builtin.length_reward"},
                      {{"get_soft_overlong_punishment", {{"max_completion_len", 9}}}});
  REQUIRE(f.size() == 3);
  CHECK(f[0]->name() == "think_format_reward");
  CHECK(f[1]->name() == "soft_overlong_punishment_reward");
  CHECK(first_value(*f[0]) == 0.0);
  CHECK(first_value(*f[1]) == 0.0);
  CHECK_THAT(rlalgo::support::raised_by([&] {
               (void)make({"think_format_reward"}, {{"cosine_scaled_reward", {{"max_len", 9}}}});
             }),
             Catch::Contains("remote.12") && Catch::Contains("cosine_scaled_reward"));
  CHECK_THAT(rlalgo::support::raised_by([&] {
               (void)make({"cosine_scaled_reward"}, {{"cosine_scaled_reward", {{"max", 9}}}});
             }),
             Catch::Contains("reward.6"));
}

TEST_CASE("names that are neither") {
  rlalgo::support::ScratchDirectory directory;
  remote::PythonConfig python;
  python.search_paths = {directory.path()};
  const auto make = [&](const std::string& name) { (void)make_reward_functions({name}, {.pool = {.python = python}}); };
  CHECK_THAT(rlalgo::support::raised_by([&] { make("accuracy"); }),
             Catch::Contains("remote.9") && Catch::Contains("builtin.correctness_reward_func"));
  CHECK(rlalgo::support::exit_code_of([&] { make("accuracy"); }) == 2);
  CHECK_THAT(rlalgo::support::raised_by([&] { make("builtin.nothing"); }), Catch::Contains("reward.3"));
  CHECK_THAT(rlalgo::support::raised_by([&] { make("rewards.nothing"); }),
             Catch::Contains("remote.2") && Catch::Contains(directory.path().string()));
}

TEST_CASE("a built-in stands in only for what no file has, and that is said") {
  rlalgo::support::ScratchDirectory directory;
  directory.write("rewards.py", mine);
  directory.write("gsm8k_grpo/notes.txt", "");
  std::vector<std::string> notes;
  const auto f = make_reward_functions({"rewards.accuracy_reward", "gsm8k_grpo.int_reward_func",
                                        "rewards.int_reward_func", "accuracy_reward", "builtin.int_reward_func"},
                                       {.pool = {.python = {.python = {}, .search_paths = {directory.path()}}},
                                        .note = [&](const std::string& text) { notes.push_back(text); }});
  CHECK(first_value(*f[1]) == 0.5);
  CHECK(first_value(*f[2]) == 7.0);
  REQUIRE(notes.size() == 2);
  CHECK_THAT(notes[0], Catch::Contains("rewards.accuracy_reward is the built-in one: no file rewards.py in " +
                                       directory.path().string()));
  CHECK_THAT(notes[1], Catch::Contains("gsm8k_grpo.int_reward_func"));
}

TEST_CASE("every built-in reward gives way to a file of the user's") {
  rlalgo::support::ScratchDirectory directory;
  std::string text;
  std::vector<std::string> names;
  for (const reward::Builtin& builtin : reward::builtins())
    for (const std::string& name : {builtin.name, builtin.factory}) {
      if (name.empty()) continue;
      text += "def " + name + "(completions, **kwargs):\n    return [9.0 for _ in completions]\n";
      for (const char* module : {"rewards.", "gsm8k_grpo.", "trl.rewards."})
        if (reward::is_builtin(module + name)) names.push_back(module + name);
    }
  for (const char* file : {"rewards.py", "gsm8k_grpo.py", "trl/rewards.py"}) directory.write(file, text);
  directory.write("trl/__init__.py", "");
  const auto f = make_reward_functions(names, {.pool = {.python = {.python = {}, .search_paths = {directory.path()}}}});
  for (std::size_t k = 0; k < names.size(); ++k) {
    INFO(names[k]);
    CHECK(first_value(*f[k]) == 9.0);
  }
}
