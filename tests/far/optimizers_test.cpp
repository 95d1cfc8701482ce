// Optimizers on a device whose memory the host may not touch, beside the CPU: their numbers, what they ask of the host, and what an update
// leaves that is not to be.
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/optim/adafactor.hpp>
#include <rlalgo/optim/adagrad.hpp>
#include <rlalgo/optim/adamw_8bit.hpp>
#include <rlalgo/optim/any_optimizer.hpp>
#include <rlalgo/optim/clip.hpp>
#include <rlalgo/optim/device_clip.hpp>
#include <rlalgo/optim/lion.hpp>
#include <rlalgo/optim/muon.hpp>
#include <rlalgo/optim/rmsprop.hpp>
#include <rlalgo/optim/sgd.hpp>

#include <support/catch.hpp>
#include <support/far_device.hpp>
#include <support/far_kernels.hpp>
#include <support/scratch.hpp>
#include <support/twins.hpp>

using namespace rlalgo;
using support::counted;
using support::here;
using support::Twins;

namespace {

// Of one block, of several with a rest, of exactly two; one that is too small for blocks.
const std::vector<std::vector<std::int64_t>> shapes = {{3, 5}, {30, 40}, {2, 256}, {7}, {900}, {40, 30}};

optim::AdamW8bitConfig eight_bits(std::int64_t at_once = std::int64_t{1} << 25U) {
  return {.adam = {.weight_decay = 0.1, .elements_at_once = at_once}, .min_elements = 10};
}

void check_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i);
    CHECK(b[i].equal(a[i]));
  }
}

std::vector<at::Tensor> values(const std::vector<model::Parameter>& of) {
  std::vector<at::Tensor> out;
  for (const auto& p : of) out.push_back(p.value.detach().to(at::kCPU));
  return out;
}

optim::DeviceClip clip_of(const Twins& twins, double most, const std::vector<at::Tensor>& losses = {}) {
  return optim::device_clip(Twins::gradients(twins.far), most, losses);
}

// Each of them by name, of an optimizer that the program can choose.
const std::map<std::string, optim::AnyOptimizer::Config> kinds = {
    {"lion", optim::AnyOptimizer::of<optim::Lion>({.weight_decay = 0.1})},
    {"adafactor", optim::AnyOptimizer::of<optim::Adafactor>({.beta1 = 0.9, .weight_decay = 0.1})},
    {"adafactor, scaled", optim::AnyOptimizer::of<optim::Adafactor>({.weight_decay = 0.1, .scale_parameter = true})},
    {"muon", optim::AnyOptimizer::of<optim::Muon>({.weight_decay = 0.1})},
    {"sgd", optim::AnyOptimizer::of<optim::Sgd>({.weight_decay = 0.1})},
    {"sgd, Nesterov", optim::AnyOptimizer::of<optim::Sgd>({.momentum = 0.9, .nesterov = true})},
    {"sgd, dampened", optim::AnyOptimizer::of<optim::Sgd>({.momentum = 0.9, .dampening = 0.3})},
    {"rmsprop", optim::AnyOptimizer::of<optim::RmsProp>({.weight_decay = 0.1})},
    {"rmsprop, centred", optim::AnyOptimizer::of<optim::RmsProp>({.centered = true, .momentum = 0.8})},
    {"adagrad", optim::AnyOptimizer::of<optim::Adagrad>({.weight_decay = 0.1})},
    {"adagrad, slower and slower", optim::AnyOptimizer::of<optim::Adagrad>({.lr_decay = 0.2})},
    {"adamw, 8 bits", optim::AnyOptimizer::of<optim::AdamW8bit>(eight_bits())},
};

}  // namespace

TEST_CASE("AdamW in 8 bits on a device has the CPU's bits, by operators and by the kernel") {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const std::int64_t at_once : {std::int64_t{1} << 25U, std::int64_t{8 * 700}})  // pieces that cut parameters
      for (const bool clipped : {false, true})
        for (const bool kernel : {false, true}) {
          CAPTURE(c10::toString(type), at_once, clipped, kernel);
          std::optional<support::far::WithKernels> kernels;
          if (kernel) kernels.emplace();
          const Twins twins(type, shapes);
          optim::AdamW8bit near(twins.near, eight_bits()), far(twins.far, eight_bits(at_once));
          CHECK_FALSE(near.clips_on_device());
          CHECK(far.clips_on_device());
          near.set_rates({{"p1", 3.0}, {"p2", 0.25}, {"p3", 0.5}});
          far.set_rates({{"p1", 3.0}, {"p2", 0.25}, {"p3", 0.5}});
          for (std::size_t step = 0; step < 4; ++step) {
            twins.give_gradients(step == 2 ? 1e-21 : 1.0, step + 2);  // each time another one has none
            near.set_momentum(0.9 - 0.01 * static_cast<double>(step));
            far.set_momentum(0.9 - 0.01 * static_cast<double>(step));
            near.step(1e-2);
            const auto count = counted([&] {
              if (clipped)
                far.step(1e-2, clip_of(twins, 1e6));  // measured: nothing is divided by more than 1
              else
                far.step(1e-2);
            });
            CHECK(count.scalars + count.copies_out + count.copies_in == 0);
            CHECK(count.kernels == (kernel && type != at::kHalf ? 1 : 0));
          }
          if (type == at::kFloat) check_equal(here(near.state()), here(far.state()));
          // The small one is AdamW's, which rounds otherwise in bfloat16 (step_test.cpp).
          const auto a = near.state(), b = far.state();
          for (std::size_t i = 0; i < a.size(); ++i) {
            CAPTURE(a[i].first);
            CHECK(a[i].first == b[i].first);
            if (!a[i].first.starts_with("p3.")) CHECK(b[i].second.to(at::kCPU).equal(a[i].second));
          }
          for (std::size_t i = 0; i < twins.near.size(); ++i)
            if (i != 3) CHECK(twins.far[i].value.to(at::kCPU).equal(twins.near[i].value));
        }
}

TEST_CASE("AdamW in 8 bits divides gradients by what clips them, the same by operators and by the kernel") {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const Twins twins(type, shapes), others(type, shapes);
    optim::AdamW8bit by_operators(twins.far, eight_bits()), by_kernel(others.far, eight_bits()),
        near(twins.near, eight_bits());
    for (int step = 0; step < 3; ++step) {
      twins.give_gradients();
      // AdamW's kernel, which has the small one, writes to the gradients that it divides.
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        const at::Tensor& gradient = twins.far[i].value.grad();
        others.far[i].value.mutable_grad() = gradient.defined() ? gradient.clone() : gradient;
      }
      const auto clip = clip_of(twins, 0.5);
      by_operators.step(1e-2, clip);
      {
        const support::far::WithKernels kernels;
        by_kernel.step(1e-2, clip);
      }
      auto gradients = Twins::gradients(twins.near);
      (void)optim::clip_grad_norm(gradients, 0.5);
      near.step(1e-2);
    }
    check_equal(here(by_operators.state()), here(by_kernel.state()));
    check_equal(values(twins.far), values(others.far));
    if (type == at::kFloat)
      for (std::size_t i = 0; i < shapes.size(); ++i)
        CHECK(twins.far[i].value.to(at::kCPU).allclose(twins.near[i].value, 1e-4, 1e-4));
  }
}

TEST_CASE("moments in 8 bits take two bytes an element and eight a block there, too") {
  const Twins twins(at::kFloat, {{2560, 100}, {300}, {7}});
  const auto before = support::far::held_bytes();
  const optim::AdamW8bit optimizer(twins.far, {.min_elements = 10});
  std::size_t bytes = 0;
  for (const auto& [name, tensor] : optimizer.state()) bytes += tensor.nbytes();
  CHECK(bytes == 2 * 256000 + 8 * 1000 + 4 + 2 * 300 + 8 * 2 + 4 + 8 * 7 + 4);
  // Beside them four bytes a block, numbers of each parameter, tables, the ends of blocks and of pages.
  CHECK(support::far::held_bytes() - before < bytes + 64 * 1024);
}

TEST_CASE("a state of 8 bits goes from one device to the other, and on as it would have") {
  for (const auto type : {at::kFloat, at::kBFloat16})
    for (const bool kernel : {false, true}) {
      std::optional<support::far::WithKernels> kernels;
      if (kernel) kernels.emplace();
      const Twins twins(type, {{30, 40}, {900}, {300}});
      optim::AdamW8bit near(twins.near, eight_bits()), far(twins.far, eight_bits());
      twins.give_gradients();
      near.step(1e-2);
      std::map<std::string, at::Tensor> state;
      for (const auto& [name, tensor] : near.state()) state[name] = tensor.clone();
      {
        const c10::NoGradGuard no_grad;
        for (std::size_t i = 0; i < 3; ++i) twins.far[i].value.copy_(twins.near[i].value);
      }
      far.load_state(state);
      check_equal(here(near.state()), here(far.state()));
      twins.give_gradients();
      near.step(1e-2);
      far.step(1e-2);
      check_equal(here(near.state()), here(far.state()));
      state.clear();
      for (const auto& [name, tensor] : far.state()) state[name] = tensor;
      near.load_state(state);
      check_equal(values(twins.near), values(twins.far));
    }
}

TEST_CASE("other optimizers take the clip from the device, with the CPU's numbers and without a wait") {
  for (const auto& [name, config] : kinds)
    for (const auto type : {at::kFloat, at::kBFloat16})
      for (const double most : {1e6, 0.5}) {
        if (type == at::kBFloat16 && most < 1e6) continue;  // the CPU rounds what it clips
        CAPTURE(name, c10::toString(type), most);
        const Twins twins(type, shapes);
        optim::AnyOptimizer near(twins.near, config), far(twins.far, config);
        CHECK_FALSE(near.clips_on_device());
        CHECK(far.clips_on_device());
        near.set_rates({{"p1", 3.0}, {"p3", 0.25}});
        far.set_rates({{"p1", 3.0}, {"p3", 0.25}});
        for (int step = 0; step < 3; ++step) {
          twins.give_gradients();
          auto gradients = Twins::gradients(twins.near);
          const double norm = optim::clip_grad_norm(gradients, most);
          near.step(1e-2);
          at::Tensor found;
          const auto count = counted([&] {
            const auto clip = clip_of(twins, most);
            far.step(1e-2, clip);
            found = clip.norm;
          });
          CHECK(count.scalars + count.copies_out + count.copies_in == 0);
          CHECK(found.to(at::kCPU).item<double>() == Approx(norm).epsilon(1e-6));
        }
        const auto a = near.state(), b = far.state();
        REQUIRE(a.size() == b.size());
        for (std::size_t i = 0; i < a.size(); ++i) {
          CAPTURE(a[i].first);
          CHECK(a[i].first == b[i].first);
          if (a[i].second.scalar_type() == at::kFloat && a[i].second.numel() > 0)
            CHECK(b[i].second.to(at::kCPU).allclose(a[i].second, 1e-4, type == at::kFloat ? 1e-6 : 1e-4));
        }
        for (std::size_t i = 0; i < twins.near.size(); ++i)
          CHECK(twins.far[i].value.to(at::kCPU).allclose(twins.near[i].value, 1e-4, type == at::kFloat ? 1e-5 : 1e-2));
      }
}

TEST_CASE("with a norm or a loss that is not finite every optimizer leaves weights, moments and counts as they are") {
  for (const auto& [name, config] : kinds)
    for (const auto type : {at::kFloat, at::kBFloat16})
      for (const bool kernel : {false, true})
        for (const bool first : {false, true})  // before any other update
          for (const bool of_loss : {false, true}) {
            CAPTURE(name, c10::toString(type), kernel, first, of_loss);
            std::optional<support::far::WithKernels> kernels;
            if (kernel) kernels.emplace();
            const Twins twins(type, shapes);
            optim::AnyOptimizer optimizer(twins.far, config);
            if (!first) {
              twins.give_gradients();
              optimizer.step(1e-2, clip_of(twins, 1.0));
            }
            const auto before = here(optimizer.state()), weights = values(twins.far);
            twins.give_gradients(of_loss ? 1.0 : std::numeric_limits<double>::infinity());
            optimizer.step(1e-2, clip_of(twins, 1.0, {at::full({}, of_loss ? NAN : 1.0).to(support::far::device())}));
            check_equal(before, here(optimizer.state()));
            check_equal(weights, values(twins.far));
            twins.give_gradients();
            optimizer.step(1e-2, clip_of(twins, 1.0));
            CHECK_FALSE(values(twins.far)[1].equal(weights[1]));
            CHECK(values(twins.far)[1].isfinite().all().item<bool>());
          }
}
