#include <loss/pair_batch.hpp>

#include <rlalgo/loss/alignment_by_transport.hpp>
#include <rlalgo/loss/direct_preference.hpp>

using namespace pair_batch;
using namespace rlalgo::loss;

TEST_CASE("aot compares sorted differences, aot_unpaired sorted log-ratios") {
  const auto three = pairs({p1, p2, third});  // aot: d = −2.75, 0, 0.5; unpaired: −0.5, −0.25, −1.5
  check_relative(value(DirectPreference<Aot>({.beta = 0.1}), three), 0.733892498754);
  check_relative(value(DirectPreference<AotUnpaired>({.beta = 0.1}), three), 0.731713999776);
  check_relative(value(DirectPreference<Aot>({.beta = 0.1, .objective = {.label_smoothing = 0.1}}), three),
                 0.726392498754);
  check_relative(value(DirectPreference<AotUnpaired>({.beta = 0.1, .objective = {.label_smoothing = 0.1}}), three),
                 0.724213999776);
  const auto extreme = pairs({wide, narrow});  // d = −500, 500 and 0, 0
  check_relative(value(DirectPreference<Aot>({.beta = 0.1}), extreme), 25);
  check_relative(value(DirectPreference<AotUnpaired>({.beta = 0.1}), extreme), 0.693147180560);
}

TEST_CASE("aot: gradients flow through the order, and pairs may come in any order") {
  const DirectPreference<Aot> loss({.beta = 0.3, .objective = {.label_smoothing = 0.05}});
  const DirectPreference<AotUnpaired> unpaired({.beta = 0.3});
  const Scored s = batch(pairs({p1, p2, third}));
  check_gradient(loss, s);
  check_gradient(unpaired, s);
  const double whole = loss(s, counts_of(s)).value.item<double>();
  CHECK(loss(take(s, {4, 5, 0, 1, 2, 3}), counts_of(s)).value.item<double>() == Approx(whole).epsilon(1e-12));
}
