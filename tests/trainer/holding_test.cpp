#include <rlalgo/trainer/holding.hpp>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <rlalgo/model/safetensors.hpp>
#include <rlalgo/tensor/functions.hpp>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using tensor::Tensor;
using trainer::Holding;
using trainer::ParameterRange;
using trainer::ParameterRanges;

namespace {

Tensor numbers(std::int64_t begin, std::int64_t end) { return at::arange(begin, end, at::kFloat); }

// The state of a.weight [3, 4] and b [5], whole, or these elements of it.
Holding::State state(const ParameterRanges& parts, bool whole = false) {
  Holding::State out;
  for (const auto& [name, range] : parts) {
    const std::int64_t base = name == "b" ? 100 : 0;
    Tensor values = numbers(base + range.begin, base + range.end);
    if (whole && name == "a.weight") values = values.view({3, 4});
    out.emplace_back(name + ".exp_avg", values);
    out.emplace_back(name + ".step", at::full({}, 7.0, at::kFloat));
  }
  return out;
}

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
  trainer::WholeHolding holding({{"w", weight}}, std::make_shared<distributed::World>());
  holding.require_same_start();
  CHECK_FALSE(holding.saves_together());
  weight.mutable_grad() = at::full({2, 2}, 3.0, at::kFloat);
  CHECK(holding.reduce_gradients(1.0) == 6.0);
  CHECK(weight.grad()[0][0].item<float>() == Approx(0.5));
  model::write_safetensors(scratch.path() / "model.safetensors", {{"w", numbers(0, 4).view({2, 2})}});
  holding.load_weights(scratch.path());
  CHECK(weight.detach()[1][1].item<float>() == 3.0F);
  const Holding::State own = {{"w.exp_avg", numbers(0, 4).view({2, 2})}};
  holding.save_optimizer(scratch.path(), own);
  CHECK(at::equal(holding.load_optimizer(scratch.path(), own).at("w.exp_avg"), own[0].second));
  model::write_safetensors(scratch.path() / "model.safetensors", {{"w", numbers(0, 4)}});
  CHECK(support::number_raised_by([&] { holding.load_weights(scratch.path()); }) == "trainer.25");
  model::write_safetensors(scratch.path() / "model.safetensors", {{"v", numbers(0, 4)}});
  CHECK(support::number_raised_by([&] { holding.load_weights(scratch.path()); }) == "trainer.21");
}
