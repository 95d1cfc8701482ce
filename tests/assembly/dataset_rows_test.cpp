#include <support/scratch.hpp>

#include <rlalgo/assembly/dataset_rows.hpp>

using namespace rlalgo::assembly;
using rlalgo::data::Dataset;
using rlalgo::support::ScratchDirectory;

TEST_CASE("a name is the user's function where a file has it, then a built-in, then Python's") {
  const ScratchDirectory scratch;
  const auto places = python_search_paths(scratch.path() / "config.yaml");
  const std::vector<std::string> builtin = {"chatml.intel", "chatml.ultra", "rewards.prompt_transform"};
  const auto python = [&](const char* type) {
    Dataset entry;
    entry.type = type;
    return is_python_dataset(entry, builtin, places);
  };
  CHECK_FALSE(python("chatml.intel"));
  CHECK_FALSE(python("chatml.intell"));
  CHECK_FALSE(python("rewards.mine"));
  CHECK_FALSE(python("chatml"));
  CHECK(python("package.module.function"));
  CHECK(rlalgo::remote::module_file("rewards.mine", places).empty());
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
  CHECK(rlalgo::remote::module_file("rewards.mine", places) == file);
  scratch.write("package/module/__init__.py", "");
  CHECK(rlalgo::remote::module_file("package.module.function", places) ==
        scratch.path() / "package/module/__init__.py");
  Dataset none;
  CHECK_FALSE(is_python_dataset(none, builtin, places));
}

TEST_CASE("a built-in is said where a file might have had the function") {
  const ScratchDirectory scratch;
  const auto places = python_search_paths(scratch.path() / "config.yaml");
  Dataset entry;
  CHECK(note_of_builtin(entry, places).empty());
  entry.type = "chatml.intel";
  CHECK(note_of_builtin(entry, places).empty());
  scratch.write("chatml.py", "");
  CHECK(rlalgo::support::lacks(note_of_builtin(entry, places),
                               {"type: chatml.intel", "built-in", "no file chatml.py", scratch.path().string()}) == "");
  entry.type = "rewards.prompt_transform";
  CHECK(rlalgo::support::lacks(note_of_builtin(entry, places), {"no file rewards.py"}) == "");
}
