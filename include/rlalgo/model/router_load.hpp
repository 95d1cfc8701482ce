// How evenly the routers of a pass spread tokens over experts, and the loss that asks for more.
//
//   f_e = Σ m_t [e ∈ C_lt] / N,   P_e = Σ m_t p_lte / N,   N = Σ m_t,   sums over layers l with experts and tokens t
//   balance = E · Σ_e f_e P_e           (k where all experts are alike, and at most E)
//
// Source: Fedus et al., Switch Transformers, arXiv 2101.03961, equations 4 – 6; over all layers at once, as transformers
// computes it (load_balancing_loss_func) for a batch of sequences that share nothing.
// Symbols: E experts, C the chosen k, p softmax of the router (experts.hpp). m_t: how many rows of the batch hold a token
// that a tree holds once; a row's last token is routed as well, although it predicts nothing.
// Shapes: weights [T]; chosen and likely [E] float32. ∂balance/∂p_lte = E·f_e·m_t/N: f has no gradient.
// Departure: transformers rounds p to bfloat16 in a bfloat16 model; here it is float32.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <rlalgo/model/experts.hpp>
#include <rlalgo/model/token_tree.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

// The tree with the last token of every row that has targets, as a segment of its own; its targets stay what they are.
[[nodiscard]] inline TokenTree with_last_tokens(TokenTree tree) {
  std::vector<std::int32_t> segment_of(tree.ids.size());
  for (std::size_t s = 0; s < tree.segments.size(); ++s)
    for (std::int64_t t = tree.segments[s].begin; t < tree.segments[s].end; ++t)
      segment_of[static_cast<std::size_t>(t)] = static_cast<std::int32_t>(s);
  for (std::size_t r = 0; r + 1 < tree.row_begin.size(); ++r) {
    if (tree.row_begin[r] == tree.row_begin[r + 1]) continue;
    const auto last = static_cast<std::size_t>(tree.row_begin[r + 1] - 1);
    const auto source = static_cast<std::size_t>(tree.source[last]);
    const std::int64_t position = tree.positions[source] + 1, begin = tree.tokens();
    tree.segments.push_back({begin, begin + 1, segment_of[source], position});
    if (!tree.routed_experts.empty())
      tree.routed_experts.insert(tree.routed_experts.end(), tree.routed_experts.size() / tree.ids.size(),
                                 chosen_by_router);
    tree.ids.push_back(tree.target[last]);
    tree.positions.push_back(position);
  }
  return tree;
}

// How many rows hold each token of what with_last_tokens() made: one for each path from the root to a last token.
[[nodiscard]] inline std::vector<double> rows_of_tokens(const TokenTree& tree) {
  std::vector<double> out(tree.ids.size(), 0.0);
  std::size_t rows = 0;
  for (std::size_t r = 0; r + 1 < tree.row_begin.size(); ++r) rows += tree.row_begin[r] < tree.row_begin[r + 1] ? 1 : 0;
  for (std::size_t s = tree.segments.size() - rows; s < tree.segments.size(); ++s) {
    std::int64_t end = tree.segments[s].prefix_length + 1;
    for (auto at = static_cast<std::int32_t>(s); at >= 0 && end > 0;
         at = tree.segments[static_cast<std::size_t>(at)].parent) {
      const Segment& one = tree.segments[static_cast<std::size_t>(at)];
      for (std::int64_t i = one.prefix_length; i < end; ++i)
        out[static_cast<std::size_t>(one.begin + i - one.prefix_length)] += 1.0;
      end = std::min(end, one.prefix_length);
    }
  }
  return out;
}

// What the routers of one pass did.
class RouterLoad {
 public:
  // `weights` [T]: m. `strength`: what the balance is multiplied by in the loss.
  RouterLoad(Tensor weights, double strength)
      : weights_(std::move(weights)), strength_(strength), tokens_(weights_.sum()) {}

  // Of one layer; not of a layer that is computed again.
  void add(const Routing& routing) {
    if (complete_) return;
    const Tensor& p = routing.probabilities;
    const Tensor m = weights_.to(p.scalar_type());
    if (!chosen_.defined()) chosen_ = p.new_zeros({p.size(1)}), likely_ = p.new_zeros({p.size(1)});
    chosen_.scatter_add_(0, routing.experts.view({-1}), m.repeat_interleave(routing.experts.size(1)));
    likely_.add_(p.t().mv(m));
    ++layers_;
  }
  // Of all layers: add() has no effect from now on.
  void complete() { complete_ = true; }

  // []; 0 where no layer has experts.
  [[nodiscard]] Tensor balance() const {
    if (!chosen_.defined()) return tokens_.new_zeros({});
    const Tensor n = tokens_.to(chosen_.scalar_type()).mul(static_cast<double>(layers_));
    return chosen_.div(n).mul(likely_.div(n)).sum().mul(static_cast<double>(chosen_.size(0)));
  }
  // strength · ∂balance/∂p of a layer, [T, E].
  [[nodiscard]] Tensor gradient() const {
    const Tensor n = tokens_.to(chosen_.scalar_type()).mul(static_cast<double>(layers_));
    const Tensor each = chosen_.div(n.square()).mul(strength_ * static_cast<double>(chosen_.size(0)));  // [E]
    return weights_.to(chosen_.scalar_type()).unsqueeze(1).mul(each.unsqueeze(0));
  }

 private:
  Tensor weights_;  // [T]
  double strength_;
  Tensor tokens_;            // [] Σ m
  Tensor chosen_, likely_;   // [E]
  std::int64_t layers_ = 0;  // with experts
  bool complete_ = false;
};

}  // namespace rlalgo::model
