#include <rlalgo/trainer/placement.hpp>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <rlalgo/distributed/gradient_sums.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/safetensors.hpp>
#include <rlalgo/model/tree_builder.hpp>
#include <rlalgo/tensor/functions.hpp>

#include <support/bandit.hpp>
#include <support/catch.hpp>
#include <support/decoders.hpp>
#include <support/process_ranks.hpp>
#include <support/scratch.hpp>
#include <support/thread_world.hpp>

using namespace rlalgo;
using tensor::Tensor;
using trainer::ParameterRange;
using trainer::ParameterRanges;
using trainer::Placement;

namespace {

Tensor numbers(std::int64_t begin, std::int64_t end) { return at::arange(begin, end, at::kFloat); }

// The state of a.weight [3, 4] and b [5], whole, or these elements of it.
Placement::State state(const ParameterRanges& parts, bool whole = false) {
  Placement::State out;
  for (const auto& [name, range] : parts) {
    const std::int64_t base = name == "b" ? 100 : 0;
    Tensor values = numbers(base + range.begin, base + range.end);
    if (whole && name == "a.weight") values = values.view({3, 4});
    out.emplace_back(name + ".exp_avg", values);
    out.emplace_back(name + ".step", at::full({}, 7.0, at::kFloat));
  }
  return out;
}

std::shared_ptr<model::Decoder> decoder() {
  return model::random_decoder(model::parse_hf_config(support::small_config("llama"), "test"), 7, at::kFloat);
}

void backward(model::Decoder& policy, int number) {
  const std::vector<std::int32_t> prompt = {1, number % 23}, completion = {4, 5 + number, 6};
  const std::vector<model::Sequence> rows = {{prompt, completion}};
  policy.score(model::build_tree(rows), {}).log_prob.sum().backward();
}

struct OwnGate final : model::LayerGate {
  void acquire(const Visit&) override {}
  void release(const Visit&) noexcept override {}
  void gradient_ready(std::int64_t) override {}
};

const ParameterRanges everything = {{"a.weight", {0, 12}}, {"b", {0, 5}}};

}  // namespace

TEST_CASE("a state in parts is read in other parts, whole or not") {
  const support::ScratchDirectory scratch;
  const ParameterRanges first = {{"a.weight", {0, 7}}}, second = {{"a.weight", {7, 12}}, {"b", {0, 5}}};
  trainer::write_optimizer_part(scratch.path() / "optimizer-00001-of-00002.safetensors", state(first), first);
  trainer::write_optimizer_part(scratch.path() / "optimizer-00002-of-00002.safetensors", state(second), second);
  const ParameterRanges wanted = {{"a.weight", {5, 9}}, {"b", {1, 4}}};
  const auto parts = trainer::read_optimizer_parts(scratch.path(), state(wanted), wanted);
  CHECK(at::equal(parts.at("a.weight.exp_avg"), numbers(5, 9)));
  CHECK(at::equal(parts.at("b.exp_avg"), numbers(101, 104)));
  CHECK(parts.at("b.step").item<float>() == 7.0F);
  const auto whole = trainer::read_optimizer_parts(scratch.path(), state(everything, true), everything);
  CHECK(at::equal(whole.at("a.weight.exp_avg"), numbers(0, 12).view({3, 4})));

  std::filesystem::remove(scratch.path() / "optimizer-00002-of-00002.safetensors");
  CHECK(support::lacks(
            support::raised_by([&] { (void)trainer::read_optimizer_parts(scratch.path(), state(wanted), wanted); }),
            {"trainer.42", "a.weight.exp_avg"}) == "");
}

TEST_CASE("a whole state is read in parts") {
  const support::ScratchDirectory scratch;
  model::write_safetensors(scratch.path() / trainer::optimizer_file, state(everything, true));
  const ParameterRanges wanted = {{"a.weight", {5, 9}}};
  const auto parts = trainer::read_optimizer_parts(scratch.path(), state(wanted), wanted);
  CHECK(at::equal(parts.at("a.weight.exp_avg"), numbers(5, 9)));
  const ParameterRanges other = {{"c", {0, 2}}};
  CHECK(support::number_raised_by([&] { (void)trainer::read_optimizer_parts(scratch.path(), state(other), other); }) ==
        "trainer.42");
}

TEST_CASE("whole parameters: gradients clipped, weights and states read from files") {
  const support::ScratchDirectory scratch;
  const Tensor weight = at::zeros({2, 2}, at::kFloat).requires_grad_(true);
  trainer::WholePlacement placement({{"w", weight}}, std::make_shared<distributed::World>());
  placement.require_same_start();
  CHECK_FALSE(placement.saves_together());
  weight.mutable_grad() = at::full({2, 2}, 3.0, at::kFloat);
  CHECK(placement.reduce_gradients(1.0) == 6.0);
  CHECK(weight.grad()[0][0].item<float>() == Approx(0.5));
  model::write_safetensors(scratch.path() / "model.safetensors", {{"w", numbers(0, 4).view({2, 2})}});
  placement.load_weights(scratch.path());
  CHECK(weight.detach()[1][1].item<float>() == 3.0F);
  const Placement::State own = {{"w.exp_avg", numbers(0, 4).view({2, 2})}};
  placement.save_optimizer(scratch.path(), own);
  CHECK(at::equal(placement.load_optimizer(scratch.path(), own).at("w.exp_avg"), own[0].second));
  model::write_safetensors(scratch.path() / "model.safetensors", {{"w", numbers(0, 4)}});
  CHECK(support::number_raised_by([&] { placement.load_weights(scratch.path()); }) == "trainer.25");
  model::write_safetensors(scratch.path() / "model.safetensors", {{"v", numbers(0, 4)}});
  CHECK(support::number_raised_by([&] { placement.load_weights(scratch.path()); }) == "trainer.21");
}

TEST_CASE("gradients that are summed while the last backward pass goes on are those of sums after it, to the bit") {
  support::with_ranks(2, [&](const std::shared_ptr<distributed::World>& world) {
    const auto one = decoder(), other = decoder();
    trainer::WholePlacement during(*one, world), after(other->parameters(), world);
    const auto sums = std::dynamic_pointer_cast<distributed::GradientSums>(one->gate());
    RANK_CHECK(sums != nullptr);
    // Step 0: two micro-batches on rank 0, one on rank 1. Step 1: none on rank 0. Step 2: none at all.
    for (int step = 0; step < 3; ++step) {
      const int parts = step == 0 ? 2 - world->rank() : step == 1 ? world->rank() : 0;
      for (int part = 0; part < parts; ++part) {
        if (part + 1 == parts) during.begin_last();
        backward(*one, 3 * step + part + world->rank());
        backward(*other, 3 * step + part + world->rank());
      }
      RANK_CHECK(sums->begun() == (parts > 0 ? 1U : 0U));
      const double norm = during.reduce_gradients(0.5);
      RANK_CHECK(norm == after.reduce_gradients(0.5));
      RANK_CHECK((norm > 0.5) == (step < 2));
      const auto own = one->parameters(), their = other->parameters();
      for (std::size_t i = 0; i < own.size(); ++i) {
        RANK_CHECK(own[i].value.grad().defined() == their[i].value.grad().defined());
        RANK_CHECK(step == 2 || at::equal(own[i].value.grad(), their[i].value.grad()));
        own[i].value.mutable_grad() = their[i].value.mutable_grad() = Tensor();
      }
    }
    const auto seconds = during.seconds();
    RANK_CHECK(seconds.size() == 2 && seconds[0].first == "sums" && seconds[1].first == "sums_wait");
    RANK_CHECK(seconds[0].second > 0.0 && during.seconds()[0].second == 0.0);
    RANK_CHECK(after.seconds().empty());
  });
}

TEST_CASE("a policy without layers, or with a gate of somebody else's, is summed after its passes") {
  support::on_ranks(2, [](const std::shared_ptr<distributed::World>& world) {
    support::Bandit bandit(3);
    trainer::WholePlacement placement(bandit, world);
    placement.begin_last();
    bandit.logits.mutable_grad() = at::ones({3}, at::kFloat);
    RANK_CHECK(placement.reduce_gradients(0.0) > 3.4);
    RANK_CHECK(at::equal(bandit.logits.grad(), at::full({3}, 2.0, at::kFloat)));
    RANK_CHECK(placement.seconds().empty());

    const auto policy = decoder();
    const auto gate = std::make_shared<OwnGate>();
    policy->set_gate(gate);
    trainer::WholePlacement beside(*policy, world);
    RANK_CHECK(policy->gate() == gate);
    backward(*policy, world->rank());
    RANK_CHECK(beside.reduce_gradients(0.0) > 0.0);
    policy->set_gate(nullptr);
    const trainer::WholePlacement first(*policy, world), second(*policy, world);  // of two runs, one after the other
    RANK_CHECK(std::dynamic_pointer_cast<distributed::GradientSums>(policy->gate()) != nullptr);
  });
  const auto alone = decoder();
  const trainer::WholePlacement placement(*alone, std::make_shared<distributed::World>());
  CHECK(alone->gate() == nullptr);
}
