// What sequences carry from token to token, on a device: read before a layer with a gated delta rule, written behind it.
//
//   arena [capacity, numbers that a sequence carries], in the order of detail/delta_pass.hpp; a row is a sequence, or a state saved
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <rlalgo/inference/detail/tensor_pages.hpp>
#include <rlalgo/inference/forward.hpp>
#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/model/decoder_layer.hpp>
#include <rlalgo/model/gated_delta.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/host_copies.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::inference::detail {

class TensorStates {
 public:
  TensorStates(const model::DecoderConfig& config, const TensorPages& states) : config_(config), states_(states) {
    for (std::int64_t l = 0; l < config.layers && kernel_ == 0; ++l) kernel_ = config.spec(l).delta.kernel;
  }

  // The rows of a pass.
  void begin(std::span<const Row> rows) {
    if (kernel_ == 0) return;
    std::vector<model::DeltaRun> runs;
    std::vector<std::int64_t> from, to, asked;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      if (i == 0 || rows[i].state != rows[i - 1].state) {
        runs.push_back({.begin = at, .end = at});
        if (rows[i].position > 0) {
          runs.back().initial = static_cast<std::int64_t>(from.size());
          from.push_back(TensorPages::number(rows[i].state));
        }
      }
      runs.back().end = at + 1;
      if (rows[i].saved != nullptr) {
        asked.push_back(at);
        to.push_back(TensorPages::number(rows[i].saved));
      }
    }
    for (const model::DeltaRun& run : runs) {
      asked.push_back(run.end - 1);
      to.push_back(TensorPages::number(rows[static_cast<std::size_t>(run.begin)].state));
    }
    layout_ = model::lay_out_delta(runs, static_cast<std::int64_t>(rows.size()), kernel_, asked,
                                   static_cast<std::int64_t>(from.size()), states_.device());
    const auto there = [&](const std::vector<std::int64_t>& rows) {
      return tensor::on_device(std::span<const std::int64_t>(rows), states_.device());
    };
    from_ = from.empty() ? tensor::Tensor() : there(from);
    to_ = there(to);
    only_ = tensor::zeros_like(to_);
  }

  void enter_layer(std::int64_t l, model::LayerContext& context) {
    const model::DeltaSpec& spec = config_.spec(l).delta;
    context.delta = &layout_;
    context.after = &after_;
    if (!from_.defined()) return;
    const tensor::Tensor carried =
        part(config_.carried(l), spec.window_size() + spec.state_size()).index_select(0, from_);
    given_.windows =
        carried.narrow(1, 0, spec.window_size()).reshape({from_.size(0), spec.kernel - 1, spec.channels()});
    given_.states = carried.narrow(1, spec.window_size(), spec.state_size())
                        .reshape({-1, spec.value_heads, spec.key_dim, spec.value_dim});
    context.given = &given_;
  }

  void leave_layer(std::int64_t l) {
    const model::DeltaSpec& spec = config_.spec(l).delta;
    const std::int64_t offset = config_.carried(l);
    // Rows of one place each.
    const auto put = [&](std::int64_t first, std::int64_t count, const tensor::Tensor& x) {
      tensor::put(part(first, count).unsqueeze(1), to_, only_, x.flatten(1));
    };
    put(offset, spec.window_size(), after_.windows);
    put(offset + spec.window_size(), spec.state_size(), after_.states);
    after_ = given_ = {};
  }

 private:
  [[nodiscard]] tensor::Tensor part(std::int64_t first, std::int64_t count) const {
    return states_.arena().narrow(1, first, count);
  }

  const model::DecoderConfig& config_;
  const TensorPages& states_;
  std::int64_t kernel_ = 0;  // of the convolution; 0: no layer carries anything
  model::DeltaLayout layout_;
  tensor::Tensor from_, to_;  // rows of the arena: where runs begin, and where what is asked for goes
  tensor::Tensor only_;       // 0 for each of those
  model::DeltaState given_, after_;
};

}  // namespace rlalgo::inference::detail
