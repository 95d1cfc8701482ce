// Definitions of whitening.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include <Eigen/Eigenvalues>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/feature/whitening.hpp>

namespace rlalgo::feature {

RLALGO_INLINE Whitened whiten(const Gram& gram, double tolerance) {
  const auto n = static_cast<Eigen::Index>(gram.samples);
  Whitened out{.rank = 0,
               .among = std::vector<double>(gram.among.size(), 0.0),
               .truth = std::vector<double>(gram.samples, 0.0),
               .half = std::vector<double>(gram.samples, 0.0),
               .mixed = std::vector<double>(gram.samples, 0.0)};
  if (n == 0) return out;
  const Eigen::Map<const Eigen::MatrixXd> products(gram.among.data(), n, n);  // symmetric
  const Eigen::Map<const Eigen::VectorXd> truth(gram.with_truth.data(), n);
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(products);
  const Eigen::VectorXd sigma = solver.eigenvalues().cwiseMax(0.0).cwiseSqrt();  // rising
  const double least = tolerance * sigma(n - 1);
  Eigen::MatrixXd among = Eigen::MatrixXd::Zero(n, n);
  Eigen::VectorXd a = Eigen::VectorXd::Zero(n), h = a, w = a;
  for (Eigen::Index k = 0; k < n; ++k) {
    if (!(sigma(k) > least)) continue;
    ++out.rank;
    const Eigen::VectorXd v = solver.eigenvectors().col(k);
    const double on_truth = v.dot(truth), on_ones = v.sum();
    among += v * v.transpose();
    a += v * (on_truth / (sigma(k) * sigma(k)));
    h += v * (on_truth / sigma(k));
    w += v * (on_ones / sigma(k));
  }
  std::copy_n(among.data(), gram.among.size(), out.among.begin());
  std::copy_n(a.data(), gram.samples, out.truth.begin());
  std::copy_n(h.data(), gram.samples, out.half.begin());
  std::copy_n(w.data(), gram.samples, out.mixed.begin());
  return out;
}

}  // namespace rlalgo::feature
