#include <stdexcept>
#include <string>
#include <vector>

#include <support/catch.hpp>

#include <rlalgo/core/error.hpp>
#include <rlalgo/environment/concept.hpp>

using namespace rlalgo;
using environment::Json;
using environment::Said;
using environment::Start;
using environment::Turn;

namespace {

// Adds what it is told; done above a limit that the row names.
struct Adder {
  Json reset(const Json& row, std::uint64_t seed) {
    sum = 0;
    limit = row.at("limit").get<int>();
    start_seed = seed;
    return row.contains("first") ? row["first"] : Json();
  }
  Turn step(const std::string& text) {
    if (text == "throw") throw std::runtime_error("no number");
    sum += std::stoi(text);
    return {"sum " + std::to_string(sum), 0.5, sum > limit};
  }
  int sum = 0;
  int limit = 0;
  std::uint64_t start_seed = 0;
};

Json assistant(const std::string& text) { return {{"role", "assistant"}, {"content", text}}; }

}  // namespace

TEST_CASE("each episode has an environment of its own, reset when the next episodes begin") {
  const auto all = environment::each<Adder>("adder");
  CHECK(all->reward_name() == "adder");
  CHECK(all->tools().is_null());
  const std::vector<Json> first =
      all->begin(std::vector<Start>{{{{"limit", 5}}, 1}, {{{"limit", 2}, {"first", "go"}}, 2}});
  REQUIRE(first.size() == 2);
  CHECK(first[0].is_null());
  CHECK(first[1] == "go");
  std::vector<Turn> turns = all->step(std::vector<Said>{{0, assistant("3")}, {1, assistant("3")}});
  REQUIRE(turns.size() == 2);
  CHECK(turns[0].observation == "sum 3");
  CHECK_FALSE(turns[0].done);
  CHECK(turns[1].done);
  CHECK(turns[0].reward == 0.5);
  turns = all->step(std::vector<Said>{{0, assistant("4")}});
  CHECK(turns.at(0).observation == "sum 7");
  CHECK(turns.at(0).done);
  CHECK(all->finish().size() == 2);
  CHECK(all->begin(std::vector<Start>{{{{"limit", 5}}, 3}}).size() == 1);
  CHECK(all->step(std::vector<Said>{{0, assistant("1")}}).at(0).observation == "sum 1");
  CHECK(all->finish().size() == 1);
}

TEST_CASE("an environment that throws is an error with its name, episode and what it said") {
  const auto all = environment::each<Adder>("adder");
  all->begin(std::vector<Start>{{{{"limit", 5}}, 1}, {{{"limit", 5}}, 2}});
  CHECK_THROWS_WITH(all->step(std::vector<Said>{{1, assistant("throw")}}),
                    Catch::Matchers::Contains("[rlalgo.environment.1]") && Catch::Matchers::Contains("'adder'") &&
                        Catch::Matchers::Contains("no number") && Catch::Matchers::Contains("episode 1"));
  CHECK_THROWS_WITH(all->begin(std::vector<Start>{{Json::object(), 1}}),
                    Catch::Matchers::Contains("[rlalgo.environment.1]") && Catch::Matchers::Contains("reset"));
}
