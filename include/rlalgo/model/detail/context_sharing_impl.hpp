// Definitions of context_sharing.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/model/context_ring.hpp>
#include <rlalgo/model/context_sharing.hpp>
#include <rlalgo/model/context_split.hpp>
#include <rlalgo/model/token_tree.hpp>
#include <rlalgo/tensor/custom_gradient.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::model {

RLALGO_INLINE SharedTree::SharedTree(const ContextSharing& sharing, const TokenTree& tree)
    : ring(sharing.ring),
      whole(&tree),
      split(split_tokens(tree, sharing.ring->size(), sharing.dealing)),
      part(part_of(tree, split[static_cast<std::size_t>(sharing.ring->rank())])),
      owners(owners_of_targets(tree, split)) {}

RLALGO_INLINE void SharedTree::gather(std::vector<Tensor*> columns) const {
  std::erase_if(columns, [](const Tensor* column) { return !column->defined(); });
  if (columns.empty()) return;
  const auto options = columns.front()->options().requires_grad(false);
  const auto index = [&](int rank) {
    std::int64_t begin = 0;
    for (int r = 0; r < rank; ++r) begin += owners.counts[static_cast<std::size_t>(r)];
    const auto* first = owners.targets.data() + begin;
    return tensor::from_values(
        std::span<const std::int64_t>(first, static_cast<std::size_t>(owners.counts[static_cast<std::size_t>(rank)])),
        at::TensorOptions().dtype(at::kLong).device(options.device()));
  };
  std::vector<Tensor> values;
  for (const Tensor* column : columns) values.push_back(column->detach().to(options.dtype()));
  Tensor all, own_index = index(ring->rank());
  {
    const c10::NoGradGuard no_grad;
    Tensor here = tensor::stack(values);  // [M, N']
    const std::int64_t many = here.size(0);
    all = here.new_empty({many, whole->targets()});
    for (int passes = 0; passes < ring->size(); ++passes) {
      const bool last = passes + 1 == ring->size();
      Tensor next;
      std::function<void()> arrive;
      if (!last) {
        next = here.new_empty({many, owners.counts[static_cast<std::size_t>(ring->origin(passes + 1))]});
        arrive = ring->pass(here, next);
      }
      all.index_copy_(1, index(ring->origin(passes)), here);
      if (last) break;
      arrive();
      here = std::move(next);
    }
  }
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const Tensor own = *columns[i];
    *columns[i] = tensor::attach_gradient(
        all.select(0, static_cast<std::int64_t>(i)).to(own.scalar_type()), {own},
        [own_index](const Tensor& grad) { return std::vector<Tensor>{grad.index_select(0, own_index)}; });
  }
}

}  // namespace rlalgo::model
