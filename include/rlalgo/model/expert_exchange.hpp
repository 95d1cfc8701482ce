// Experts that lie on other ranks (expert parallel): the rows of their tokens go there, and what the experts give comes back.
//
// A pass of a decoder whose gate has one (layer_gate.hpp) asks it in the place of the experts' products, once forward and once backward
// for each layer with experts, and forward once more where a layer is computed again. Rows are sorted by expert: those of expert e are
// begin[e] … begin[e + 1] (experts.hpp). A rank may have none; all ranks that share the experts ask alike.
#pragma once

#include <cstdint>
#include <vector>

#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

using tensor::Tensor;

class ExpertExchange {
 public:
  ExpertExchange() = default;
  ExpertExchange(const ExpertExchange&) = delete;
  ExpertExchange& operator=(const ExpertExchange&) = delete;
  virtual ~ExpertExchange() = default;

  // What the experts give for `rows` [P, H]: [P, H]. `begin` [E + 1].
  [[nodiscard]] virtual Tensor forward(std::int64_t layer, const Tensor& rows,
                                       const std::vector<std::int64_t>& begin) = 0;

  struct Gradient {
    Tensor rows;     // [P, H]
    Tensor weights;  // [P], of the factors c
  };
  // Of the rows of the layer's forward pass, for ∂y `grad` [P, H] of each row's token and the factors c `weights` [P, 1]. The
  // gradients of the experts' weights are added where the experts are.
  [[nodiscard]] virtual Gradient backward(std::int64_t layer, const Tensor& grad, const Tensor& weights) = 0;
};

}  // namespace rlalgo::model
