#include <loss/pair_batch.hpp>

#include <rlalgo/loss/direct_preference.hpp>
#include <rlalgo/loss/squared_objectives.hpp>

using namespace pair_batch;
using namespace rlalgo::loss;

TEST_CASE("ipo: the squared distance of mean log-ratios to 1/(2β)") {
  const DirectPreference<Ipo> small({.beta = 0.1}), large({.beta = 0.5});
  check_relative(value(small, pairs({p1})), 21.0069444444, 1e-11);
  check_relative(value(large, pairs({p2})), 2.18617346939, 1e-11);
  check_relative(value(small, pairs({wide})), 1225);
  check_relative(value(small, pairs({narrow})), 2025);
  check_relative(slopes(small, pairs({p1}))[0], -2.29166666667, 1e-11);
  check_relative(slopes(small, pairs({p1}))[1], 1.52777777778, 1e-11);
  check_relative(slopes(large, pairs({p2}))[0], -0.591428571429, 1e-11);
  check_relative(slopes(large, pairs({p2}))[1], 0.422448979592, 1e-11);
  check_relative(value(small, {{-5, -5, 3}, {-7, -7, 2}}), 25);  // policy = reference: 1/(4β²)
  check_gradient(small, batch(pairs({p1, p2, third})));
  check_invariance(small, batch(pairs({p1, p2, third})));
}

TEST_CASE("sppo_hard: each log-ratio towards ±1/(2β)") {
  const DirectPreference<SppoHard> small({.beta = 0.1}), large({.beta = 0.5});
  check_relative(value(small, pairs({p1})), 32);
  check_relative(value(large, pairs({p2})), 11.3125);
  check_relative(value(small, pairs({wide})), 125050);
  check_relative(value(small, pairs({narrow})), 135050);
  check_relative(slopes(small, pairs({p1}))[0], -8);
  check_relative(slopes(small, pairs({p1}))[1], 8);
  check_relative(slopes(large, pairs({p2}))[0], -5);
  check_relative(slopes(large, pairs({p2}))[1], 4.5);
  check_invariance(small, batch(pairs({p1, p2, third})));
}
