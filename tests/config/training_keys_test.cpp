#include <support/catch.hpp>

#include <set>
#include <string>

#include <rlalgo/config/training_keys.hpp>

using namespace rlalgo::config;

TEST_CASE("every schedule has the options that transformers gives it") {
  TrainingConfig t;
  const auto names = [&](const std::string& schedule) {
    t.lr_scheduler = schedule;
    std::set<std::string> out;
    for (const Key& row : schedule_keys(t)) {
      CHECK(row.name.starts_with("lr_scheduler_kwargs."));
      out.emplace(row.name.substr(20));
    }
    return out;
  };
  using Names = std::set<std::string>;
  CHECK(names("cosine") == Names{"num_cycles"});
  CHECK(names("cosine_warmup_with_min_lr") == Names{"num_cycles", "warmup_lr_rate"});
  CHECK(names("inverse_sqrt") == Names{"timescale"});
  CHECK(names("polynomial") == Names{"power"});
  CHECK(names("linear").empty());
  CHECK(names("warmup_stable_decay").size() == 6);
  CHECK(names("one_cycle").size() == 8);
  CHECK(names("reduce_lr_on_plateau").size() == 8);
}

TEST_CASE("a metric is followed by one schedule alone") {
  TrainingConfig t;
  const auto follows = [&] {
    for (const Key& row : rate_keys(t))
      if (row.name == "metric_for_best_model") return true;
    return false;
  };
  CHECK_FALSE(follows());
  t.lr_scheduler = "reduce_lr_on_plateau";
  CHECK(follows());
}

TEST_CASE("arguments of optimizers keep their ranges") {
  MuonArguments muon;
  AdafactorArguments adafactor;
  CHECK_FALSE(muon_keys(muon)[0].range.holds(1.0));
  CHECK_FALSE(muon_keys(muon)[2].range.holds(100));
  CHECK_FALSE(adafactor_keys(adafactor)[1].range.holds(0.0));
  CHECK(adafactor_keys(adafactor)[1].range.holds(-0.8));
}
