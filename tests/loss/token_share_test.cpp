#include <loss/scored_batch.hpp>

#include <rlalgo/loss/any_parts.hpp>
#include <rlalgo/loss/fixed_length.hpp>
#include <rlalgo/loss/global_token_count.hpp>
#include <rlalgo/loss/length_weighted.hpp>
#include <rlalgo/loss/sequence_mean.hpp>
#include <rlalgo/loss/token_mean.hpp>
#include <rlalgo/loss/token_share.hpp>

namespace {
using namespace scored_batch;
using namespace rlalgo::loss;

// What a reduction says of itself is what it does.
template <class R>
void keeps_its_word(const R& reduction) {
  const std::vector<double> losses = {1, 2, 3, 4, 5, 7, 100, 100};
  const Scored s = two_rows();
  const auto value = [&](double tokens, double rows) {
    return reduction(column(losses), s, Counts{.rows = rows, .tokens = tokens, .micro_batches = 5})
        .template item<double>();
  };
  const TokenShare share = token_share(reduction);
  CHECK(value(40, 8) == Approx(share == TokenShare::all ? value(16, 8) * 0.4 : value(16, 8)).epsilon(1e-14));
  CHECK(value(16, 20) == Approx(share == TokenShare::rows ? value(16, 8) * 0.4 : value(16, 8)).epsilon(1e-14));
  CHECK(token_share(reduction) != TokenShare::mixed);
  CHECK(token_share(AnyReduction(AnyReduction::of(reduction))) == token_share(reduction));
}

struct Silent {};
}  // namespace

TEST_CASE("a reduction says how it depends on the tokens and the rows of the step") {
  keeps_its_word(GlobalTokenCount());
  keeps_its_word(TokenMean());
  keeps_its_word(FixedLength({.max_completion_length = 4}));
  keeps_its_word(LengthWeighted());
  keeps_its_word(SequenceMean());
  CHECK(token_share(GlobalTokenCount()) == TokenShare::all);
  CHECK(token_share(SequenceMean()) == TokenShare::rows);
  CHECK(token_share(Silent()) == TokenShare::mixed);
}
