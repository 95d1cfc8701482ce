// Whitened inner products of a group, by algebra on its n×n Gram matrix.
//
//   G = V diag(σ²) Vᵀ over the σ > tolerance·σ_max
//   P = V Vᵀ = (φ̃_i·φ̃_j)     a = V σ⁻² Vᵀ b     h = V σ⁻¹ Vᵀ b     w = V σ⁻¹ Vᵀ 1
//
// Source: "Energy-based fine-tuning", arXiv 2603.12248, eq. 8 and 49: φ̃ = (Σ̂⁺)^½ φ with the uncentred Σ̂ of the group's
// own samples, here without its 1/n, as both released implementations have it. Their D×D matrix, W = U σ⁻¹ Uᵀ with U of
// the features' SVD, gives the same numbers: P, and a_j = φ̃_j·φ̃_y, ‖φ̃_y‖ = ‖a‖.
//   feature   the ground truth is whitened with the samples' matrix (the paper)
//   sample    the samples are mixed by the n×n W = V σ⁻¹ Vᵀ; the ground truth keeps its direction, times w_j
//             (the authors' code)
// Full rank makes P the identity: whitened similarity is left for duplicates alone. The tolerance acts on singular
// values, so on eigenvalues as its square, 1e-10: beyond float32, hence double precision throughout.
// All features 0: nothing is kept, and every product is 0. Shapes: P [n, n] row-major; a, h, w [n].
#pragma once

#include <cstddef>
#include <vector>

#include <rlalgo/feature/gram.hpp>

namespace rlalgo::feature {

enum class Whitening { none, feature, sample };

struct Whitened {
  std::size_t rank = 0;       // directions that were kept
  std::vector<double> among;  // [n, n] P
  std::vector<double> truth;  // [n] a: coefficients of the ground truth on the samples, least squares, shortest
  std::vector<double> half;   // [n] h
  std::vector<double> mixed;  // [n] w
};

[[nodiscard]] Whitened whiten(const Gram& gram, double tolerance = 1e-5);

}  // namespace rlalgo::feature

#ifndef RLALGO_COMPILED
#include <rlalgo/feature/detail/whitening_impl.hpp>
#endif
