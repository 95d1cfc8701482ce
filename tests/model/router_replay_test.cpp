#include <rlalgo/model/router_replay.hpp>

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <rlalgo/model/load.hpp>
#include <rlalgo/model/tree_builder.hpp>

#include <support/catch.hpp>
#include <support/decoders.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

namespace {

using Experts = std::vector<std::uint16_t>;
constexpr std::uint16_t open = model::chosen_by_router;

model::Sequence row(const std::vector<std::int32_t>& prompt, const std::vector<std::int32_t>& completion,
                    const Experts& experts) {
  return {prompt, completion, experts};
}

std::unique_ptr<model::Decoder> decoder() {
  return model::random_decoder(model::parse_hf_config(rlalgo::support::small_config("qwen3_moe"), "test"), 3,
                               at::kDouble);
}

}  // namespace

TEST_CASE("a replayed choice has the weights of the trainer's own router") {
  const model::ExpertSpec spec{.count = 4, .chosen = 2, .normalised = true};
  const auto logits =
      at::tensor({1.0, 3.0, 2.0, 0.0, 1.0, 3.0, 2.0, 0.0, 1.0, 3.0, 2.0, 0.0}, at::kDouble).view({3, 4});
  const auto replay = at::tensor(std::vector<std::int64_t>{2, 1, 0, 1, -1, -1}).view({3, 2});
  const auto routing = model::route(spec, logits, replay);
  CHECK(routing.experts.equal(at::tensor(std::vector<std::int64_t>{2, 1, 0, 1, 1, 2}).view({3, 2})));
  const auto p = logits.softmax(-1);
  CHECK(routing.weights[1][0].item<double>() == Approx((p[1][0] / (p[1][0] + p[1][1])).item<double>()));
  CHECK(routing.replaced.equal(at::tensor({0, 0, 1, 0, 0, 0}).view({3, 2}).to(at::kBool)));
  model::TokenTree tree;
  tree.ids = {1, 2, 3};
  tree.routed_experts = {2, 1, 0, 1, open, open};
  model::RouterReplay counts(tree, at::kCPU);
  CHECK_FALSE(counts.mismatch().defined());
  counts.add(routing);
  CHECK(counts.mismatch().item<double>() == Approx(1.0 / 4.0));
  counts.complete();
  counts.add(routing);
  CHECK(counts.mismatch().item<double>() == Approx(1.0 / 4.0));
}

TEST_CASE("experts go where their tokens are laid out, and tokens without a note stay the router's") {
  const std::vector<std::int32_t> prompt = {1, 2}, a = {3, 4, 5}, b = {3, 6}, c = {7};
  const Experts of_a = {10, 11, 20, 21, 30, 31, 40, 41}, of_b = {10, 11, 20, 21, 30, 31}, none;
  const std::vector<model::Sequence> rows = {row(prompt, c, none), row(prompt, a, of_a), row(prompt, b, of_b)};
  const auto tree = model::build_tree(rows);
  REQUIRE(tree.routed_experts.size() == 2 * tree.ids.size());
  for (std::size_t t = 0; t < tree.ids.size(); ++t) {
    CHECK(tree.routed_experts[2 * t] == 10 * tree.ids[t]);
    CHECK(tree.routed_experts[2 * t + 1] == 10 * tree.ids[t] + 1);
  }
  const std::vector<model::Sequence> alone = {row(prompt, c, none), row({1, 9}, a, of_a)};
  const auto mixed = model::build_tree(alone);
  for (std::size_t t = 0; t < mixed.ids.size(); ++t)
    if (mixed.ids[t] == 2) CHECK(mixed.routed_experts[2 * t] == open);
  CHECK(model::build_tree(std::vector<model::Sequence>{row(prompt, a, none)}).routed_experts.empty());
  const std::vector<model::Sequence> wrong = {row(prompt, a, {1, 2, 3})};
  CHECK(lacks(raised_by([&] { (void)model::build_tree(wrong); }), {"model.22", "3 experts", "4 tokens"}) == "");
}

TEST_CASE(
    "replaying what the router chooses changes nothing; other experts change values and have gradients of their own") {
  const auto policy = decoder();
  const std::vector<std::int32_t> prompt = {1, 2, 3}, completion = {4, 5, 6, 7};
  // What the routers choose, from a pass without notes: of each layer, by its own log-probs of every choice.
  const auto score = [&](const Experts& experts) {
    const std::vector<model::Sequence> rows = {row(prompt, completion, experts)};
    return policy->score(model::build_tree(rows), {});
  };
  const auto plain = score({});
  CHECK_FALSE(plain.replay_mismatch.defined());
  const auto unnoted = score(Experts(6 * 4, open));
  CHECK(unnoted.log_prob.equal(plain.log_prob));
  Experts other;
  for (std::uint16_t t = 0; t < 6; ++t)
    for (std::uint16_t layer = 0; layer < 2; ++layer) {
      other.push_back(static_cast<std::uint16_t>((t + layer) % 5));
      other.push_back(static_cast<std::uint16_t>((t + layer + 2) % 5));
    }
  const auto forced = score(other);
  CHECK((forced.log_prob - plain.log_prob).abs().max().item<double>() > 1e-4);
  CHECK(forced.replay_mismatch.item<double>() > 0.2);
  forced.log_prob.sum().backward();
  for (auto& p : policy->parameters()) {
    if (p.name.find("mlp.gate") == std::string::npos) continue;
    const auto gradient = p.value.grad().clone();
    CHECK(gradient.abs().max().item<double>() > 0);
    const c10::NoGradGuard no_grad;
    for (const std::int64_t at : {0, 7, 23}) {
      auto element = p.value.view({-1})[at];
      const double before = element.item<double>(), step = 1e-5;
      element.fill_(before + step);
      const double above = score(other).log_prob.sum().item<double>();
      element.fill_(before - step);
      const double below = score(other).log_prob.sum().item<double>();
      element.fill_(before);
      CHECK((above - below) / (2 * step) == Approx(gradient.view({-1})[at].item<double>()).epsilon(1e-5).margin(1e-7));
    }
  }
}

TEST_CASE(
    "a tree with notes scores like its rows, checkpointed or not, balanced or not; notes of another model are "
    "refused") {
  const auto policy = decoder();
  const std::vector<std::int32_t> prompt = {1, 2, 3}, a = {4, 5, 6, 7}, b = {4, 9};
  Experts of_a(6 * 4, 0), of_b;
  for (std::size_t i = 0; i < of_a.size(); ++i)
    of_a[i] = static_cast<std::uint16_t>((i * 7 + i / 4) % 4 / 2 * 2 + i % 2);
  of_b.assign(of_a.begin(), of_a.begin() + 16);
  const std::vector<model::Sequence> both = {row(prompt, a, of_a), row(prompt, b, of_b)}, first = {both[0]},
                                     second = {both[1]};
  const auto sum = [&](const std::vector<model::Sequence>& rows, double balance) {
    return policy->score(model::build_tree(rows), {.balance_weight = balance}).log_prob;
  };
  const auto apart = at::cat({sum(first, 0), sum(second, 0)});
  CHECK(sum(both, 0).allclose(apart, 1e-10, 1e-10));
  CHECK(sum(both, 0.1).allclose(apart, 1e-10, 1e-10));
  sum(both, 0).sum().backward();
  std::vector<at::Tensor> gradients;
  for (auto& p : policy->parameters()) {
    gradients.push_back(p.value.grad().clone());
    p.value.mutable_grad() = at::Tensor();
  }
  policy->set_checkpointing(true);
  sum(both, 0).sum().backward();
  std::size_t i = 0;
  for (auto& p : policy->parameters()) CHECK(p.value.grad().equal(gradients[i++]));
  const std::vector<model::Sequence> wrong = {row(prompt, b, Experts(4 * 3, 0))};
  CHECK(lacks(raised_by([&] { sum(wrong, 0); }), {"model.45", "3 for each token", "4"}) == "");
}
