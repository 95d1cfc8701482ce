// Draws where the logits are: what is asked of rows goes to the device in one copy, the answers come back in one.
//
// The kernel (cuda/draw.cuh) draws as TokenDraw does. What it does not answer, and is left to the host: logits that a request's own
// function edits, rows that keep more ids than cuda::draw_kept, and rows with a logit that is not finite, which the host refuses.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/inference/detail/scheduled.hpp>
#include <rlalgo/tensor/cuda_kernels.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/host_copies.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::inference::detail {

class DeviceDraws {
 public:
  // `logits_of`: () → logits [n, V] in float32, called where there is something to ask; `draws` name their rows. What is answered is
  // `known`.
  template <class LogitsOf>
  void answer(const cuda::Kernels& own, std::int64_t vocabulary, LogitsOf&& logits_of, std::span<Draw> draws) {
    asks_.clear();
    asked_.clear();
    ids_.clear();
    edited_ = likely_ = 0;
    for (Draw& draw : draws)
      if (const auto ask = ask_of(draw, vocabulary)) {
        asks_.push_back(*ask);
        asked_.push_back(&draw);
      }
    if (asks_.empty()) return;
    const tensor::Tensor logits = logits_of();
    const std::int64_t count = static_cast<std::int64_t>(asks_.size()),
                       answers = count * static_cast<std::int64_t>(sizeof(cuda::DrawAnswer)),
                       likely = count * likely_ * static_cast<std::int64_t>(sizeof(cuda::DrawLikely));
    const std::size_t asks_bytes = asks_.size() * sizeof(cuda::DrawAsk);
    bytes_.resize(asks_bytes + ids_.size() * sizeof(std::int32_t));
    std::memcpy(bytes_.data(), asks_.data(), asks_bytes);
    if (!ids_.empty()) std::memcpy(bytes_.data() + asks_bytes, ids_.data(), ids_.size() * sizeof(std::int32_t));
    const auto on_device = at::TensorOptions().dtype(at::kByte).device(logits.device());
    const tensor::Tensor given = tensor::on_device(std::span<const std::uint8_t>(bytes_), logits.device()),
                         out = tensor::empty({answers + likely}, on_device),
                         edited = edited_ > 0 ? logits.new_empty({edited_, vocabulary}) : tensor::Tensor();
    auto* const memory = static_cast<std::byte*>(out.mutable_data_ptr());
    const auto* const asked = static_cast<const std::byte*>(given.const_data_ptr());
    tensor::launch(own, own.draw,
                   {.logits = logits.const_data_ptr<float>(),
                    .asks = reinterpret_cast<const cuda::DrawAsk*>(asked),
                    .ids = reinterpret_cast<const std::int32_t*>(asked + asks_bytes),
                    .edited = edited.defined() ? edited.mutable_data_ptr<float>() : nullptr,
                    .answers = reinterpret_cast<cuda::DrawAnswer*>(memory),
                    .likely = reinterpret_cast<cuda::DrawLikely*>(memory + answers),
                    .count = count,
                    .vocabulary = vocabulary,
                    .stride = vocabulary,
                    .likely_each = likely_},
                   cuda::Kernel::draw, logits);
    take(read(out), answers);
  }

 private:
  // The one wait of a token step. From a GPU into pinned memory.
  [[nodiscard]] const std::byte* read(const tensor::Tensor& out) {
    if (!read_.defined() || read_.numel() < out.numel())
      read_ = tensor::empty({out.numel()}, at::TensorOptions().dtype(at::kByte).pinned_memory(out.is_cuda()));
    read_.narrow(0, 0, out.numel()).copy_(out);
    return static_cast<const std::byte*>(read_.const_data_ptr());
  }

  [[nodiscard]] std::optional<cuda::DrawAsk> ask_of(const Draw& draw, std::int64_t vocabulary) {
    Scheduled& request = *draw.request;
    const RequestSpec& spec = request.spec;
    const bool prompt = draw.kind == Draw::Kind::prompt, of_model = spec.log_probs == LogProbKind::model;
    std::int64_t alternatives = prompt ? *spec.prompt_log_probs : spec.top_log_probs;
    alternatives = std::clamp<std::int64_t>(alternatives, 0, vocabulary);
    if (alternatives > cuda::draw_kept) return std::nullopt;
    cuda::DrawAsk ask{.row = draw.row, .likely = static_cast<std::int32_t>(alternatives)};
    if (prompt || !spec.given.empty()) {
      ask.given =
          prompt ? spec.prompt[static_cast<std::size_t>(draw.index)] : spec.given[static_cast<std::size_t>(draw.index)];
      ask.scale = static_cast<float>(1.0 / (of_model ? 1.0 : spec.sampling.temperature));
      if (!std::isfinite(ask.scale)) ask.scale = 1.0F;
    } else {
      if (spec.edit_logits) return std::nullopt;
      const SamplingConfig& sampling = spec.sampling;
      ask.seed = spec.key.seed;
      ask.step = spec.key.step;
      ask.index = spec.first_index + static_cast<std::uint64_t>(draw.completion);
      ask.position = spec.first_position + static_cast<std::uint32_t>(draw.index);
      ask.scale = sampling.temperature == 0.0 ? 0.0F : static_cast<float>(1.0 / sampling.temperature);
      ask.top_k = static_cast<std::int32_t>(std::min(sampling.top_k, vocabulary));
      ask.top_p = sampling.top_p;
      ask.min_p = sampling.min_p;
      ask.of_model = of_model ? 1 : 0;
      if (sampling.repetition_penalty != 1.0) {
        ask.penalty = static_cast<float>(sampling.repetition_penalty);
        ask.first_seen = static_cast<std::int32_t>(ids_.size());
        request.distinct.resize(static_cast<std::size_t>(spec.count));
        const auto& seen = request.distinct[static_cast<std::size_t>(draw.completion)].of(
            {spec.prompt, request.completion(draw.completion).ids});
        ids_.insert(ids_.end(), seen.begin(), seen.end());
        ask.seen = static_cast<std::int32_t>(seen.size());
      }
      if (draw.index < spec.min_new_tokens) {
        ask.first_forbidden = static_cast<std::int32_t>(ids_.size());
        ids_.insert(ids_.end(), request.end_ids.begin(), request.end_ids.end());
        ask.forbidden = static_cast<std::int32_t>(request.end_ids.size());
      }
      if (ask.seen + ask.forbidden > 0) ask.edited = static_cast<std::int32_t>(edited_++);
    }
    likely_ = std::max(likely_, alternatives);
    return ask;
  }

  void take(const std::byte* memory, std::int64_t answers) {
    for (std::size_t i = 0; i < asked_.size(); ++i) {
      cuda::DrawAnswer answer;
      std::memcpy(&answer, memory + i * sizeof(answer), sizeof(answer));
      if (answer.token < 0) continue;
      Draw& draw = *asked_[i];
      draw.known = true;
      draw.drawn = {answer.token, answer.log_prob};
      draw.rank = answer.rank;
      draw.top.clear();
      const std::byte* const first =
          memory + answers + i * static_cast<std::size_t>(likely_) * sizeof(cuda::DrawLikely);
      for (std::size_t k = 0; k < static_cast<std::size_t>(answer.likely); ++k) {
        cuda::DrawLikely one;
        std::memcpy(&one, first + k * sizeof(one), sizeof(one));
        draw.top.push_back({one.id, one.log_prob});
      }
    }
  }

  std::vector<cuda::DrawAsk> asks_;
  std::vector<Draw*> asked_;
  std::vector<std::int32_t> ids_;
  std::vector<std::uint8_t> bytes_;
  std::int64_t edited_ = 0, likely_ = 0;
  tensor::Tensor read_;  // [bytes] in host memory
};

}  // namespace rlalgo::inference::detail
