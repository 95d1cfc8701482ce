#include <support/scratch.hpp>

#include <rlalgo/config/python_dataset.hpp>

using namespace rlalgo::config;
using rlalgo::support::ScratchDirectory;

TEST_CASE("a name is the user's function where a file has it, then a built-in, then Python's") {
  const ScratchDirectory scratch;
  RunConfig c;
  c.file = (scratch.path() / "config.yaml").string();
  const std::vector<std::string> builtin = {"chatml.intel", "chatml.ultra", "rewards.prompt_transform"};
  const auto python = [&](const char* type) {
    DatasetConfig entry;
    entry.type = type;
    return is_python_dataset(entry, builtin, c);
  };
  CHECK_FALSE(python("chatml.intel"));
  CHECK_FALSE(python("chatml.intell"));
  CHECK_FALSE(python("rewards.mine"));
  CHECK_FALSE(python("chatml"));
  CHECK(python("package.module.function"));
  CHECK(python_file("rewards.mine", c).empty());
  const std::string file = scratch.write("rewards.py", "");
  CHECK(python("rewards.mine"));
  CHECK_FALSE(python("rewards.prompt_transform"));
  scratch.write("rewards.py", "prompt_transform = None\n");
  CHECK(python("rewards.prompt_transform"));
  scratch.write("chatml.py", "def intel(cfg):\n    pass\n");
  CHECK(python("chatml.intel"));
  CHECK_FALSE(python("chatml.ultra"));
  CHECK_FALSE(python("chatml"));
  scratch.write("chatml.py", "def default(cfg):\n    pass\n");
  CHECK(python("chatml"));
  CHECK_FALSE(python("chatml.intel"));
  CHECK(python_file("rewards.mine", c) == file);
  scratch.write("package/module/__init__.py", "");
  CHECK(python_file("package.module.function", c) == scratch.path() / "package/module/__init__.py");
  DatasetConfig none;
  CHECK_FALSE(is_python_dataset(none, builtin, c));
}

TEST_CASE("a built-in is said where a file might have had the function") {
  const ScratchDirectory scratch;
  RunConfig c;
  c.file = (scratch.path() / "config.yaml").string();
  DatasetConfig entry;
  CHECK(note_of_builtin(entry, c).empty());
  entry.type = "chatml.intel";
  CHECK(note_of_builtin(entry, c).empty());
  scratch.write("chatml.py", "");
  CHECK(rlalgo::support::lacks(note_of_builtin(entry, c),
                               {"type: chatml.intel", "built-in", "no file chatml.py", scratch.path().string()}) == "");
  entry.type = "rewards.prompt_transform";
  CHECK(rlalgo::support::lacks(note_of_builtin(entry, c), {"no file rewards.py"}) == "");
}
