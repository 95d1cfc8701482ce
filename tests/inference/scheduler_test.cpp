#include <support/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <new>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/inference/scheduler.hpp>

#include "inference/toy_forward.hpp"

using namespace rlalgo;
using data::Finish;
using data::TokenId;
using inference::CompletionResult;
using inference::RequestId;
using inference::RequestResult;
using inference::RequestSpec;
using inference::Scheduler;
using inference::SchedulerConfig;

namespace {

inference::TextStream letters() {
  return {[](TokenId id) { return std::string(1, static_cast<char>('a' + id % 26)); }, [] { return std::string(); }};
}

// A scheduler over the toy model, and everything that has ended.
struct Bench {
  model::DecoderConfig decoder = toy::config();
  inference::KvCache cache{1, 1, 8};
  os::ThreadPool pool{1};
  toy::ToyForward forward;
  Scheduler scheduler;
  std::map<RequestId, RequestResult> ended;

  explicit Bench(SchedulerConfig config = {})
      : forward(cache, config.max_slots + config.prefill_rows, config.max_slots),
        scheduler(decoder, forward, cache, pool, config, letters) {
    scheduler.set_weights(toy::weights(1));
  }
  RequestId submit(RequestSpec spec) {
    spec.on_end = [this](RequestId id, RequestResult&& result) {
      if (!ended.emplace(id, std::move(result)).second) throw std::logic_error("ended twice");
    };
    return scheduler.submit(std::move(spec));
  }
  RequestResult run(RequestSpec spec) {
    const RequestId id = submit(std::move(spec));
    scheduler.drain();
    return ended.at(id);
  }
};

std::vector<TokenId> prompt_of(std::int64_t length, std::uint32_t salt) {
  std::vector<TokenId> ids;
  for (std::int64_t i = 0; i < length; ++i) ids.push_back(static_cast<TokenId>((i * i * 7 + i * salt + salt) % 50));
  return ids;
}

bool same(const CompletionResult& a, const CompletionResult& b) {
  const auto top = [](const CompletionResult& c) {
    std::vector<std::pair<TokenId, float>> out;
    for (const auto& token : c.top)
      for (const auto& one : token) out.emplace_back(one.id, one.log_prob);
    return out;
  };
  return a.completion.ids == b.completion.ids && a.completion.log_probs == b.completion.log_probs &&
         a.completion.finish == b.completion.finish && a.text == b.text && a.stop_text == b.stop_text &&
         top(a) == top(b);
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const core::Error& error) {
    return error.room() + "." + std::to_string(error.number());
  }
  return "none";
}

std::string error_text(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  }
}

std::size_t bytes_of(std::size_t pages) { return pages * inference::KvCache(1, 1, 8).page_bytes(); }

// A request like no other: prompts begin alike, everything else differs.
RequestSpec random_request(std::mt19937& random) {
  const auto number = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  RequestSpec spec;
  const std::vector<TokenId> document = prompt_of(150, 3 + random() % 2);
  spec.prompt.assign(document.begin(), document.begin() + number(1, 110));
  if (number(0, 1) == 1) spec.prompt.push_back(number(0, 49));
  spec.count = number(1, 4);
  spec.sampling.temperature = number(0, 3) == 0 ? 0.0 : 0.5 + 0.1 * number(0, 10);
  if (number(0, 2) == 0) spec.sampling.top_p = 0.9;
  if (number(0, 2) == 0) spec.sampling.top_k = number(1, 20);
  if (number(0, 2) == 0) spec.sampling.min_p = 0.05;
  if (number(0, 2) == 0) spec.sampling.repetition_penalty = 1.2;
  spec.sampling.max_new_tokens = number(1, 90);
  if (number(0, 1) == 0) spec.sampling.stop_ids = {number(0, 49)};
  if (number(0, 3) == 0)
    spec.stop_strings = {"ab", "xyz", std::string(1, static_cast<char>('a' + number(0, 25))) + "q"};
  if (number(0, 3) == 0) spec.min_new_tokens = std::min<std::int64_t>(spec.sampling.max_new_tokens, number(0, 30));
  if (number(0, 4) == 0) spec.top_log_probs = number(1, 5);
  if (number(0, 6) == 0) spec.prompt_log_probs = number(0, 2);
  if (number(0, 6) == 0) spec.given = prompt_of(number(1, 80), 9);
  if (number(0, 4) == 0)
    spec.edit_logits = [](std::span<float> logits, std::span<const TokenId> ids) {
      logits[ids.size() % logits.size()] += 3.0f;
    };
  spec.key = {.seed = random(), .step = random() % 3};
  spec.first_index = random() % 1000;
  spec.weights = toy::weights(1 + random() % 2);
  return spec;
}

// A request that ended beside others has the bits that it has alone.
void check_as_alone(const RequestSpec& spec, const RequestResult& found) {
  Bench alone({.max_slots = 4, .prefill_rows = 200, .prefix_cache = false, .eos_ids = {7}});
  const RequestResult expected = alone.run(spec);
  for (std::size_t j = 0; j < found.completions.size(); ++j)
    REQUIRE(same(found.completions[j], expected.completions[j]));
}

}  // namespace

TEST_CASE("whatever comes, goes and is preempted beside it, a request gets the same bits") {
  std::uint64_t preemptions = 0, cached = 0, aborted = 0, whole = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    SchedulerConfig config;
    config.max_slots = 1 + static_cast<std::int64_t>(random() % 9);
    config.prefill_rows = 1 + static_cast<std::int64_t>(random() % 40);
    config.prefill_ahead = std::vector<std::int64_t>{2048, 0, 37, 200}[seed / 4 % 4];
    config.prefix_cache = seed % 3 != 0;
    config.cache_bytes = seed % 4 == 0 ? 0 : bytes_of(8 + random() % 12);
    config.eos_ids = {7};
    Bench bench(config);
    std::vector<RequestSpec> specs;
    std::vector<RequestId> ids;
    std::vector<bool> cancelled;
    while (specs.size() < 25 || !bench.scheduler.idle()) {
      if (specs.size() < 25 && random() % 4 == 0) {
        specs.push_back(random_request(random));
        ids.push_back(bench.submit(specs.back()));
        cancelled.push_back(false);
      }
      if (!ids.empty() && random() % 40 == 0) {
        const std::size_t which = random() % ids.size();
        if (bench.scheduler.cancel(ids[which])) cancelled[which] = true;
      }
      if (random() % 150 == 0) bench.scheduler.reset_prefix_cache();
      bench.scheduler.step();
      REQUIRE(bench.forward.passes < 100'000);
    }
    const Scheduler::Counts counts = bench.scheduler.counts();
    CHECK(counts.pages_in_use == 0);
    CHECK(counts.running + counts.waiting == 0);
    if (config.cache_bytes > 0) CHECK(bench.cache.pages_allocated() <= bench.cache.limit());
    preemptions += counts.preemptions;
    cached += counts.cached_tokens;
    for (std::size_t r = 0; r < specs.size(); ++r) {
      Bench alone({.max_slots = 4, .prefill_rows = 200, .prefix_cache = false, .eos_ids = {7}});
      const RequestResult expected = alone.run(specs[r]);
      const RequestResult& found = bench.ended.at(ids[r]);
      REQUIRE(found.completions.size() == expected.completions.size());
      for (std::size_t j = 0; j < found.completions.size(); ++j) {
        const CompletionResult &a = found.completions[j], &b = expected.completions[j];
        INFO("seed " << seed << " request " << r << " completion " << j);
        if (a.completion.finish == Finish::aborted) {
          CHECK(cancelled[r]);
          ++aborted;
          REQUIRE(a.completion.ids.size() <= b.completion.ids.size());
          CHECK(std::equal(a.completion.ids.begin(), a.completion.ids.end(), b.completion.ids.begin()));
          CHECK(
              std::equal(a.completion.log_probs.begin(), a.completion.log_probs.end(), b.completion.log_probs.begin()));
          continue;
        }
        ++whole;
        REQUIRE(same(a, b));
      }
      if (cancelled[r]) continue;
      REQUIRE(found.prompt_log_probs.size() == expected.prompt_log_probs.size());
      for (std::size_t i = 0; i < found.prompt_log_probs.size(); ++i)
        CHECK(found.prompt_log_probs[i].log_prob == expected.prompt_log_probs[i].log_prob);
    }
  }
  CHECK(preemptions > 100);
  CHECK(cached > 1000);
  CHECK(aborted > 20);
  CHECK(whole > 1000);
}

TEST_CASE("a prefix that was computed is not computed again, until its weights are forgotten") {
  Bench bench;
  RequestSpec spec{.prompt = prompt_of(100, 5), .sampling = {.max_new_tokens = 40}};
  const RequestResult first = bench.run(spec);
  CHECK(first.cached_tokens == 0);
  CHECK(bench.forward.computed == 100 + 39);
  const RequestResult again = bench.run(spec);
  CHECK(again.cached_tokens == 96);
  CHECK(bench.forward.computed == 139 + 4 + 39);
  CHECK(same(again.completions[0], first.completions[0]));

  // What was drawn belongs to the prefix of the next turn.
  RequestSpec turn = spec;
  const std::vector<TokenId>& said = first.completions[0].completion.ids;
  turn.prompt.insert(turn.prompt.end(), said.begin(), said.end());
  CHECK(bench.run(turn).cached_tokens == 128);

  // Other weights know nothing of it, and neither does anybody once they are forgotten.
  spec.weights = toy::weights(2);
  CHECK(bench.run(spec).cached_tokens == 0);
  CHECK(bench.run(spec).cached_tokens == 96);
  spec.weights = nullptr;
  bench.scheduler.forget(1);
  CHECK(bench.run(spec).cached_tokens == 0);
  bench.scheduler.reset_prefix_cache();
  CHECK(bench.run(spec).cached_tokens == 0);
  CHECK(bench.scheduler.counts().pages_in_use == 0);
}

TEST_CASE("forgotten in the middle of a request, weights serve it to its end and leave nothing behind") {
  Bench bench;
  const RequestSpec spec{.prompt = prompt_of(70, 5), .count = 2, .sampling = {.max_new_tokens = 50}};
  const RequestResult expected = bench.run(spec);
  const RequestId id = bench.submit(spec);
  for (int i = 0; i < 20; ++i) bench.scheduler.step();
  bench.scheduler.forget(1);
  bench.scheduler.drain();
  CHECK(same(bench.ended.at(id).completions[1], expected.completions[1]));
  CHECK(bench.run(spec).cached_tokens == 0);
}

TEST_CASE("the memory limits how many run, not how many wait") {
  // Each completion needs 3 pages at its end, and its prompt's last page while others have yet to start.
  Bench bench({.max_slots = 16, .prefill_rows = 64, .cache_bytes = bytes_of(7), .prefix_cache = false});
  std::vector<RequestId> ids;
  for (std::uint32_t r = 0; r < 10; ++r)
    ids.push_back(bench.submit({.prompt = prompt_of(40, r), .sampling = {.max_new_tokens = 50}}));
  std::size_t most = 0;
  while (bench.scheduler.step()) {
    most = std::max(most, bench.scheduler.counts().running);
    REQUIRE(bench.scheduler.counts().pages_in_use <= 7);
  }
  CHECK(most >= 2);
  CHECK(most <= 3);
  CHECK(bench.scheduler.counts().preemptions > 0);
  for (const RequestId id : ids) CHECK(bench.ended.at(id).completions[0].completion.ids.size() == 50);
  CHECK(error_of([&] { bench.submit({.prompt = prompt_of(150, 1), .sampling = {.max_new_tokens = 100}}); }) ==
        "inference.10");
  bench.run({.prompt = prompt_of(150, 1), .sampling = {.max_new_tokens = 43}});  // exactly what there is
}

TEST_CASE("older requests end first when the memory is short, and all end") {
  Bench bench({.max_slots = 8, .prefill_rows = 64, .cache_bytes = bytes_of(8), .prefix_cache = true});
  std::vector<RequestId> order;
  for (std::uint32_t r = 0; r < 6; ++r) {
    RequestSpec spec{.prompt = prompt_of(64, r), .count = 2, .sampling = {.max_new_tokens = 60}};
    bench.submit(std::move(spec));
  }
  std::size_t seen = 0;
  while (bench.scheduler.step())
    for (; seen < bench.ended.size(); ++seen)
      order.push_back(std::next(bench.ended.begin(), static_cast<std::ptrdiff_t>(seen))->first);
  REQUIRE(order.size() == 6);
  CHECK(std::is_sorted(order.begin(), order.end()));
}

TEST_CASE("given tokens of a completion that gave its pages back are scored, though another has computed the same") {
  const RequestSpec spec{.prompt = prompt_of(4, 1), .count = 3, .given = prompt_of(100, 9)};
  Bench bench({.max_slots = 3, .prefill_rows = 16, .cache_bytes = bytes_of(5)});
  const RequestId id = bench.submit(spec);
  for (int i = 0; i < 100; ++i) bench.scheduler.step();
  REQUIRE(bench.ended.contains(id));
  CHECK(bench.scheduler.counts().preemptions > 0);
  const RequestResult expected = Bench({.max_slots = 3, .prefill_rows = 16}).run(spec);
  for (std::size_t j = 0; j < 3; ++j) CHECK(same(bench.ended.at(id).completions[j], expected.completions[j]));
}

TEST_CASE("a burst of prompts is computed before those that have begun draw again, and holds them up so long at most") {
  // How many tokens the one that has begun gets in each step after eight prompts of 20 tokens have come.
  const auto drawn = [](SchedulerConfig config, bool known) {
    config.max_slots = 16;
    config.prefill_rows = 40;
    config.prefix_cache = known;
    Bench bench(config);
    const auto burst = [&] {
      for (std::uint32_t r = 0; r < 8; ++r)
        bench.submit({.prompt = prompt_of(known ? 33 : 20, r), .sampling = {.max_new_tokens = 8}});
    };
    if (known) {
      burst();
      bench.scheduler.drain();
    }
    int seen = 0;
    bench.submit({.prompt = prompt_of(5, 20),
                  .sampling = {.max_new_tokens = 60},
                  .on_token = [&](const inference::TokenEvent&) { ++seen; }});
    bench.scheduler.step();
    burst();
    std::vector<int> out;
    for (int step = 0; step < 5; ++step) {
      seen = 0;
      bench.scheduler.step();
      out.push_back(seen);
    }
    bench.scheduler.drain();
    return out;
  };
  CHECK(drawn({}, false) == std::vector<int>{0, 0, 0, 1, 1});
  CHECK(drawn({.prefill_ahead = 80}, false) == std::vector<int>{0, 0, 1, 1, 1});
  CHECK(drawn({.prefill_ahead = 0}, false) == std::vector<int>{1, 1, 1, 1, 1});
  CHECK(drawn({}, true) == std::vector<int>{1, 1, 1, 1, 1});  // a token of each prompt is left to compute
  CHECK(error_of([] { Bench({.prefill_ahead = -1}); }) == "inference.7");
}

TEST_CASE("prompts that wait for pages hold nobody up") {
  // The prompt of the second needs the pages that the first has, which is older and keeps them.
  Bench bench({.max_slots = 4, .prefill_rows = 16, .cache_bytes = bytes_of(5), .prefix_cache = false});
  const RequestId first = bench.submit({.prompt = prompt_of(70, 1), .sampling = {.max_new_tokens = 50}});
  while (bench.scheduler.counts().drawn_tokens == 0) bench.scheduler.step();
  const RequestId second = bench.submit({.prompt = prompt_of(60, 2), .count = 2, .sampling = {.max_new_tokens = 30}});
  std::uint64_t steps = 0;
  while (!bench.ended.contains(first)) {
    bench.scheduler.step();
    REQUIRE(++steps < 60);
  }
  bench.scheduler.drain();
  CHECK(bench.ended.at(second).completions[1].completion.ids.size() == 30);
}

TEST_CASE("requests on different weights run side by side and keep theirs") {
  Bench bench({.max_slots = 6, .prefill_rows = 30});
  std::vector<RequestSpec> specs;
  for (std::uint64_t r = 0; r < 6; ++r)
    specs.push_back({.prompt = prompt_of(40, 4),
                     .sampling = {.max_new_tokens = 30},
                     .weights = toy::weights(1 + r % 3, 10 + static_cast<std::int64_t>(r % 3))});
  std::vector<RequestId> ids;
  for (const RequestSpec& spec : specs) ids.push_back(bench.submit(spec));
  bench.scheduler.drain();
  for (std::size_t r = 0; r < specs.size(); ++r) {
    const CompletionResult& found = bench.ended.at(ids[r]).completions[0];
    CHECK(same(found, Bench().run(specs[r]).completions[0]));
    CHECK(found.completion.weights_version == 10 + static_cast<std::int64_t>(r % 3));
  }
  CHECK_FALSE(same(bench.ended.at(ids[0]).completions[0], bench.ended.at(ids[1]).completions[0]));
}

TEST_CASE("stop strings end a completion, and the sink never sees a piece of one") {
  Bench bench;
  RequestSpec spec{.prompt = prompt_of(10, 2), .sampling = {.max_new_tokens = 60}, .text = true};
  const CompletionResult whole = bench.run(spec).completions[0];
  REQUIRE(whole.text.size() == 60);
  CHECK(whole.completion.finish == Finish::length);
  const std::string stop = whole.text.substr(30, 3);
  spec.stop_strings = {"not there", stop};
  std::string streamed;
  std::optional<Finish> last;
  spec.on_token = [&](const inference::TokenEvent& token) {
    streamed += token.text;
    last = token.finished;
  };
  const CompletionResult cut = bench.run(spec).completions[0];
  CHECK(cut.text == whole.text.substr(0, whole.text.find(stop)));
  CHECK(cut.stop_text == stop);
  CHECK(cut.completion.finish == Finish::stop);
  CHECK(cut.completion.ids.size() == whole.text.find(stop) + 3);
  CHECK(streamed == cut.text);
  CHECK(last == Finish::stop);
  spec.min_new_tokens = 40;
  spec.stop_strings = {whole.text.substr(5, 2)};
  CHECK(bench.run(spec).completions[0].completion.ids.size() >= 40);
}

TEST_CASE("before min_new_tokens no end id is drawn; the model's own count unless told otherwise") {
  Bench bench({.eos_ids = {3, 4, 5, 6, 7, 8}});
  RequestSpec spec{.prompt = prompt_of(10, 2), .count = 8, .sampling = {.max_new_tokens = 60, .stop_ids = {9, 10, 11}}};
  const auto ends = [](const CompletionResult& c) {
    return c.completion.ids.back() >= 3 && c.completion.ids.back() <= 11;
  };
  std::size_t early = 0;
  RequestResult result = bench.run(spec);
  for (const CompletionResult& c : result.completions) {
    early += c.completion.ids.size() < 20 ? 1 : 0;
    CHECK((c.completion.finish == Finish::stop) == ends(c));
  }
  CHECK(early > 0);
  spec.min_new_tokens = 20;
  result = bench.run(spec);
  for (const CompletionResult& c : result.completions) {
    CHECK(c.completion.ids.size() > 20);
    for (std::size_t t = 0; t < 20; ++t) CHECK((c.completion.ids[t] < 3 || c.completion.ids[t] > 11));
  }
  spec.min_new_tokens = 0;
  spec.ignore_eos = true;
  spec.sampling.stop_ids.clear();
  result = bench.run(spec);
  for (const CompletionResult& c : result.completions) CHECK(c.completion.ids.size() == 60);
}

TEST_CASE("top log-probs are those of the distribution drawn from, or of the model") {
  Bench bench;
  RequestSpec spec{.prompt = prompt_of(10, 2), .sampling = {.temperature = 0.7, .max_new_tokens = 20}};
  spec.top_log_probs = 50;
  const CompletionResult all = bench.run(spec).completions[0];
  for (std::size_t t = 0; t < 20; ++t) {
    REQUIRE(all.top[t].size() == 50);
    double mass = 0;
    for (const auto& one : all.top[t]) mass += std::exp(static_cast<double>(one.log_prob));
    CHECK(mass == Approx(1.0).margin(1e-5));
    CHECK(std::is_sorted(all.top[t].begin(), all.top[t].end(),
                         [](const auto& a, const auto& b) { return a.log_prob > b.log_prob; }));
    const auto mine = std::find_if(all.top[t].begin(), all.top[t].end(),
                                   [&](const auto& one) { return one.id == all.completion.ids[t]; });
    CHECK(mine->log_prob == all.completion.log_probs[t]);
  }
  spec.sampling.top_k = 4;
  const CompletionResult four = bench.run(spec).completions[0];
  for (const auto& top : four.top) {
    REQUIRE(top.size() == 4);
    double mass = 0;
    for (const auto& one : top) mass += std::exp(static_cast<double>(one.log_prob));
    CHECK(mass == Approx(1.0).margin(1e-5));
  }
  // The model's own: what a request without temperature and truncation says of the same tokens.
  spec.log_probs = inference::LogProbKind::model;
  const CompletionResult raw = bench.run(spec).completions[0];
  RequestSpec scored{.prompt = spec.prompt, .given = raw.completion.ids};
  scored.top_log_probs = 50;
  const CompletionResult plain = bench.run(scored).completions[0];
  CHECK(raw.completion.log_probs == plain.completion.log_probs);
  CHECK(raw.top[3][2].log_prob == plain.top[3][2].log_prob);
}

TEST_CASE("log-probs of a prompt are those of the same tokens given") {
  Bench bench({.max_slots = 4, .prefill_rows = 9});
  RequestSpec spec{.prompt = prompt_of(70, 6), .sampling = {.temperature = 0.8, .max_new_tokens = 3}};
  bench.run(spec);
  spec.prompt_log_probs = 3;
  const RequestResult found = bench.run(spec);
  RequestSpec given{.prompt = {spec.prompt.begin(), spec.prompt.begin() + 1},
                    .sampling = spec.sampling,
                    .given = {spec.prompt.begin() + 1, spec.prompt.end()}};
  const CompletionResult expected = bench.run(given).completions[0];
  REQUIRE(found.prompt_log_probs.size() == 69);
  REQUIRE(found.prompt_top.size() == 69);
  for (std::size_t i = 0; i < 69; ++i) {
    CHECK(found.prompt_log_probs[i].id == spec.prompt[i + 1]);
    CHECK(found.prompt_log_probs[i].log_prob == expected.completion.log_probs[i]);
    CHECK(found.prompt_top[i].size() == 3);
    const auto& top = found.prompt_top[i];
    const auto at = std::find_if(top.begin(), top.end(), [&](const auto& t) { return t.id == spec.prompt[i + 1]; });
    if (at == top.end())
      CHECK(found.prompt_ranks[i] > 3);
    else
      CHECK(found.prompt_ranks[i] == at - top.begin() + 1);
  }
}

TEST_CASE("a request may bring the decoder of its text, and hears which string ended it") {
  Bench bench;
  RequestSpec spec{.prompt = prompt_of(10, 2), .sampling = {.max_new_tokens = 30}, .text = true};
  spec.text_stream = [] {
    return inference::TextStream{[](TokenId id) { return std::to_string(id) + " "; }, [] { return std::string("."); }};
  };
  const CompletionResult whole = bench.run(spec).completions[0];
  std::string expected;
  for (const TokenId id : whole.completion.ids) expected += std::to_string(id) + " ";
  CHECK(whole.text == expected + ".");
  const std::string stop = std::to_string(whole.completion.ids[4]) + " ";
  spec.stop_strings = {stop};
  std::string told;
  spec.on_token = [&](const inference::TokenEvent& event) {
    CHECK(event.stop_text.empty() == !event.finished);
    told += event.stop_text;
  };
  CHECK(bench.run(spec).completions[0].stop_text == stop);
  CHECK(told == stop);
}

TEST_CASE("an edit of the logits decides what can be drawn") {
  Bench bench;
  RequestSpec spec{.prompt = prompt_of(10, 2), .sampling = {.max_new_tokens = 30}};
  spec.edit_logits = [](std::span<float> logits, std::span<const TokenId> ids) {
    for (std::size_t v = 0; v < logits.size(); ++v)
      if (v % 2 != ids.size() % 2) logits[v] = -1e30f;
  };
  const CompletionResult found = bench.run(spec).completions[0];
  for (std::size_t t = 0; t < found.completion.ids.size(); ++t)
    CHECK(found.completion.ids[t] % 2 == static_cast<TokenId>(t % 2));
}

TEST_CASE("what cannot be served is a numbered error at submit, and nothing is left of it") {
  Bench bench;
  const auto number = [&](const std::function<void(RequestSpec&)>& damage) {
    RequestSpec spec{.prompt = {1, 2}};
    damage(spec);
    return error_of([&] { bench.submit(std::move(spec)); });
  };
  CHECK(number([](RequestSpec& s) { s.prompt = prompt_of(400, 1); }) == "inference.1");
  CHECK(number([](RequestSpec& s) { s.prompt.clear(); }) == "inference.2");
  CHECK(number([](RequestSpec& s) { s.prompt = {50}; }) == "inference.3");
  CHECK(number([](RequestSpec& s) { s.sampling.stop_ids = {-1}; }) == "inference.3");
  CHECK(number([](RequestSpec& s) { s.sampling.temperature = std::nan(""); }) == "inference.4");
  CHECK(number([](RequestSpec& s) { s.count = 0; }) == "inference.12");
  CHECK(number([](RequestSpec& s) { s.min_new_tokens = 513; }) == "inference.12");
  CHECK(number([](RequestSpec& s) { s.top_log_probs = -1; }) == "inference.12");
  CHECK(number([](RequestSpec& s) { s.prompt_log_probs = 51; }) == "inference.12");
  CHECK(bench.scheduler.idle());
  Scheduler mute(bench.decoder, bench.forward, bench.cache, bench.pool);
  CHECK(error_of([&] { mute.submit({.prompt = {1}, .stop_strings = {"x"}}); }) == "inference.11");
  CHECK(error_of([&] { Scheduler(bench.decoder, bench.forward, bench.cache, bench.pool, {.max_slots = 33}); }) ==
        "inference.7");
}

TEST_CASE("a pass that fails ends the requests that had a row in it, and others get the bits that they get alone") {
  std::size_t failures = 0, whole = 0, survivors = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    SchedulerConfig config;
    config.max_slots = 1 + static_cast<std::int64_t>(random() % 6);
    config.prefill_rows = 1 + static_cast<std::int64_t>(random() % 40);
    config.cache_bytes = seed % 4 == 0 ? 0 : bytes_of(8 + random() % 12);
    config.eos_ids = {7};
    Bench bench(config);
    bench.forward.apart = seed % 3 == 0;
    std::vector<RequestSpec> specs;
    std::vector<RequestId> ids;
    std::map<RequestId, int> failed;
    while (specs.size() < 20 || !bench.scheduler.idle()) {
      if (specs.size() < 20 && random() % 4 == 0) {
        RequestSpec spec = random_request(random);
        specs.push_back(spec);
        spec.on_failed = [&failed](RequestId id, const std::exception_ptr& error) {
          ++failed[id];
          CHECK(error_text(error) == "the device failed");
        };
        ids.push_back(bench.submit(std::move(spec)));
      }
      bench.forward.fails = random() % 30 != 0  ? toy::ToyForward::Fails::never
                            : random() % 2 == 0 ? toy::ToyForward::Fails::in_run
                                                : toy::ToyForward::Fails::in_logits;
      const std::size_t before = failed.size(), running = bench.scheduler.counts().running;
      bench.scheduler.step();
      REQUIRE(bench.forward.passes < 100'000);
      if (failed.size() > before && bench.scheduler.counts().running > 0 && running > failed.size() - before)
        ++survivors;
    }
    const Scheduler::Counts counts = bench.scheduler.counts();
    CHECK(counts.pages_in_use == 0);
    CHECK(counts.running + counts.waiting == 0);
    failures += failed.size();
    for (std::size_t r = 0; r < specs.size(); ++r) {
      INFO("seed " << seed << " request " << r);
      CHECK(failed.count(ids[r]) + bench.ended.count(ids[r]) == 1);
      if (failed.contains(ids[r])) {
        CHECK(failed[ids[r]] == 1);
        continue;
      }
      check_as_alone(specs[r], bench.ended.at(ids[r]));
      ++whole;
    }
  }
  CHECK(failures > 100);
  CHECK(whole > 200);
  CHECK(survivors > 10);  // passes of other weights
}

TEST_CASE("a pass that fails with a request without a sink for that is the caller's") {
  Bench bench({.max_slots = 4, .prefill_rows = 64});
  int told = 0;
  RequestSpec heard{.prompt = {1, 2}, .sampling = {.max_new_tokens = 4}};
  heard.on_failed = [&](RequestId, const std::exception_ptr&) { ++told; };
  bench.submit(heard);
  bench.submit({.prompt = {3, 4}, .sampling = {.max_new_tokens = 4}});
  bench.forward.fails = toy::ToyForward::Fails::in_run;
  CHECK_THROWS_AS(bench.scheduler.step(), std::runtime_error);
  CHECK(told == 0);
  bench.scheduler.clear();
  bench.forward.fails = toy::ToyForward::Fails::never;
  CHECK(bench.run({.prompt = {1, 2}, .sampling = {.max_new_tokens = 4}}).completions[0].completion.ids.size() == 4);
}

TEST_CASE(
    "where a device computes apart from the host, sinks hear of a token while the next pass runs, of all in order, and "
    "to the end") {
  Bench bench({.max_slots = 4, .prefill_rows = 64});
  bench.forward.apart = true;
  struct Heard {
    std::vector<TokenId> ids;
    std::vector<std::uint64_t> passes;  // that had begun by then
    std::string text;
    std::optional<Finish> last;
  };
  std::map<RequestId, Heard> heard;
  const auto request = [&](std::uint32_t salt, std::int64_t tokens) {
    RequestSpec spec{.prompt = prompt_of(8, salt), .sampling = {.max_new_tokens = tokens}, .text = true};
    spec.top_log_probs = 2;
    spec.on_token = [&](const inference::TokenEvent& token) {
      Heard& one = heard[token.request];
      CHECK(token.top.size() == 2);
      one.ids.push_back(token.id);
      one.passes.push_back(bench.forward.passes);
      one.text += token.text;
      one.last = token.finished;
    };
    return spec;
  };
  const RequestId a = bench.submit(request(1, 6)), b = bench.submit(request(2, 4));
  RequestSpec stops = request(3, 6);
  stops.stop_strings = {"never there"};
  const RequestId c = bench.submit(std::move(stops));
  bench.scheduler.drain();
  for (const RequestId id : {a, b, c}) {
    const CompletionResult& result = bench.ended.at(id).completions[0];
    CHECK(heard.at(id).ids == result.completion.ids);
    CHECK(heard.at(id).text == result.text);
    CHECK(heard.at(id).last == Finish::length);
    CHECK(result.completion.finish == Finish::length);
  }
  // Token i is drawn in pass i + 1; the last one ends its request, and those with stop strings cannot wait.
  CHECK(heard.at(a).passes == std::vector<std::uint64_t>{2, 3, 4, 5, 6, 6});
  CHECK(heard.at(b).passes == std::vector<std::uint64_t>{2, 3, 4, 4});
  CHECK(heard.at(c).passes == std::vector<std::uint64_t>{1, 2, 3, 4, 5, 6});
  // A request that is cancelled has heard of all that was drawn.
  const RequestId d = bench.submit(request(4, 50));
  for (int i = 0; i < 5; ++i) bench.scheduler.step();
  CHECK(heard.at(d).ids.size() == 4);
  bench.scheduler.cancel(d);
  CHECK(heard.at(d).ids == bench.ended.at(d).completions[0].completion.ids);
  CHECK(heard.at(d).ids.size() == 5);
  CHECK(heard.at(d).text == bench.ended.at(d).completions[0].text);
  // What is forgotten is said to nobody.
  const RequestId e = bench.submit(request(5, 50));
  for (int i = 0; i < 3; ++i) bench.scheduler.step();
  bench.scheduler.clear();
  bench.run({.prompt = {1, 2}, .sampling = {.max_new_tokens = 4}});
  CHECK(heard.at(e).ids.size() == 2);
}

namespace {

// Weights of which those with equal tens decode in one pass, at most three of them.
class JoinedToy final : public toy::ToyForward, public inference::JoinedForward {
 public:
  using toy::ToyForward::run;
  using toy::ToyForward::ToyForward;

  [[nodiscard]] JoinedForward* joined() override { return this; }
  [[nodiscard]] bool joins(const inference::Forward::Weights& one,
                           std::span<const inference::Forward::WeightsHandle> others) override {
    const auto base = [](const inference::Forward::Weights& w) {
      return static_cast<const toy::ToyWeights&>(w).seed / 10;
    };
    return others.size() < 3 && base(*others.front()) == base(one);
  }
  void run(std::span<const inference::Forward::WeightsHandle> weights, std::span<const inference::Row> rows) override {
    ++joint;
    std::size_t same = 0;
    for (std::size_t i = 1; i < rows.size(); ++i) same += rows[i].pages == rows[i - 1].pages ? 1 : 0;
    if (same > 0) throw std::logic_error("a prompt in a pass of several weights");
    compute(rows,
            [&](const inference::Row& row) { return static_cast<const toy::ToyWeights&>(*weights[row.weights]).seed; });
  }

  std::uint64_t joint = 0;
};

// Pages of the host, until the next one is refused.
class RefusedPages final : public inference::PageMemory {
 public:
  std::byte* allocate(std::size_t bytes) override {
    if (refuses && !std::exchange(spared, false)) {
      refuses = false;
      throw std::bad_alloc();
    }
    return inference::PageMemory::host().allocate(bytes);
  }
  void free(std::byte* page, std::size_t bytes) noexcept override { inference::PageMemory::host().free(page, bytes); }
  void copy(const std::byte* from, std::byte* to, std::size_t bytes) override {
    inference::PageMemory::host().copy(from, to, bytes);
  }
  bool refuses = false, spared = false;
};

template <class Forward>
struct Joint {
  model::DecoderConfig decoder = toy::config();
  RefusedPages memory;
  inference::KvCache cache{1, 1, 8, inference::CacheElement::float32, memory};
  os::ThreadPool pool{1};
  Forward forward;
  Scheduler scheduler;
  std::map<RequestId, RequestResult> ended;

  explicit Joint(const SchedulerConfig& config)
      : forward(cache, config.max_slots + config.prefill_rows, config.max_slots),
        scheduler(decoder, forward, cache, pool, config, letters) {}
  RequestId submit(RequestSpec spec) {
    spec.on_end = [this](RequestId id, RequestResult&& result) { ended.emplace(id, std::move(result)); };
    return scheduler.submit(std::move(spec));
  }
};

}  // namespace

TEST_CASE(
    "weights that join decode in one pass, their prompts in passes of their own, and every bit is what it is alone") {
  std::uint64_t joint = 0;
  for (unsigned seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    SchedulerConfig config;
    config.max_slots = 1 + static_cast<std::int64_t>(random() % 9);
    config.prefill_rows = 1 + static_cast<std::int64_t>(random() % 40);
    config.prefill_ahead = random() % 2 == 0 ? 0 : 20;
    config.cache_bytes = seed % 3 == 0 ? 0 : bytes_of(8 + random() % 12);
    config.eos_ids = {7};
    Joint<JoinedToy> bench(config);
    std::vector<inference::Forward::WeightsHandle> weights;
    for (const std::uint64_t one : {11U, 12U, 13U, 14U, 21U, 22U}) weights.push_back(toy::weights(one));
    std::vector<RequestSpec> specs;
    std::vector<RequestId> ids;
    while (specs.size() < 16 || !bench.scheduler.idle()) {
      if (specs.size() < 16 && random() % 3 == 0) {
        RequestSpec spec = random_request(random);
        spec.weights = weights[random() % weights.size()];
        specs.push_back(spec);
        ids.push_back(bench.submit(std::move(spec)));
      }
      bench.scheduler.step();
      REQUIRE(bench.forward.passes < 100'000);
    }
    joint += bench.forward.joint;
    CHECK(bench.scheduler.counts().pages_in_use == 0);
    for (std::size_t r = 0; r < specs.size(); ++r) {
      INFO("seed " << seed << " request " << r);
      check_as_alone(specs[r], bench.ended.at(ids[r]));
    }
  }
  CHECK(joint > 100);
  // Three that join and one more: two passes a step.
  Joint<JoinedToy> bench({.max_slots = 8, .prefill_rows = 64});
  for (const std::uint64_t one : {11U, 12U, 13U, 14U})
    bench.submit(
        {.prompt = {1, 2, 3}, .sampling = {.max_new_tokens = 9}, .ignore_eos = true, .weights = toy::weights(one)});
  bench.scheduler.step();
  const std::uint64_t before = bench.forward.passes;
  for (int i = 0; i < 5; ++i) bench.scheduler.step();
  CHECK(bench.forward.passes == before + 10);
  // The prompt of a fifth, in three steps, holds none of them up and takes none from their pass.
  bench.submit({.prompt = prompt_of(150, 2), .sampling = {.max_new_tokens = 9}, .weights = toy::weights(12)});
  const std::uint64_t both = bench.forward.passes, joint_before = bench.forward.joint;
  for (int i = 0; i < 3; ++i) bench.scheduler.step();
  CHECK(bench.forward.passes == both + 9);
  CHECK(bench.forward.joint == joint_before + 3);
}

TEST_CASE("memory that is refused ends one request: whose pages they were, or the youngest prompt of the pass") {
  std::size_t failures = 0, whole = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    SchedulerConfig config;
    config.max_slots = 3 + static_cast<std::int64_t>(random() % 6);
    config.prefill_rows = 30;
    config.eos_ids = {7};
    Joint<toy::ToyForward> bench(config);
    bench.scheduler.set_weights(toy::weights(1));
    std::vector<RequestSpec> specs;
    std::vector<RequestId> ids;
    std::map<RequestId, int> failed;
    while (specs.size() < 20 || !bench.scheduler.idle()) {
      if (specs.size() < 20 && random() % 3 == 0) {
        RequestSpec spec = random_request(random);
        specs.push_back(spec);
        spec.on_failed = [&failed](RequestId id, const std::exception_ptr&) { ++failed[id]; };
        ids.push_back(bench.submit(std::move(spec)));
      }
      const bool pages = random() % 10 == 0;
      bench.memory.refuses = pages;
      bench.memory.spared = random() % 2 == 0;
      // At least as much as decodes.
      bench.forward.most_rows =
          pages || random() % 10 != 0 ? 0 : static_cast<std::size_t>(config.max_slots) + random() % 20;
      const std::size_t before = failed.size(), passes = bench.forward.passes;
      bench.scheduler.step();
      if (pages) CHECK(failed.size() <= before + 1);
      if (failed.size() > before && !pages) CHECK(bench.forward.passes > passes + failed.size() - before - 1);
      REQUIRE(bench.forward.passes < 100'000);
    }
    CHECK(bench.scheduler.counts().pages_in_use == 0);
    failures += failed.size();
    for (std::size_t r = 0; r < specs.size(); ++r) {
      INFO("seed " << seed << " request " << r);
      CHECK(failed.count(ids[r]) + bench.ended.count(ids[r]) == 1);
      if (failed.contains(ids[r])) continue;
      check_as_alone(specs[r], bench.ended.at(ids[r]));
      ++whole;
    }
  }
  CHECK(failures > 40);
  CHECK(whole > 300);
  // Three prompts of which two have room: the third alone ends.
  Joint<toy::ToyForward> bench({.max_slots = 8, .prefill_rows = 64});
  bench.scheduler.set_weights(toy::weights(1));
  std::vector<RequestId> failed;
  for (std::uint32_t r = 0; r < 3; ++r) {
    RequestSpec spec{.prompt = prompt_of(10, r), .sampling = {.max_new_tokens = 2}, .ignore_eos = true};
    spec.on_failed = [&](RequestId id, const std::exception_ptr&) { failed.push_back(id); };
    bench.submit(std::move(spec));
  }
  bench.forward.most_rows = 25;
  bench.scheduler.drain();
  CHECK(failed == std::vector<RequestId>{2});
  CHECK(bench.ended.size() == 2);
}
