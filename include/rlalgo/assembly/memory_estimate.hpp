// About how much memory a rank of a run takes, from above, by what for.
//
//   training     weights + gradients + optimizer + reference + what the backward pass keeps of a micro-batch
//   generation   weights + copies of them + optimizer + reference + keys and values
//
// The larger of the two, or both of an asynchronous run. The backward pass keeps 2H + 2·(N + K)·D + 2I numbers for each
// token and layer (hidden size, heads, heads of keys, size of a head, width of the MLP); with gradient checkpointing H, and the whole of one
// layer; where its inputs of layers lie elsewhere, that layer alone, and what lies there stands in Overview::elsewhere.
//
// Of weights that are sharded over S ranks (distributed/sharded_weights.hpp) a rank has 1/S, and what is whole for a while: all that lies
// outside of the layers, and the layers that are computed, on their way, or whose gradients are. Experts that E ranks share are 1/E. An engine of
// this process reads whole weights.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/assembly/generation_memory.hpp>
#include <rlalgo/assembly/overview.hpp>
#include <rlalgo/inference/memory_share.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/weight_names.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::assembly {

// What an estimate must know in addition to rows and model.
struct EstimateConfig {
  std::string dtype = "float32";      // of the computation, in words
  double optimizer_bytes = 8.0;       // for a number that is trained
  bool checkpointing = false;         // of gradients
  std::string checkpoints_away = {};  // where what it keeps lies, in words, if not with the rest; empty: it does
  bool draws_here = true;             // completions are drawn by this process's engine
  bool asynchronous = false;          // it draws while it trains
  bool compares = false;              // with a reference, in another pass
  bool measurable = true;             // rows are of single answers, which passes of this process stand for
  std::int64_t stage = 0;             // of ZeRO: 1 optimizer states, 2 gradients, 3 weights are sharded; 0: nothing
  std::int64_t shard_ranks = 1;       // that share them
  std::int64_t expert_ranks = 1;      // that share the experts of a layer
  std::int64_t row_ranks = 1;         // that share the tokens of a row
  GenerationMemory generation = {};   // of a device
};

namespace detail {

// What the backward pass keeps of a token in all layers, in numbers. `away`: the inputs of layers lie elsewhere.
[[nodiscard]] inline double kept_numbers(const model::DecoderConfig& c, bool checkpointing, bool away) {
  double all = 0.0, largest = 0.0;
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    const model::ExpertSpec& experts = c.spec(layer).experts;
    const auto width = static_cast<double>(experts.count > 0 ? experts.chosen * experts.width + experts.shared_width
                                                             : c.intermediate_size);
    const double numbers = 2.0 * static_cast<double>(c.hidden_size) +
                           2.0 * static_cast<double>((c.heads + c.kv_heads) * c.head_dim) + 2.0 * width;
    all += !checkpointing ? numbers : away ? 0.0 : static_cast<double>(c.hidden_size);
    largest = std::max(largest, numbers);
  }
  return all + (checkpointing ? largest : 0.0);
}

// What the log-prob head has of a micro-batch: logits that it keeps, and tiles that it computes with (tensor/log_prob_head.hpp); on a
// device, with kernels or without, tiles of logits and of their gradients, and parts of the gradients that are summed in float32.
[[nodiscard]] inline double head_bytes(double tokens, std::int64_t vocabulary, std::int64_t width, bool on_device) {
  constexpr double kept = 56.0 * 1024.0 * 1024.0, tile = 524'288.0, part = 16'777'216.0;
  const double logits = tokens * static_cast<double>(vocabulary);
  if (on_device)
    return 6.0 * std::min(part, logits) + 4.0 * std::min(part, static_cast<double>(vocabulary * width)) +
           4.0 * std::min(part, tokens * static_cast<double>(width));
  return std::min(kept, 4.0 * logits) + 3.0 * 4.0 * std::min(tile, logits);
}

// Bytes of weights and of their gradients, and how many numbers are trained.
struct PartBytes {
  double weights = 0.0, gradients = 0.0, trained = 0.0;

  void add(const tensor::Tensor& value) {
    if (!value.defined() || model::is_stand_in(value)) return;
    const auto bytes = static_cast<double>(value.nbytes());
    weights += bytes;
    if (!value.requires_grad()) return;
    gradients += bytes;
    trained += static_cast<double>(value.numel());
  }
  void add(const PartBytes& other) {
    weights += other.weights;
    gradients += other.gradients;
    trained += other.trained;
  }
};

// Of what lies outside of the layers, of each layer without its experts, and of all experts.
struct ModelBytes {
  PartBytes outside = {}, experts = {};
  std::vector<PartBytes> layers;

  explicit ModelBytes(const model::Decoder& decoder) : layers(decoder.weights().layers.size()) {
    const auto part_of = [&](const std::string& name) -> PartBytes& {
      static const std::string layer = "model.layers.";
      if (!name.starts_with(layer)) return outside;
      if (name.find(".experts.") != std::string::npos && name.find(".lora_") == std::string::npos) return experts;
      return layers.at(std::stoul(name.substr(layer.size())));
    };
    const model::DecoderConfig& c = decoder.config();
    const model::DecoderWeights& weights = decoder.weights();
    model::visit_weights(c, weights, [&](const std::string& name, const tensor::Tensor& value, const auto&, auto) {
      part_of(name).add(value);
    });
    model::visit_maps(c, weights, [&](const std::string& path, const model::Linear& map, auto, bool) {
      if (map.quantised) part_of(path + ".weight").weights += static_cast<double>(map.quantised->bytes());
    });
    model::visit_loras(c, weights, [&](const std::string& path, const model::Lora& lora, const tensor::Tensor&) {
      for (const tensor::Tensor* const one : {&lora.a, &lora.b, &lora.magnitude}) part_of(path + ".lora_").add(*one);
    });
  }

  // Without experts.
  [[nodiscard]] PartBytes dense() const {
    PartBytes out = outside;
    for (const PartBytes& layer : layers) out.add(layer);
    return out;
  }
  [[nodiscard]] PartBytes all() const {
    PartBytes out = dense();
    out.add(experts);
    return out;
  }
  [[nodiscard]] PartBytes largest_layer() const {
    PartBytes out;
    for (const PartBytes& layer : layers) {
      out.weights = std::max(out.weights, layer.weights);
      out.gradients = std::max(out.gradients, layer.gradients);
    }
    return out;
  }
};

// Of one rank.
struct HeldBytes {
  double weights = 0.0, whole = 0.0;  // while it trains, and while an engine reads them
  double gradients = 0.0, optimizer = 0.0, reference = 0.0;
};

[[nodiscard]] inline HeldBytes held_bytes(const ModelBytes& bytes, const EstimateConfig& config, std::int64_t ranks,
                                          bool copied) {
  const PartBytes all = bytes.dense(), layer = bytes.largest_layer(), &outside = bytes.outside,
                  &experts = bytes.experts;
  const auto shards = static_cast<double>(config.shard_ranks), parts = static_cast<double>(config.expert_ranks);
  // Experts that are not divided lie as everything else of their layer; then a layer that is whole has its experts.
  const bool divided = config.expert_ranks > 1;
  PartBytes sharded = all, one = layer;
  if (!divided) {
    sharded.add(experts);
    const auto layers = static_cast<double>(std::max<std::size_t>(1, bytes.layers.size()));
    one.weights += experts.weights / layers;
    one.gradients += experts.gradients / layers;
  }
  const PartBytes own =
      divided ? PartBytes{experts.weights / parts, experts.gradients / parts, experts.trained / parts} : PartBytes{};
  HeldBytes out;
  const double whole_now = outside.weights + 2.0 * one.weights;
  const bool weights = config.stage == 3;
  out.weights = (weights ? sharded.weights / shards + whole_now : sharded.weights) + own.weights;
  out.whole =
      (weights ? sharded.weights / shards : 0.0) + sharded.weights + (divided ? own.weights + experts.weights : 0.0);
  // Sent and received beside what is sent; shards of gradients are in float32.
  const double under_way = std::max(outside.gradients + 3.0 * one.gradients, 3.0 * outside.gradients);
  if (config.stage >= 2)
    out.gradients = 4.0 * sharded.trained / shards + under_way;
  else if (config.stage == 1)
    out.gradients = sharded.gradients + 2.0 * std::max(outside.gradients, one.gradients);
  else
    out.gradients = sharded.gradients + (ranks > 1 ? std::max(outside.gradients, one.gradients) : 0.0);
  out.gradients += own.gradients;
  out.optimizer =
      config.optimizer_bytes * ((config.stage >= 1 ? sharded.trained / shards : sharded.trained) + own.trained);
  if (copied) out.reference = (weights ? sharded.weights / shards : sharded.weights) + own.weights;
  return out;
}

}  // namespace detail

// Fills in Overview::memory and ::elsewhere. `copied`: whether a reference of its own stands beside the policy.
inline void estimate_memory(Overview& o, const EstimateConfig& config, const model::Decoder& decoder, bool copied) {
  const detail::ModelBytes bytes(decoder);
  const detail::HeldBytes held = detail::held_bytes(bytes, config, o.ranks, copied);
  const double element = decoder.dtype() == at::kBFloat16 ? 2.0 : 4.0;
  const model::DecoderConfig& c = decoder.config();
  const bool draws = o.completions_per_row > 0 && config.draws_here;
  double drawing = config.generation.needed;
  if (draws && drawing == 0.0) {
    const std::int64_t groups = std::max<std::int64_t>(1, o.ranks / config.row_ranks);
    const std::int64_t each = std::max<std::int64_t>(1, o.rows_per_step * o.completions_per_row / groups);
    const auto slots = static_cast<double>(std::min(inference::SchedulerConfig{}.max_slots, each));
    drawing = slots * static_cast<double>((o.longest + o.completion_length) * c.layers * 2 * c.kv_heads * c.head_dim) *
              element;
  }
  const bool away = !config.checkpoints_away.empty();
  const double tokens = static_cast<double>(o.micro_batch_tokens) / static_cast<double>(config.row_ranks);
  const double backward = tokens * detail::kept_numbers(c, config.checkpointing, away) * element +
                          detail::head_bytes(tokens, c.vocab_size, c.hidden_size, !decoder.device().is_cpu());
  using Parts = std::vector<std::pair<std::string, double>>;
  const double program = o.ranks > 1 ? 200e6 : 160e6;
  Parts training = {{"weights", held.weights},
                    {"gradients", held.gradients},
                    {"optimizer", held.optimizer},
                    {"reference", held.reference}};
  Parts generating = {
      {"weights", held.whole}, {"gradients", 0.0}, {"optimizer", held.optimizer}, {"reference", held.reference}};
  const Parts drawn = {{config.generation.copied, config.generation.copies},
                       {"passes", config.generation.passes},
                       {"keys and values", drawing}};
  training.emplace_back("backward pass", backward);
  for (Parts* const one : {&training, &generating})
    if (draws && (one == &generating || config.asynchronous)) one->insert(one->end(), drawn.begin(), drawn.end());
  if (config.asynchronous && draws)
    training.insert(training.begin() + 4, {"copies of what is trained", 2.0 * bytes.all().gradients});
  const auto sum = [](const Parts& parts) {
    double out = 0.0;
    for (const auto& [what, size] : parts) out += size;
    return out;
  };
  o.memory = draws && !config.asynchronous && sum(generating) > sum(training) ? generating : training;
  o.memory.emplace_back("program", program);
  if (away && config.checkpointing)
    o.elsewhere = "inputs of layers " + bytes_text(tokens * static_cast<double>(c.hidden_size * c.layers) * element) +
                  " " + config.checkpoints_away;
}

}  // namespace rlalgo::assembly
