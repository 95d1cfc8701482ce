// Prompts by attention in one call on the far device: the CPU's numbers, in chunks, behind cached prefixes and beside what decodes; what a
// pass launches.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <rlalgo/inference/decoder_engine.hpp>
#include <rlalgo/inference/local_engine.hpp>
#include <rlalgo/inference/memory_share.hpp>
#include <rlalgo/model/load.hpp>

#include <support/catch.hpp>
#include <support/far_device.hpp>
#include <support/far_kernels.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;

namespace {

const auto golden = std::filesystem::path(rlalgo::support::test_dir) / "golden/model";

std::unique_ptr<model::Decoder> far_decoder(const std::string& family, at::ScalarType dtype) {
  return model::load_decoder(golden / family, {.dtype = dtype, .device = support::far::device()});
}

// Prompts of one row, shorter and longer than a page, that begin alike; more arrive while some decode.
std::vector<data::Completion> drawn(const model::Decoder& decoder, std::int64_t prefill_rows) {
  const inference::EngineConfig config = {.prefill_rows = prefill_rows, .prefill_ahead = 0};
  inference::DecoderEngine engine(decoder.config(), config.for_weights(decoder.weights()));
  engine.scheduler().set_weights(engine.view(decoder.weights()));
  const std::vector<std::int64_t> lengths = {1, 40, 33, 5};
  std::vector<data::Completion> out(lengths.size());
  for (std::size_t r = 0; r < lengths.size(); ++r) {
    inference::RequestSpec spec{.sampling = {.temperature = 0.9, .max_new_tokens = 3},
                                .key = {.seed = 5},
                                .first_index = 10 * r,
                                .ignore_eos = true};
    for (std::int64_t i = 0; i < lengths[r]; ++i)
      spec.prompt.push_back(static_cast<data::TokenId>((i * 37 + i * i + (i > 31 ? 3 * r : 0)) %
                                                       static_cast<std::uint64_t>(decoder.config().vocab_size)));
    spec.on_end = [&to = out[r]](inference::RequestId, inference::RequestResult&& result) {
      to = std::move(result.completions[0].completion);
    };
    (void)engine.scheduler().submit(std::move(spec));
    if (r == 1) engine.scheduler().step();
  }
  engine.scheduler().drain();
  return out;
}

// Attention in one call, and no kernel of the project's own, which are slow on the host.
struct OnlyAttention {
  support::far::WithKernels kernels;
  OnlyAttention() { set(false); }
  ~OnlyAttention() { set(true); }
  OnlyAttention(const OnlyAttention&) = delete;
  OnlyAttention& operator=(const OnlyAttention&) = delete;

  static void set(bool others) {
    for (std::size_t i = 0; i < cuda::kernel_names.size(); ++i)
      if (const auto kernel = static_cast<cuda::Kernel>(i); kernel != cuda::Kernel::flash_attention)
        cuda::use(kernel, others);
  }
};

}  // namespace

TEST_CASE("prompts in one call draw the CPU's tokens, whatever a pass has of them") {
  for (const std::string family : {"qwen2", "qwen2_window", "gemma3", "gpt_oss", "gemma2"}) {
    INFO(family);
    const auto near = model::load_decoder(golden / family);
    const auto far = far_decoder(family, at::kFloat);
    const auto exact = drawn(*near, 256);
    const OnlyAttention only;
    for (const std::int64_t rows : {7, 50}) {
      const auto before = support::far::counts();
      const auto found = drawn(*far, rows);
      const auto launched = support::far::counts().since(before).kernels;
      CHECK((launched > 0) == (family != "gemma2"));  // which caps its scores
      for (std::size_t r = 0; r < exact.size(); ++r) {
        CHECK(found[r].ids == exact[r].ids);
        for (std::size_t t = 0; t < exact[r].log_probs.size(); ++t)
          CHECK(std::abs(found[r].log_probs[t] - exact[r].log_probs[t]) < 1e-4F);
      }
      if (family != "qwen2") break;
    }
  }
}

TEST_CASE("a pass of several prompts is one call of attention a layer, and keeps no scores") {
  const auto far = far_decoder("qwen2", at::kBFloat16);
  const std::int64_t layers = far->config().layers;
  const auto pass = [&](std::size_t prompts) {
    inference::DecoderEngine engine(far->config(), inference::EngineConfig{}.for_weights(far->weights()));
    engine.scheduler().set_weights(engine.view(far->weights()));
    for (std::size_t r = 0; r < prompts; ++r) {
      inference::RequestSpec spec{.sampling = {.max_new_tokens = 1}, .ignore_eos = true};
      for (std::size_t i = 0; i < 40 + r; ++i) spec.prompt.push_back(static_cast<data::TokenId>((7 * i + r) % 50));
      (void)engine.scheduler().submit(std::move(spec));
    }
    const auto before = support::far::counts();
    engine.scheduler().step();
    return support::far::counts().since(before);
  };
  const auto pieces_of_three = pass(3);
  const OnlyAttention only;
  const auto one = pass(1), three = pass(3);
  CAPTURE(pieces_of_three.operators, one.operators, one.kernels, three.operators, three.kernels);
  CHECK(three.operators == one.operators);  // whatever there is of prompts
  CHECK(three.kernels == layers);
  CHECK(one.kernels == layers);
  CHECK(three.copies_in == pieces_of_three.copies_in);
  CHECK(three.by_name.count("aten::softmax.int") + three.by_name.count("aten::_softmax") == 0);
  CHECK(pieces_of_three.operators - three.operators > 40 * layers);
}

TEST_CASE("the estimate of a share has no scores where nothing keeps any") {
  const auto far = far_decoder("qwen2", at::kBFloat16);
  const inference::EngineConfig engine = inference::EngineConfig{.max_slots = 64}.for_weights(far->weights());
  const auto share = [&] { return inference::memory_share(far->config(), far->weights(), engine, 0.5, 2048).passes; };
  const double with = share();
  const support::far::WithKernels kernels;
  CHECK(share() < with - 3.0 * 4.0 * 1e6);
}
