// A pass on any device that ATen knows: the layers of training (model/decoder_layer.hpp) with an attention that reads pages.
//
// So what a family of models is, adapters included, is written once, and the engine's numbers are those of the trainer's
// pass to rounding. Activations, keys and values have the dtype of the weights; scores, softmax and sums are in
// float32.
//
// The rows of a pass fall into runs of one sequence (paged_rows.hpp). A run of one row (decoding) joins all others of its kind; a longer
// run (a prompt) attends alone. A row's numbers are those of its tokens, but their last bits may depend on which rows are
// computed with it, as a device's products do; equal passes give equal bits.
//
// An invariant pass (EngineConfig::invariant) is one or more of a fixed number of rows, the last of them padded, prompts and the head
// too; and every row attends by itself: by the decoding kernel, whose parts are those of its own sequence, or with its own pages alone. So a
// row's bits are a function of its tokens, as far as a product of a fixed shape computes all of its rows alike.
//
// Where the program uses its own kernels, a pass that only decodes is decode_pass.hpp's, where that knows the layers, and tokens are drawn
// where the logits are (device_draws.hpp). Such a pass can have rows of several adapters over one base (adapter_bank.hpp); not an invariant
// one, as the sums of a row would follow the place of its adapter.
//
// A pass that fails on the device says how large it was and on which stream.
//
// Errors: [rlalgo.inference.20] an operator that failed; [rlalgo.tensor.14] the memory of the device, .15 a kernel.
//
// Host reads a pass: none; host writes: one copy, of token ids, positions and the numbers of pages.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <rlalgo/core/error.hpp>
#include <rlalgo/inference/detail/adapter_bank.hpp>
#include <rlalgo/inference/detail/byte_product.hpp>
#include <rlalgo/inference/detail/decode_pass.hpp>
#include <rlalgo/inference/detail/device_draws.hpp>
#include <rlalgo/inference/detail/joined_maps.hpp>
#include <rlalgo/inference/detail/paged_operations.hpp>
#include <rlalgo/inference/detail/paged_rows.hpp>
#include <rlalgo/inference/detail/rotary_table.hpp>
#include <rlalgo/inference/detail/tensor_pages.hpp>
#include <rlalgo/inference/detail/tensor_states.hpp>
#include <rlalgo/inference/forward.hpp>
#include <rlalgo/inference/merged_adapter.hpp>
#include <rlalgo/inference/quantised_copies.hpp>
#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/model/decoder_layer.hpp>
#include <rlalgo/model/linear.hpp>
#include <rlalgo/model/weights.hpp>
#include <rlalgo/tensor/cuda_kernels.hpp>
#include <rlalgo/tensor/device.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/host_copies.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::inference::detail {

// A decoder's tensors, read where they lie.
struct TensorWeightsView final : Forward::Weights {
  model::DecoderWeights weights;
  std::vector<JoinedMaps> joined;       // of each layer, where decode_pass.hpp computes with them; else empty
  std::vector<LayerAdapters> adapters;  // of each layer, where it does so with adapters; else empty
  std::vector<LayerBytes> bytes;        // of each layer, where its maps are copies in bytes; else empty
  ByteWeight head;                      // where that is a copy
  std::vector<std::shared_ptr<const ByteMatrix>> copies;  // of which all of these are
  std::uint64_t places = 0;                               // places_of() all of them
  std::uint64_t base = 0;                       // what they are over, for passes with other adapters; 0: they join none
  mutable std::shared_ptr<BankPlace> place;     // among those, once it was asked for
  std::shared_ptr<const void> owner;            // keeps what they share; null = somebody else does
  std::shared_ptr<const MergedAdapter> merged;  // of which they are; null: they are the decoder's own
};

class TensorForward final : public Forward, public JoinedForward {
 public:
  // `states`: what sequences carry, a row each, as detail/delta_pass.hpp has it.
  // `invariant`: with how many rows at a time a pass is computed that is to be so, 0: as they come.
  TensorForward(const model::DecoderConfig& config, const TensorPages& pages, const TensorPages& states,
                std::int64_t max_rows, std::int64_t max_logits,
                const tensor::OwnKernels& kernels = tensor::own_kernels(), std::int64_t invariant = 0)
      : config_(config),
        pages_(pages),
        kernels_(kernels),
        states_(config, states),
        operations_(config, pages, kernels_),
        decode_(config, pages, kernels_),
        max_rows_(max_rows),
        max_logits_(max_logits),
        invariant_(invariant) {
    for (const model::RopeConfig& rope : config.ropes) rotary_.emplace_back(rope, config.head_dim);
    angles_.resize(rotary_.size());
    probe_ = tensor::zeros({1}, at::TensorOptions().dtype(at::kFloat).device(pages.device()));
  }

  [[nodiscard]] std::int64_t max_rows() const override { return max_rows_; }
  [[nodiscard]] std::int64_t max_logits() const override { return max_logits_; }
  [[nodiscard]] bool overlaps() const override { return !pages_.device().is_cpu(); }
  void reserve(std::int64_t length) override {
    // By doubling, as each copies the table to the device and moves it.
    if (length <= reserved_) return;
    const std::int64_t positions = std::max(length, 2 * reserved_);
    std::vector<std::array<tensor::Tensor, 2>> angles(rotary_.size());
    said("tables of rotations of " + std::to_string(positions) + " positions", [&] {
      for (std::size_t i = 0; i < rotary_.size(); ++i) {
        RotaryTable& table = rotary_[i];
        table.reserve(positions);
        const auto all = [&](const float* first) {
          return tensor::on_device(std::span(first, static_cast<std::size_t>(positions * table.half())),
                                   pages_.device())
              .view({-1, table.half()});
        };
        angles[i] = {all(table.cosines(0)), all(table.sines(0))};
      }
    });
    angles_ = std::move(angles);
    reserved_ = positions;
  }

  [[nodiscard]] bool decodes_plainly(const model::DecoderWeights& weights,
                                     std::span<const LayerBytes> bytes = {}) const {
    return decode_.fits(weights, bytes);
  }
  void release_memory() {
    decode_.release();
    banks_.try_again();
  }
  // One launch into memory that is there: a device that is full passes.
  void check() {
    said("a number that is written and read", [&] { (void)probe_.fill_(1.0).to(at::kCPU); });
  }

  void run(const Weights& weights, std::span<const Row> rows) override {
    if (rows.empty()) return;
    const c10::NoGradGuard no_grad;
    const auto& view = static_cast<const TensorWeightsView&>(weights);
    said("a pass of " + std::to_string(rows.size()) + " rows", [&] {
      if (invariant_ > 0)
        last_ = run_invariant(view, rows);
      else if (!view.joined.empty() && decodes(rows))
        last_ = decode_.run(view.weights, view.joined, view.bytes, view.adapters, view.places, rows, angles_);
      else
        last_ = run_layers(view.weights, rows);
    });
  }

  [[nodiscard]] JoinedForward* joined() override { return invariant_ > 0 ? nullptr : this; }

  [[nodiscard]] bool joins(const Weights& one, std::span<const WeightsHandle> others) override {
    const auto& view = static_cast<const TensorWeightsView&>(one);
    AdapterBank* bank = nullptr;
    try {
      for (const WeightsHandle& other : others) {
        const auto& beside = static_cast<const TensorWeightsView&>(*other);
        if (view.base == 0 || beside.base != view.base || !placed(beside, bank)) return false;
        if (beside.place != nullptr) bank = beside.place->bank.get();
      }
      return placed(view, bank);
    } catch (const c10::Error&) {
      return false;  // what is wrong with the device is said by the passes that they have to themselves
    }
  }

  void run(std::span<const WeightsHandle> weights, std::span<const Row> rows) override {
    const auto view_of = [&](const Row& row) -> const TensorWeightsView& {
      return static_cast<const TensorWeightsView&>(*weights[row.weights]);
    };
    const TensorWeightsView& view = view_of(rows.front());
    if (std::ranges::all_of(rows, [&](const Row& row) { return row.weights == rows.front().weights; }))
      return run(view, rows);
    const c10::NoGradGuard no_grad;
    const AdapterBank* bank = nullptr;
    row_places_.clear();
    for (const Row& row : rows) {
      const BankPlace* const place = view_of(row).place.get();
      row_places_.push_back(AdapterBank::number(place));
      if (place != nullptr) bank = place->bank.get();
    }
    said("a pass of " + std::to_string(rows.size()) + " rows of several adapters", [&] {
      const std::uint64_t places =
          places_of(view.weights, bank->layers()) ^ reinterpret_cast<std::uintptr_t>(bank->others().const_data_ptr());
      last_ = decode_.run(view.weights, view.joined, view.bytes, bank->layers(), places, rows, angles_, 0,
                          {bank->others(), row_places_});
    });
  }

  void draw(const Weights& weights, std::span<const std::int64_t> rows, std::span<Draw> draws) override {
    if (kernels_.table == nullptr || pages_.device().type() != kernels_.device || !cuda::in_use(cuda::Kernel::draw) ||
        config_.vocab_size > cuda::draw_vocabulary)
      return;
    const c10::NoGradGuard no_grad;
    said("logits and draws of " + std::to_string(rows.size()) + " rows", [&] {
      draws_.answer(
          *kernels_.table, config_.vocab_size, [&] { return logits_of(weights, rows).contiguous(); }, draws);
    });
  }

  [[nodiscard]] const float* logits(const Weights& weights, std::span<const std::int64_t> rows) override {
    const c10::NoGradGuard no_grad;
    said("logits of " + std::to_string(rows.size()) + " rows",
         [&] { logits_ = logits_of(weights, rows).to(at::kCPU).contiguous(); });
    return logits_.const_data_ptr<float>();
  }

 private:
  // Rows of a product by cuda/product_8bit.cuh, which reads codes once for 64 rows; of more, they are made whole for all.
  static constexpr std::int64_t most_by_bytes = 256;

  // Whether it has no adapter, or one with a place in that bank, or in any where it is null.
  [[nodiscard]] bool placed(const TensorWeightsView& view, AdapterBank* bank) {
    if (view.adapters.empty()) return true;
    if (view.place != nullptr && (bank == nullptr || view.place->bank.get() == bank)) return true;
    // Together with those that it comes beside, if there is room by now.
    if (auto place = banks_.put(view.base, view.adapters, view.weights, bank)) view.place = std::move(place);
    return view.place != nullptr && (bank == nullptr || view.place->bank.get() == bank);
  }

  // f(), where an error of the device or of LibTorch says what it was doing.
  template <class F>
  void said(const std::string& doing, F&& f) {
    try {
      f();
    } catch (const c10::OutOfMemoryError& error) {
      tensor::raise_memory(pages_.device(), error, generation_memory_remedy);
    } catch (const c10::Error& error) {
      const at::Device device = pages_.device();
      const c10::StreamId stream =
          device.is_cuda() ? c10::impl::VirtualGuardImpl(device.type()).getStream(device).id() : 0;
      core::raise(
          "inference", 20,
          {.what = "an operator of the device failed while tokens were generated",
           .found = error.what_without_backtrace(),
           .where = doing + " on " + device.str() + ", stream " + std::to_string(stream),
           .remedy =
               "an earlier kernel may have failed: CUDA_LAUNCH_BLOCKING=1 names it; an address that is not there ends "
               "all work of a process on its GPU: start it again"});
    }
  }

  // So many rows at a time; each part behind the one before it, as later rows of a sequence attend to earlier ones.
  [[nodiscard]] tensor::Tensor run_invariant(const TensorWeightsView& view, std::span<const Row> rows) {
    std::vector<tensor::Tensor> parts;
    const auto most = static_cast<std::size_t>(invariant_);
    for (std::size_t first = 0; first < rows.size(); first += most) {
      const std::span<const Row> some = rows.subspan(first, std::min(most, rows.size() - first));
      parts.push_back(view.joined.empty() ? run_layers(view.weights, some, invariant_)
                                          : decode_.run(view.weights, view.joined, view.bytes, view.adapters,
                                                        view.places, some, angles_, invariant_));
      parts.back() = parts.back().narrow(0, 0, static_cast<std::int64_t>(some.size()));
      if (rows.size() > most) parts.back() = parts.back().clone();  // the next part is computed in the same memory
    }
    return parts.size() == 1 ? parts.front() : tensor::concatenate(parts, 0);
  }

  // [T, H] behind the final norm, T at least `padded`.
  [[nodiscard]] tensor::Tensor run_layers(const model::DecoderWeights& w, std::span<const Row> rows,
                                          std::int64_t padded = 0) {
    const RowRuns kind = padded == 0                                                ? RowRuns::sequences
                         : operations_.attends_by_kernel(w.embedding.scalar_type()) ? RowRuns::rows
                                                                                    : RowRuns::rows_apart;
    const auto prompts =
        kind == RowRuns::sequences ? operations_.prompt_places(w.embedding.scalar_type()) : std::nullopt;
    const PagedRows paged = layout_(rows, pages_.device(), kind, padded, prompts ? &*prompts : nullptr);
    operations_.begin(paged);
    std::vector<model::RopeTable> ropes;
    for (std::size_t i = 0; i < rotary_.size(); ++i)
      ropes.push_back({angles_[i][0].index_select(0, paged.positions), angles_[i][1].index_select(0, paged.positions),
                       config_.ropes[i].interleaved});
    tensor::Tensor x = operations_.rows(w.embedding, paged.ids);
    if (config_.embedding_scale != 1.0) x.mul_(model::embedding_scale(config_, x.scalar_type()));
    const model::AttentionLayout none;
    states_.begin(rows);
    for (std::int64_t l = 0; l < config_.layers; ++l) {
      operations_.enter_layer(l);
      const model::LayerSpec& spec = config_.spec(l);
      model::LayerContext context{.config = config_,
                                  .spec = spec,
                                  .operations = operations_,
                                  .layout = none,
                                  .rope = spec.rotary() ? &ropes[static_cast<std::size_t>(spec.rope)] : nullptr};
      if (spec.delta.present()) states_.enter_layer(l, context);
      x = model::layer_forward(context, w.layers[static_cast<std::size_t>(l)], x, {}, nullptr);
      if (spec.delta.present()) states_.leave_layer(l);
    }
    return operations_.rms_norm(x, w.final_norm, config_.norm).value;
  }

  // [n, V] in float32, on the device.
  [[nodiscard]] tensor::Tensor logits_of(const Weights& weights, std::span<const std::int64_t> rows) {
    const auto& w = static_cast<const TensorWeightsView&>(weights);
    if (invariant_ > 0) {
      std::vector<tensor::Tensor> parts;
      const auto most = static_cast<std::size_t>(invariant_);
      for (std::size_t first = 0; first < rows.size(); first += most) {
        const auto some = rows.subspan(first, std::min(most, rows.size() - first));
        std::vector<std::int64_t> padded(some.begin(), some.end());
        padded.resize(most, some.front());
        parts.push_back(
            head(w, last_.index_select(0, tensor::on_device(std::span<const std::int64_t>(padded), last_.device())))
                .narrow(0, 0, static_cast<std::int64_t>(some.size())));
      }
      return parts.size() == 1 ? parts.front() : tensor::concatenate(parts, 0);
    }
    bool all = static_cast<std::int64_t>(rows.size()) == last_.size(0);
    for (std::size_t i = 0; i < rows.size() && all; ++i) all = rows[i] == static_cast<std::int64_t>(i);
    return head(w, all ? last_ : last_.index_select(0, tensor::on_device(rows, last_.device())));
  }
  [[nodiscard]] tensor::Tensor head(const TensorWeightsView& view, const tensor::Tensor& hidden) const {
    const model::DecoderWeights& w = view.weights;
    tensor::Tensor out;
    if (view.head && !w.lm_head_lora.defined() && hidden.size(0) <= most_by_bytes &&
        multiplies_bytes(kernels_, *view.head)) {
      out = tensor::empty({hidden.size(0), view.head->rows()}, hidden.options());
      multiply_bytes(*kernels_.table, hidden.contiguous(), *view.head, out);
    } else {
      out = model::linear(hidden, {head_of(w), {}, w.lm_head_lora, view.head});
    }
    out = out.to(at::kFloat);
    if (config_.logit_scale != 1.0) out.mul_(config_.logit_scale);
    if (config_.logit_cap > 0.0) out.div_(config_.logit_cap).tanh_().mul_(config_.logit_cap);
    return out;
  }

  const model::DecoderConfig& config_;
  const TensorPages& pages_;
  const tensor::OwnKernels kernels_;  // the next two read it
  TensorStates states_;
  PagedOperations operations_;
  DecodePass decode_;
  AdapterBanks banks_;
  std::vector<std::int64_t> row_places_;
  DeviceDraws draws_;
  RowLayout layout_;
  std::vector<RotaryTable> rotary_;                    // of each rotation of the configuration
  std::vector<std::array<tensor::Tensor, 2>> angles_;  // their cosines and sines [reserved_, half], on the device
  std::int64_t reserved_ = 0;
  std::int64_t max_rows_, max_logits_, invariant_;
  tensor::Tensor last_;    // [T, H] after the final norm
  tensor::Tensor logits_;  // [n, V] in host memory
  tensor::Tensor probe_;   // [1]: what check() reads
};

}  // namespace rlalgo::inference::detail
