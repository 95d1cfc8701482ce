#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <support/catch.hpp>

#include <rlalgo/core/error.hpp>
#include <rlalgo/inference/local_engine.hpp>
#include <rlalgo/inference/multi_turn.hpp>

#include "inference/reference.hpp"

using namespace rlalgo;
using data::Completion;
using data::Finish;
using data::Json;
using data::TokenId;
using inference::Dialogue;
using inference::DrawKey;
using inference::MultiTurn;
using inference::MultiTurnConfig;
using inference::Request;
using inference::SamplingConfig;
using inference::WeightSource;

namespace {

constexpr TokenId end_token = 0;

// Ids as text, without the end token.
std::string text_of(std::span<const TokenId> ids) {
  std::string out;
  for (const TokenId id : ids)
    if (id != end_token) out += (out.empty() ? "" : " ") + std::to_string(id);
  return out;
}

// Observations are numbers; every one is followed by 99, "the model speaks".
Dialogue dialogue() {
  const auto ids = [](const Json& observation) {
    std::vector<TokenId> out;
    for (const char c : observation.get<std::string>()) out.push_back(c - '0' + 50);
    out.push_back(99);
    return out;
  };
  return {.open =
              [ids](const Json& prompt) {
                // The number of the prompt, and from then on what the environment said.
                const std::string text = prompt.get<std::string>();
                std::vector<TokenId> out{static_cast<TokenId>(std::stoi(text.substr(0, 1)))};
                const std::vector<TokenId> more = ids(text.substr(1));
                out.insert(out.end(), more.begin(), more.end());
                return out;
              },
          .read =
              [](std::span<const TokenId> turn) {
                return Json{{"role", "assistant"}, {"content", text_of(turn)}};
              },
          .reply = ids};
}

// Says "12" until it was told `turns` messages; the row may ask for an opening.
struct Talk {
  Json reset(const Json& row, std::uint64_t seed) {
    seeds.push_back(seed);
    left = row.at("turns").get<int>();
    return row.contains("open") ? row["open"] : Json();
  }
  environment::Turn step(const std::string& text) {
    heard.push_back(text);
    --left;
    if (text == "silent") return {};
    return {"12", 0.25, left == 0};
  }
  static inline std::vector<std::uint64_t> seeds;
  static inline std::vector<std::string> heard;
  int left = 0;
};

std::shared_ptr<environment::Environments> talk() {
  Talk::seeds.clear();
  Talk::heard.clear();
  return environment::each<Talk>("talk");
}

// Answers every request with its own position, index and an end token; records the requests.
struct Echo {
  static constexpr WeightSource weights = WeightSource::shared;
  std::vector<std::vector<Completion>> generate(std::span<const Request> requests, const SamplingConfig& sampling,
                                                DrawKey) {
    calls.emplace_back(requests.begin(), requests.end());
    std::vector<std::vector<Completion>> out;
    for (const Request& request : requests) {
      std::vector<Completion> group;
      for (std::int64_t j = 0; j < request.count; ++j) {
        Completion one;
        one.ids = {static_cast<TokenId>(10 + request.first_position),
                   static_cast<TokenId>(20 + static_cast<TokenId>(request.first_index) + j), end_token};
        if (known) one.log_probs = {-1.0f, -2.0f, -3.0f};
        if (cut) one.finish = Finish::length;
        group.push_back(one);
      }
      out.push_back(std::move(group));
    }
    static_cast<void>(sampling);
    return out;
  }
  std::vector<std::vector<Request>> calls;
  bool known = true;
  bool cut = false;
};

data::TokenizedPrompt prompt_of(TokenId id, Json columns) {
  return {.row = id, .ids = {id}, .prompt = std::to_string(id), .columns = std::move(columns)};
}

SamplingConfig limit(std::int64_t tokens) { return {.max_new_tokens = tokens, .stop_ids = {end_token}}; }

}  // namespace

TEST_CASE("turns alternate; only the model's tokens carry loss, and their log-probs are kept") {
  Echo echo;
  MultiTurn<Echo> multi(echo, talk(), dialogue());
  const data::TokenizedPrompt source = prompt_of(7, {{"turns", 2}});
  const std::vector<Request> requests{{.prompt = source.ids, .count = 2, .first_index = 4, .source = &source}};
  const auto out = multi.generate(requests, limit(100), {1, 2});
  REQUIRE(out.size() == 1);
  REQUIRE(out[0].size() == 2);
  const Completion& one = out[0][1];
  CHECK(one.ids == std::vector<TokenId>{10, 25, 0, 51, 52, 99, 16, 25, 0});
  CHECK(one.loss_mask == std::vector<std::uint8_t>{1, 1, 1, 0, 0, 0, 1, 1, 1});
  CHECK(one.log_probs == std::vector<float>{-1, -2, -3, 0, 0, 0, -1, -2, -3});
  CHECK(one.finish == Finish::stop);
  CHECK(one.prompt_ids.empty());
  REQUIRE(one.interaction);
  CHECK(one.interaction->turns == 2);
  CHECK(one.interaction->reward == 0.5);
  CHECK(one.interaction->last_text == "16 25");
  CHECK(one.interaction->messages == Json::parse(R"([{"role": "assistant", "content": "10 25"},
      {"role": "user", "content": "12"}, {"role": "assistant", "content": "16 25"}])"));
  // The first turn is one request for the group, the second goes on from each one's own tokens.
  REQUIRE(echo.calls.size() == 2);
  REQUIRE(echo.calls[0].size() == 1);
  CHECK(echo.calls[0][0].count == 2);
  CHECK(echo.calls[0][0].first_index == 4);
  REQUIRE(echo.calls[1].size() == 2);
  CHECK(echo.calls[1][1].prompt == std::vector<TokenId>{7, 10, 25, 0, 51, 52, 99});
  CHECK(echo.calls[1][1].first_index == 5);
  CHECK(echo.calls[1][1].first_position == 6);
  CHECK(echo.calls[1][1].max_new_tokens == 94);
}

TEST_CASE("episodes of different length end one by one; the seed belongs to the completion") {
  Echo echo;
  MultiTurn<Echo> multi(echo, talk(), dialogue());
  const data::TokenizedPrompt a = prompt_of(1, {{"turns", 1}}), b = prompt_of(2, {{"turns", 3}});
  const std::vector<Request> requests{{.prompt = a.ids, .count = 1, .first_index = 0, .source = &a},
                                      {.prompt = b.ids, .count = 1, .first_index = 1, .source = &b}};
  const auto out = multi.generate(requests, limit(100), {1, 2});
  CHECK(out[0][0].interaction->turns == 1);
  CHECK(out[1][0].interaction->turns == 3);
  CHECK(echo.calls.size() == 3);
  const std::vector<std::uint64_t> seeds = Talk::seeds;
  REQUIRE(seeds.size() == 2);
  CHECK(seeds[0] != seeds[1]);
  Talk::seeds.clear();
  multi.generate(std::vector<Request>{requests[1]}, limit(100), {1, 2});
  CHECK(Talk::seeds.at(0) == seeds[1]);
  Talk::seeds.clear();
  multi.generate(std::vector<Request>{requests[1]}, limit(100), {1, 3});
  CHECK(Talk::seeds.at(0) != seeds[1]);
}

TEST_CASE("an opening is part of the prompt, for completions that got the same one computed once") {
  Echo echo;
  MultiTurn<Echo> multi(echo, talk(), dialogue());
  const data::TokenizedPrompt source = prompt_of(7, {{"turns", 1}, {"open", "3"}});
  const auto out =
      multi.generate(std::vector<Request>{{.prompt = source.ids, .count = 3, .source = &source}}, limit(100), {1, 2});
  CHECK(out[0][2].prompt_ids == std::vector<TokenId>{7, 53, 99});
  CHECK(out[0][2].ids == std::vector<TokenId>{10, 22, 0});
  REQUIRE(echo.calls.at(0).size() == 1);
  CHECK(echo.calls[0][0].prompt == std::vector<TokenId>{7, 53, 99});
}

TEST_CASE(
    "lengths end an episode: of the completion, of the context, of the turns; an observation without room is not "
    "shown") {
  const data::TokenizedPrompt source = prompt_of(7, {{"turns", 50}});
  const std::vector<Request> requests{{.prompt = source.ids, .count = 1, .source = &source}};
  const auto run = [&](std::int64_t tokens, MultiTurnConfig config) {
    Echo echo;
    MultiTurn<Echo> multi(echo, talk(), dialogue(), config);
    return multi.generate(requests, limit(tokens), {1, 2})[0][0];
  };
  CHECK(run(3, {}).ids.size() == 3);
  CHECK(run(6, {}).ids.size() == 3);  // 3 and 3 of the observation leave no room
  const Completion cut = run(7, {});
  CHECK(cut.ids == std::vector<TokenId>{10, 20, 0, 51, 52, 99, 16});
  CHECK(cut.finish == Finish::length);
  CHECK(cut.log_probs.size() == 7);
  CHECK(cut.interaction->turns == 2);
  CHECK(cut.interaction->messages.size() == 3);
  CHECK(run(100, {.max_length = 7}).ids.size() == 3);
  CHECK(run(100, {.max_length = 8}).ids.size() == 7);
  CHECK(run(100, {.max_turns = 4}).interaction->turns == 4);
  const Completion brief = run(100, {.max_message = 2});  // its first message has three tokens
  CHECK(brief.ids.size() == 2);
  CHECK(brief.finish == Finish::length);
  CHECK(brief.interaction->turns == 1);
  CHECK(run(100, {.max_message = 3}).ids.size() > 7);
  CHECK(run(30, {}).interaction->turns == 5);  // an environment that never ends
}

TEST_CASE("an episode with rewards of both infinities is not one without a reward") {
  struct Wild {
    Json reset(const Json&, std::uint64_t) { return {}; }
    environment::Turn step(const std::string&) {
      const double infinite = std::numeric_limits<double>::infinity();
      ++turn;
      return {"12", turn == 1 ? infinite : -infinite, turn == 2};
    }
    int turn = 0;
  };
  Echo echo;
  MultiTurn<Echo> multi(echo, environment::each<Wild>("wild"), dialogue());
  const data::TokenizedPrompt source = prompt_of(7, {});
  const auto out =
      multi.generate(std::vector<Request>{{.prompt = source.ids, .count = 1, .source = &source}}, limit(100), {1, 2});
  CHECK(out[0][0].interaction->turns == 2);
  CHECK(std::isinf(out[0][0].interaction->reward));
}

TEST_CASE("a turn that was cut off is heard, and is the last") {
  Echo echo;
  echo.cut = true;
  MultiTurn<Echo> multi(echo, talk(), dialogue());
  const data::TokenizedPrompt source = prompt_of(7, {{"turns", 5}});
  const auto out =
      multi.generate(std::vector<Request>{{.prompt = source.ids, .count = 1, .source = &source}}, limit(50), {1, 2});
  CHECK(out[0][0].finish == Finish::length);
  CHECK(out[0][0].interaction->reward == 0.25);
  CHECK(Talk::heard.size() == 1);
  CHECK(out[0][0].interaction->messages.size() == 1);
}

namespace {
struct Mute {
  static constexpr WeightSource weights = WeightSource::shared;
  std::vector<std::vector<Completion>> generate(std::span<const Request> requests, const SamplingConfig&, DrawKey) {
    return std::vector<std::vector<Completion>>(requests.size(), std::vector<Completion>(1));
  }
};
}  // namespace

TEST_CASE("an episode in which nobody says anything ends") {
  Mute mute;
  Dialogue silent = dialogue();
  silent.reply = [](const Json&) { return std::vector<TokenId>(); };
  MultiTurn<Mute> multi(mute, talk(), silent);
  const data::TokenizedPrompt source = prompt_of(7, {{"turns", 1 << 30}});
  const auto out =
      multi.generate(std::vector<Request>{{.prompt = source.ids, .count = 1, .source = &source}}, limit(5), {1, 2});
  CHECK(out[0][0].ids.empty());
  CHECK(out[0][0].interaction->turns == 1);
}

TEST_CASE("log-probs that are not known for every turn are not known") {
  Echo echo;
  echo.known = false;
  MultiTurn<Echo> multi(echo, talk(), dialogue());
  const data::TokenizedPrompt source = prompt_of(7, {{"turns", 3}});
  const auto out =
      multi.generate(std::vector<Request>{{.prompt = source.ids, .count = 1, .source = &source}}, limit(50), {1, 2});
  CHECK(out[0][0].log_probs.empty());
  CHECK(out[0][0].loss_mask.size() == out[0][0].ids.size());
}

TEST_CASE("a request without its row, and a broken environment, are errors") {
  class Broken final : public environment::Environments {
   public:
    [[nodiscard]] std::string reward_name() const override { return {}; }
    std::vector<Json> begin(std::span<const environment::Start> starts) override {
      return std::vector<Json>(starts.size());
    }
    std::vector<environment::Turn> step(std::span<const environment::Said>) override { return {}; }
    std::vector<environment::Ending> finish() override { return {}; }
  };
  Echo echo;
  const data::TokenizedPrompt source = prompt_of(7, {{"turns", 3}});
  MultiTurn<Echo> rowless(echo, talk(), dialogue());
  CHECK_THROWS_WITH(rowless.generate(std::vector<Request>{{.prompt = {1}, .count = 1}}, limit(5), {}),
                    Catch::Matchers::Contains("[rlalgo.inference.8]"));
  MultiTurn<Echo> broken(echo, std::make_shared<Broken>(), dialogue());
  CHECK_THROWS_WITH(broken.generate(std::vector<Request>{{.prompt = {7}, .count = 1, .source = &source}}, limit(5), {}),
                    Catch::Matchers::Contains("[rlalgo.inference.9]") && Catch::Matchers::Contains("turns"));
}

TEST_CASE(
    "with the engine: log-probs of every turn are those of the whole conversation, and one turn is what the engine "
    "draws") {
  const model::DecoderConfig config = reference::tiny("llama");
  const model::DecoderWeights weights = reference::random_weights(config, 5);
  inference::LocalEngine engine(config, weights);
  const data::TokenizedPrompt source = prompt_of(7, {{"turns", 3}});
  const std::vector<Request> requests{{.prompt = {7, 8, 9}, .count = 4, .first_index = 2, .source = &source}};
  SamplingConfig sampling{.temperature = 1.0, .max_new_tokens = 24, .stop_ids = {}};
  for (TokenId id = 0; id < 30; ++id) sampling.stop_ids.push_back(id);  // turns end soon
  MultiTurn<inference::LocalEngine> multi(engine, talk(), dialogue());
  const auto out = multi.generate(requests, sampling, {11, 3});
  bool several = false;
  for (const Completion& one : out[0]) {
    several = several || one.interaction->turns > 1;
    Request scored{.prompt = {7, 8, 9}, .count = 1};
    scored.given = one.ids;
    const Completion again = engine.generate(std::vector<Request>{scored}, sampling, {11, 3})[0][0];
    REQUIRE(again.log_probs.size() == one.ids.size());
    for (std::size_t t = 0; t < one.ids.size(); ++t)
      CHECK(one.log_probs[t] == (one.loss_mask[t] != 0 ? again.log_probs[t] : 0.0f));
  }
  CHECK(several);
  const data::TokenizedPrompt once = prompt_of(7, {{"turns", 1}});
  std::vector<Request> single = requests;
  single[0].source = &once;
  const auto first = multi.generate(single, sampling, {11, 3});
  const auto plain = engine.generate(requests, sampling, {11, 3});
  for (std::size_t j = 0; j < 4; ++j) {
    CHECK(first[0][j].ids == plain[0][j].ids);
    CHECK(first[0][j].log_probs == plain[0][j].log_probs);
  }
}

TEST_CASE("the engine keeps a request's own limit, and draws go on from its position") {
  const model::DecoderConfig config = reference::tiny("llama");
  const model::DecoderWeights weights = reference::random_weights(config, 5);
  inference::LocalEngine engine(config, weights);
  const SamplingConfig sampling{.temperature = 1.0, .max_new_tokens = 12};
  const Request whole{.prompt = {7, 8, 9}, .count = 1, .first_index = 3};
  const Completion all = engine.generate(std::vector<Request>{whole}, sampling, {11, 3})[0][0];
  REQUIRE(all.ids.size() == 12);
  Request half = whole;
  half.max_new_tokens = 5;
  const Completion begin = engine.generate(std::vector<Request>{half}, sampling, {11, 3})[0][0];
  CHECK(begin.finish == Finish::length);
  Request rest{.prompt = {7, 8, 9}, .count = 1, .first_index = 3};
  rest.prompt.insert(rest.prompt.end(), begin.ids.begin(), begin.ids.end());
  rest.first_position = 5;
  rest.max_new_tokens = 7;
  const Completion more = engine.generate(std::vector<Request>{rest}, sampling, {11, 3})[0][0];
  std::vector<TokenId> joined = begin.ids;
  joined.insert(joined.end(), more.ids.begin(), more.ids.end());
  CHECK(joined == all.ids);
}

// At most `most` episodes at a time; one of them fails.
class Narrow final : public environment::Environments {
 public:
  explicit Narrow(std::size_t most) : most_(most) {}
  [[nodiscard]] std::string reward_name() const override { return "narrow"; }
  std::size_t room(std::size_t wanted) override { return std::min(most_, wanted); }
  std::vector<Json> begin(std::span<const environment::Start> starts) override {
    CHECK(starts.size() <= most_);
    begun.push_back(starts.size());
    for (const environment::Start& start : starts) group_seeds.push_back(start.group_seed);
    left_.assign(starts.size(), 2);
    return std::vector<Json>(starts.size());
  }
  std::vector<environment::Turn> step(std::span<const environment::Said> said) override {
    std::vector<environment::Turn> out;
    for (const environment::Said& one : said) out.push_back({"1", 0.5, --left_.at(one.episode) == 0});
    return out;
  }
  std::vector<environment::Ending> finish() override {
    std::vector<environment::Ending> out(left_.size());
    if (begun.size() == 1) out.back().failure = "timeout";
    return out;
  }
  std::vector<std::size_t> begun;
  std::vector<std::uint64_t> group_seeds;

 private:
  std::size_t most_;
  std::vector<int> left_;
};

TEST_CASE("episodes that there is no room for are played later, with the same draws") {
  const data::TokenizedPrompt row{.row = 0, .ids = {7}, .prompt = "7", .columns = Json::object()};
  const std::vector<Request> requests = {{.prompt = {7}, .count = 3, .first_index = 0, .source = &row},
                                         {.prompt = {7}, .count = 2, .first_index = 3, .source = &row}};
  const SamplingConfig sampling{.max_new_tokens = 50, .stop_ids = {end_token}};
  std::vector<std::vector<TokenId>> ids[2];
  for (const std::size_t most : {2, 9}) {
    Echo echo;
    const auto narrow = std::make_shared<Narrow>(most);
    MultiTurn<Echo> turns(echo, narrow, dialogue());
    const auto groups = turns.generate(requests, sampling, {});
    REQUIRE(groups.size() == 2);
    CHECK(groups[0].size() == 3);
    CHECK(groups[1].size() == 2);
    for (const auto& group : groups)
      for (const Completion& one : group) {
        ids[most == 2 ? 0 : 1].push_back(one.ids);
        CHECK(one.interaction->turns == 2);
        CHECK(one.interaction->reward == 1.0);
      }
    CHECK(narrow->begun == (most == 2 ? std::vector<std::size_t>{2, 2, 1} : std::vector<std::size_t>{5}));
    CHECK(narrow->group_seeds[0] == narrow->group_seeds[2]);
    CHECK(narrow->group_seeds[0] != narrow->group_seeds[3]);
    CHECK(groups[0][most == 2 ? 1 : 0].interaction->failure == (most == 2 ? "timeout" : ""));
    CHECK(groups[1][1].interaction->failure == (most == 2 ? "" : "timeout"));
  }
  CHECK(ids[0] == ids[1]);
}
