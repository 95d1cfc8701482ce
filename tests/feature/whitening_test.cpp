#include <rlalgo/feature/whitening.hpp>

#include <random>

#include <Eigen/Dense>

#include <support/catch.hpp>

using namespace rlalgo;

namespace {

using Rows = std::vector<std::vector<double>>;

// The released implementations' way: the D×D matrix W = U σ⁻¹ Uᵀ of the SVD of the features.
Eigen::MatrixXd whitening_matrix(const Eigen::MatrixXd& x) {
  const Eigen::JacobiSVD<Eigen::MatrixXd> svd(x.transpose(), Eigen::ComputeThinU | Eigen::ComputeThinV);
  Eigen::VectorXd inverse = svd.singularValues();
  for (double& s : inverse) s = s > 1e-5 * svd.singularValues().maxCoeff() ? 1.0 / s : 0.0;
  return svd.matrixU() * inverse.asDiagonal() * svd.matrixU().transpose();
}

Eigen::MatrixXd matrix(const Rows& rows) {
  Eigen::MatrixXd out(rows.size(), rows.front().size());
  for (Eigen::Index i = 0; i < out.rows(); ++i)
    for (Eigen::Index d = 0; d < out.cols(); ++d)
      out(i, d) = rows[static_cast<std::size_t>(i)][static_cast<std::size_t>(d)];
  return out;
}

void check_against_matrix(const Rows& rows, const std::vector<double>& truth) {
  const feature::Whitened w = feature::whiten(feature::gram(rows, truth));
  const Eigen::MatrixXd x = matrix(rows), white = whitening_matrix(x), xw = x * white;
  const Eigen::VectorXd y = Eigen::Map<const Eigen::VectorXd>(truth.data(), x.cols()), yw = white * y;
  const Eigen::MatrixXd products = xw * xw.transpose();
  const Eigen::VectorXd with_truth = xw * yw, half = xw * y;
  const Eigen::Index n = x.rows();
  for (Eigen::Index i = 0; i < n; ++i) {
    for (Eigen::Index j = 0; j < n; ++j)
      CHECK(w.among[static_cast<std::size_t>(i * n + j)] == Approx(products(i, j)).margin(1e-9));
    CHECK(w.truth[static_cast<std::size_t>(i)] == Approx(with_truth(i)).margin(1e-9));
    CHECK(w.half[static_cast<std::size_t>(i)] == Approx(half(i)).margin(1e-9));
  }
  double squares = 0;
  for (const double a : w.truth) squares += a * a;
  CHECK(squares == Approx(yw.squaredNorm()).margin(1e-9));
}

}  // namespace

TEST_CASE("the closed form of the issue's first case") {
  const feature::Whitened w = feature::whiten(feature::gram(Rows{{1, 0}, {0, 1}, {.6, .8}}, std::vector{.8, .6}));
  CHECK(w.rank == 2);
  const std::vector<double> among = {.82, -.24, .3, -.24, .68, .4, .3, .4, .5};
  const std::vector<double> truth = {.512, .216, .48};
  const std::vector<double> half = {.631294, .375058, .678823}, mixed = {.669117, .558823, .848528};
  for (std::size_t i = 0; i < among.size(); ++i) CHECK(w.among[i] == Approx(among[i]).margin(1e-12));
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(w.truth[i] == Approx(truth[i]).margin(1e-12));
    CHECK(w.half[i] == Approx(half[i]).margin(5e-7));
    CHECK(w.mixed[i] == Approx(mixed[i]).margin(5e-7));
  }
}

TEST_CASE("the n x n form is the D x D matrix") {
  check_against_matrix({{1, 0}, {0, 1}, {.6, .8}}, {.8, .6});
  check_against_matrix({{1, 0, 0}, {.6, .8, 0}}, {.8, 0, .6});
  check_against_matrix({{1, 0, 0, 0}, {1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}}, {.5, .5, .5, .5});
  check_against_matrix({{.6, .8}, {.6, .8}, {.6, .8}, {.6, .8}}, {1, 0});
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  for (const std::size_t n : {1U, 2U, 4U, 7U}) {
    Rows rows(n, std::vector<double>(5));
    std::vector<double> truth(5);
    for (auto& row : rows)
      for (double& v : row) v = normal(random);
    for (double& v : truth) v = normal(random);
    check_against_matrix(rows, truth);
    if (n > 2) rows[1] = rows[2];
    check_against_matrix(rows, truth);
  }
}

TEST_CASE("a direction below the tolerance is left out") {
  const auto rank = [](double size) {
    return feature::whiten(feature::gram(Rows{{1, 0}, {0, size}}, std::vector{1.0, 1.0})).rank;
  };
  CHECK(rank(1.1e-5) == 2);
  CHECK(rank(0.9e-5) == 1);
  CHECK(feature::whiten(feature::gram(Rows{{1, 0}, {0, 1e-8}}, std::vector{1.0, 1.0}), 1e-9).rank == 2);
}

TEST_CASE("features of 0 whiten to 0") {
  const feature::Whitened w = feature::whiten(feature::gram(Rows{{0, 0}, {0, 0}}, std::vector{1.0, 2.0}));
  CHECK(w.rank == 0);
  CHECK(w.among == std::vector<double>(4, 0.0));
  CHECK(w.truth == std::vector<double>(2, 0.0));
  CHECK(feature::whiten(feature::gram({}, std::vector{1.0})).among.empty());
}
