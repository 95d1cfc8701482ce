// That a model shares the tokens of each batch with other ranks: over which ring, and how they are dealt.
//
// What is scored (Policy::score) has the same tree on all ranks of the ring, and the same results to the bit: each rank runs
// the layers and the head for its own tokens, and gets the numbers of the others' targets from them. The gradient of a score
// goes to the weights of the rank that owns its target: summed over the ranks of the ring it is that of one.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <rlalgo/model/context_ring.hpp>
#include <rlalgo/model/context_split.hpp>
#include <rlalgo/model/token_tree.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

struct ContextSharing {
  std::shared_ptr<ContextRing> ring = nullptr;  // null: nothing is shared
  Dealing dealing = Dealing::balanced;

  [[nodiscard]] bool shares() const { return ring != nullptr && ring->size() > 1; }
};

// One tree as this rank sees it.
struct SharedTree {
  SharedTree(const ContextSharing& sharing, const TokenTree& tree);

  std::shared_ptr<ContextRing> ring;
  const TokenTree* whole;  // must live as long as the forward pass
  std::vector<TokenSpans> split;
  ContextPart part;
  TargetOwners owners;

  // Columns [N'] of this rank's targets → the same of all targets [N]; each has the gradient of its own. Undefined columns stay
  // so.
  void gather(std::vector<Tensor*> columns) const;
};

}  // namespace rlalgo::model

#ifndef RLALGO_COMPILED
#include <rlalgo/model/detail/context_sharing_impl.hpp>
#endif
