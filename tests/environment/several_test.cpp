#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <rlalgo/environment/several.hpp>
#include <rlalgo/environment/tools.hpp>

using namespace rlalgo;
using environment::Ending;
using environment::Environments;
using environment::Json;
using environment::Said;
using environment::Several;
using environment::Start;
using environment::Turn;
using support::lacks;
using support::raised_by;

namespace {

// Counts what it hears; has its own name, room and tools.
class Counting final : public Environments {
 public:
  Counting(std::string reward, std::size_t most, Json tools = nullptr)
      : reward_(std::move(reward)), most_(most), tools_(std::move(tools)) {}
  [[nodiscard]] std::string reward_name() const override { return reward_; }
  [[nodiscard]] Json tools() const override { return tools_; }
  std::size_t room(std::size_t wanted) override { return std::min(wanted, most_); }
  std::vector<Json> begin(std::span<const Start> starts) override {
    begun.push_back(starts.size());
    heard.assign(starts.size(), 0);
    std::vector<Json> out;
    for (const Start& start : starts) {
      rows.push_back(start.row);
      out.push_back(start.row.value("say", Json()));
    }
    return out;
  }
  std::vector<Turn> step(std::span<const Said> said) override {
    std::vector<Turn> out;
    for (const Said& one : said) {
      ++heard.at(one.episode);
      out.push_back({reward_ + " heard " + one.message.at("content").get<std::string>(), 0.0, heard[one.episode] == 2});
    }
    return out;
  }
  std::vector<Ending> finish() override {
    std::vector<Ending> out;
    for (const int count : heard) out.push_back({.reward = 1.0 * count, .tool_calls = count});
    return out;
  }
  std::vector<Json> rows;
  std::vector<std::size_t> begun;
  std::vector<int> heard;

 private:
  std::string reward_;
  std::size_t most_;
  Json tools_;
};

Start start(const Json& row) { return {row, 1, 2}; }
Said say(std::size_t episode, const std::string& text) { return {episode, {{"role", "assistant"}, {"content", text}}}; }
Json tool(const std::string& name, const std::string& description = "") {
  return {{"type", "function"}, {"function", {{"name", name}, {"description", description}}}};
}

}  // namespace

TEST_CASE("every episode is its row's environment's, whose column it does not see") {
  const auto a = std::make_shared<Counting>("A", 9), b = std::make_shared<Counting>("", 9);
  Several all({{"a", a}, {"b", b}});
  const auto first = all.begin(std::vector<Start>{start({{"environment", "b"}, {"n", 1}}),
                                                  start({{"environment", "a"}, {"say", "hello"}}),
                                                  start({{"environment", "b"}, {"say", "you"}})});
  CHECK(first == std::vector<Json>{nullptr, "hello", "you"});
  CHECK(a->rows == std::vector<Json>{{{"say", "hello"}}});
  CHECK(b->rows == std::vector<Json>{{{"n", 1}}, {{"say", "you"}}});
  auto turns = all.step(std::vector<Said>{say(2, "x"), say(1, "y"), say(0, "z")});
  CHECK(turns[0].observation == " heard x");
  CHECK(turns[1].observation == "A heard y");
  CHECK(turns[2].observation == " heard z");
  turns = all.step(std::vector<Said>{say(0, "w")});
  CHECK(turns.at(0).done);
  const std::vector<Ending> endings = all.finish();
  REQUIRE(endings.size() == 3);
  CHECK(std::isnan(endings[0].reward));  // an environment that gives none
  CHECK(endings[0].tool_calls == 2);
  CHECK(endings[1].reward == 1);
  CHECK(std::isnan(endings[2].reward));
  CHECK(endings[2].tool_calls == 1);
  // Those that have no episode are not asked.
  CHECK(all.begin(std::vector<Start>{start({{"environment", "b"}})}).size() == 1);
  CHECK(a->begun == std::vector<std::size_t>{1});
  CHECK(all.finish().size() == 1);
}

TEST_CASE("environments of one kind share a reward; kinds of one name are told apart") {
  const auto made = [](const std::string& name) { return std::make_shared<Counting>(name, 9); };
  const Several all({{"a", made("Game"), "m.Game"}, {"b", made(""), "m.Quiet"}, {"c", made("Game"), "m.Game"}});
  REQUIRE(all.rewards().size() == 1);
  CHECK(all.rewards()[0].name == "Game");
  CHECK(all.rewards()[0].environments == std::vector<std::string>{"a", "c"});
  const Several twins({{"a", made("Game"), "m.Game"}, {"b", made("Game"), "n.Game"}, {"c", made("Other")}});
  REQUIRE(twins.rewards().size() == 3);
  CHECK(twins.rewards()[0].name == "m.Game");
  CHECK(twins.rewards()[1].name == "n.Game");
  CHECK(twins.rewards()[1].environments == std::vector<std::string>{"b"});
  CHECK(twins.reward_name() == "m.Game, n.Game, Other");
  CHECK(Several({{"a", made("")}}).rewards().empty());
  CHECK(Several({{"a", made("")}}).reward_name().empty());
}

TEST_CASE("a row is shown the tools of its environment; tools of one name may differ between environments") {
  const Json here = Json::array({tool("look", "here")}), there = Json::array({tool("look", "there"), tool("go")});
  const Several all({{"a", std::make_shared<Counting>("", 9, here)},
                     {"b", std::make_shared<Counting>("", 9, there)},
                     {"c", std::make_shared<Counting>("", 9)}});
  CHECK(all.tools_of({{"environment", "a"}}) == here);
  CHECK(all.tools_of({{"environment", "b"}}) == there);
  CHECK(all.tools_of({{"environment", "c"}}).is_null());
  CHECK(all.tools().size() == 3);
  CHECK(Several({{"c", std::make_shared<Counting>("", 9)}}).tools().is_null());
}

TEST_CASE("episodes begin in their order as far as every environment has room") {
  Several all({{"a", std::make_shared<Counting>("", 2)}, {"b", std::make_shared<Counting>("", 1)}});
  const auto rows = [](const std::string& names) {
    std::vector<Start> out;
    for (const char name : names) out.push_back(start({{"environment", std::string(1, name)}}));
    return out;
  };
  CHECK(all.room_for(rows("aab")) == 3);
  CHECK(all.room_for(rows("aaab")) == 2);
  CHECK(all.room_for(rows("abba")) == 2);
  CHECK(all.room_for(rows("b")) == 1);
}

TEST_CASE("a row that names no environment is named by its place and what it says") {
  const Several all({{"math", std::make_shared<Counting>("", 9)}, {"chess", std::make_shared<Counting>("", 9)}});
  const auto error = [&](const Json& row) { return raised_by([&] { (void)all.index_of(row, "rows.jsonl:3"); }); };
  CHECK(all.index_of({{"environment", "chess"}}, "") == 1);
  CHECK(lacks(error(Json::object()), {"environment.3", "no column \"environment\"", "math, chess", "rows.jsonl:3"}) ==
        "");
  CHECK(lacks(error({{"environment", nullptr}}), {"environment.3", "null"}) == "");
  CHECK(lacks(error({{"environment", 1}}), {"environment.3", "environment: 1"}) == "");
  CHECK(lacks(error({{"environment", "Maths"}}), {"environment.3", "\"Maths\"", "did you mean math?"}) == "");
  CHECK(lacks(error({{"environment", ""}}), {"environment.3", "\"\""}) == "");
  CHECK(lacks(raised_by([] { Several({}); }), {"environment.4"}) == "");
  const auto one = std::make_shared<Counting>("", 9);
  CHECK(lacks(raised_by([&] { Several({{"a", one}, {"a", one}}); }), {"environment.4", "one name", "a"}) == "");
}
