#include <string>
#include <vector>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <rlalgo/assembly/environments.hpp>

using namespace rlalgo;
using data::Json;
using support::lacks;
using support::raised_by;

TEST_CASE("environments come by their names, or not at all") {
  const support::ScratchDirectory folder;
  folder.write("games.py", R"(
class Steps:
    def reset(self, **row):
        pass
    def step(self, text):
        return None, 1.0, True

class Silent:
    def reset(self, **row):
        pass
    def look(self) -> str:
        """Looks around."""
        return "nothing"

def double(x: int) -> int:
    """Doubles.

    Args:
        x: A number
    """
    return 2 * x
)");
  assembly::EnvironmentsConfig run{.search_paths = {folder.path()}};
  const auto made = [&] { return assembly::environments(run); };
  CHECK(made() == nullptr);
  run.tools = {"calculator", "games.double"};
  CHECK(made()->tools().size() == 2);
  CHECK(made()->reward_name().empty());
  run.tools = {};
  run.factory = "games.Steps";
  CHECK(made()->reward_name() == "Steps");
  CHECK(made()->tools().is_null());
  run.tools = {"calculator"};
  CHECK(lacks(raised_by(made), {"config.25", "stepped", "tools"}) == "");
  run.tools = {};
  run.factory = "games.Silent";
  CHECK(lacks(raised_by([&] { assembly::require_reward(made().get(), "c.yaml:3"); }),
              {"config.24", "reward_funcs", "c.yaml:3"}) == "");
  CHECK(made()->tools().size() == 1);
}

TEST_CASE("several environments: each by its name, with the tools of all") {
  const support::ScratchDirectory folder;
  const char* code = R"(
class Steps:
    def reset(self, **row):
        self.keys = sorted(row)
    def step(self, text):
        return ",".join(self.keys), 1.0, False

class Shelf:
    def reset(self, **row):
        return None
    def take(self, title: str) -> str:
        """Takes.

        Args:
            title: A title
        """
        return title + " taken"
    def get_reward(self):
        return 0.5

class Silent(Shelf):
    get_reward = None
    def close(self):
        pass
)";
  folder.write("games.py", code);
  folder.write("other.py", code);
  assembly::EnvironmentsConfig run{.search_paths = {folder.path()}};
  const auto made = [&] { return assembly::environments(run); };
  run.factories = {{"s", "games.Steps"}, {"x", "games.Shelf"}, {"y", "games.Shelf"}, {"q", "games.Silent"}};
  const auto all = made();
  REQUIRE(all->rewards().size() == 2);
  CHECK(all->rewards()[0].name == "Steps");
  CHECK(all->rewards()[1].name == "Shelf");
  CHECK(all->rewards()[1].environments == std::vector<std::string>{"x", "y"});
  CHECK(all->tools_of({{"environment", "s"}}).is_null());
  CHECK(all->tools_of({{"environment", "q"}}).size() == 1);
  const auto first = all->begin(std::vector<environment::Start>{
      {{{"environment", "y"}, {"prompt", "p"}}, 1, 2}, {{{"environment", "s"}, {"n", 1}, {"prompt", "p"}}, 1, 2}});
  CHECK(first == std::vector<Json>{nullptr, nullptr});
  Json call = {{"role", "assistant"}, {"content", ""}};
  call["tool_calls"] =
      Json::array({{{"type", "function"}, {"function", {{"name", "take"}, {"arguments", {{"title", "b"}}}}}}});
  const auto turns =
      all->step(std::vector<environment::Said>{{0, call}, {1, {{"role", "assistant"}, {"content", "x"}}}});
  CHECK(turns[0].observation[0]["content"] == "b taken");
  CHECK(turns[1].observation == "n,prompt,seed");
  const auto endings = all->finish();
  CHECK(endings[0].reward == 0.5);
  CHECK(endings[1].reward == 0.0);  // a stepped one's are those of its turns
  run.factories = {{"a", "games.Shelf"}, {"b", "other.Shelf"}};
  CHECK(made()->reward_name() == "games.Shelf, other.Shelf");
  run.tools = {"calculator"};
  CHECK(made()->tools_of({{"environment", "b"}}).size() == 2);
  run.factories = {{"a", "games.Shelf"}, {"s", "games.Steps"}};
  CHECK(lacks(raised_by(made), {"config.25", "stepped", "s"}) == "");
  run.tools = {};
  run.factories = {{"a", "games.Silent"}};
  CHECK(lacks(raised_by([&] { assembly::require_reward(made().get(), "c.yaml:3"); }),
              {"config.24", "reward_funcs", "c.yaml:3"}) == "");
  run.factories = {{"a", "games.Shelf"}, {"b", "games.Chess"}};
  CHECK(lacks(raised_by(made), {"remote.51", "Chess"}) == "");
  run.factories = {{"a", "Shelf"}};
  CHECK(lacks(raised_by(made), {"remote.51", "Shelf", "module"}) == "");
}

TEST_CASE("tools need messages") {
  CHECK_NOTHROW(assembly::require_messages({.prompt = Json::array()}, "tools"));
  CHECK(lacks(raised_by([&] { assembly::require_messages({.row = 3, .prompt = "text"}, "c.yaml:4"); }),
              {"config.25", "row 3", "c.yaml:4"}) == "");
}
