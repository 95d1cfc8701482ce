#include <rlalgo/feature/matching.hpp>

#include <cmath>
#include <random>

#include <support/catch.hpp>

using namespace rlalgo;
using feature::Matching;
using feature::Whitening;

namespace {

using Rows = std::vector<std::vector<double>>;

Matching match(const Rows& rows, const std::vector<double>& truth, Whitening whitening = Whitening::none) {
  return feature::match(feature::gram(rows, truth), {.whitening = whitening});
}

void check(const std::vector<double>& found, const std::vector<double>& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == Approx(expected[i]).margin(6e-7));
}

const Rows three = {{1, 0}, {0, 1}, {.6, .8}};
const Rows duplicates = {{1, 0, 0, 0}, {1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}};
const Rows same(4, {.6, .8});

}  // namespace

// Cases A to E of the paper's arithmetic, to the six digits that are given by hand; whitening_test.cpp compares with
// the D×D matrix at 1e-9.
TEST_CASE("rewards of three samples in the plane") {
  Matching m = match(three, {.8, .6});
  check(m.alignment, {1.6, 1.2, 1.92});
  check(m.diversity, {.6, .8, 1.4});
  CHECK(m.mismatch == Approx(.071111).margin(5e-7));
  m = match(three, {.8, .6}, Whitening::feature);
  check(m.alignment, {1.539991, .713435, 1.848891});
  check(m.diversity, {.06, .16, .7});
  CHECK(m.mismatch == Approx(.058311).margin(5e-7));
  m = match(three, {.8, .6}, Whitening::sample);
  check(m.alignment, {1.394294, .909649, 1.92});
  check(m.diversity, {.06, .16, .7});
}

TEST_CASE("rewards of two samples") {
  const Rows two = {{1, 0, 0}, {.6, .8, 0}};
  Matching m = match(two, {.8, 0, .6});
  check(m.alignment, {1.6, .96});
  check(m.diversity, {1.2, 1.2});
  m = match(two, {.8, 0, .6}, Whitening::feature);
  check(m.alignment, {2.0, 0.0});
  check(m.diversity, {0.0, 0.0});
  CHECK(m.mismatch == Approx(.34).margin(1e-9));
  check(match(two, {.8, 0, .6}, Whitening::sample).alignment, {1.517893, .505964});
}

TEST_CASE("duplicates share a direction") {
  const std::vector<double> y(4, .5);
  Matching m = match(duplicates, y);
  check(m.alignment, {1, 1, 1, 1});
  check(m.diversity, {.666667, .666667, 0, 0});
  CHECK(m.mismatch == Approx(.375).margin(1e-9));
  m = match(duplicates, y, Whitening::feature);
  check(m.alignment, {.894427, .894427, 1.264911, 1.264911});
  check(m.diversity, {1.0 / 3, 1.0 / 3, 0, 0});
  CHECK(m.mismatch == Approx(.125).margin(1e-9));
  m = match(duplicates, y, Whitening::sample);
  check(m.alignment, {1, 1, 1, 1});
  check(m.diversity, {1.0 / 3, 1.0 / 3, 0, 0});
}

TEST_CASE("samples that are all the same") {
  Matching m = match(same, {1, 0});
  check(m.alignment, std::vector(4, 1.2));
  check(m.diversity, std::vector(4, 2.0));
  m = match(same, {1, 0}, Whitening::feature);
  check(m.alignment, std::vector(4, 2.0));
  check(m.diversity, std::vector(4, .5));
  CHECK(m.mismatch == Approx(.04).margin(1e-9));
}

TEST_CASE("distinct samples of full rank have no whitened diversity, and alignments of squared sum 4") {
  const Rows rows = {{1, 0, 0, 0}, {.6, .8, 0, 0}, {0, .6, .8, 0}, {0, 0, .6, .8}};
  const Matching m = match(rows, std::vector(4, .5), Whitening::feature);
  check(m.alignment, {.463241, 1.204427, .370593, 1.482371});
  check(m.diversity, std::vector(4, 0.0));
  CHECK(m.mismatch == Approx(.218872).margin(5e-7));
  double squares = 0;
  for (const double a : m.alignment) squares += a * a;
  CHECK(squares == Approx(4.0));
}

TEST_CASE("one sample has no diversity, and features of 0 no alignment") {
  for (const Whitening w : {Whitening::none, Whitening::feature, Whitening::sample}) {
    const Matching one = match({{3, 4}}, {4, 3}, w);
    CHECK(one.diversity == std::vector{0.0});
    CHECK(std::isfinite(one.mismatch));
    const Matching zero = match({{0, 0}, {0, 0}}, {4, 3}, w);
    CHECK(zero.alignment == std::vector{0.0, 0.0});
    CHECK(zero.diversity == std::vector{0.0, 0.0});
    const Matching no_truth = match({{1, 0}, {0, 1}}, {0, 0}, w);
    CHECK(no_truth.alignment == std::vector{0.0, 0.0});
    CHECK(match({}, {1, 0}, w).alignment.empty());
  }
  CHECK(match({{3, 4}}, {3, 4}).alignment[0] == Approx(2.0));
}

// −L + ‖φ_y‖² = mean_j(alignment_j‖φ_j‖‖φ_y‖ − diversity_j·(n − 1)/(2n) − ‖φ_j‖²/n): the loss by its definition.
TEST_CASE("mismatch is the distance of the mean to the ground truth") {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  Rows rows(5, std::vector<double>(9));
  std::vector<double> truth(9);
  for (auto& row : rows)
    for (double& v : row) v = normal(random);
  for (double& v : truth) v = normal(random);
  double expected = 0;
  for (std::size_t d = 0; d < 9; ++d) {
    double mean = 0;
    for (const auto& row : rows) mean += row[d] / 5;
    expected += (mean - truth[d]) * (mean - truth[d]);
  }
  CHECK(match(rows, truth).mismatch == Approx(expected).epsilon(1e-12));
}
