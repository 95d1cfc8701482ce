// Tokens per second of batched decoding: our engine beside the same decoder written with LibTorch operations (static KV
// cache, one call per operation), in one run. Prompts of 32 tokens (one prompt, batch completions), 128 new tokens
// each.
//
// Counters: tokens/s. Threads: --threads=N before all other arguments (default: what LibTorch uses), for both sides.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <rlalgo/inference/local_engine.hpp>

#include "../threads.hpp"

using namespace rlalgo;

namespace {

constexpr std::int64_t prompt_tokens = 32;
constexpr std::int64_t new_tokens = 128;

model::DecoderConfig shape(const std::string& name) {
  model::DecoderConfig c;
  c.model_type = "llama";
  c.max_position_embeddings = 2048;
  c.norm.epsilon = 1e-5;
  c.tied_embeddings = true;
  if (name == "tiny") {
    c.vocab_size = 512, c.hidden_size = 128, c.intermediate_size = 384, c.layers = 4;
    c.heads = 4, c.kv_heads = 2, c.head_dim = 32;
  } else {  // SmolLM2-135M
    c.vocab_size = 49152, c.hidden_size = 576, c.intermediate_size = 1536, c.layers = 30;
    c.heads = 9, c.kv_heads = 3, c.head_dim = 64;
    c.ropes[0].theta = 100000.0;
  }
  return c;
}

model::DecoderWeights weights_of(const model::DecoderConfig& c, at::ScalarType dtype) {
  at::manual_seed(1);
  const auto matrix = [&](std::int64_t rows, std::int64_t columns) {
    return (at::randn({rows, columns}) / std::sqrt(static_cast<double>(columns))).to(dtype);
  };
  model::DecoderWeights w;
  w.embedding = matrix(c.vocab_size, c.hidden_size);
  for (std::int64_t l = 0; l < c.layers; ++l) {
    model::LayerWeights layer;
    layer.attention_norm = at::ones({c.hidden_size}, dtype);
    layer.mlp_norm = at::ones({c.hidden_size}, dtype);
    layer.q_proj.weight = matrix(c.heads * c.head_dim, c.hidden_size);
    layer.k_proj.weight = matrix(c.kv_heads * c.head_dim, c.hidden_size);
    layer.v_proj.weight = matrix(c.kv_heads * c.head_dim, c.hidden_size);
    layer.o_proj.weight = matrix(c.hidden_size, c.heads * c.head_dim);
    layer.gate_proj.weight = matrix(c.intermediate_size, c.hidden_size);
    layer.up_proj.weight = matrix(c.intermediate_size, c.hidden_size);
    layer.down_proj.weight = matrix(c.hidden_size, c.intermediate_size);
    w.layers.push_back(layer);
  }
  w.final_norm = at::ones({c.hidden_size}, dtype);
  w.lm_head = w.embedding;
  return w;
}

struct Model {
  model::DecoderConfig config;
  model::DecoderWeights weights;
};

const Model& model_of(const std::string& name, at::ScalarType dtype) {
  static std::map<std::pair<std::string, at::ScalarType>, Model> models;
  auto [at, fresh] = models.try_emplace({name, dtype});
  if (fresh) {
    at->second.config = shape(name);
    at->second.weights = weights_of(at->second.config, dtype);
  }
  return at->second;
}

std::vector<data::TokenId> prompt() {
  std::vector<data::TokenId> ids;
  for (std::int64_t i = 0; i < prompt_tokens; ++i) ids.push_back(static_cast<data::TokenId>(7 * i + 3));
  return ids;
}

void engine(benchmark::State& state, const std::string& name, at::ScalarType dtype) {
  const Model& model = model_of(name, dtype);
  inference::LocalEngine engine(model.config, model.weights, {.max_slots = state.range(0)});
  inference::SamplingConfig sampling;
  sampling.max_new_tokens = new_tokens;
  const std::vector<inference::Request> requests{{.prompt = prompt(), .count = state.range(0)}};
  std::uint64_t step = 0;
  for (auto _ : state) benchmark::DoNotOptimize(engine.generate(requests, sampling, {.seed = 1, .step = step++}));
  state.counters["tokens/s"] = benchmark::Counter(static_cast<double>(state.iterations() * state.range(0) * new_tokens),
                                                  benchmark::Counter::kIsRate);
}

// The plain decode loop: a batch of equal-length sequences, one LibTorch call per operation.
class PlainDecoder {
 public:
  PlainDecoder(const Model& model, std::int64_t batch) : c_(model.config), w_(model.weights), batch_(batch) {
    const std::int64_t length = prompt_tokens + new_tokens;
    for (std::int64_t l = 0; l < c_.layers; ++l) {
      keys_.push_back(at::zeros({batch, c_.kv_heads, length, c_.head_dim}));
      values_.push_back(at::zeros({batch, c_.kv_heads, length, c_.head_dim}));
    }
    const at::Tensor inverse =
        at::pow(c_.ropes[0].theta, -at::arange(0, c_.head_dim, 2) / static_cast<double>(c_.head_dim));
    const at::Tensor angle = at::arange(length).unsqueeze(1) * inverse;
    cos_ = at::cat({angle, angle}, 1).cos();
    sin_ = at::cat({angle, angle}, 1).sin();
  }

  // ids [batch, t] at positions [begin, begin + t) → next ids [batch, 1]
  at::Tensor step(const at::Tensor& ids, std::int64_t begin) {
    const std::int64_t t = ids.size(1), end = begin + t;
    at::Tensor x = at::embedding(w_.embedding, ids);
    const at::Tensor c = cos_.slice(0, begin, end), s = sin_.slice(0, begin, end);
    for (std::size_t l = 0; l < w_.layers.size(); ++l) {
      const model::LayerWeights& layer = w_.layers[l];
      const at::Tensor h = at::rms_norm(x, {c_.hidden_size}, layer.attention_norm, c_.norm.epsilon);
      const at::Tensor q = rotate(heads(at::linear(h, layer.q_proj.weight), c_.heads), c, s);
      keys_[l].slice(2, begin, end).copy_(rotate(heads(at::linear(h, layer.k_proj.weight), c_.kv_heads), c, s));
      values_[l].slice(2, begin, end).copy_(heads(at::linear(h, layer.v_proj.weight), c_.kv_heads));
      const at::Tensor a = at::scaled_dot_product_attention(q, keys_[l].slice(2, 0, end), values_[l].slice(2, 0, end),
                                                            {}, 0.0, t > 1, std::nullopt, true);
      x = x + at::linear(a.transpose(1, 2).reshape({batch_, t, -1}), layer.o_proj.weight);
      const at::Tensor g = at::rms_norm(x, {c_.hidden_size}, layer.mlp_norm, c_.norm.epsilon);
      x = x + at::linear(at::silu(at::linear(g, layer.gate_proj.weight)) * at::linear(g, layer.up_proj.weight),
                         layer.down_proj.weight);
    }
    const at::Tensor last = at::rms_norm(x.select(1, t - 1), {c_.hidden_size}, w_.final_norm, c_.norm.epsilon);
    return at::multinomial(at::linear(last, w_.lm_head).softmax(-1), 1);
  }

 private:
  at::Tensor heads(const at::Tensor& x, std::int64_t n) const {
    return x.view({batch_, x.size(1), n, c_.head_dim}).transpose(1, 2);
  }
  at::Tensor rotate(const at::Tensor& x, const at::Tensor& c, const at::Tensor& s) const {
    const std::int64_t half = c_.head_dim / 2;
    return x * c + at::cat({-x.slice(3, half), x.slice(3, 0, half)}, 3) * s;
  }
  const model::DecoderConfig& c_;
  const model::DecoderWeights& w_;
  std::int64_t batch_;
  std::vector<at::Tensor> keys_, values_;
  at::Tensor cos_, sin_;
};

void plain(benchmark::State& state, const std::string& name) {
  c10::NoGradGuard no_grad;
  const Model& model = model_of(name, at::kFloat);
  PlainDecoder decoder(model, state.range(0));
  const std::vector<data::TokenId> ids = prompt();
  const at::Tensor first = at::tensor(std::vector<std::int64_t>(ids.begin(), ids.end())).repeat({state.range(0), 1});
  for (auto _ : state) {
    at::Tensor next = decoder.step(first, 0);
    for (std::int64_t n = 1; n < new_tokens; ++n) next = decoder.step(next, prompt_tokens + n - 1);
    benchmark::DoNotOptimize(next);
  }
  state.counters["tokens/s"] = benchmark::Counter(static_cast<double>(state.iterations() * state.range(0) * new_tokens),
                                                  benchmark::Counter::kIsRate);
}

}  // namespace

int main(int argc, char** argv) {
  benchmarks::take_threads(argc, argv);
  for (const std::string name : {"tiny", "smollm2"})
    for (const std::int64_t batch : {1, 8, 16, 32}) {
      const auto add = [&](const std::string& side, auto function) {
        benchmark::RegisterBenchmark((side + "/" + name).c_str(), function)
            ->Arg(batch)
            ->Unit(benchmark::kMillisecond)
            ->UseRealTime();
      };
      add("engine_f32", [name](benchmark::State& s) { engine(s, name, at::kFloat); });
      add("engine_bf16", [name](benchmark::State& s) { engine(s, name, at::kBFloat16); });
      add("libtorch_f32", [name](benchmark::State& s) { plain(s, name); });
    }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
