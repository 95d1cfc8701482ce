#include <loss/scored_batch.hpp>

#include <rlalgo/loss/sequence_ratio.hpp>

using namespace scored_batch;

TEST_CASE("the sequence ratio is the geometric mean over loss tokens, 1 for a row without any") {
  Scored s = two_rows();
  STATIC_REQUIRE(rlalgo::loss::RatioLevel<rlalgo::loss::SequenceRatio>);
  const auto ratio = [&] {
    return rlalgo::loss::SequenceRatio()(rlalgo::tensor::masked(s.log_prob - s.old_log_prob, s.mask), s);
  };
  check_close(ratio(), {1.2523227162, 1.1051709181}, 1e-9);  // e^((.3 − .1 + .1 + .6)/4), e^((.3 − .1)/2)
  s.mask = column({1, 1, 1, 1, 0, 0, 0, 0});
  s.row_length = column({4, 0});
  check_close(ratio(), {1.2523227162, 1}, 1e-9);
  // ∂c/∂x_t = c/n for every token of the row.
  check_close(gradient(ratio().sum(), s),
              std::vector<double>{0.31308067905, 0.31308067905, 0.31308067905, 0.31308067905, 0, 0, 0, 0}, 1e-9);
}
