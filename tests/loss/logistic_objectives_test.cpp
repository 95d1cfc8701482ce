#include <loss/pair_batch.hpp>

#include <rlalgo/loss/direct_preference.hpp>
#include <rlalgo/loss/logistic_objectives.hpp>

using namespace pair_batch;
using namespace rlalgo::loss;

namespace {

// One row of the golden tables: values on P1, P2, X+, X−, slopes on P1 and P2 (60-digit arithmetic).
template <class O>
void check_golden(typename O::Config objective, const std::vector<double>& values, const std::vector<double>& slopes1,
                  const std::vector<double>& slopes2) {
  const auto with = [&](double beta) { return DirectPreference<O>({.beta = beta, .objective = objective}); };
  check_relative(value(with(0.1), pairs({p1})), values[0]);
  check_relative(value(with(0.5), pairs({p2})), values[1]);
  check_relative(value(with(0.1), pairs({wide})), values[2]);
  check_relative(value(with(0.1), pairs({narrow})), values[3]);
  const auto first = slopes(with(0.1), pairs({p1})), second = slopes(with(0.5), pairs({p2}));
  for (std::size_t i = 0; i < 2; ++i) {
    check_relative(first[i], slopes1[i]);
    check_relative(second[i], slopes2[i]);
  }
  const DirectPreference<O> loss({.beta = 0.1, .objective = objective});
  check_gradient(loss, batch(pairs({p1, p2, third})));
  check_invariance(loss, batch(pairs({p1, p2, third})));
}

}  // namespace

TEST_CASE("logistic objectives: values and slopes") {
  check_golden<Sigmoid>({}, {0.598138869382, 1.60041265160, 1.92874984796e-22, 50}, {-0.0450166002688, 0.0450166002688},
                        {-0.399093388870, 0.399093388870});
  check_golden<Hinge>({}, {0.8, 2.375, 0, 51}, {-0.1, 0.1}, {-0.5, 0.5});
  check_golden<ExoPair>({.label_smoothing = 0.001}, {2.42201462066, 5.01097500953, 0.00100050033358, 6.90775527898},
                        {-0.166003295683, 0.166003295683}, {-0.667031766655, 0.667031766655});
  check_golden<Robust>({.label_smoothing = 0.1}, {0.573138869382, 1.77228765160, -6.25, 56.25},
                       {-0.0575166002688, 0.0575166002688}, {-0.461593388870, 0.461593388870});
  check_golden<DiscoPop>({.tau = 0.05}, {0.814763141142, 1.60041265160, 1.92874984796e-22, 50},
                         {-0.0734176677398, 0.0734176677398}, {-0.399093388845, 0.399093388845});
  check_golden<SigmoidNorm>({}, {0.672530845419, 0.819930234030, 0.0181499279178, 4.01814992792},
                            {-0.0122396210028, 0.00815974733521}, {-0.0559537617281, 0.0399669726629});
}

TEST_CASE("discopop stays finite where the exponential alone overflows") {
  // x = β(r_w − r_l)
  for (const auto& [x, expected] :
       std::vector<std::pair<double, double>>{{-120, 120}, {-5, 5.00671534849}, {-0.1, 0.787402005818}}) {
    const DirectPreference<DiscoPop> loss({.beta = 1.0});
    check_relative(value(loss, {{x, 0, 3}, {-1, -1, 2}}), expected);
    for (const double slope : slopes(loss, {{x, 0, 3}, {-1, -1, 2}})) CHECK(std::isfinite(slope));
  }
}

TEST_CASE("label smoothing outside its range is loss.12") {
  const auto refused = [](auto make) {
    try {
      make();
    } catch (const rlalgo::core::Error& error) {
      return std::string(error.what()).starts_with("[rlalgo.loss.12]");
    }
    return false;
  };
  CHECK(refused([] { ExoPair({.label_smoothing = 0.0}); }));
  CHECK(refused([] { ExoPair({.label_smoothing = 1.0}); }));
  CHECK(refused([] { Robust({.label_smoothing = 0.5}); }));
  CHECK_FALSE(refused([] { Robust({.label_smoothing = 0.0}); }));
}
