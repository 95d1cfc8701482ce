#include <rlalgo/model/ring_attention.hpp>

#include <cstddef>
#include <memory>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <rlalgo/distributed/context_group.hpp>
#include <rlalgo/model/aten_operations.hpp>
#include <rlalgo/model/cpu_operations.hpp>

#include <support/catch.hpp>
#include <support/forests.hpp>
#include <support/thread_world.hpp>

using namespace rlalgo;
using model::Dealing;

namespace {

at::Tensor numbers(const model::TokenSpans& spans) {
  std::vector<at::Tensor> out = {at::empty({0}, at::kLong)};
  for (const auto& span : spans) out.push_back(at::arange(span.begin, span.end, at::kLong));
  return at::cat(out);
}

// The largest difference of what the ranks of a ring compute together from what one computes alone, values and gradients.
double apart(const model::TokenTree& tree, int ranks, Dealing dealing, std::int64_t window,
             const model::Operations& operations, at::ScalarType type) {
  const auto make = [&](int heads) { return at::randn({tree.tokens(), heads, 6}, type); };
  const auto q = make(4), k = make(2), v = make(2), grad = make(4);
  const model::AttentionPlan plan = model::plan_attention(tree, window);
  const model::AttentionLayout layout = operations.lay_out(plan, at::kCPU);
  const model::AttentionOutput out = operations.attention(q, k, v, layout);
  const model::AttentionGradient gradient = operations.attention_backward(grad, q, k, v, out, layout);
  const auto split = model::split_tokens(tree, ranks, dealing);
  std::vector<double> most(static_cast<std::size_t>(ranks), 0.0);
  support::on_ranks(ranks, [&](const std::shared_ptr<distributed::World>& world) {
    const c10::NoGradGuard no_grad;
    world->set_context_size(ranks);
    const auto rank = static_cast<std::size_t>(world->rank());
    const model::RingAttention ring(std::make_shared<distributed::ContextGroup>(world), operations, plan, split,
                                    at::kCPU);
    const at::Tensor index = numbers(split[rank]);
    const auto own = [&](const at::Tensor& x) { return x.index_select(0, index); };
    const model::AttentionOutput part = ring.forward(own(q), own(k), own(v));
    const model::AttentionGradient mine = ring.backward(own(grad), own(q), own(k), own(v), part);
    for (const auto& [one, other] :
         {std::pair{part.value, out.value}, std::pair{part.log_sum, out.log_sum}, std::pair{mine.q, gradient.q},
          std::pair{mine.k, gradient.k}, std::pair{mine.v, gradient.v}})
      if (index.numel() > 0) most[rank] = std::max(most[rank], (one - own(other)).abs().max().item<double>());
  });
  return *std::max_element(most.begin(), most.end());
}

}  // namespace

TEST_CASE("attention around a ring is that of one rank, values and gradients, however the tokens are dealt") {
  const model::CpuOperations cpu;
  const model::AtenOperations aten;
  for (const auto& segments : support::forests)
    for (const std::int64_t window : {std::int64_t{0}, std::int64_t{5}})
      for (const int ranks : {2, 3, 4})
        for (const Dealing dealing : {Dealing::neighbours, Dealing::balanced, Dealing::stripes}) {
          const model::TokenTree tree = support::tree_of(segments);
          CHECK(apart(tree, ranks, dealing, window, cpu, at::kDouble) < 1e-11);
          if (ranks == 3) CHECK(apart(tree, ranks, dealing, window, aten, at::kDouble) < 1e-11);
        }
}

TEST_CASE("attention around a ring in float32 and bfloat16 is that of one rank to rounding") {
  const model::CpuOperations cpu;
  const model::AtenOperations aten;
  const model::TokenTree tree = support::tree_of(support::forests[4]);
  for (const model::Operations* operations :
       {static_cast<const model::Operations*>(&cpu), static_cast<const model::Operations*>(&aten)}) {
    CHECK(apart(tree, 2, Dealing::balanced, 0, *operations, at::kFloat) < 2e-5);
    CHECK(apart(tree, 2, Dealing::balanced, 0, *operations, at::kBFloat16) < 0.15);
  }
}
