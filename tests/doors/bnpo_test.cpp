#include <rlalgo/bnpo.hpp>
#include <support/catch.hpp>
#include <support/door.hpp>

using namespace rlalgo;

namespace {
rlalgo::support::DoorStep run_parts(std::int64_t parts) { return rlalgo::support::run_door<Bnpo>(parts); }
}  // namespace

TEST_CASE("bnpo: one micro-batch is the token mean of the step") {
  const rlalgo::support::DoorStep step = run_parts(1);
  const double tokens = rlalgo::support::token_count(step.episodes);
  CHECK(step.result.grad_norm ==
        Approx(rlalgo::support::expected_norm(step.episodes, [&](double) { return 1.0 / tokens; })).epsilon(1e-12));
}

TEST_CASE("bnpo: every micro-batch counts the same, whatever its number of tokens") {
  const rlalgo::support::DoorStep step = run_parts(2);
  std::vector<double> tokens = {0, 0};
  for (std::size_t i = 0; i < 12; ++i)
    tokens[i / 6] += static_cast<double>(step.episodes[i].first().completion_ids.size());
  std::vector<data::Episode> weighted = step.episodes;
  for (std::size_t i = 0; i < 12; ++i) weighted[i].advantage *= 1.0 / (2.0 * tokens[i / 6]);
  CHECK(step.result.grad_norm ==
        Approx(rlalgo::support::expected_norm(weighted, [](double) { return 1.0; })).epsilon(1e-12));
}
