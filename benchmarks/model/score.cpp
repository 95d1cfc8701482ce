// One training pass (score, backward) over GRPO groups: the decoder on a token tree, the decoder on the same rows
// without sharing, and the same model written with differentiable LibTorch operations on a padded batch, in one run.
//
// 8 completions per prompt of uneven length. Counter: tokens/s, prompt and completion tokens of all rows, whichever
// shares them. Threads: --threads=N before all other arguments (default: what LibTorch uses), for all sides.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <c10/core/GradMode.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <rlalgo/model/load.hpp>
#include <rlalgo/model/tree_builder.hpp>

#include "../threads.hpp"

using namespace rlalgo;
using at::Tensor;

namespace {

constexpr std::int64_t group = 8;

model::HfConfig shape(const std::string& name) {
  model::Json json = {{"model_type", "llama"},
                      {"max_position_embeddings", 2048},
                      {"rms_norm_eps", 1e-5},
                      {"tie_word_embeddings", true}};
  if (name == "tiny") {
    json.update({{"vocab_size", 512},
                 {"hidden_size", 128},
                 {"intermediate_size", 384},
                 {"num_hidden_layers", 4},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"head_dim", 32}});
  } else {  // SmolLM2-135M
    json.update({{"vocab_size", 49152},
                 {"hidden_size", 576},
                 {"intermediate_size", 1536},
                 {"num_hidden_layers", 30},
                 {"num_attention_heads", 9},
                 {"num_key_value_heads", 3},
                 {"head_dim", 64},
                 {"rope_theta", 100000.0}});
  }
  return model::parse_hf_config(json, "benchmark");
}

struct Batch {
  std::vector<std::vector<std::int32_t>> prompts, completions;
  std::vector<model::Sequence> rows;
  std::int64_t tokens = 0;
};

Batch batch_of(std::int64_t groups, std::int64_t prompt, std::int64_t completion, std::int64_t vocabulary) {
  Batch out;
  for (std::int64_t g = 0; g < groups; ++g) {
    auto& p = out.prompts.emplace_back(prompt);
    for (std::int64_t i = 0; i < prompt; ++i) p[i] = static_cast<std::int32_t>((i * 7919 + 31 * g) % vocabulary);
    for (std::int64_t r = 0; r < group; ++r) {
      auto& c = out.completions.emplace_back(completion * (r + 2) / (group + 1));
      for (std::size_t i = 0; i < c.size(); ++i)
        c[i] = static_cast<std::int32_t>((i * 104729 + 31 * r + g) % vocabulary);
    }
  }
  for (std::size_t r = 0; r < out.completions.size(); ++r) {
    out.rows.push_back({out.prompts[r / group], out.completions[r]});
    out.tokens += prompt + static_cast<std::int64_t>(out.completions[r].size());
  }
  return out;
}

std::unique_ptr<model::Decoder>& decoder(const std::string& name) {
  static std::map<std::string, std::unique_ptr<model::Decoder>> decoders;
  auto& out = decoders[name];
  if (!out) out = model::random_decoder(shape(name), 1);
  return out;
}

// Log-probs of all completion tokens from plain operations on rows padded to one length.
Tensor plain_score(const model::Decoder& policy, const Batch& batch) {
  const auto& c = policy.config();
  const auto& w = policy.weights();
  const auto prompt = static_cast<std::int64_t>(batch.prompts[0].size()),
             rows = static_cast<std::int64_t>(batch.rows.size());
  std::int64_t longest = 0;
  for (const auto& row : batch.completions) longest = std::max(longest, static_cast<std::int64_t>(row.size()));
  const std::int64_t length = prompt + longest;
  Tensor ids = at::zeros({rows, length}, at::kLong), mask = at::zeros({rows, longest});
  for (std::int64_t r = 0; r < rows; ++r) {
    std::int64_t* to = ids.mutable_data_ptr<std::int64_t>() + r * length;
    to = std::copy(batch.rows[r].prompt.begin(), batch.rows[r].prompt.end(), to);
    std::copy(batch.completions[r].begin(), batch.completions[r].end(), to);
    mask[r].narrow(0, 0, static_cast<std::int64_t>(batch.completions[r].size())).fill_(1);
  }
  const auto norm = [&](const Tensor& x, const Tensor& weight) {
    return weight * (x * (x.pow(2).mean(-1, true) + c.norm.epsilon).rsqrt());
  };
  const Tensor inverse = model::rope_frequencies(c.ropes[0], c.head_dim);
  const Tensor angle = at::outer(at::arange(length, at::kFloat), inverse).repeat({1, 2});  // [L, D]
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
  const Tensor hidden = norm(x, w.final_norm).narrow(1, prompt - 1, longest);
  const Tensor logits = at::linear(hidden, w.lm_head);
  return logits.log_softmax(-1).gather(-1, ids.narrow(1, prompt, longest).unsqueeze(-1)).squeeze(-1) * mask;
}

template <class Score>
void train(benchmark::State& state, model::Decoder& policy, const Batch& batch, Score&& score) {
  for (auto _ : state) {
    for (auto& p : policy.parameters()) p.value.mutable_grad() = Tensor();
    score().sum().neg().backward();
  }
  state.counters["tokens/s"] =
      benchmark::Counter(static_cast<double>(batch.tokens * state.iterations()), benchmark::Counter::kIsRate);
}

void add(const std::string& name, std::int64_t groups, std::int64_t prompt, std::int64_t completion) {
  const auto batch = [=] { return batch_of(groups, prompt, completion, shape(name).decoder.vocab_size); };
  const std::string suffix = "/" + name + "/groups:" + std::to_string(groups) + "/prompt:" + std::to_string(prompt) +
                             "/completion:" + std::to_string(completion);
  const auto tree = [=](benchmark::State& state, bool share) {
    const Batch b = batch();
    auto& policy = *decoder(name);
    train(state, policy, b, [&] {
      return policy.score(share ? model::build_tree(b.rows) : model::build_flat_tree(b.rows), {}).log_prob;
    });
  };
  benchmark::RegisterBenchmark(("tree" + suffix).c_str(), tree, true)->Unit(benchmark::kMillisecond)->UseRealTime();
  benchmark::RegisterBenchmark(("flat" + suffix).c_str(), tree, false)->Unit(benchmark::kMillisecond)->UseRealTime();
  benchmark::RegisterBenchmark(("plain" + suffix).c_str(),
                               [=](benchmark::State& state) {
                                 const Batch b = batch();
                                 auto& policy = *decoder(name);
                                 train(state, policy, b, [&] { return plain_score(policy, b); });
                               })
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime();
}

}  // namespace

int main(int argc, char** argv) {
  benchmarks::take_threads(argc, argv);
  add("tiny", 1, 40, 24);
  add("tiny", 8, 40, 24);
  add("smollm2", 1, 64, 64);
  add("smollm2", 1, 256, 64);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
