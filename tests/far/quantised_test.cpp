// A base in 4 or 8 bits on a device whose memory the host may not touch.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/inference/local_engine.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/quantised_linear.hpp>
#include <rlalgo/model/tree_builder.hpp>

#include <support/catch.hpp>
#include <support/far_device.hpp>
#include <support/far_kernels.hpp>
#include <support/one_layer.hpp>
#include <support/quantised.hpp>

using namespace rlalgo;

namespace {

const auto golden = std::filesystem::path(rlalgo::support::test_dir) / "golden/quantised";

std::unique_ptr<model::Decoder> adapted(const std::string& name, at::Device device, bool dora) {
  auto decoder = model::load_decoder(golden / name, {.device = device});
  rlalgo::support::adapt_quantised(*decoder, name, dora);
  return decoder;
}

const std::vector<std::int32_t> prompt = {3, 61, 7}, completion = {20, 33, 41, 2, 58, 9, 16, 30, 30, 8, 55, 44};

}  // namespace

TEST_CASE("a device makes the host's numbers of weights in bits: log-probs, gradients, draws") {
  for (const std::string name : {"llama_nf4", "qwen2_int8", "gemma2_fp4", "phi3_nf4", "qwen3_moe_nf4"})
    for (const bool dora : {false, true}) {
      INFO(name << ", dora " << dora);
      const auto near = adapted(name, at::kCPU, dora), far = adapted(name, support::far::device(), dora);
      model::visit_maps(far->config(), far->weights(), [&](const std::string&, const model::Linear& map, auto, bool) {
        if (!map.quantised) return;
        CHECK(map.quantised->codes().device() == support::far::device());
        CHECK(map.quantised->scales().device() == support::far::device());
        CHECK(map.weight.device() == support::far::device());
      });
      const std::vector<model::Sequence> rows = {{.prompt = prompt, .completion = completion}};
      std::vector<at::Tensor> scores, gradients[2];
      for (const auto* decoder : {&near, &far}) {
        const at::Tensor log_prob = (*decoder)->score(model::build_tree(rows, {}), {}).log_prob;
        log_prob.sum().backward();
        scores.push_back(log_prob.detach().to(at::kCPU));
        for (const auto& p : (*decoder)->parameters())
          gradients[decoder == &far].push_back(p.value.grad().to(at::kCPU));
      }
      CHECK((scores[0] - scores[1]).abs().max().item<double>() < 1e-5);
      REQUIRE(gradients[0].size() == gradients[1].size());
      for (std::size_t i = 0; i < gradients[0].size(); ++i)
        CHECK((gradients[0][i] - gradients[1][i]).abs().max().item<double>() <
              1e-4 * (1 + gradients[0][i].abs().max().item<double>()));
      const auto drawn = [&](const model::Decoder& decoder) {
        inference::LocalEngine engine(decoder.config(), decoder.weights(), {});
        const std::vector<inference::Request> requests = {{.prompt = prompt, .count = 2}};
        return engine.generate(requests, {.temperature = 0.9, .max_new_tokens = 8}, {.seed = 5});
      };
      const auto a = drawn(*near), b = drawn(*far);
      for (std::size_t i = 0; i < a[0].size(); ++i) CHECK(a[0][i].ids == b[0][i].ids);
    }
}

TEST_CASE(
    "an engine over weights in bits draws what it draws of the same weights whole, by layers of training, in pieces "
    "and at once") {
  for (const std::string name : {"llama_nf4", "qwen2_int8"})
    for (const bool kernels : {false, true}) {
      CAPTURE(name, kernels);
      std::unique_ptr<support::far::WithKernels> with;
      if (kernels) with = std::make_unique<support::far::WithKernels>();
      const auto bits = model::load_decoder(golden / name, {.device = support::far::device()});
      auto weights = bits->weights();
      model::visit_maps(bits->config(), weights, [](const std::string&, model::Linear& map, auto, bool) {
        if (!map.quantised) return;
        map.weight = map.quantised->dense(at::kFloat);
        map.quantised = nullptr;
      });
      const auto whole = std::make_unique<model::Decoder>(bits->hf_config(), weights);
      const auto drawn = [&](const model::Decoder& decoder, std::int64_t prefill_rows, std::int64_t tokens) {
        inference::LocalEngine engine(decoder.config(), decoder.weights(), {.prefill_rows = prefill_rows});
        const std::vector<inference::Request> requests = {{.prompt = prompt, .count = 3}, {.prompt = completion}};
        const auto before = support::far::counts();
        auto out = engine.generate(requests, {.temperature = 0.9, .max_new_tokens = tokens}, {.seed = 5});
        return std::pair(std::move(out), support::far::counts().since(before));
      };
      const auto [expected, of_whole] = drawn(*whole, 0, 9);
      for (const std::int64_t rows : {std::int64_t{0}, std::int64_t{4}}) {
        const auto [found, counts] = drawn(*bits, rows, 9);
        CHECK(counts.replays ==
              0);  // weights are made whole anew in every pass, in memory that a recorded pass would hold
        for (std::size_t r = 0; r < expected.size(); ++r)
          for (std::size_t c = 0; c < expected[r].size(); ++c) {
            CHECK(found[r][c].ids == expected[r][c].ids);
            REQUIRE(found[r][c].log_probs.size() == expected[r][c].log_probs.size());
            for (std::size_t t = 0; t < found[r][c].log_probs.size(); ++t)
              CHECK(found[r][c].log_probs[t] == Approx(expected[r][c].log_probs[t]).margin(1e-4));
          }
      }
      // The trainer's own pass says the same of what was drawn, to rounding.
      const auto score = [&](model::Decoder& decoder) {
        const std::vector<model::Sequence> one = {{.prompt = prompt, .completion = expected[0][0].ids}};
        return decoder.score(model::build_tree(one, {}), {.temperature = 0.9}).log_prob.detach().to(at::kCPU);
      };
      const at::Tensor a = score(*bits), b = score(*whole);
      CHECK((a - b).abs().max().item<double>() < 1e-5);
      for (std::int64_t t = 0; t < a.size(0); ++t)
        CHECK(a[t].item<double>() == Approx(expected[0][0].log_probs[static_cast<std::size_t>(t)]).margin(1e-4));
    }
}

TEST_CASE("passes over a base in bits take the same memory again, however many tokens are drawn") {
  const support::far::WithKernels kernels;
  const auto decoder = adapted("llama_nf4", support::far::device(), false);
  inference::LocalEngine engine(decoder->config(), decoder->weights(), {.merge_adapter = true});
  const auto draw = [&](std::int64_t tokens) {
    const std::vector<inference::Request> requests = {{.prompt = prompt, .count = 2}};
    const auto before = support::far::counts();
    support::far::reset_peak();
    (void)engine.generate(requests, {.temperature = 0.9, .max_new_tokens = tokens}, {.seed = 5});
    return std::pair(support::far::counts().since(before), support::far::peak_bytes());
  };
  (void)draw(20);
  const auto [few, at_few] = draw(4);
  const auto [some, at_some] = draw(12);
  const auto [many, at_many] = draw(20);
  CHECK(at_many <= at_few);  // pages are there
  CHECK(many.allocations - some.allocations == some.allocations - few.allocations);
  CHECK(many.copies_out - few.copies_out == 16);  // one a token step
  CHECK(many.scalars == 0);
}

TEST_CASE("the kernel makes the bits of the operators, for every code and part, in one launch") {
  const auto far = support::far::device();
  for (const auto code : {model::WeightCode::nf4, model::WeightCode::fp4, model::WeightCode::int8})
    for (const bool nested : {false, true})
      for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{24, 128}, {9, 40}, {5, 7}}) {
        if (nested && code == model::WeightCode::int8) continue;
        CAPTURE(static_cast<int>(code), nested, rows, columns);
        const model::Quantisation how{.code = code, .block = 64, .nested = nested};
        const auto w = model::quantise(at::randn({rows, columns}) * 0.1, how, "w").to(far);
        for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf})
          for (const auto& [row, count, column, width] :
               {std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>{0, rows, 0, columns},
                {2, rows - 3, 0, columns},
                {1, 2, columns / 2, columns / 4},
                {0, rows, 1, 3}}) {
            const auto expected = w.part_by_operators(row, count, column, width, type).to(at::kCPU);
            const support::far::WithKernels kernels;
            const auto before = support::far::counts();
            const auto found = w.part(row, count, column, width, type);
            const auto launched = support::far::counts().since(before);
            CHECK(found.to(at::kCPU).equal(expected));
            if (type == at::kHalf) continue;  // there is no kernel for it
            CHECK(launched.kernels == 1);
            CHECK(launched.operators == 0);
          }
      }
}

TEST_CASE(
    "a product with weights in bits is two launches where there are kernels, and its base takes 0.6 byte a weight") {
  const auto far = support::far::device();
  const auto w =
      model::quantise(at::randn({512, 512}) * 0.1, {.code = model::WeightCode::nf4, .block = 64, .nested = true}, "w");
  const auto held = support::far::held_bytes();
  const auto there = w.to(far);
  // Codes, scales and their tables; each allocation takes whole pages of 4 KB.
  CHECK(static_cast<double>(support::far::held_bytes() - held) <= 0.6 * 512 * 512 + 4 * 4096);
  CHECK(static_cast<double>(there.bytes()) <= 0.53 * 512 * 512);
  const auto x = at::randn({3, 512}).to(far);
  const auto expected = model::quantised_product(x, there).to(at::kCPU),
             expected_grad = model::quantised_input_gradient({}, x, there).to(at::kCPU);
  const support::far::WithKernels kernels;
  const auto before = support::far::counts();
  const auto y = model::quantised_product(x, there);
  const auto forward = support::far::counts().since(before);
  const auto grad = model::quantised_input_gradient({}, x, there);
  const auto backward = support::far::counts().since(before);
  CHECK((forward.kernels == 1 && forward.operators == 1));
  CHECK((backward.kernels == 2 && backward.operators == 2));
  CHECK(y.to(at::kCPU).equal(expected));
  CHECK(grad.to(at::kCPU).equal(expected_grad));
}

TEST_CASE("operators of a layer whose base is in 4 bits, with an adapter on every map, in a second micro-batch") {
  const auto of_pass = [](model::Decoder& decoder) {
    const std::vector<model::Sequence> rows = {{.prompt = prompt, .completion = completion}};
    const auto tree = model::build_tree(rows, {});
    const auto pass = [&] { decoder.score(tree, {}).log_prob.sum().backward(); };
    pass();
    const auto before = support::far::counts();
    pass();
    const auto count = support::far::counts().since(before);
    CHECK(count.scalars + count.copies_out == 0);
    CHECK(count.copies_in == 1);
    return count.operators + count.kernels;
  };
  const auto of_layer = [&](bool kernels, at::ScalarType type) {
    std::unique_ptr<support::far::WithKernels> with;
    if (kernels) with = std::make_unique<support::far::WithKernels>();
    auto decoder =
        model::load_decoder(std::filesystem::path(rlalgo::support::test_dir) / "golden/model/llama",
                            {.dtype = type, .device = support::far::device(), .quantisation = model::Quantisation{}});
    model::LoraConfig lora{.r = 3, .alpha = 6};
    lora.every_linear = true;
    model::attach_lora(*decoder, lora, 5);
    model::Decoder shorter = support::first_layer_of(*decoder);
    const auto all = of_pass(*decoder);
    return all - of_pass(shorter);
  };
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const auto operators = of_layer(false, type), kernels = of_layer(true, type);
    CAPTURE(c10::toString(type), operators, kernels);
    const bool narrow = type == at::kBFloat16;  // A and B are float32 there, and rounded for their products
    CHECK(operators <= (narrow ? 355 : 306));
    CHECK(kernels == (narrow ? 67 : 65));
  }
}
