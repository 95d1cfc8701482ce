#include <support/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <sstream>
#include <vector>

#include <rlalgo/run/health.hpp>

namespace {
using namespace rlalgo::run;
using State = HealthFinding::State;

std::vector<Record> records(std::size_t count, std::vector<std::pair<std::string, double>> values) {
  std::vector<Record> out;
  for (std::size_t i = 0; i < count; ++i) out.push_back({static_cast<std::int64_t>(i + 1), 0.0, values});
  return out;
}

State state(const std::string& metric, double value, std::size_t count = 20) {
  for (const HealthFinding& f : health(records(count, {{"reward", 1.0}, {metric, value}})))
    if (f.metric == metric) return f.state;
  FAIL("no finding for " << metric);
  return State::well;
}
}  // namespace

TEST_CASE("each metric has a healthy range, and an alarm beyond it") {
  CHECK(state("rewards/answer/mean", 0.3) == State::well);
  CHECK(state("rewards/answer/mean", 0.1) == State::watch);
  CHECK(state("rewards/answer/mean", 0.0) == State::alarm);
  CHECK(state("rewards/penalty/mean", -0.3) == State::well);
  CHECK(state("rewards/penalty/mean", -0.1) == State::watch);
  CHECK(state("rewards/answer/failed", 0.0) == State::well);
  CHECK(state("rewards/answer/failed", 0.05) == State::watch);
  CHECK(state("rewards/answer/failed", 0.5) == State::alarm);
  CHECK(state("reward_std", 0.2) == State::well);
  CHECK(state("reward_std", 0.0) == State::alarm);
  CHECK(state("frac_reward_zero_std", 0.7) == State::well);
  CHECK(state("frac_reward_zero_std", 0.9) == State::watch);
  CHECK(state("frac_reward_zero_std", 1.0) == State::alarm);
  CHECK(state("grad_norm", 12.0) == State::alarm);
  CHECK(state("grad_norm", 0.0005) == State::watch);
  CHECK(state("grad_norm", 0.001) == State::well);
  CHECK(state("entropy", 0.3) == State::well);
  CHECK(state("entropy", 0.005) == State::alarm);
  CHECK(state("entropy", 1.5) == State::alarm);
  CHECK(state("kl", 1.0) == State::watch);
  CHECK(state("kl", 2.5) == State::alarm);
  CHECK(state("sampling/sampling_logp_difference/mean", 1.5) == State::alarm);
  CHECK(state("sampling/importance_sampling_ratio/raw_min", 0.001) == State::alarm);
  CHECK(state("clip_ratio/region_mean", 0.4) == State::alarm);
  CHECK(state("completions/clipped_ratio", 0.9) == State::alarm);
}

TEST_CASE("advice is for the side that a value is on, and for what the run is like") {
  const auto advice = [](const std::string& metric, double value, double reward = 0.4) {
    for (const HealthFinding& f :
         health(records(20, {{"reward", reward}, {"rewards/answer/mean", reward}, {metric, value}})))
      if (f.metric == metric) return f.advice;
    return std::string();
  };
  const auto says = [](const std::string& text, const char* word) { return text.find(word) != std::string::npos; };
  CHECK(says(advice("entropy", 0.005), "low: "));
  CHECK(says(advice("entropy", 0.005), "temperature 0.8 to 1"));
  CHECK(says(advice("entropy", 1.5), "high: "));
  CHECK(says(advice("entropy", 1.5), "lower the temperature"));
  CHECK(says(advice("grad_norm", 20), "high: "));
  CHECK(says(advice("grad_norm", 1e-5), "low: "));
  // Where nearly every completion is right, nobody needs a warmer policy.
  for (const auto& [metric, value] : std::vector<std::pair<std::string, double>>{
           {"entropy", 0.005}, {"frac_reward_zero_std", 1.0}, {"reward_std", 0.0}}) {
    INFO(metric);
    CHECK(says(advice(metric, value, 0.97), "harder"));
    CHECK_FALSE(says(advice(metric, value, 0.97), "temperature"));
    CHECK_FALSE(says(advice(metric, value, 0.97), "warmer"));
    CHECK_FALSE(says(advice(metric, value, 0.4), "harder ones"));
  }
  CHECK(says(advice("entropy", 1.5, 0.97), "lower the temperature"));
  CHECK(says(advice("sampling/importance_sampling_ratio/raw_min", 1e-36), "structured output"));
  CHECK(says(advice("sampling/importance_sampling_ratio/raw_min", 0.005), "sync more often"));
}

TEST_CASE("feature matching has bands of its own, and none of those that its numbers would cross in good health") {
  const auto of = [](const std::string& metric, double value, std::vector<std::pair<std::string, double>> more = {}) {
    more.insert(more.begin(), {{"ebft/mean_reward", 0.1}, {metric, value}});
    for (const HealthFinding& f : health(records(20, more)))
      if (f.metric == metric) return f.state;
    FAIL("no finding for " << metric);
    return State::well;
  };
  CHECK(of("ebft/alignment", 0.9) == State::well);
  CHECK(of("ebft/alignment", 0.2) == State::watch);
  CHECK(of("ebft/alignment", -0.1) == State::alarm);
  CHECK(of("ebft/diversity", 0.05) == State::well);
  CHECK(of("ebft/diversity", 1.5) == State::watch);
  CHECK(of("ebft/diversity", 1.95) == State::alarm);
  CHECK(of("ebft/cfm_loss", 1.2) == State::well);
  CHECK(of("ebft/cfm_loss", 200) == State::alarm);
  CHECK(of("ebft/advantages_std", 0.0) == State::alarm);
  CHECK(of("ebft/steps_without_blocks", 0.0) == State::well);
  CHECK(of("ebft/steps_without_blocks", 1.0) == State::alarm);
  CHECK(of("entropy", 2.0, {{"ebft/num_blocks", 9.0}}) == State::well);  // text has the entropy of text
  CHECK(of("entropy", 0.005, {{"ebft/num_blocks", 9.0}}) == State::alarm);
  CHECK(state("entropy", 2.0) == State::alarm);
  // Whitened samples that differ have diversity 0 by definition: no reward function that fails.
  const auto whitened =
      health(records(20, {{"reward", 1.0}, {"ebft/alignment", 1.0}, {"rewards/diversity/mean", 0.0}}));
  CHECK(std::none_of(whitened.begin(), whitened.end(),
                     [](const HealthFinding& f) { return f.metric == "rewards/diversity/mean"; }));
}

TEST_CASE("completions that grow steadily towards the longest are an alarm; long, noisy or shrinking ones are not") {
  const auto of = [](auto length, std::size_t count = 20) {
    std::vector<Record> run;
    for (std::size_t i = 0; i < count; ++i) {
      const double mean = length(static_cast<double>(i));
      run.push_back({static_cast<std::int64_t>(i + 1),
                     0.0,
                     {{"reward", 1.0}, {"completions/mean_length", mean}, {"completions/max_length", 100.0}}});
    }
    for (const HealthFinding& f : health(run))
      if (f.metric == "completions/mean_length") return f.state;
    FAIL("no finding");
    return State::well;
  };
  CHECK(of([](double i) { return 40.0 + 3.0 * i; }) == State::alarm);                             // to 97
  CHECK(of([](double i) { return 40.0 + 3.0 * i + 4.0 * std::cos(2.0 * i); }) == State::alarm);   // with noise
  CHECK(of([](double i) { return 20.0 + 3.0 * i; }) == State::watch);                             // 71 of 100
  CHECK(of([](double i) { return 10.0 + i; }) == State::well);                                    // far from the end
  CHECK(of([](double i) { return 90.0 + 0.4 * i; }) == State::well);                              // long from the start
  CHECK(of([](double i) { return i < 15.0 ? 40.0 + 4.0 * i : 90.0 - 2.0 * i; }) == State::well);  // came back
  CHECK(of([](double i) { return 97.0 - 3.0 * i; }) == State::well);
  CHECK(of([](double i) { return 40.0 + 6.0 * i; }, 10) == State::watch);  // an alarm needs the whole window
  CHECK(of([](double) { return 0.0; }) == State::well);
}

TEST_CASE("an alarm waits for its window, and only the window counts") {
  CHECK(state("entropy", 0.005, 9) == State::watch);
  std::vector<Record> run = records(30, {{"reward", 1.0}, {"kl", 5.0}});
  const std::vector<Record> end = records(10, {{"reward", 1.0}, {"kl", 0.1}});
  run.insert(run.end(), end.begin(), end.end());
  CHECK(health(run).front().state == State::well);
  CHECK(health(run).front().value == Approx(0.1));
}

TEST_CASE("runs without rewards have nothing to say here") {
  CHECK(health(records(20, {{"grad_norm", 50.0}, {"rewards/chosen", 0.0}})).empty());
  CHECK(health({}).empty());
}

TEST_CASE("a run that ends before a window is full is warned of where every record was beyond the alarm") {
  const auto at_end = [](std::size_t count, double value) {
    std::ostringstream out;
    HealthWatch watch(out);
    for (const Record& record : records(count, {{"reward", 0.0}, {"rewards/f/mean", value}})) watch.on_record(record);
    CHECK(out.str().empty());
    watch.on_finish();
    watch.on_finish();
    return out.str();
  };
  CHECK(
      at_end(4, 0.0).starts_with("warning: rewards/f/mean is 0.0 on average over the last 4 records: the reward is "));
  CHECK(at_end(4, 0.0).find("\n", 1) == at_end(4, 0.0).size() - 1);
  CHECK(at_end(2, 0.0).empty());  // too little to judge
  CHECK(at_end(4, 0.1).empty());  // worth watching, no alarm
  std::ostringstream out;
  HealthWatch watch(out);
  for (const double value : {0.0, 0.0, 0.5, 0.0})
    watch.on_record({1, 0.0, {{"reward", 0.5}, {"rewards/f/mean", value}}});
  watch.on_finish();
  CHECK(out.str().empty());
}

TEST_CASE("the watch warns once about each metric, with advice") {
  std::ostringstream out;
  HealthWatch watch(out);
  for (const Record& record : records(9, {{"reward", 1.0}, {"completions/clipped_ratio", 1.0}}))
    watch.on_record(record);
  watch.on_record({10, 0.0, {{"eval_reward", 1.0}, {"completions/clipped_ratio", 1.0}}});
  CHECK(out.str().empty());
  for (const Record& record : records(20, {{"reward", 1.0}, {"completions/clipped_ratio", 1.0}}))
    watch.on_record(record);
  CHECK(
      out.str() ==
      "warning: completions/clipped_ratio is 1.0 on average over the last 10 records: completions are cut before they "
      "end: raise max_completion_length, or teach shorter answers\n");
}
