#include <rlalgo/serve/engine.hpp>

#include <atomic>
#include <chrono>
#include <future>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <rlalgo/serve/refusal.hpp>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include "serve/served.hpp"

using namespace rlalgo;
using inference::RequestResult;
using inference::RequestSpec;
using serve::Engine;
using serve::PauseMode;

namespace {

struct Bench {
  std::shared_ptr<model::Decoder> decoder = served::decoder();
  Engine engine;
  inference::Forward::WeightsHandle weights;

  explicit Bench(Engine::Config config = {}) : engine(decoder->config(), small(std::move(config)), {524}) {
    engine.call([&](inference::DecoderEngine& e) { weights = e.view(decoder->weights()); });
  }
  static Engine::Config small(Engine::Config config) {
    config.engine.threads = 1;
    return config;
  }

  [[nodiscard]] RequestSpec spec(std::int64_t tokens, data::TokenId first = 3) const {
    RequestSpec out{.prompt = {first, 5, 7}, .sampling = {.max_new_tokens = tokens}, .ignore_eos = true};
    out.weights = weights;
    return out;
  }
  // At least a millisecond a token: it does not end before what comes after it is asked for.
  [[nodiscard]] RequestSpec slow(std::int64_t tokens) const {
    RequestSpec out = spec(tokens);
    out.on_token = [](const inference::TokenEvent&) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
    return out;
  }
};

struct Outcome {
  std::vector<RequestResult> results;
  int status = 0;
  std::string error;
};

// Work whose outcome can be waited for.
struct Job {
  std::shared_ptr<std::promise<Outcome>> promise = std::make_shared<std::promise<Outcome>>();
  std::future<Outcome> future = promise->get_future();
  Engine::Work work;

  explicit Job(std::vector<RequestSpec> specs) {
    const auto outcome = std::make_shared<Outcome>();
    const auto left = std::make_shared<std::size_t>(specs.size());
    outcome->results.resize(specs.size());
    for (std::size_t i = 0; i < specs.size(); ++i)
      specs[i].on_end = [outcome, left, i, done = promise](inference::RequestId, RequestResult&& result) {
        outcome->results[i] = std::move(result);
        if (--*left == 0) done->set_value(*outcome);
      };
    work.requests = std::move(specs);
    work.on_failed = [done = promise](const core::Error& error) {
      done->set_value({.status = dynamic_cast<const serve::Refusal&>(error).status(), .error = error.what()});
    };
  }
  Outcome wait() {
    REQUIRE(future.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
    return future.get();
  }
  [[nodiscard]] bool ready() const {
    return future.wait_for(std::chrono::milliseconds(0)) == std::future_status::ready;
  }
};

const data::Completion& first(const Outcome& outcome) { return outcome.results.at(0).completions.at(0).completion; }

}  // namespace

TEST_CASE("work is answered with the same bits alone and beside other work") {
  Bench bench({.engine = {.max_slots = 4}});
  Job alone({bench.spec(20)});
  bench.engine.submit(std::move(alone.work));
  const auto expected = first(alone.wait()).ids;
  CHECK(expected.size() == 20);
  std::vector<Job> jobs;
  for (int i = 0; i < 10; ++i) jobs.emplace_back(std::vector<RequestSpec>{bench.spec(20), bench.spec(5, 40 + i)});
  for (Job& job : jobs) bench.engine.submit(std::move(job.work));
  for (Job& job : jobs) CHECK(first(job.wait()).ids == expected);
  bench.engine.call([](auto&) {});
  const auto counts = bench.engine.counts();
  CHECK(counts.pending == 0);
  CHECK(counts.cut == 21);
  CHECK(counts.first_token_seconds.total() == 21);
}

TEST_CASE("a client that asks for much holds up no other") {
  Bench bench({.engine = {.max_slots = 1}});
  std::vector<Job> many;
  many.reserve(30);
  bench.engine.pause(PauseMode::keep, [] {});  // all is there before any of it begins
  for (int i = 0; i < 30; ++i) {
    many.emplace_back(std::vector<RequestSpec>{bench.spec(4, 40 + i)});
    many.back().work.client = "much";
    bench.engine.submit(std::move(many.back().work));
  }
  Job other({bench.spec(4)});
  other.work.client = "little";
  std::size_t before = 0;  // answers that came before the other's
  other.work.requests[0].on_end = [&, told = other.work.requests[0].on_end](inference::RequestId id,
                                                                            RequestResult&& result) {
    for (const Job& job : many) before += job.ready() ? 1 : 0;
    told(id, std::move(result));
  };
  bench.engine.submit(std::move(other.work));
  bench.engine.resume();
  (void)other.wait();
  bench.engine.call([](auto&) {});
  CHECK(before < 6);  // two slots' worth were begun, and the clients take turns
  for (Job& job : many) CHECK(first(job.wait()).ids.size() == 4);
}

TEST_CASE("what a request may not ask fails its work alone") {
  Bench bench;
  Job bad({bench.spec(5), bench.spec(5, 530)});
  Job good({bench.spec(5)});
  bench.engine.submit(std::move(bad.work));
  bench.engine.submit(std::move(good.work));
  const Outcome outcome = bad.wait();
  CHECK(outcome.status == 400);
  CHECK(outcome.error.starts_with("[rlalgo.inference.3]"));
  CHECK(first(good.wait()).ids.size() == 5);
}

TEST_CASE("a call that has begun is waited for, one that has not is given up") {
  Bench bench;
  std::promise<void> begun;
  std::atomic<bool> ended = false, waited = false;
  std::thread caller([&] {
    bench.engine.call(
        [&](inference::DecoderEngine&) {
          begun.set_value();
          std::this_thread::sleep_for(std::chrono::milliseconds(700));
          ended = true;
        },
        0.5);  // enough for it to begin, on a busy machine too
    waited = ended.load();
  });
  begun.get_future().wait();
  auto touched = std::make_shared<std::atomic<bool>>(false);
  CHECK_THROWS_WITH(bench.engine.call([touched](inference::DecoderEngine&) { *touched = true; }, 0.001),
                    Catch::Contains("rlalgo.serve.15"));
  caller.join();
  CHECK(waited);
  bench.engine.call([](inference::DecoderEngine&) {});
  CHECK_FALSE(*touched);
}

TEST_CASE("cancelled work ends as aborted and frees its memory") {
  Bench bench;
  Job job({bench.slow(400), bench.slow(400)});
  const auto ticket = bench.engine.submit(std::move(job.work));
  bench.engine.cancel(ticket);
  bench.engine.cancel(ticket);  // again: nothing
  const Outcome outcome = job.wait();
  CHECK(outcome.results.size() == 2);
  CHECK(first(outcome).finish == data::Finish::aborted);
  std::size_t pages = 1;
  bench.engine.call([&](inference::DecoderEngine& e) { pages = e.scheduler().counts().pages_in_use; });
  CHECK(pages == 0);
}

TEST_CASE("completions that have ended are counted by the reason of their end") {
  Bench bench({.engine = {.max_slots = 1}});
  Job whole({bench.spec(4)});
  bench.engine.submit(std::move(whole.work));
  const data::TokenId second = first(whole.wait()).ids.at(1);
  RequestSpec stops = bench.spec(4);
  stops.sampling.stop_ids = {second};
  Job stopped({stops, stops});
  bench.engine.submit(std::move(stopped.work));
  CHECK(first(stopped.wait()).finish == data::Finish::stop);
  // One completion that is being computed, and four that have not begun.
  std::vector<RequestSpec> long_ones(3, bench.slow(400));
  long_ones.back().count = 3;
  Job cancelled(std::move(long_ones));
  bench.engine.cancel(bench.engine.submit(std::move(cancelled.work)));
  (void)cancelled.wait();
  bench.engine.call([](inference::DecoderEngine&) {});
  const auto counts = bench.engine.counts();
  CHECK(counts.stopped == 2);
  CHECK(counts.cut == 1);
  CHECK(counts.aborted == 5);
  CHECK(counts.failed == 0);
}

TEST_CASE("what waits is bounded by pieces of work, whatever their size") {
  Bench bench({.engine = {.max_slots = 1}, .most_waiting = 2});
  std::promise<void> paused;
  bench.engine.pause(PauseMode::keep, [&] { paused.set_value(); });
  paused.get_future().wait();
  std::vector<Job> jobs;
  for (int i = 0; i < 2; ++i) {
    jobs.emplace_back(std::vector<RequestSpec>(40, bench.spec(2)));
    bench.engine.submit(std::move(jobs.back().work));
  }
  CHECK(support::raised_by([&] { bench.engine.submit({.requests = {bench.spec(1)}}); }).starts_with("serve.9"));
  bench.engine.resume();
  for (Job& job : jobs) CHECK(job.wait().results.size() == 40);
}

TEST_CASE("many completions of one prompt come in shares, as they come at once, and others between them") {
  const auto drawn = [](std::int64_t slots, std::int64_t count) {
    Bench bench({.engine = {.max_slots = slots}});
    RequestSpec spec = bench.spec(6);
    spec.count = count;
    spec.prompt_log_probs = 1;
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(count));
    spec.on_token = [&tokens](const inference::TokenEvent& event) {
      ++tokens[static_cast<std::size_t>(event.completion)];
    };
    Job job({spec});
    bench.engine.submit(std::move(job.work));
    Outcome outcome = job.wait();
    for (const std::int64_t each : tokens) CHECK(each > 0);
    return outcome;
  };
  const Outcome at_once = drawn(11, 11), shares = drawn(3, 11);
  const auto& a = at_once.results.at(0);
  const auto& b = shares.results.at(0);
  REQUIRE(a.completions.size() == 11);
  REQUIRE(b.completions.size() == 11);
  for (std::size_t j = 0; j < 11; ++j) CHECK(a.completions[j].completion.ids == b.completions[j].completion.ids);
  CHECK(a.prompt_log_probs.size() == b.prompt_log_probs.size());
  CHECK_FALSE(b.prompt_log_probs.empty());

  Bench bench({.engine = {.max_slots = 2}});
  RequestSpec many = bench.spec(20);
  many.count = 400;
  Job large({many}), small({bench.spec(2)});
  bench.engine.submit(std::move(large.work));
  bench.engine.submit(std::move(small.work));
  CHECK(first(small.wait()).ids.size() == 2);
  CHECK_FALSE(large.ready());
  CHECK(large.wait().results.size() == 1);
}

TEST_CASE("a deadline ends work that waits or runs") {
  Bench bench;
  std::promise<void> paused;
  bench.engine.pause(PauseMode::keep, [&] { paused.set_value(); });
  paused.get_future().wait();
  Job job({bench.spec(5)});
  job.work.seconds = 0.05;
  bench.engine.submit(std::move(job.work));
  const Outcome outcome = job.wait();
  CHECK(outcome.status == 504);
  CHECK(outcome.error.starts_with("[rlalgo.serve.14]"));
  bench.engine.resume();
  bench.engine.call([](auto&) {});  // the counts are those of the last turn
  CHECK(bench.engine.counts().failed == 1);
}

TEST_CASE("a sink that throws fails its own work") {
  Bench bench;
  Job bad({bench.spec(50)});
  bad.work.requests[0].on_token = [](const inference::TokenEvent&) { throw std::runtime_error("full"); };
  Job good({bench.spec(30)});
  bench.engine.submit(std::move(bad.work));
  bench.engine.submit(std::move(good.work));
  const Outcome outcome = bad.wait();
  CHECK(outcome.status == 500);
  CHECK(outcome.error.find("full") != std::string::npos);
  CHECK(first(good.wait()).ids.size() == 30);
}

TEST_CASE("a pass that fails ends the work that it had a row of, and no other") {
  Bench bench;
  // Weights of their own, whose logits are not finite.
  const auto damaged = served::decoder();
  damaged->parameters().front().value.detach().fill_(std::numeric_limits<float>::infinity());
  inference::Forward::WeightsHandle bad_weights;
  bench.engine.call([&](inference::DecoderEngine& e) { bad_weights = e.view(damaged->weights()); });
  std::vector<Job> good, bad;
  for (int i = 0; i < 3; ++i) {
    good.emplace_back(std::vector<RequestSpec>{bench.slow(30)});
    RequestSpec spec = bench.spec(30);
    spec.weights = bad_weights;
    bad.emplace_back(std::vector<RequestSpec>{spec, bench.slow(30)});  // one piece of work
  }
  for (Job& job : good) bench.engine.submit(std::move(job.work));
  for (Job& job : bad) bench.engine.submit(std::move(job.work));
  for (Job& job : bad) {
    const Outcome outcome = job.wait();
    CHECK(outcome.status == 500);
    CHECK(support::lacks(outcome.error, {"serve.15", "inference.5"}) == "");
  }
  for (Job& job : good) CHECK(first(job.wait()).ids.size() == 30);
  bench.engine.call([](auto&) {});
  CHECK(bench.engine.counts().failed == 3);
  CHECK(bench.engine.counts().scheduler.running == 0);
  Job later({bench.spec(5)});
  bench.engine.submit(std::move(later.work));
  CHECK(first(later.wait()).ids.size() == 5);
}

TEST_CASE("a pause keeps, waits or aborts; new work waits for its end") {
  Bench bench;
  const auto pause = [&](PauseMode mode) {
    auto paused = std::make_shared<std::promise<void>>();
    auto done = paused->get_future();
    bench.engine.pause(mode, [paused] { paused->set_value(); });
    return done.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
  };
  Job whole({bench.spec(300)});
  bench.engine.submit(std::move(whole.work));
  const auto expected = first(whole.wait()).ids;

  Job kept({bench.slow(300)});
  bench.engine.submit(std::move(kept.work));
  REQUIRE(pause(PauseMode::keep));
  CHECK(bench.engine.paused());
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(!kept.ready());
  bench.engine.resume();
  CHECK(first(kept.wait()).ids == expected);

  Job waited({bench.slow(100)});
  bench.engine.submit(std::move(waited.work));
  bench.engine.call([](auto&) {});  // it is in the scheduler when a step has been made
  REQUIRE(pause(PauseMode::wait));
  Job late({bench.spec(3)});
  bench.engine.submit(std::move(late.work));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(!late.ready());
  bench.engine.resume();
  CHECK(first(late.wait()).ids.size() == 3);
  CHECK(first(waited.wait()).ids.size() == 100);

  Job aborted({bench.slow(400)});
  bench.engine.submit(std::move(aborted.work));
  REQUIRE(pause(PauseMode::abort));
  CHECK(first(aborted.wait()).finish == data::Finish::aborted);
  bench.engine.resume();
}

TEST_CASE("each of several pauses that wait is told of its end") {
  Bench bench;
  const auto pause = [&](PauseMode mode) {
    auto paused = std::make_shared<std::promise<void>>();
    bench.engine.pause(mode, [paused] { paused->set_value(); });
    return paused->get_future();
  };
  Job running({bench.slow(100)});
  bench.engine.submit(std::move(running.work));
  bench.engine.call([](auto&) {});
  std::vector<std::future<void>> waiting;
  for (int i = 0; i < 3; ++i) waiting.push_back(pause(PauseMode::wait));
  for (auto& one : waiting) {
    REQUIRE(one.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
    CHECK_NOTHROW(one.get());  // a pause that was forgotten breaks its promise
  }
  bench.engine.resume();
  CHECK(first(running.wait()).ids.size() == 100);

  Job kept({bench.slow(100)});
  bench.engine.submit(std::move(kept.work));
  bench.engine.call([](auto&) {});
  pause(PauseMode::keep).get();
  auto never = pause(PauseMode::wait);
  auto neither = pause(PauseMode::wait);
  bench.engine.resume();  // ends their wait, too
  CHECK_NOTHROW(never.get());
  CHECK_NOTHROW(neither.get());
  CHECK(first(kept.wait()).ids.size() == 100);
}

TEST_CASE("work is aborted by its name") {
  Bench bench;
  Job a({bench.slow(400)}), b({bench.spec(40)});
  a.work.id = "a";
  b.work.id = "b";
  bench.engine.submit(std::move(a.work));
  bench.engine.submit(std::move(b.work));
  CHECK(bench.engine.abort({"a", "c"}) == 1);
  CHECK(first(a.wait()).finish == data::Finish::aborted);
  CHECK(first(b.wait()).finish == data::Finish::length);
}

TEST_CASE("an engine that drains finishes what it has, or ends it in time") {
  auto bench = std::make_unique<Bench>();
  Job job({bench->slow(50)});
  bench->engine.submit(std::move(job.work));
  bench->engine.drain(20);
  CHECK(job.ready());
  CHECK(first(job.wait()).finish == data::Finish::length);
  CHECK(support::raised_by([&] { bench->engine.submit({.requests = {bench->spec(1)}}); }).starts_with("serve.10"));

  bench = std::make_unique<Bench>();
  Job endless(std::vector<RequestSpec>(500, bench->slow(400)));
  bench->engine.submit(std::move(endless.work));
  bench = nullptr;
  CHECK(endless.ready());
  CHECK(endless.wait().results.back().completions[0].completion.finish == data::Finish::aborted);
}
