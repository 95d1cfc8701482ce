#include <loss/pair_batch.hpp>

#include <rlalgo/loss/direct_preference.hpp>
#include <rlalgo/loss/pointwise_objectives.hpp>

using namespace pair_batch;
using namespace rlalgo::loss;

namespace {

template <class O>
void check_golden(const std::vector<double>& values, const std::vector<double>& slopes1,
                  const std::vector<double>& slopes2) {
  const DirectPreference<O> small({.beta = 0.1}), large({.beta = 0.5});
  check_relative(value(small, pairs({p1})), values[0]);
  check_relative(value(large, pairs({p2})), values[1]);
  check_relative(value(small, pairs({wide})), values[2], 1e-8);
  check_relative(value(small, pairs({narrow})), values[3]);
  for (std::size_t i = 0; i < 2; ++i) {
    check_relative(slopes(small, pairs({p1}))[i], slopes1[i]);
    check_relative(slopes(large, pairs({p2}))[i], slopes2[i]);
  }
  check_gradient(small, batch(pairs({p1, p2, third})));
  check_invariance(small, batch(pairs({p1, p2, third})));
}

}  // namespace

TEST_CASE("pointwise objectives: values and slopes (60-digit arithmetic)") {
  check_golden<NcaPair>({1.33879332015, 1.85715684831, 15.0000000010, 35.0000000031},
                        {-0.0212531218782, 0.0237510406261}, {-0.259384024382, 0.162838716167});
  check_golden<BcoPair>({1.28879332015, 2.19057168439, 2.06124719654e-9, 50.0000000021},
                        {-0.0475020812521, 0.0475020812521}, {-0.339589349588, 0.325677432333});
  check_golden<ApoZero>({0.950041625042, 1.33053356384, 2.06124719442e-9, 1.99999999794},
                        {-0.0249376040193, 0.0249376040193}, {-0.108947496881, 0.113545852471});
  check_golden<ApoDown>({0.975145190166, 1.11900807856, 1, 1.00000000206}, {0.000185946748103, 0.0247516572712},
                        {0.0284051740903, 0.0805423227906});
}
