#include <rlalgo/feature/group_estimators.hpp>

#include <rlalgo/feature/matching.hpp>
#include <support/catch.hpp>

using namespace rlalgo;
using feature::Whitening;

namespace {

using Rows = std::vector<std::vector<double>>;

void check(const std::vector<double>& found, const std::vector<double>& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == Approx(expected[i]).margin(6e-7));
}

template <class E>
std::vector<double> advantages(const E& estimator, const Rows& rows, const std::vector<double>& truth,
                               Whitening whitening = Whitening::none) {
  const feature::Matching m = feature::match(feature::gram(rows, truth), {.whitening = whitening});
  return estimator(m.alignment, m.diversity);
}

const Rows three = {{1, 0}, {0, 1}, {.6, .8}};
const std::vector<double> y3 = {.8, .6};

}  // namespace

TEST_CASE("advantages of three samples, by hand") {
  check(advantages(feature::Reward(), three, y3), {1.0, .4, .52});
  check(advantages(feature::LeaveOneOut(), three, y3), {.54, -.36, -.18});
  check(advantages(feature::LeaveOutPairs(), three, y3), {1.04, -.16, -.88});
  check(advantages(feature::GroupNorm(), three, y3), {1.133893, -.755929, -.377964});
  check(advantages(feature::LeaveOneOut(), three, y3, Whitening::feature), {.628828, -.761006, .132178});
  check(advantages(feature::LeaveOutPairs(), three, y3, Whitening::feature), {.998828, -.541006, -.457822});
  check(advantages(feature::LeaveOneOut(), three, y3, Whitening::sample), {.349469, -.527498, .178028});
  check(advantages(feature::LeaveOutPairs(), three, y3, Whitening::sample), {.719469, -.307498, -.411972});
}

TEST_CASE("at two samples the naive baseline takes all diversity away, the corrected one none") {
  const Rows two = {{1, 0, 0}, {.6, .8, 0}};
  const std::vector<double> y = {.8, 0, .6};
  check(advantages(feature::LeaveOneOut(), two, y), {.64, -.64});
  check(advantages(feature::LeaveOutPairs(), two, y), {-.56, -1.84});
  check(advantages(feature::LeaveOneOut(), two, y, Whitening::feature), {2.0, -2.0});
  check(advantages(feature::LeaveOneOut(), two, y, Whitening::sample), {1.011929, -1.011929});
}

TEST_CASE("duplicates are worse than the others") {
  const Rows rows = {{1, 0, 0, 0}, {1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}};
  const std::vector<double> y(4, .5);
  check(advantages(feature::LeaveOneOut(), rows, y), {-.444444, -.444444, .444444, .444444});
  check(advantages(feature::LeaveOutPairs(), rows, y), {-.666667, -.666667, .666667, .666667});
  check(advantages(feature::LeaveOneOut(), rows, y, Whitening::feature), {-.469211, -.469211, .469211, .469211});
  check(advantages(feature::LeaveOutPairs(), rows, y, Whitening::feature), {-.580323, -.580323, .580323, .580323});
  check(advantages(feature::LeaveOneOut(), rows, y, Whitening::sample), {-.222222, -.222222, .222222, .222222});
  check(advantages(feature::LeaveOutPairs(), rows, y, Whitening::sample), {-1.0 / 3, -1.0 / 3, 1.0 / 3, 1.0 / 3});
}

TEST_CASE("samples that are all the same have no advantage") {
  const Rows rows(4, {.6, .8});
  for (const Whitening w : {Whitening::none, Whitening::feature}) {
    check(advantages(feature::LeaveOneOut(), rows, {1, 0}, w), std::vector(4, 0.0));
    check(advantages(feature::LeaveOutPairs(), rows, {1, 0}, w), std::vector(4, 0.0));
    for (const double a : advantages(feature::GroupNorm(), rows, {1, 0}, w)) CHECK(std::abs(a) < 1e-6);
  }
}

TEST_CASE("one sample") {
  const std::vector<double> al = {1.5}, dv = {0.0};
  CHECK(feature::LeaveOutPairs()(al, dv) == al);
  CHECK(feature::Reward()(al, dv) == al);
  CHECK(feature::LeaveOneOut()(al, dv) == std::vector{0.0});
  CHECK(feature::GroupNorm()(al, dv) == std::vector{0.0});
}

// The baseline of sample j must not change with anything that only sample j decides.
TEST_CASE("the corrected baseline of a sample does not know the sample") {
  const auto baseline = [](const Rows& rows) {
    const feature::Matching m = feature::match(feature::gram(rows, y3));
    const auto a = feature::LeaveOutPairs()(m.alignment, m.diversity);
    return m.alignment[0] - m.diversity[0] - a[0];
  };
  // Diversity is an average over the n − 1 others, of which sample 0 is one: its terms are gone from the baseline.
  CHECK(baseline({{1, 0}, {0, 1}, {.6, .8}}) == Approx(baseline({{.28, .96}, {0, 1}, {.6, .8}})).epsilon(1e-12));
}

TEST_CASE("an estimator chosen at run time") {
  const std::vector<double> al = {1.0, 2.0}, dv = {0.5, 0.0};
  CHECK(feature::AnyGroupEstimator(feature::Reward())(al, dv) == std::vector{0.5, 2.0});
  CHECK(feature::AnyGroupEstimator()(al, dv) == feature::LeaveOutPairs()(al, dv));
}
