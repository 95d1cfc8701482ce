// KTO: learning from single answers marked good or bad, as a person values gains and losses.
//
//   L(θ) = E [ λ_y·(1 − v) ],  v = σ(β(r − z)) for desirable answers, σ(β(z − r)) for undesirable ones
//   r = log π_θ(y|x)/π_ref(y|x),   z = max(0, mean of log π_θ(y'|x)/π_ref(y'|x)) over mismatched pairs (x, y')
//
// Source: Ethayarajh et al., "KTO: Model Alignment as Prospect Theoretic Optimization", arXiv 2402.01306, eq. 8.
// Symbols: λ_D, λ_U → method.desirable_weight, method.undesirable_weight; β → method.beta; labels → data::Answer::desirable.
// Reduction: mean over the rows of the optimizer step and all ranks; z is one number per step (loss/prospect.hpp).
// Metrics: docs/algorithms/kto.md.
// Errors: those of trainer/trainer.hpp and sampler/preferences.hpp.
// Departures: see loss/prospect.hpp.
#pragma once

#include <rlalgo/loss/prospect.hpp>
#include <rlalgo/trainer/offline.hpp>

namespace rlalgo {

template <class Value = loss::KahnemanTversky>
struct BasicKto {
  using Loss = loss::Prospect<Value>;

  static constexpr trainer::MethodHooks hooks{.run = true};
  // Answers are taken in dataset order, so that every row keeps its neighbour.
  template <class O>
  struct Run : trainer::BasicOfflineConfig<O> {
    Run() {
      this->sampling.micro_batch_size = 2;
      this->sampling.shuffle = false;
    }
  };
};
using Kto = BasicKto<>;

}  // namespace rlalgo
