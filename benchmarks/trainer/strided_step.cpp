// One step of strided EBFT over one document (draw, reward, train, AdamW): prefill, cached blocks and a token tree, beside
// the algorithm of axolotl 0.19 in LibTorch operations, which lays every sample out as a row of its own, encodes all rows
// anew for every token and computes the head at every position of every pass.
//
// The baseline has axolotl's two mistakes mended (rows of the predictors, order of the advantages) and attention that is
// fused; before anything is measured, both sides compute losses and gradient of the same blocks, and have to agree.
//
// Settings: stride = G = context = 8, n = 4, temperature 1, likelihood 0.03, whitening. Counters: seconds of generation,
// rewards and training; token-forwards and rows of the head of each; whitening_ms, from inner products (the baseline:
// from features) to whitened ones, all blocks; MB, the peak of resident memory above its level before the step (weights,
// frozen network and optimizer state are there already, gradients are not). Threads: --threads=N before all other
// arguments. One iteration is one step; take --benchmark_filter for a fresh process each.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/inference/block_engine.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/optim/adamw.hpp>
#include <rlalgo/optim/clip.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/strided_ebft.hpp>

#include "../model/memory.hpp"
#include "../threads.hpp"

using namespace rlalgo;
using at::Tensor;
using Trainer = trainer::StridedTrainer<StridedEbft::Loss, inference::BlockEngine>;

namespace {

constexpr std::int64_t stride = 8, block_tokens = 8, samples = 4;
constexpr double likelihood = 0.03;

// The shapes of SmolLM2-135M, which has 30 layers.
model::HfConfig shapes(std::int64_t layers, std::int64_t vocabulary = 49152, std::int64_t hidden = 576) {
  return model::parse_hf_config({{"model_type", "llama"},
                                 {"max_position_embeddings", 2048},
                                 {"rms_norm_eps", 1e-5},
                                 {"tie_word_embeddings", true},
                                 {"vocab_size", vocabulary},
                                 {"hidden_size", hidden},
                                 {"intermediate_size", hidden * 8 / 3},
                                 {"num_hidden_layers", layers},
                                 {"num_attention_heads", hidden / 64},
                                 {"num_key_value_heads", hidden / 192},
                                 {"head_dim", 64},
                                 {"rope_theta", 100000.0}},
                                "benchmark");
}

data::Document document_of(std::int64_t tokens, std::int64_t vocabulary) {
  data::Document out;
  for (std::int64_t i = 0; i < tokens; ++i)
    out.ids.push_back(static_cast<data::TokenId>((i * 7919 + i * i % 31) % vocabulary));
  out.loss_mask.assign(out.ids.size(), 1);
  return out;
}

// Work and time of one step.
struct Work {
  double generate = 0, reward = 0, train = 0;  // seconds; the optimizer is in train
  std::int64_t generate_tokens = 0, generate_head = 0, reward_tokens = 0, reward_head = 0, train_tokens = 0,
               train_head = 0;
  double whitening = 0;  // seconds
};

// ------------------------------------------------------------------------------------------------------------- ours
class Ours {
 public:
  Ours(std::unique_ptr<model::Decoder> decoder, data::Document document)
      : policy_(std::move(decoder)), network_(policy_->frozen_copy(), depths()), document_(std::move(document)) {
    TrainConfig<StridedEbft> config;
    config.method.loss.cross_entropy = likelihood;
    config.run.sampling = {.stride = stride,
                           .context_length = stride,
                           .generate_max_len = block_tokens,
                           .samples = samples,
                           .temperature = 1.0,
                           .matching = {.whitening = feature::Whitening::feature}};
    config.run.trainer.schedule = {.name = "constant", .learning_rate = 1e-6, .total_steps = 1000};
    config.run.trainer.loop.max_steps = 1000;
    trainer_ = std::make_unique<Trainer>(make_trainer<StridedEbft>(
        config, trainer::StridedInputs<inference::BlockEngine>{
                    .policy = policy_,
                    .generator = engine_,
                    .documents = {document_},
                    .network = network_,
                    .on_documents = [this](std::int64_t, const auto& rows) { drawn_ = rows.front(); }}));
  }

  Work step(std::int64_t index) {
    const inference::BlockEngine::Counts before = engine_.counts();
    const run::StepResult result = trainer_->step(index);
    Work work;
    for (const auto& [name, seconds] : result.seconds)
      (name == "generate" ? work.generate : name == "reward" ? work.reward : work.train) += seconds;
    work.generate_tokens = engine_.counts().forward_rows - before.forward_rows;
    work.generate_head = engine_.counts().head_rows - before.head_rows;
    return work;
  }

  // What is not measured inside of a step, of the blocks of the last one.
  void count(Work& work) {
    const sampler::StridedDocument* row = &drawn_;
    const model::TokenTree tree = sampler::StridedRows::tree(std::span(&row, 1), StridedEbft::Loss::needs);
    work.train_tokens = tree.tokens();
    work.train_head = tree.targets();
    work.reward_tokens =
        static_cast<std::int64_t>(document_.ids.size() + drawn_.blocks.size() * samples * block_tokens);
    std::vector<feature::SampledBlock> views;
    for (const sampler::Block& block : drawn_.blocks) views.push_back({block.start, block.samples});
    const auto grams = feature::block_grams(network_, document_.ids, views, feature::Pooling::last_token);
    const os::Stopwatch watch;
    for (const feature::Gram& gram : grams)
      benchmark::DoNotOptimize(feature::match(gram, {.whitening = feature::Whitening::feature}));
    work.whitening = watch.seconds();
  }

  // Loss and gradient of the blocks of the last step, with these advantages per sample, block after block.
  std::pair<double, Tensor> losses(const std::vector<double>& advantages) {
    std::size_t i = 0;
    for (sampler::Block& block : drawn_.blocks) {
      block.advantage.assign(advantages.begin() + static_cast<std::ptrdiff_t>(i),
                             advantages.begin() + static_cast<std::ptrdiff_t>(i + samples));
      i += samples;
    }
    const sampler::StridedDocument* row = &drawn_;
    loss::Counts counts{.micro_batches = 1};
    sampler::StridedRows::count(std::span(&row, 1), StridedEbft::Loss::needs, counts);
    const auto scores = policy_->score(sampler::StridedRows::tree(std::span(&row, 1), StridedEbft::Loss::needs), {});
    const StridedEbft::Loss loss({.policy = 1.0, .cross_entropy = likelihood, .prefix = ""}, StridedEbft::Score({}));
    const loss::Result result =
        loss(sampler::StridedRows::collate(std::span(&row, 1), scores, StridedEbft::Loss::needs), counts);
    result.value.backward();
    return {result.value.item<double>(), policy_->weights().embedding.grad()};
  }

  [[nodiscard]] model::Decoder& policy() { return *policy_; }
  [[nodiscard]] const sampler::StridedDocument& drawn() const { return drawn_; }

 private:
  std::vector<std::int64_t> depths() const {
    return feature::tap_depths(std::vector<double>{0.25, 0.5, 0.75}, policy_->config().layers);
  }

  std::shared_ptr<model::Decoder> policy_;
  feature::FeatureNetwork network_;
  data::Document document_;
  inference::BlockEngine engine_{policy_->config(), policy_->weights()};
  sampler::StridedDocument drawn_;
  std::unique_ptr<Trainer> trainer_;
};

// ------------------------------------------------------------------------------------------- the algorithm of axolotl
// Rows are document and blocks: S + K·G tokens, token t of block k at S + t·K + k.
class Plain {
 public:
  Plain(std::unique_ptr<model::Decoder> decoder, const data::Document& document)
      : policy_(std::move(decoder)),
        frozen_(policy_->frozen_copy()),
        optimizer_(policy_->parameters()),
        tokens_(static_cast<std::int64_t>(document.ids.size())),
        blocks_((tokens_ - 2 * block_tokens) / stride + 1) {
    ids_ = at::zeros({samples, tokens_}, at::kLong);
    for (std::int64_t i = 0; i < tokens_; ++i) ids_.select(1, i).fill_(document.ids[static_cast<std::size_t>(i)]);
    depths_ = feature::tap_depths(std::vector<double>{0.25, 0.5, 0.75}, policy_->config().layers);
  }

  Work step() {
    Work work;
    os::Stopwatch generating;
    const Tensor rows = generate(work);  // [n, L]
    work.generate = generating.seconds();
    os::Stopwatch rewarding;
    const Tensor advantages = reward(rows, work);  // [n, K]
    work.reward = rewarding.seconds();
    const os::Stopwatch training;
    losses(rows, advantages, work).backward();
    std::vector<Tensor> gradients;
    for (const auto& p : policy_->parameters()) gradients.push_back(p.value.grad());
    optim::clip_grad_norm(gradients, 1.0);
    optimizer_.step(1e-6);
    optimizer_.zero_grad();
    work.train = training.seconds();
    return work;
  }

  // Rows of blocks that were drawn elsewhere.
  [[nodiscard]] Tensor rows_of(const std::vector<sampler::Block>& blocks) const {
    Tensor drawn = at::zeros({samples, blocks_ * block_tokens}, at::kLong);
    for (std::int64_t k = 0; k < blocks_; ++k)
      for (std::int64_t j = 0; j < samples; ++j)
        for (std::int64_t t = 0; t < block_tokens; ++t)
          drawn[j][t * blocks_ + k] =
              blocks[static_cast<std::size_t>(k)].samples[static_cast<std::size_t>(j)][static_cast<std::size_t>(t)];
    return at::cat({ids_, drawn}, 1);
  }

  // rl + likelihood of the rows, with graph.
  Tensor losses(const Tensor& rows, const Tensor& advantages, Work& work) {
    const std::int64_t length = rows.size(1), places = length - 1;
    const Tensor logits = head(*policy_, hidden(*policy_, rows, block_tokens, nullptr));  // [n, L, V]
    work.train_tokens += rows.numel();
    work.train_head += rows.numel();
    const Tensor predictors = predictor_rows();        // [L − 1]
    const Tensor targets = rows.narrow(1, 1, places);  // [n, L − 1]
    std::vector<Tensor> parts;
    for (std::int64_t i = 0; i < places; i += 256) {
      const std::int64_t size = std::min<std::int64_t>(256, places - i);
      parts.push_back(logits.index_select(1, predictors.narrow(0, i, size))
                          .log_softmax(-1)
                          .gather(-1, targets.narrow(1, i, size).unsqueeze(-1))
                          .squeeze(-1));
    }
    const Tensor log_prob = at::cat(parts, 1);  // [n, L − 1]
    const Tensor tiled = advantages.repeat({1, block_tokens});
    const Tensor rl = -(log_prob.narrow(1, tokens_ - 1, length - tokens_) * tiled).mean();
    return rl - likelihood * log_prob.narrow(1, 0, tokens_ - 1).mean();
  }

  // Advantages of feature matching, [n, K].
  Tensor reward(const Tensor& rows, Work& work) {
    const c10::NoGradGuard no_gradient;
    std::vector<Tensor> taps;
    const Tensor states = hidden(*frozen_, rows, block_tokens, &taps);
    benchmark::DoNotOptimize(head(*frozen_, states));
    work.reward_tokens += rows.numel();
    work.reward_head += rows.numel();
    const Tensor blocks = at::arange(blocks_, at::kLong);
    const Tensor drawn_at = tokens_ + (block_tokens - 1) * blocks_ + blocks;
    const Tensor truth_at = stride + blocks * stride + block_tokens - 1;
    std::vector<Tensor> drawn_parts, truth_parts;
    for (const std::int64_t depth : depths_) {
      const Tensor& tap = taps[static_cast<std::size_t>(depth)];
      drawn_parts.push_back(tap.index_select(1, drawn_at));
      truth_parts.push_back(tap.index_select(1, truth_at));
    }
    const auto unit = [](const Tensor& x) { return x / x.norm(2, {-1}, true).clamp_min(1e-12); };
    const Tensor drawn = unit(at::cat(drawn_parts, -1));  // [n, K, D]
    const Tensor truth = unit(at::cat(truth_parts, -1));  // [n, K, D]
    Tensor rewards = at::zeros({samples, blocks_});
    for (std::int64_t k = 0; k < blocks_; ++k) {
      const os::Stopwatch watch;
      const Tensor phi = drawn.select(1, k), y = truth.select(1, k);  // [n, D]
      const auto [u, s, v] = at::linalg_svd(phi.t(), false);          // [D, n], [n]
      const Tensor inverse = at::where(s > 1e-5 * s.max(), 1.0 / (s + 1e-12), at::zeros_like(s));
      const Tensor map = at::matmul(u * inverse, u.t());  // [D, D]
      const Tensor white = at::matmul(phi, map), target = at::matmul(y, map);
      work.whitening += watch.seconds();
      const Tensor among = at::matmul(white, white.t());
      const Tensor others = (among.sum(1) - among.diagonal()) / static_cast<double>(samples - 1);
      rewards.select(1, k).copy_(2.0 * (at::cosine_similarity(white, target, -1) - others));
    }
    return rewards - (rewards.sum(0, true) - rewards) / static_cast<double>(samples - 1);
  }

  [[nodiscard]] model::Decoder& policy() { return *policy_; }

 private:
  Tensor generate(Work& work) {
    const c10::NoGradGuard no_gradient;
    Tensor rows = ids_;
    for (std::int64_t t = 0; t < block_tokens; ++t) {
      const Tensor logits = head(*policy_, hidden(*policy_, rows, t, nullptr));  // [n, S + t·K, V]
      work.generate_tokens += rows.numel();
      work.generate_head += rows.numel();
      const Tensor blocks = at::arange(blocks_, at::kLong);
      const Tensor places = t == 0 ? stride + blocks * stride - 1 : tokens_ + (t - 1) * blocks_ + blocks;
      const Tensor chosen = logits.index_select(1, places).softmax(-1).flatten(0, 1).multinomial(1);
      rows = at::cat({rows, chosen.view({samples, blocks_})}, 1);
    }
    return rows;
  }

  // [L − 1] the place whose hidden state predicts the token after each.
  [[nodiscard]] Tensor predictor_rows() const {
    const Tensor blocks = at::arange(blocks_, at::kLong);
    std::vector<Tensor> parts = {at::arange(tokens_ - 1, at::kLong), stride + blocks * stride - 1};
    for (std::int64_t t = 1; t < block_tokens; ++t) parts.push_back(tokens_ + (t - 1) * blocks_ + blocks);
    return at::cat(parts);
  }

  static Tensor head(const model::Decoder& decoder, const Tensor& x) {
    return at::linear(x, decoder.weights().lm_head);
  }

  // [L, L] what each place attends to, as 0 and −∞, after `steps` tokens of every block; [L] positions.
  [[nodiscard]] std::pair<Tensor, Tensor> layout(std::int64_t steps) const {
    const std::int64_t length = tokens_ + steps * blocks_;
    const Tensor place = at::arange(length, at::kLong), drawn = place >= tokens_;
    const Tensor block = (place - tokens_).remainder(blocks_), token = (place - tokens_).div(blocks_, "floor");
    const Tensor start = stride + block * stride;
    const Tensor q = place.unsqueeze(1), x = place.unsqueeze(0);
    const Tensor both_drawn = drawn.unsqueeze(1) & drawn.unsqueeze(0);
    const Tensor seen =
        (~drawn.unsqueeze(1) & ~drawn.unsqueeze(0) & (x <= q)) |
        (drawn.unsqueeze(1) & ~drawn.unsqueeze(0) & (x < start.unsqueeze(1))) |
        (both_drawn & (block.unsqueeze(1) == block.unsqueeze(0)) & (token.unsqueeze(0) <= token.unsqueeze(1)));
    return {at::zeros({length, length}).masked_fill_(~seen, -std::numeric_limits<float>::infinity()),
            at::where(drawn, start + token, place)};
  }

  // States after the final norm [n, L, H]; `taps` receives those of the embedding and of every layer.
  Tensor hidden(const model::Decoder& decoder, const Tensor& ids, std::int64_t steps, std::vector<Tensor>* taps) const {
    const auto& c = decoder.config();
    const auto& w = decoder.weights();
    const std::int64_t rows = ids.size(0), length = ids.size(1);
    const auto [mask, positions] = layout(steps);
    const auto norm = [&](const Tensor& x, const Tensor& weight) {
      return weight * (x * (x.pow(2).mean(-1, true) + c.norm.epsilon).rsqrt());
    };
    const Tensor angle =
        at::outer(positions.to(at::kFloat), model::rope_frequencies(c.ropes[0], c.head_dim)).repeat({1, 2});
    const Tensor cosine = angle.cos(), sine = angle.sin();
    const auto rotate = [&](const Tensor& x) {
      const auto halves = x.chunk(2, -1);
      return x * cosine + at::cat({-halves[1], halves[0]}, -1) * sine;
    };
    const std::int64_t shared = c.heads / c.kv_heads;
    Tensor x = at::embedding(w.embedding, ids);
    if (taps != nullptr) taps->push_back(x);
    for (const auto& layer : w.layers) {
      const Tensor n = norm(x, layer.attention_norm);
      const auto heads = [&](const model::Linear& map, std::int64_t count) {
        return at::linear(n, map.weight).view({rows, length, count, c.head_dim}).transpose(1, 2);
      };
      const auto spread = [&](const Tensor& kv) { return kv.repeat_interleave(shared, 1); };
      const Tensor attended = at::scaled_dot_product_attention(rotate(heads(layer.q_proj, c.heads)),
                                                               spread(rotate(heads(layer.k_proj, c.kv_heads))),
                                                               spread(heads(layer.v_proj, c.kv_heads)), mask);
      x = x + at::linear(attended.transpose(1, 2).reshape({rows, length, -1}), layer.o_proj.weight);
      const Tensor u = norm(x, layer.mlp_norm);
      x = x + at::linear(at::silu(at::linear(u, layer.gate_proj.weight)) * at::linear(u, layer.up_proj.weight),
                         layer.down_proj.weight);
      if (taps != nullptr) taps->push_back(x);
    }
    return norm(x, w.final_norm);
  }

  std::shared_ptr<model::Decoder> policy_;
  std::unique_ptr<model::Decoder> frozen_;
  optim::AdamW optimizer_;
  std::int64_t tokens_, blocks_;  // S, K
  Tensor ids_;                    // [n, S]
  std::vector<std::int64_t> depths_;
};

// ------------------------------------------------------------------------------------------------------------------
// Both sides of a small model on the same blocks with the same advantages: loss and gradient, and the rewards' own.
void compare() {
  const std::int64_t vocabulary = 211, hidden = 192;
  const data::Document document = document_of(45, vocabulary);
  Ours ours(model::random_decoder(shapes(4, vocabulary, hidden), 3), document);
  ours.step(0);
  Plain plain(model::random_decoder(shapes(4, vocabulary, hidden), 3), document);
  Work work;
  const Tensor rows = plain.rows_of(ours.drawn().blocks);
  const Tensor advantages = plain.reward(rows, work);  // [n, K]
  const auto blocks = static_cast<std::int64_t>(ours.drawn().blocks.size());
  double rewards_apart = 0;
  std::vector<double> flat;
  for (std::int64_t k = 0; k < blocks; ++k) {
    const sampler::Block& block = ours.drawn().blocks[static_cast<std::size_t>(k)];
    const std::vector<double> naive = feature::LeaveOneOut()(block.alignment, block.diversity);
    for (std::int64_t j = 0; j < samples; ++j) {
      flat.push_back(advantages[j][k].item<double>());
      rewards_apart = std::max(rewards_apart, std::abs(flat.back() - naive[static_cast<std::size_t>(j)]));
    }
  }
  // The step moved the weights: the same numbers on the weights that both have now.
  {
    const c10::NoGradGuard no_gradient;
    auto mine = ours.policy().parameters(), theirs = plain.policy().parameters();
    for (std::size_t i = 0; i < mine.size(); ++i) theirs[i].value.copy_(mine[i].value);
  }
  const auto [value, gradient] = ours.losses(flat);
  const Tensor other = plain.losses(rows, advantages, work);
  other.backward();
  const Tensor other_gradient = plain.policy().weights().embedding.grad();
  const double loss_apart = std::abs(value - other.item<double>()) / std::abs(value);
  const double gradient_apart = ((gradient - other_gradient).norm() / gradient.norm()).item<double>();
  std::cout << "same blocks on both sides: advantages differ by " << rewards_apart << ", losses by " << loss_apart
            << ", gradients by " << gradient_apart << " (relative)\n";
  if (!(rewards_apart < 1e-3 && loss_apart < 1e-4 && gradient_apart < 1e-4)) {
    std::cerr << "the two sides compute different things\n";
    std::exit(1);
  }
}

void report(benchmark::State& state, const Work& work, double megabytes) {
  const auto set = [&](const char* name, double value) { state.counters[name] = value; };
  set("s_generate", work.generate);
  set("s_reward", work.reward);
  set("s_train", work.train);
  set("generate_tokens", static_cast<double>(work.generate_tokens));
  set("generate_head", static_cast<double>(work.generate_head));
  set("reward_tokens", static_cast<double>(work.reward_tokens));
  set("reward_head", static_cast<double>(work.reward_head));
  set("train_tokens", static_cast<double>(work.train_tokens));
  set("train_head", static_cast<double>(work.train_head));
  set("whitening_ms", work.whitening * 1e3);
  set("MB", megabytes);
}

void ours_step(benchmark::State& state, std::int64_t layers, std::int64_t tokens) {
  Ours ours(model::random_decoder(shapes(layers), 1), document_of(tokens, 49152));
  Work work;
  double peak = 0;
  std::int64_t index = 0;
  for (auto _ : state) {
    const double before = benchmarks::reset_peak();
    work = ours.step(index++);
    peak = benchmarks::resident("VmHWM") - before;
  }
  ours.count(work);
  report(state, work, peak);
}

void plain_step(benchmark::State& state, std::int64_t layers, std::int64_t tokens) {
  Plain plain(model::random_decoder(shapes(layers), 1), document_of(tokens, 49152));
  Work work;
  double peak = 0;
  for (auto _ : state) {
    const double before = benchmarks::reset_peak();
    work = plain.step();
    peak = benchmarks::resident("VmHWM") - before;
  }
  report(state, work, peak);
}

}  // namespace

int main(int argc, char** argv) {
  benchmarks::take_threads(argc, argv);
  compare();
  for (const auto& [layers, tokens] : {std::pair<std::int64_t, std::int64_t>{6, 512}, {6, 1024}, {30, 512}}) {
    const std::string suffix = "/layers:" + std::to_string(layers) + "/tokens:" + std::to_string(tokens);
    const auto add = [&, layers = layers, tokens = tokens](const char* name, auto step) {
      benchmark::RegisterBenchmark((name + suffix).c_str(),
                                   [=](benchmark::State& state) { step(state, layers, tokens); })
          ->Unit(benchmark::kSecond)
          ->Iterations(1)
          ->MeasureProcessCPUTime()
          ->UseRealTime();
    };
    add("ours", ours_step);
    add("axolotl", plain_step);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
