#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <support/catch.hpp>

#include <rlalgo/environment/calculator.hpp>
#include <rlalgo/environment/tools.hpp>

using namespace rlalgo;
using environment::Ending;
using environment::Json;
using environment::LocalTools;
using environment::Said;
using environment::Start;
using environment::Tool;
using environment::ToolLoop;
using environment::ToolSource;
using environment::Turn;

namespace {

Json calling(const std::vector<std::pair<std::string, Json>>& calls) {
  Json list = Json::array();
  for (const auto& [name, arguments] : calls)
    list.push_back({{"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}});
  return {{"role", "assistant"}, {"content", ""}, {"tool_calls", list}};
}
const Json plain = {{"role", "assistant"}, {"content", "42"}};

std::shared_ptr<ToolSource> arithmetic() {
  return std::make_shared<LocalTools>(std::vector<Tool>{environment::calculator()});
}

// A counter per episode, and a reward.
class Counter final : public ToolSource {
 public:
  [[nodiscard]] Json schemas() const override {
    return Json::array({{{"type", "function"}, {"function", {{"name", "count"}, {"parameters", Json::object()}}}}});
  }
  std::vector<environment::ToolResult> call(std::span<const environment::ToolCall> calls) override {
    std::vector<environment::ToolResult> out;
    for (const auto& call : calls) out.push_back({std::to_string(++counts.at(call.episode)), false});
    asked.push_back(calls.size());
    return out;
  }
  [[nodiscard]] std::string reward_name() const override { return "counter"; }
  std::vector<Json> begin(std::span<const Start> starts) override {
    counts.assign(starts.size(), 0);
    std::vector<Json> out(starts.size());
    if (!out.empty()) out[0] = "count!";
    return out;
  }
  std::vector<double> rewards(std::size_t episodes) override {
    std::vector<double> out;
    for (std::size_t i = 0; i < episodes; ++i) out.push_back(counts[i]);
    return out;
  }
  std::vector<int> counts;
  std::vector<std::size_t> asked;
};

}  // namespace

TEST_CASE("calls are answered in order, one tool message each; no call ends the episode") {
  const auto counter = std::make_shared<Counter>();
  ToolLoop loop({counter, arithmetic()});
  CHECK(loop.reward_name() == "counter");
  CHECK(loop.tools().size() == 2);
  const std::vector<Json> first = loop.begin(std::vector<Start>(3));
  CHECK(first[0] == "count!");
  CHECK(first[1].is_null());
  const std::vector<Turn> turns = loop.step(std::vector<Said>{
      {0, calling({{"count", Json::object()}, {"calculator", {{"expression", "6*7"}}}, {"count", Json::object()}})},
      {2, calling({{"count", Json::object()}})},
      {1, plain}});
  REQUIRE(turns.size() == 3);
  CHECK(turns[0].observation == Json::parse(R"([{"role": "tool", "name": "count", "content": "1"},
      {"role": "tool", "name": "calculator", "content": "42"}, {"role": "tool", "name": "count", "content": "2"}])"));
  CHECK_FALSE(turns[0].done);
  CHECK(turns[1].observation[0]["content"] == "1");
  CHECK(turns[2].done);
  CHECK(counter->asked == std::vector<std::size_t>{3});  // one question for all episodes
  const std::vector<Ending> endings = loop.finish();
  REQUIRE(endings.size() == 3);
  CHECK(endings[0].tool_calls == 3);
  CHECK(endings[0].tool_failures == 0);
  CHECK(endings[0].reward == 2);
  CHECK(endings[1].tool_calls == 0);
  CHECK(endings[2].reward == 1);
}

TEST_CASE("unknown tools and failing ones are told to the model, and counted") {
  ToolLoop loop({arithmetic()});
  CHECK(loop.reward_name().empty());
  loop.begin(std::vector<Start>(1));
  const std::vector<Turn> turns =
      loop.step(std::vector<Said>{{0, calling({{"search", Json::object()}, {"calculator", {{"expression", "1/0"}}}})}});
  CHECK(turns.at(0).observation[0]["content"] == "{'error': 'Tool search not found.'}");
  CHECK(turns.at(0).observation[1]["content"] == "{'error': 'division by zero'}");
  CHECK(loop.finish().at(0).tool_failures == 2);
  // Expected: str({"error": text}) of Python 3.11.
  const auto told = [&](const std::string& name) {
    loop.begin(std::vector<Start>(1));
    return loop.step(std::vector<Said>{{0, calling({{name, Json::object()}})}})
        .at(0)
        .observation[0]["content"]
        .get<std::string>();
  };
  CHECK(told("it's") == R"x({'error': "Tool it's not found."})x");
  CHECK(told("'\"\\") == R"x({'error': 'Tool \'"\\ not found.'})x");
  CHECK(told("a\n\x01é") == R"x({'error': 'Tool a\n\x01é not found.'})x");
  loop.begin(std::vector<Start>(1));
  CHECK(loop.finish().at(0).tool_failures == 0);
}

TEST_CASE("rounds of calls can be limited; 0 runs no tool") {
  const std::vector<Said> said{{0, calling({{"calculator", {{"expression", "1"}}}})}};
  ToolLoop two({arithmetic()}, 2);
  two.begin(std::vector<Start>(1));
  CHECK_FALSE(two.step(said).at(0).done);
  CHECK_FALSE(two.step(said).at(0).done);
  CHECK(two.step(said).at(0).done);
  CHECK(two.finish().at(0).tool_calls == 2);
  ToolLoop none({arithmetic()}, 0);
  none.begin(std::vector<Start>(1));
  CHECK(none.step(said).at(0).done);
  CHECK(none.finish().at(0).tool_calls == 0);
}

TEST_CASE("two tools of one name are refused") {
  CHECK_THROWS_WITH(ToolLoop({arithmetic(), arithmetic()}),
                    Catch::Matchers::Contains("[rlalgo.environment.2]") && Catch::Matchers::Contains("calculator"));
}
