// What a training step does between its passes, on a device whose memory the host may not touch: values there and back, clipping, the
// optimizer.
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/optim/adamw.hpp>
#include <rlalgo/optim/any_optimizer.hpp>
#include <rlalgo/optim/clip.hpp>
#include <rlalgo/optim/device_clip.hpp>
#include <rlalgo/optim/lion.hpp>
#include <rlalgo/tensor/host_block.hpp>
#include <rlalgo/tensor/reading.hpp>

#include <support/catch.hpp>
#include <support/far_device.hpp>
#include <support/scratch.hpp>
#include <support/twins.hpp>

using namespace rlalgo;
using support::counted;
using support::here;
using support::Twins;

namespace {

// Declares no hook for the clip.
struct Plain : private optim::Lion {
  using Config = optim::LionConfig;
  static constexpr optim::Hooks hooks{.set_momentum = true};
  using optim::Lion::Lion;
  using optim::Lion::load_state;
  using optim::Lion::set_momentum;
  using optim::Lion::state;
  using optim::Lion::zero_grad;
  void step(double rate) { optim::Lion::step(rate); }
};

}  // namespace

TEST_CASE("a block of host values is one copy, and what the host reads together is one") {
  at::Tensor ids, numbers;
  const auto there = counted([&] {
    tensor::HostBlock block(at::TensorOptions().dtype(at::kFloat).device(support::far::device()));
    ids = block.add(std::vector<std::int64_t>{5, 6, 7});
    numbers = block.add_numbers({0.1, 0.2});
    block.send();
  });
  CHECK(there.copies_in == 1);
  CHECK(there.operators == 0);
  CHECK(ids.device() == support::far::device());
  CHECK(ids.to(at::kCPU).equal(at::tensor({5, 6, 7}, at::kLong)));
  auto doubled = numbers.mul(2.0), narrow = numbers.to(at::kBFloat16), scalar = ids.sum(), near = at::ones({2});
  const auto back = counted([&] {
    tensor::Reading reading;
    for (at::Tensor* x : {&ids, &numbers, &doubled, &narrow, &scalar, &near}) reading.add(*x);
    reading.fetch();
  });
  CHECK(back.copies_out == 1);
  CHECK(back.scalars == 0);
  CHECK(back.bytes_out == 3 * 8 + 2 * 4 + 2 * 4 + 2 * 2 + 8);
  CHECK(ids.equal(at::tensor({5, 6, 7}, at::kLong)));
  CHECK(doubled.equal(at::tensor({0.1F, 0.2F}).mul(2.0)));
  CHECK(narrow.equal(at::tensor({0.1F, 0.2F}).to(at::kBFloat16)));
  CHECK(scalar.item<std::int64_t>() == 18);
  CHECK(scalar.dim() == 0);
}

TEST_CASE("clipping and AdamW on a device are the CPU's, by a few calls and without a wait") {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16})
    for (const std::int64_t at_once : {std::int64_t{1} << 25U, std::int64_t{11}})  // pieces that cut parameters
      for (const double most : {1e6, 0.5}) {
        if (type == at::kBFloat16 && most < 1e6) continue;  // the CPU rounds what it clips
        CAPTURE(c10::toString(type), at_once, most);
        const Twins twins(type);
        const optim::AdamWConfig config{.weight_decay = 0.1, .elements_at_once = at_once};
        optim::AdamW near(twins.near, config), far(twins.far, config);
        CHECK_FALSE(near.clips_on_device());
        CHECK(far.clips_on_device());
        for (int step = 0; step < 3; ++step) {
          twins.give_gradients();
          auto gradients = Twins::gradients(twins.near);
          const double norm = optim::clip_grad_norm(gradients, most);
          near.step(1e-2);
          at::Tensor found;
          const auto count = counted([&] {
            const auto clip = optim::device_clip(Twins::gradients(twins.far), most);
            far.step(1e-2, clip);
            found = clip.norm;
          });
          CHECK(count.scalars + count.copies_out + count.copies_in == 0);
          if (at_once > 1000)
            CHECK(count.operators <= 36);  // ATen takes lists apart where a device has no kernel for them
          CHECK(found.to(at::kCPU).item<double>() == Approx(norm).epsilon(1e-6));
        }
        const auto a = here(near.state()), b = here(far.state());
        REQUIRE(a.size() == b.size());
        for (std::size_t i = 0; i < a.size(); ++i) {
          // In bfloat16 the CPU has a kernel of its own, and ATen's rounds the last elements of a tensor otherwise.
          if (most == 1e6 && type != at::kBFloat16)
            CHECK(b[i].equal(a[i]));
          else
            CHECK(b[i].allclose(a[i], 1e-5, 1e-7));
        }
        for (std::size_t i = 0; i < twins.near.size(); ++i)
          CHECK(twins.far[i].value.to(at::kCPU).allclose(twins.near[i].value, 1e-6, 1e-6));
      }
}

TEST_CASE("an update whose norm or loss is not finite leaves weights, moments and counts as they are") {
  for (const auto type : {at::kFloat, at::kBFloat16})
    for (const bool of_loss : {false, true}) {
      const Twins twins(type);
      optim::AnyOptimizer optimizer(twins.far, optim::AnyOptimizer::of<optim::AdamW>({.weight_decay = 0.1}));
      CHECK(optimizer.clips_on_device());
      twins.give_gradients();
      optimizer.step(1e-2, optim::device_clip(Twins::gradients(twins.far), 1.0));
      const auto before = here(optimizer.state());
      std::vector<at::Tensor> weights;
      for (const auto& p : twins.far) weights.push_back(p.value.detach().to(at::kCPU));
      twins.give_gradients(of_loss ? 1.0 : std::numeric_limits<double>::infinity());
      const std::vector<at::Tensor> losses = {at::full({}, of_loss ? NAN : 1.0).to(support::far::device())};
      optimizer.step(1e-2, optim::device_clip(Twins::gradients(twins.far), 1.0, losses));
      const auto after = here(optimizer.state());
      for (std::size_t i = 0; i < before.size(); ++i) CHECK(after[i].equal(before[i]));
      for (std::size_t i = 0; i < weights.size(); ++i) CHECK(twins.far[i].value.to(at::kCPU).equal(weights[i]));
      // … and the next one goes on.
      twins.give_gradients();
      optimizer.step(1e-2, optim::device_clip(Twins::gradients(twins.far), 1.0));
      CHECK_FALSE(here(optimizer.state())[0].equal(before[0]));
    }
}

TEST_CASE("an optimizer that cannot clip on a device says so") {
  const Twins twins(at::kFloat);
  optim::AnyOptimizer plain(twins.far, optim::AnyOptimizer::of<Plain>({}));
  CHECK_FALSE(plain.clips_on_device());
  twins.give_gradients();
  const auto clip = optim::device_clip(Twins::gradients(twins.far), 1.0);
  CHECK(support::lacks(support::raised_by([&] { plain.step(1e-2, clip); }), {"optim.9", "clip"}) == "");
}
