#include <cmath>

#include <support/bandit.hpp>
#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <rlalgo/sampler/precompute_reference.hpp>

using namespace rlalgo;

namespace {

std::shared_ptr<data::AnswerSet> answers(std::size_t unit) {
  auto set = std::make_shared<data::AnswerSet>(unit);
  const std::vector<data::TokenId> prompt = {0}, longer = {1, 2, 3}, shorter = {1};
  for (int e = 0; e < 3; ++e) {
    set->append(e, true, prompt, e == 1 ? shorter : longer);
    if (unit == 2) set->append(e, false, prompt, shorter);
  }
  return set;
}

const double token = -std::log(4.0);  // of a uniform table of four

}  // namespace

TEST_CASE("every answer gets the sum over its completion, tails count ld_alpha") {
  rlalgo::support::Bandit uniform(4);
  for (const std::int64_t batch : {1, 2, 5}) {
    const auto set = answers(2);
    CHECK_FALSE(sampler::precompute_reference<loss::RowKind::pairs>(uniform, set, {.batch_size = batch}));
    CHECK(set->answer(0).reference_row == Approx(3 * token));
    CHECK(set->answer(1).reference_row == Approx(token));
    CHECK(set->answer(2).reference_row == Approx(token));
    sampler::precompute_reference<loss::RowKind::pairs>(uniform, set, {.batch_size = batch, .ld_alpha = 0.5});
    CHECK(set->answer(0).reference_row == Approx(2 * token));
  }
}

TEST_CASE("mismatched completions are those that training will see") {
  rlalgo::support::Bandit uniform(4);
  const auto set = answers(1);
  sampler::precompute_reference<loss::RowKind::unpaired>(uniform, set,
                                                         {.batch_size = 1, .examples_per_step = 2, .mismatched = true});
  CHECK(set->answer(0).mismatched_reference == Approx(token));      // of row 1
  CHECK(set->answer(1).mismatched_reference == Approx(3 * token));  // of row 0
  CHECK(set->answer(2).mismatched_reference == Approx(3 * token));  // its own
}

TEST_CASE("progress counts the examples done, mismatched completions on top") {
  rlalgo::support::Bandit uniform(4);
  std::vector<std::int64_t> told;
  const auto progress = [&](std::int64_t examples) { told.push_back(examples); };
  sampler::precompute_reference<loss::RowKind::pairs>(uniform, answers(2), {.batch_size = 2, .progress = progress});
  CHECK(told == std::vector<std::int64_t>{2, 3});
  told.clear();
  sampler::precompute_reference<loss::RowKind::unpaired>(
      uniform, answers(1), {.batch_size = 1, .examples_per_step = 2, .mismatched = true, .progress = progress});
  CHECK(told == std::vector<std::int64_t>{1, 2, 3, 4, 5, 6});
}

TEST_CASE("the cache is used for the same weights and data only") {
  const rlalgo::support::ScratchDirectory scratch;
  rlalgo::support::Bandit uniform(4), other(8);
  const sampler::PrecomputeConfig config{.directory = scratch.path(), .model_identity = "a"};
  const auto run = [&](rlalgo::support::Bandit& model, sampler::PrecomputeConfig c,
                       const std::shared_ptr<data::AnswerSet>& set) {
    return sampler::precompute_reference<loss::RowKind::pairs>(model, set, c);
  };
  CHECK_FALSE(run(uniform, config, answers(2)));
  const auto again = answers(2);
  CHECK(run(other, config, again));  // not scored again: the numbers are the first model's
  CHECK(again->answer(0).reference_row == Approx(3 * token));
  sampler::PrecomputeConfig changed = config;
  changed.model_identity = "b";
  CHECK_FALSE(run(other, changed, answers(2)));
  changed = config;
  changed.ld_alpha = 0.5;
  CHECK_FALSE(run(uniform, changed, answers(2)));
  const auto fewer = std::make_shared<data::AnswerSet>(2);
  fewer->append(*again, 0);
  CHECK_FALSE(run(uniform, config, fewer));
}
