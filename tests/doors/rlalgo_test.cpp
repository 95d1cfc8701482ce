#include <support/catch.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <rlalgo/rlalgo.hpp>

TEST_CASE("rlalgo.hpp includes every door") {
  const auto folder = std::filesystem::path(rlalgo::support::test_dir).parent_path() / "include/rlalgo";
  std::ifstream in(folder / "rlalgo.hpp");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  int doors = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || name == "rlalgo.hpp") continue;
    ++doors;
    INFO(name);
    CHECK(text.find("#include <rlalgo/" + name + ">\n") != std::string::npos);
  }
  CHECK(doors >= 18);
}
