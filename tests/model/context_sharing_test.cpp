#include <rlalgo/model/context_sharing.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <rlalgo/core/philox.hpp>
#include <rlalgo/distributed/context_group.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/lora.hpp>
#include <rlalgo/model/tree_builder.hpp>

#include <support/bandit.hpp>
#include <support/catch.hpp>
#include <support/decoders.hpp>
#include <support/scratch.hpp>
#include <support/thread_world.hpp>

using namespace rlalgo;
using model::Dealing;

namespace {

struct Row {
  std::vector<std::int32_t> prompt, completion;
};

std::vector<std::int32_t> draw(std::uint64_t stream, std::size_t n) {
  std::vector<std::int32_t> out(n);
  for (std::size_t i = 0; i < n; ++i)
    out[i] = static_cast<std::int32_t>(core::uniform({5, core::Stream::test}, stream, i) * 23);
  return out;
}

model::TokenTree tree_of(const std::vector<Row>& rows) {
  std::vector<model::Sequence> views;
  for (const auto& row : rows) views.push_back({row.prompt, row.completion});
  return model::build_tree(views);
}

// A group with one prompt, a pair that shares its beginning, a long row, packed side by side; and less than a token a rank.
std::vector<model::TokenTree> trees() {
  const auto prompt = draw(1, 9);
  std::vector<model::TokenTree> out;
  out.push_back(
      tree_of({{prompt, draw(2, 5)}, {prompt, draw(3, 12)}, {prompt, draw(4, 1)}, {draw(5, 4), draw(6, 40)}}));
  out.push_back(tree_of({{draw(7, 3), draw(8, 150)}}));
  out.push_back(tree_of({{draw(9, 1), draw(10, 1)}}));
  out.push_back(tree_of({{draw(9, 2), draw(10, 1)}}));
  return out;
}

std::unique_ptr<model::Decoder> decoder(const std::string& type, bool adapted) {
  auto out = model::random_decoder(model::parse_hf_config(support::small_config(type), "test"), 3, at::kDouble);
  if (adapted) {
    model::attach_lora(
        *out, {.r = 3, .alpha = 4, .dropout = 0.4, .target_pattern = "all-linear", .init = model::LoraInit::random}, 7);
  }
  const c10::NoGradGuard no_grad;
  for (auto& p : out->parameters())
    p.value.add_(at::sin(at::arange(p.value.numel(), at::kDouble)).view(p.value.sizes()) * 0.1);
  return out;
}

// Every number of a score, and the gradients of a function of log-probs and entropies.
std::vector<at::Tensor> results(model::Decoder& policy, const model::TokenTree& tree) {
  const model::Scores scores = policy.score(tree, {.temperature = 0.7,
                                                   .entropy = true,
                                                   .entropy_gradient = true,
                                                   .draw = 5,
                                                   .token_statistics = true,
                                                   .collision = true});
  const auto weight = at::cos(at::arange(tree.targets(), at::kDouble));
  (scores.log_prob.mul(weight).sum() + scores.entropy.square().sum()).backward();
  std::vector<at::Tensor> out = {scores.log_prob.detach(), scores.entropy.detach(), scores.mean_logit, scores.greedy,
                                 scores.collision};
  for (auto& p : policy.parameters())
    out.push_back(p.value.grad().defined() ? p.value.grad().clone() : at::zeros_like(p.value));
  return out;
}

void check(const std::string& type, bool adapted, bool checkpointed, int ranks, Dealing dealing) {
  for (model::TokenTree& tree : trees()) {
    if (adapted && tree.targets() > 1) tree.untempered = 1;
    const auto alone = decoder(type, adapted);
    const std::vector<at::Tensor> expected = results(*alone, tree);
    std::vector<std::vector<at::Tensor>> found(static_cast<std::size_t>(ranks));
    support::on_ranks(ranks, [&](const std::shared_ptr<distributed::World>& world) {
      world->set_context_size(ranks);
      const auto policy = decoder(type, adapted);
      policy->set_checkpointing(checkpointed);
      policy->share_context({std::make_shared<distributed::ContextGroup>(world), dealing});
      found[static_cast<std::size_t>(world->rank())] = results(*policy, tree);
    });
    for (std::size_t i = 0; i < expected.size(); ++i) {
      at::Tensor sum = at::zeros_like(expected[i]);
      for (const auto& own : found) {
        if (i < 5) CHECK(at::equal(own[i], found[0][i]));  // the numbers of all targets, the same bits on all ranks
        sum += own[i];
      }
      if (i < 5) sum /= ranks;
      CHECK(sum.allclose(expected[i], 1e-10, 1e-10));
    }
  }
}

}  // namespace

TEST_CASE("ranks that share the tokens of a batch score as one, and the sum of their gradients is that of one") {
  check("llama", false, false, 2, Dealing::balanced);
  check("qwen3", false, false, 3, Dealing::balanced);
  check("qwen2", false, true, 4, Dealing::stripes);
  check("llama", false, false, 2, Dealing::neighbours);
  // Windows, scales and caps of scores, rotations by kind of layer, fused maps.
  check("gemma2", false, true, 3, Dealing::balanced);
  check("gemma3_text", false, false, 2, Dealing::stripes);
  check("phi3", false, false, 2, Dealing::balanced);
}

TEST_CASE("with an adapter and dropout, whose masks are those of one rank") {
  check("llama", true, false, 2, Dealing::balanced);
  check("qwen3", true, true, 3, Dealing::neighbours);
  check("gemma2", true, false, 2, Dealing::balanced);
  check("phi3", true, true, 2, Dealing::neighbours);
}

TEST_CASE("without gradients nothing is kept, and copies and features share nothing") {
  const model::TokenTree tree = trees().front();
  const auto alone = decoder("llama", false);
  const c10::NoGradGuard no_grad;
  const at::Tensor expected = alone->score(tree, {}).log_prob;
  const std::vector<std::int64_t> layers = {1, 2};
  support::on_ranks(2, [&](const std::shared_ptr<distributed::World>& world) {
    const c10::NoGradGuard no_grad_here;
    world->set_context_size(2);
    const auto policy = decoder("llama", false);
    policy->share_context({std::make_shared<distributed::ContextGroup>(world)});
    RANK_CHECK(policy->score(tree, {}).log_prob.allclose(expected, 1e-12, 1e-12));
    if (world->rank() == 1) return;
    RANK_CHECK(policy->frozen_copy()->score(tree, {}).log_prob.equal(expected));
    RANK_CHECK(policy->features(tree, layers).front().equal(alone->features(tree, layers).front()));
  });
}

TEST_CASE("a policy that cannot share says so") {
  support::Bandit bandit(3);
  CHECK(support::number_raised_by([&] { bandit.share_context({}); }) == "model.35");
}
