#include <support/scratch.hpp>

#include <rlalgo/config/python_dataset.hpp>

using namespace rlalgo::config;
using rlalgo::support::ScratchDirectory;

TEST_CASE("built-in names stay built in; other names of modules are Python") {
  const ScratchDirectory scratch;
  RunConfig c;
  c.file = (scratch.path() / "config.yaml").string();
  const std::vector<std::string> builtin = {"chatml.intel", "rewards.prompt_transform"};
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
  CHECK(python_file("rewards.mine", c) == file);
  scratch.write("package/module/__init__.py", "");
  CHECK(python_file("package.module.function", c) == scratch.path() / "package/module/__init__.py");
  DatasetConfig none;
  CHECK_FALSE(is_python_dataset(none, builtin, c));
}
