// The log-prob head on a device: what it takes of the device's memory, and what it multiplies.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/core/metrics.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/lora.hpp>
#include <rlalgo/model/tree_builder.hpp>
#include <rlalgo/sampler/rollout_rows.hpp>
#include <rlalgo/tensor/log_prob_head.hpp>
#include <rlalgo/tensor/memory_peaks.hpp>
#include <rlalgo/trainer/experience.hpp>

#include <support/catch.hpp>
#include <support/far_device.hpp>
#include <support/far_kernels.hpp>

using namespace rlalgo;
namespace far = rlalgo::support::far;

namespace {

const auto golden = std::filesystem::path(rlalgo::support::test_dir) / "golden/model";

struct Shape {
  std::int64_t tokens, width, vocabulary;
  at::ScalarType type;
  bool trained = true, adds = false;  // the weight; its gradient is there
  tensor::LogProbOptions options = {.entropy = true, .adds_weight_gradient = true};
};

// Bytes of the device at most, forward and backward, beyond states, weight and their gradients.
std::int64_t extra_bytes(const Shape& s) {
  const auto options = at::TensorOptions().dtype(s.type).device(far::device());
  const at::Tensor hidden = at::empty({s.tokens, s.width}, options).requires_grad_();
  const at::Tensor weight = at::empty({s.vocabulary, s.width}, options).requires_grad_(s.trained);
  const at::Tensor targets = at::zeros({s.tokens}, options.dtype(at::kLong));
  if (s.adds) weight.mutable_grad() = at::zeros({s.vocabulary, s.width}, options);
  const at::Tensor along = at::ones({2, s.tokens}, options.dtype(at::kFloat));
  const auto held = static_cast<std::int64_t>(far::held_bytes());
  (void)tensor::take_memory_peaks(far::device());
  const at::NoGradGuard no_grad;
  tensor::detail::LogProbTiles head(hidden, weight, {}, targets, s.options);
  (void)head.forward(true);
  const auto gradients = head.backward(along);
  const std::int64_t most = tensor::take_memory_peaks(far::device())->allocated;
  CHECK(gradients[0].sizes() == hidden.sizes());
  CHECK(weight.grad().defined() == s.trained);
  const bool made = s.trained && !s.adds;
  return most - held - static_cast<std::int64_t>(hidden.nbytes() + (made ? weight.nbytes() : 0));
}

std::unique_ptr<far::WithKernels> with_kernels(bool wanted) {
  return wanted ? std::make_unique<far::WithKernels>() : nullptr;
}

// Products whose sides add up to such columns: of the head, whose vocabulary no layer's width is.
std::int64_t products(const far::Counts& counts) {
  std::int64_t out = 0;
  for (const auto& [name, count] : counts.by_name)
    if (name.find("addmm") != std::string::npos) out += count;
  return out;
}

const std::vector<std::int32_t> prompt = {3, 61, 7, 12}, completion = {20, 33, 41, 2, 58, 9, 16, 30};

model::TokenTree tree_of(std::size_t targets) {
  const std::vector<model::Sequence> rows = {
      {.prompt = prompt, .completion = std::span<const std::int32_t>(completion).first(targets)}};
  return model::build_tree(rows, {});
}

}  // namespace

TEST_CASE("the head takes at most 256 MB of a device, however many tokens and ids there are") {
  // Logits and their gradients, and two sums: 235 MB with the kernels. Each part by itself, a third of that and less:
  constexpr std::int64_t most = std::int64_t{1} << 24;  // elements
  static_assert((4 + 2 + 4 + 4) * most <= 256'000'000);
  const std::int64_t part = 4 * most + 8'000'000;
  {
    const far::WithKernels kernels;
    // A large vocabulary, of few tokens: what is summed apart is a part of the weight.
    CHECK(extra_bytes({3, 1536, 16384, at::kBFloat16}) <= part);
    // Many states: what is summed apart is a part of them.
    CHECK(extra_bytes({80, 262144, 4, at::kBFloat16}) <= part);
  }
  CHECK(extra_bytes({80, 262144, 4, at::kBFloat16}) <= 2 * part);  // and states of a tile
  // Operators: no more for twice the tokens, which take some numbers each; beside a gradient that is there no logits are kept.
  const tensor::LogProbOptions small = {
      .entropy = true, .tile_tokens = 64, .tile_vocabulary = 64, .cache_bytes = 0, .adds_weight_gradient = true};
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat}) {
    CAPTURE(c10::toString(type));
    const auto of = [&](std::int64_t tokens) { return extra_bytes({tokens, 8, 128, type, true, false, small}); };
    CHECK(of(512) - of(256) <= 256 * 96);
    CHECK(extra_bytes({64, 64, 2048, type, true, true, small}) <= 300'000);
  }
}

TEST_CASE("states in blocks have the gradients of all states at once, by operators") {
  at::manual_seed(3);
  // Of such a width 2²⁴ elements are four tokens.
  const std::int64_t tokens = 5, width = std::int64_t{1} << 22U, vocabulary = 2;
  const auto draw = [](at::IntArrayRef sizes) {
    return at::arange(sizes[0] * sizes[1], at::kFloat).remainder_(17).sub_(8).mul_(0.001).view(sizes).to(at::kBFloat16);
  };
  const at::Tensor states = draw({tokens, width}), weight = draw({vocabulary, width}),
                   targets = at::tensor({0, 1, 1, 0, 1}, at::kLong);
  const auto gradients = [&](at::Device device, at::ScalarType type) {
    const at::Tensor h = states.to(device).to(type).requires_grad_(), w = weight.to(device).to(type).requires_grad_();
    const auto out = tensor::log_prob_head(h, w, targets.to(device), {.tile_tokens = 2, .adds_weight_gradient = true});
    out.log_prob.sum().backward();
    return std::pair(h.grad().to(at::kCPU).to(at::kFloat), w.grad().to(at::kCPU).to(at::kFloat));
  };
  const auto [h, w] = gradients(at::kCPU, at::kFloat);
  const auto [of_states, of_weight] = gradients(far::device(), at::kBFloat16);
  CHECK((of_states - h).abs().max().item<double>() < 0.01 * h.abs().max().item<double>());
  CHECK((of_weight - w).abs().max().item<double>() < 0.02 * w.abs().max().item<double>());
}

TEST_CASE("bfloat16 is multiplied as it is on a device, with sums in float32") {
  const auto options = at::TensorOptions().dtype(at::kBFloat16).device(far::device());
  const far::WithKernels kernels;
  const at::Tensor hidden = at::ones({4, 16}, options).requires_grad_(),
                   weight = at::ones({24, 16}, options).requires_grad_();
  const auto before = far::counts();
  tensor::log_prob_head(hidden, weight, at::zeros({4}, options.dtype(at::kLong)), {}).log_prob.sum().backward();
  const auto counts = far::counts().since(before);
  CHECK(counts.by_name.at("aten::addmm.dtype_out") == 4);  // logits twice, both gradients
  CHECK(products(counts) == 4);
}

TEST_CASE("a head that is not trained has no gradient and no product for it") {
  // Products of a model with adapters of which the first trains its head as well, and the other does not.
  const auto count = [](bool kernels, bool trained) {
    const auto with = with_kernels(kernels);
    const auto decoder = model::load_decoder(golden / "llama", {.dtype = at::kFloat, .device = support::far::device()});
    model::LoraConfig lora{.r = 3, .alpha = 6, .target_modules = {"q_proj"}};
    if (trained) lora.modules_to_save = {"lm_head"};
    model::attach_lora(*decoder, lora, 5);
    const auto pass = [&] { decoder->score(tree_of(8), {.entropy = true}).log_prob.sum().backward(); };
    pass();
    const auto before = far::counts();
    pass();
    CHECK(decoder->weights().lm_head.grad().defined() == trained);
    CHECK(decoder->weights().lm_head.requires_grad() == trained);
    return products(far::counts().since(before));
  };
  for (const bool kernels : {true, false}) {
    CAPTURE(kernels);
    CHECK(count(kernels, true) - count(kernels, false) == 1);
  }
}

TEST_CASE("a head that is the embedding, too, has both gradients in one, and none where neither is trained") {
  for (const bool kernels : {true, false}) {
    const auto with = with_kernels(kernels);
    CAPTURE(kernels);
    const auto tied = model::load_decoder(golden / "qwen2", {.dtype = at::kFloat, .device = support::far::device()});
    REQUIRE(tied->config().tied_embeddings);
    const auto gradient = [](model::Decoder& decoder) {
      decoder.score(tree_of(8), {.temperature = 0.7}).log_prob.sum().backward();
    };
    gradient(*tied);
    const at::Tensor whole = tied->weights().embedding.grad().to(at::kCPU);
    // The same with a head of its own.
    auto weights = tied->weights();
    auto hf = tied->hf_config();
    hf.decoder.tied_embeddings = false;
    weights.embedding = weights.embedding.detach().clone().requires_grad_();
    weights.lm_head = weights.embedding.detach().clone().requires_grad_();
    model::Decoder apart(hf, weights);
    gradient(apart);
    const at::Tensor of_head = apart.weights().lm_head.grad().to(at::kCPU),
                     of_embedding = apart.weights().embedding.grad().to(at::kCPU);
    CHECK(of_head.abs().max().item<double>() > 0.01);
    CHECK(of_embedding.abs().max().item<double>() > 0.01);
    CHECK(whole.allclose(of_head + of_embedding, 1e-4, 1e-5));
    // Adapters alone.
    const auto frozen = model::load_decoder(golden / "qwen2", {.dtype = at::kFloat, .device = support::far::device()});
    model::attach_lora(*frozen, {.r = 3, .alpha = 6, .target_modules = {"q_proj"}}, 5);
    gradient(*frozen);
    CHECK_FALSE(frozen->weights().embedding.grad().defined());
    CHECK_FALSE(frozen->weights().lm_head.grad().defined());
  }
}

TEST_CASE("a cap bends the logits of a device with kernels and without") {
  const auto pass = [](at::Device device) {
    const auto decoder = model::load_decoder(golden / "gemma2", {.dtype = at::kFloat, .device = device});
    REQUIRE(decoder->config().logit_cap > 0.0);
    const auto scores = decoder->score(tree_of(8), {.entropy = true});
    scores.log_prob.sum().backward();
    return std::pair(scores.log_prob.detach().to(at::kCPU), decoder->weights().embedding.grad().to(at::kCPU));
  };
  const auto [log_prob, gradient] = pass(at::kCPU);
  for (const bool kernels : {true, false}) {
    const auto with = with_kernels(kernels);
    const auto [found, of] = pass(far::device());
    CAPTURE(kernels);
    CHECK(found.allclose(log_prob, 1e-4, 1e-5));
    CHECK(of.allclose(gradient, 1e-3, 1e-5));
  }
}

TEST_CASE(
    "the head multiplies the states of tokens with loss alone: no prompt, no masked token, no row of advantage 0") {
  const auto decoder = model::load_decoder(golden / "llama", {.dtype = at::kFloat, .device = support::far::device()});
  const std::int64_t vocabulary = decoder->config().vocab_size;
  std::vector<data::Episode> group(3);
  for (data::Episode& e : group) e.first().prompt_ids = prompt, e.advantage = 1.0;
  group[0].first().completion_ids = {20, 33, 41, 2, 58};
  group[0].first().loss_mask = {1, 0, 0, 0, 1};  // a tool answered
  group[1].first().completion_ids = {9, 16, 30};
  group[1].first().loss_mask = {0, 0, 0};  // cut off
  group[2].first().completion_ids = {8, 9};
  std::vector<data::Episode*> episodes;
  for (data::Episode& e : group) episodes.push_back(&e);
  auto rows = sampler::RolloutRows::rows_of(episodes);
  const auto multiplied = [&] {
    std::vector<data::EpisodeRow*> part;
    for (auto& row : rows) part.push_back(&row);
    core::Metrics metrics;
    const std::vector<std::vector<data::EpisodeRow*>> parts = {part};
    const auto kept = trainer::detail::without_idle_rows<sampler::RolloutRows>(parts, metrics).front();
    const std::vector<const data::EpisodeRow*> view(kept.begin(), kept.end());
    const auto tree = sampler::RolloutRows::tree(view);
    const auto before = far::counts();
    decoder->score(tree, {}).log_prob.sum().backward();
    return far::counts().since(before).rows.at(vocabulary);
  };
  for (const bool kernels : {true, false}) {
    const auto with = with_kernels(kernels);
    CAPTURE(kernels);
    const std::int64_t passes =
        kernels ? 2 : 1;  // with the kernels logits are computed again, backward; else they are kept
    for (auto& e : group) e.advantage = 1.0;
    CHECK(multiplied() == passes * (2 + 1 + 2));  // of the row that is masked the last token stays
    group[2].advantage = 0.0;
    CHECK(multiplied() == passes * (2 + 1));
  }
}
