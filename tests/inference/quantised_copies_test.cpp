// Copies of matrices in 8 bits: their codes, who shares them, and what they take.
#include <rlalgo/inference/quantised_copies.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/cpu/int8_matrix.hpp>
#include <rlalgo/inference/kv_cache.hpp>
#include <rlalgo/inference/memory_share.hpp>
#include <rlalgo/model/load.hpp>

#include <support/catch.hpp>

#include "inference/reference.hpp"

using namespace rlalgo;
using inference::Quantization;

TEST_CASE("codes and scales of int8 are the CPU's, those of fp8 the nearest of a row's scale") {
  const at::Tensor x = at::randn({20, 70}) * 0.3;
  x[3].zero_();
  x[4].narrow(0, 32, 32).zero_();
  for (const Quantization how : {Quantization::int8, Quantization::fp8}) {
    const auto options = at::TensorOptions().dtype(at::kFloat);
    const auto made = inference::byte_matrix(how, {20}, 70, options);
    inference::quantise_rows(how, x, made.whole->codes(), made.whole->scales());
    const at::Tensor codes = made.whole->codes(), scales = made.whole->scales(),
                     numbers = made.whole->dense(at::kFloat);
    CHECK(codes.size(1) == 96);
    if (how == Quantization::int8) {
      const cpu::Int8Layout layout(70);
      std::vector<std::byte> packed(static_cast<std::size_t>(cpu::blocks_of(20) * layout.block_bytes()));
      cpu::pack_int8(x.const_data_ptr<float>(), 20, 70, 0, cpu::blocks_of(20), packed.data());
      for (std::int64_t r = 0; r < 20; ++r)
        for (std::int64_t g = 0; g < 3; ++g) {
          const std::byte* const at = packed.data() + r / 16 * layout.block_bytes() + g * cpu::Int8Layout::group_bytes;
          float scale = 0.0F;
          std::memcpy(&scale, at + cpu::Int8Layout::scales_at + r % 16 * 4, 4);
          CHECK(scales[r][g].item<float>() == scale);
          for (std::int64_t j = 0; j < 32; ++j)
            CHECK(codes[r][32 * g + j].item<std::int8_t>() ==
                  std::to_integer<int>(at[(j / 4 * 16 + r % 16) * 4 + j % 4]) - 128);
        }
      CHECK(made.whole->bytes() == 20 * (96 + 3 * 4));
      CHECK((numbers - x).abs().max().item<double>() <= scales.max().item<double>() / 2 * 1.0001);
    } else {
      CHECK(scales.sizes() == at::IntArrayRef({20, 1}));
      CHECK((scales.squeeze(1) - x.abs().amax(1) / 448).abs().max().item<double>() < 1e-9);
      CHECK(((numbers - x).abs() - x.abs() / 16 - scales * 0x1p-10).max().item<double>() < 1e-7);
      CHECK(numbers.abs().amax(1).allclose(x.abs().amax(1)));
    }
    // What is not finite is no number in any of its group, or row.
    at::Tensor bad = x.clone();
    bad[0][1] = INFINITY;
    bad[1][69] = NAN;
    inference::quantise_rows(how, bad, made.whole->codes(), made.whole->scales());
    const at::Tensor found = made.whole->dense(at::kFloat).isnan().sum(1);
    CHECK(found[0].item<std::int64_t>() == (how == Quantization::int8 ? 32 : 70));
    CHECK(found[1].item<std::int64_t>() == (how == Quantization::int8 ? 6 : 70));
    CHECK(found[2].item<std::int64_t>() == 0);
  }
}

TEST_CASE("views of the same tensors share copies while one of them lives; what nobody has is written over") {
  const model::DecoderConfig config = reference::tiny("qwen3");
  const model::DecoderWeights base = reference::random_weights(config, 5);
  inference::QuantisedCopies copies(Quantization::int8, false);
  auto first = copies.of(base, {});
  CHECK(first.layers[0].complete());
  CHECK(first.layers[0].qkv->rows() == base.layers[0].q_proj.weight.size(0) + 2 * base.layers[0].k_proj.weight.size(0));
  CHECK(first.weights.layers[0]
            .k_proj.quantised->dense(at::kFloat)
            .equal(first.layers[0].qkv->part(base.layers[0].q_proj.weight.size(0), base.layers[0].k_proj.weight.size(0),
                                             0, config.hidden_size, at::kFloat)));
  CHECK(model::is_stand_in(first.weights.layers[0].k_proj.weight));
  CHECK(first.weights.embedding.is_same(base.embedding));
  // An adapter beside them; one tensor is another.
  model::DecoderWeights adapted = base;
  model::Linear& map = adapted.layers[0].q_proj;
  map.lora.a = at::randn({4, map.weight.size(1)}) * 0.2;
  map.lora.b = at::randn({map.weight.size(0), 4}) * 0.2;
  map.lora.scale = 0.5;
  adapted.layers[1].down_proj.weight = adapted.layers[1].down_proj.weight.clone();
  auto second = copies.of(adapted, {});
  CHECK(second.layers[0].down == first.layers[0].down);
  CHECK(second.layers[0].qkv == first.layers[0].qkv);
  CHECK(second.layers[1].down != first.layers[1].down);
  CHECK(second.head == first.head);
  CHECK(second.weights.layers[0].q_proj.lora.defined());
  // Nobody has them any more: the same memory, other numbers.
  const void* const place = first.layers[0].down->codes().const_data_ptr();
  const at::Tensor before = first.layers[0].down->dense(at::kFloat);
  first = second = {};
  {
    const at::NoGradGuard guard;
    base.layers[0].down_proj.weight.neg_();
  }
  auto third = copies.of(base, 7);
  CHECK(third.layers[0].down->codes().const_data_ptr() == place);
  CHECK(third.layers[0].down->dense(at::kFloat).equal(-before));
  // The same values, by their number, are not copied again, and others are.
  {
    const at::NoGradGuard guard;
    base.layers[0].down_proj.weight.neg_();
  }
  third = {};
  third = copies.of(base, 7);
  CHECK(third.layers[0].down->dense(at::kFloat).equal(-before));
  third = {};
  CHECK(copies.of(base, 8).layers[0].down->dense(at::kFloat).equal(before));
}

TEST_CASE("an adapter that is multiplied in is part of what is rounded, and a living copy keeps the one it had") {
  const model::DecoderConfig config = reference::tiny("qwen3");
  model::DecoderWeights weights = reference::random_weights(config, 5);
  model::Linear& map = weights.layers[0].v_proj;
  map.lora.a = at::randn({4, map.weight.size(1)}) * 0.2;
  map.lora.b = at::randn({map.weight.size(0), 4}) * 0.2;
  map.lora.scale = 0.5;
  for (const Quantization how : {Quantization::int8, Quantization::fp8}) {
    inference::QuantisedCopies copies(how, true);
    const auto made = copies.of(weights, {});
    CHECK_FALSE(made.weights.layers[0].v_proj.lora.defined());
    const auto error = [&](const inference::QuantisedDecoder& one) {
      const at::Tensor exact = map.weight + map.lora.scale * map.lora.b.mm(map.lora.a);
      return ((one.weights.layers[0].v_proj.quantised->dense(at::kFloat) - exact).abs() / exact.abs().max())
          .max()
          .item<double>();
    };
    CHECK(error(made) < 0.05);
    map.lora.b.neg_();
    CHECK(error(made) > 0.1);
    const auto later = copies.of(weights, {});
    CHECK(error(later) < 0.05);
    CHECK(later.layers[0].qkv != made.layers[0].qkv);
    CHECK(later.layers[1].qkv == made.layers[1].qkv);
  }
}

TEST_CASE("maps that a base has in 4 bits stay so beside a head in 8, and the estimate knows what copies take") {
  const auto directory = std::filesystem::path(rlalgo::support::test_dir) / "golden";
  const auto base = model::load_decoder(directory / "quantised/llama_nf4");
  const auto plain = model::load_decoder(directory / "model/qwen3_moe");
  for (const Quantization how : {Quantization::int8, Quantization::fp8}) {
    inference::QuantisedCopies copies(how, false);
    const auto made = copies.of(base->weights(), {});
    CHECK(made.held.size() == 1);
    CHECK(made.weights.layers[0].q_proj.quantised == base->weights().layers[0].q_proj.quantised);
    CHECK_FALSE(made.layers[0].complete());
    for (const auto* const decoder : {&base, &plain}) {
      const auto& weights = (*decoder)->weights();
      std::size_t bytes = 0;
      const auto all = inference::QuantisedCopies(how, false).of(weights, {});
      for (const auto& one : all.held) bytes += one->whole->bytes();
      CHECK(inference::quantised_bytes(how, weights) == bytes);
      CHECK(
          inference::memory_share((*decoder)->config(), weights, {.quantization = how, .merge_adapter = true}, 0.5, 40)
              .copies == static_cast<double>(bytes));
    }
  }
  CHECK(inference::quantised_bytes(Quantization::none, plain->weights()) == 0);
}
