// One DPO pass over pairs (policy forward and backward, reference forward): prompt shared in a token tree and logits in
// tiles, beside a straightforward LibTorch implementation that repeats the prompt, pads to the longest row and
// materialises the logits of policy and reference. Same weights, same numbers.
//
// Counters: ms/pair, and MB, the peak of resident memory above its level before the pass (/proc, Linux).
// Threads: --threads=N before all other arguments (default: what LibTorch uses), for both sides.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <c10/core/GradMode.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <rlalgo/loss/direct_preference.hpp>
#include <rlalgo/loss/logistic_objectives.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/sampler/answer_rows.hpp>

#include "../threads.hpp"

using namespace rlalgo;
using at::Tensor;

namespace {

using Dpo = loss::DirectPreference<loss::Sigmoid>;

model::HfConfig smollm2() {
  return model::parse_hf_config({{"model_type", "llama"},
                                 {"max_position_embeddings", 2048},
                                 {"rms_norm_eps", 1e-5},
                                 {"tie_word_embeddings", true},
                                 {"vocab_size", 49152},
                                 {"hidden_size", 576},
                                 {"intermediate_size", 1536},
                                 {"num_hidden_layers", 30},
                                 {"num_attention_heads", 9},
                                 {"num_key_value_heads", 3},
                                 {"head_dim", 64},
                                 {"rope_theta", 100000.0}},
                                "benchmark");
}

struct Models {
  std::unique_ptr<model::Decoder> policy = model::random_decoder(smollm2(), 1);
  std::unique_ptr<model::Decoder> reference = policy->frozen_copy();
};

Models& models() {
  static Models out;
  return out;
}

// Chosen answers have `completion` tokens, rejected ones three quarters of it.
std::vector<data::Answer> pairs_of(std::int64_t pairs, std::int64_t prompt, std::int64_t completion) {
  std::vector<data::Answer> out;
  for (std::int64_t r = 0; r < 2 * pairs; ++r) {
    data::Answer a;
    a.desirable = r % 2 == 0;
    a.prompt_tokens = prompt;
    for (std::int64_t i = 0; i < prompt; ++i) a.ids.push_back(static_cast<std::int32_t>((i * 7919 + r / 2) % 49152));
    for (std::int64_t i = 0; i < (a.desirable ? completion : completion * 3 / 4); ++i)
      a.ids.push_back(static_cast<std::int32_t>((i * 104729 + 31 * r + 7) % 49152));
    out.push_back(std::move(a));
  }
  return out;
}

double ours(std::vector<data::Answer>& rows) {
  std::vector<data::Answer*> part;
  for (data::Answer& a : rows) {
    a.reference_log_probs.clear();
    part.push_back(&a);
  }
  sampler::score_references(*models().reference, part, 1.0);
  loss::Counts counts{.micro_batches = 1};
  sampler::PairRows::count(part, Dpo::needs, counts);
  const auto scores = models().policy->score(sampler::PairRows::tree(part, Dpo::needs), {.entropy = false});
  const loss::Result result = Dpo({})(sampler::PairRows::collate(part, scores, Dpo::needs), counts);
  result.value.backward();
  return result.value.item<double>();
}

// Sums of completion log-probs [rows] from plain operations on padded rows.
Tensor plain_sums(const model::Decoder& decoder, const Tensor& ids, const Tensor& mask) {
  const auto& c = decoder.config();
  const auto& w = decoder.weights();
  const std::int64_t rows = ids.size(0), length = ids.size(1);
  const auto norm = [&](const Tensor& x, const Tensor& weight) {
    return weight * (x * (x.pow(2).mean(-1, true) + c.norm.epsilon).rsqrt());
  };
  const Tensor angle =
      at::outer(at::arange(length, at::kFloat), model::rope_frequencies(c.ropes[0], c.head_dim)).repeat({1, 2});
  const Tensor cosine = angle.cos(), sine = angle.sin();
  const auto rotate = [&](const Tensor& x) {
    const auto halves = x.chunk(2, -1);
    return x * cosine + at::cat({-halves[1], halves[0]}, -1) * sine;
  };
  Tensor x = at::embedding(w.embedding, ids);
  for (const auto& layer : w.layers) {
    const Tensor n = norm(x, layer.attention_norm);
    const auto heads = [&](const model::Linear& map, std::int64_t count) {
      return at::linear(n, map.weight).view({rows, length, count, c.head_dim}).transpose(1, 2);
    };
    const Tensor attended =
        at::scaled_dot_product_attention(rotate(heads(layer.q_proj, c.heads)), rotate(heads(layer.k_proj, c.kv_heads)),
                                         heads(layer.v_proj, c.kv_heads), {}, 0.0, true, std::nullopt, true);
    x = x + at::linear(attended.transpose(1, 2).reshape({rows, length, -1}), layer.o_proj.weight);
    const Tensor u = norm(x, layer.mlp_norm);
    x = x + at::linear(at::silu(at::linear(u, layer.gate_proj.weight)) * at::linear(u, layer.up_proj.weight),
                       layer.down_proj.weight);
  }
  const Tensor logits = at::linear(norm(x, w.final_norm), w.lm_head).narrow(1, 0, length - 1);
  const Tensor chosen = logits.log_softmax(-1).gather(-1, ids.narrow(1, 1, length - 1).unsqueeze(-1)).squeeze(-1);
  return (chosen * mask.narrow(1, 1, length - 1)).sum(1);
}

double plain(const std::vector<data::Answer>& rows) {
  std::int64_t longest = 0;
  for (const data::Answer& a : rows) longest = std::max(longest, a.tokens());
  Tensor ids = at::zeros({static_cast<std::int64_t>(rows.size()), longest}, at::kLong);
  Tensor mask = at::zeros(ids.sizes());
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const auto row = static_cast<std::int64_t>(r);
    std::copy(rows[r].ids.begin(), rows[r].ids.end(), ids.mutable_data_ptr<std::int64_t>() + row * longest);
    mask[row].narrow(0, rows[r].prompt_tokens, rows[r].completion_tokens()).fill_(1);
  }
  Tensor reference;
  {
    const c10::AutoGradMode no_gradient(false);
    reference = plain_sums(*models().reference, ids, mask);
  }
  const Tensor ratio = (plain_sums(*models().policy, ids, mask) - reference).view({-1, 2});
  const Tensor value = -at::log_sigmoid(0.1 * (ratio.select(1, 0) - ratio.select(1, 1))).mean();
  value.backward();
  return value.item<double>();
}

// A line of /proc/self/status in MB.
double memory(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(name + ":")) return std::atof(line.c_str() + name.size() + 1) / 1024.0;
  return 0;
}

template <class Pass>
void run(benchmark::State& state, std::int64_t pairs, std::int64_t prompt, std::int64_t completion, Pass pass) {
  std::vector<data::Answer> rows = pairs_of(pairs, prompt, completion);
  for (auto& p : models().policy->parameters()) p.value.mutable_grad() = at::zeros_like(p.value);
  double peak = 0;
  for (auto _ : state) {
    std::ofstream("/proc/self/clear_refs") << 5;  // the peak starts at the level of now
    const double before = memory("VmRSS");
    benchmark::DoNotOptimize(pass(rows));
    peak = std::max(peak, memory("VmHWM") - before);
  }
  state.counters["MB"] = peak;
  state.counters["pairs/s"] =
      benchmark::Counter(static_cast<double>(pairs * state.iterations()), benchmark::Counter::kIsRate);
}

void add(std::int64_t pairs, std::int64_t prompt, std::int64_t completion) {
  const std::string suffix = "/pairs:" + std::to_string(pairs) + "/prompt:" + std::to_string(prompt) +
                             "/completion:" + std::to_string(completion);
  benchmark::RegisterBenchmark(("tree" + suffix).c_str(),
                               [=](benchmark::State& s) { run(s, pairs, prompt, completion, ours); })
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime();
  benchmark::RegisterBenchmark(("plain" + suffix).c_str(),
                               [=](benchmark::State& s) {
                                 run(s, pairs, prompt, completion,
                                     [](std::vector<data::Answer>& rows) { return plain(rows); });
                               })
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime();
}

}  // namespace

int main(int argc, char** argv) {
  benchmarks::take_threads(argc, argv);
  add(1, 32, 64);
  add(1, 128, 64);
  add(1, 384, 64);
  add(4, 128, 64);
  add(1, 128, 256);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
