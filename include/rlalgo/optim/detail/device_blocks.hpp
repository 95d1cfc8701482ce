// Moments in 8 bits of parameters on one device that is not the CPU (adamw_8bit.hpp): codes and scales of all of them one behind the other,
// each from a new block on, and their update without the host.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/optim/adamw.hpp>
#include <rlalgo/optim/detail/rates.hpp>
#include <rlalgo/optim/device_clip.hpp>
#include <rlalgo/optim/master_weight.hpp>
#include <rlalgo/tensor/blockwise_8bit.hpp>
#include <rlalgo/tensor/cuda_kernels.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

// Needs the tensor type before it.
#include <ATen/ops/_foreach_add_ops.h>
#include <ATen/ops/_foreach_copy_ops.h>
#include <ATen/ops/bucketize_ops.h>

namespace rlalgo::optim::detail {

// Views of what a parameter has: codes like it, a scale for each block, and t [].
struct BlockState {
  Tensor m, v, m_scale, v_scale, updates;
};

class DeviceBlocks {
 public:
  static constexpr std::int64_t block = static_cast<std::int64_t>(tensor::DynamicCode::block);
  struct Part {
    model::Parameter parameter;
    MasterWeight weight;
    std::int64_t first = 0, blocks = 0;  // of the memory of all
    double rate = 1.0;                   // times that of the schedule
  };

  explicit DeviceBlocks(std::vector<Part> parts) : parts_(std::move(parts)) {
    std::int64_t blocks = 0;
    std::vector<std::int32_t> owners;
    std::vector<double> decayed;
    for (Part& p : parts_) {
      p.first = blocks;
      p.blocks = (p.weight.master().numel() + block - 1) / block;
      blocks += p.blocks;
      owners.insert(owners.end(), static_cast<std::size_t>(p.blocks), static_cast<std::int32_t>(decayed.size()));
      decayed.push_back(p.parameter.weight_decay ? 1.0 : 0.0);
    }
    const auto place = at::TensorOptions().device(parts_.front().weight.master().device());
    const auto bytes = place.dtype(at::kByte), floats = place.dtype(at::kFloat);
    m_ = padded(blocks, tensor::DynamicCode::with_sign(), bytes);
    v_ = padded(blocks, tensor::DynamicCode::without_sign(), bytes);
    m_scale_ = tensor::zeros({blocks}, floats);
    v_scale_ = tensor::zeros({blocks}, floats);
    updates_ = tensor::zeros({static_cast<std::int64_t>(parts_.size())}, floats);
    owners_ = tensor::from_values(owners, place.dtype(at::kInt));
    decayed_ = tensor::from_values(decayed, place.dtype(at::kDouble));
    rates_ = tensor::ones(decayed_.sizes(), decayed_.options());
    std::vector<float> values, halves;
    for (const auto* code : {&tensor::DynamicCode::with_sign(), &tensor::DynamicCode::without_sign()}) {
      const auto of = code->values();
      values.insert(values.end(), of.begin(), of.end());
      for (std::size_t i = 0; i + 1 < of.size(); ++i) halves.push_back((of[i] + of[i + 1]) / 2.0F);
      halves.push_back(std::numeric_limits<float>::infinity());
    }
    values.insert(values.end(), halves.begin(), halves.end());
    tables_ = tensor::from_values(values, floats).view({4, 256});
  }

  [[nodiscard]] BlockState state(std::size_t i) const {
    const Part& p = parts_[i];
    const auto sizes = p.weight.master().sizes();
    const auto like = [&](const Tensor& codes) {
      return codes.narrow(0, p.first * block, p.weight.master().numel()).view(sizes);
    };
    return {like(m_), like(v_), m_scale_.narrow(0, p.first, p.blocks), v_scale_.narrow(0, p.first, p.blocks),
            updates_.select(0, static_cast<std::int64_t>(i))};
  }

  // Factors of the rate by the names of parameters.
  void set_rates(const Rates& rates) {
    take_rates(parts_, rates);
    std::vector<double> factors;
    for (const Part& p : parts_) factors.push_back(p.rate);
    rates_ = tensor::from_values(factors, decayed_.options());
  }

  // One update of those that have a gradient; `clip` may be null.
  void step(const AdamWConfig& config, double learning_rate, const DeviceClip* clip) const {
    std::vector<std::size_t> moved;
    for (std::size_t i = 0; i < parts_.size(); ++i)
      if (parts_[i].parameter.value.grad().defined()) moved.push_back(i);
    if (moved.empty()) return;
    count(moved, clip);
    const Tensor numbers = numbers_of(config, learning_rate);
    std::map<c10::ScalarType, std::vector<std::size_t>> by_kernel;
    std::vector<Piece> pieces;
    for (const std::size_t i : moved) {
      const Part& p = parts_[i];
      if (kernels_for(p) != nullptr) {
        by_kernel[p.parameter.value.scalar_type()].push_back(i);
        continue;
      }
      const std::int64_t most = std::max<std::int64_t>(config.elements_at_once / 8 / block, 1);
      for (std::int64_t begin = 0; begin < p.blocks;) {
        if (!pieces.empty() && !follows(pieces.back(), p.first + begin, most - together(pieces))) {
          update(pieces, config, numbers, clip);
          pieces.clear();
        }
        const std::int64_t count = std::min(most - together(pieces), p.blocks - begin);
        pieces.push_back({&p, begin, count});
        begin += count;
      }
    }
    update(pieces, config, numbers, clip);
    for (const auto& [type, list] : by_kernel) launch(list, config, learning_rate, numbers, clip);
  }

 private:
  // Blocks of a parameter.
  struct Piece {
    const Part* part;
    std::int64_t begin, count;
    [[nodiscard]] std::int64_t first() const { return part->first + begin; }
    [[nodiscard]] std::int64_t elements() const {
      return std::min(count * block, part->weight.master().numel() - begin * block);
    }
    [[nodiscard]] Tensor of(const Tensor& x) const { return x.view({-1}).narrow(0, begin * block, elements()); }
  };

  [[nodiscard]] static std::int64_t together(const std::vector<Piece>& pieces) {
    std::int64_t blocks = 0;
    for (const Piece& p : pieces) blocks += p.count;
    return blocks;
  }
  [[nodiscard]] static bool follows(const Piece& last, std::int64_t first, std::int64_t room) {
    return room > 0 && last.first() + last.count == first;
  }

  // Codes 0 where parameters are, and what stands for 0 behind them.
  [[nodiscard]] Tensor padded(std::int64_t blocks, const tensor::DynamicCode& code,
                              const at::TensorOptions& options) const {
    Tensor out = tensor::empty({blocks * block}, options);
    out.fill_(static_cast<std::int64_t>(code.nearest(0.0F)));
    for (const Part& p : parts_) out.narrow(0, p.first * block, p.weight.master().numel()).zero_();
    return out;
  }

  void count(const std::vector<std::size_t>& moved, const DeviceClip* clip) const {
    std::vector<Tensor> counts;
    if (moved.size() == parts_.size())
      counts.push_back(updates_);
    else
      for (const std::size_t i : moved) counts.push_back(updates_.select(0, static_cast<std::int64_t>(i)));
    if (clip == nullptr)
      at::_ops::_foreach_add__Scalar::call(counts, 1.0);
    else
      at::_ops::_foreach_add__Tensor::call(counts, clip->skip.neg().add_(1.0), 1.0);
  }

  // −lr/(1 − β₁ᵗ), √(1 − β₂ᵗ) and 1 − lr·λ of each parameter, [3, parameters].
  [[nodiscard]] Tensor numbers_of(const AdamWConfig& config, double learning_rate) const {
    const Tensor t = updates_.to(at::kDouble);
    const Tensor first = tensor::power(config.beta1, t).neg_().add_(1.0);
    const Tensor back = rates_.mul(-learning_rate), size = back.div(first);
    const Tensor root = tensor::power(config.beta2, t).neg_().add_(1.0).sqrt_();
    const Tensor kept = back.mul(config.weight_decay).mul_(decayed_).add_(1.0);
    return tensor::stack({size, root, kept}).to(at::kFloat);
  }

  [[nodiscard]] static const cuda::Kernels* kernels_for(const Part& p) {
    const Tensor& value = p.parameter.value;
    return tensor::own_kernels().take(cuda::Kernel::adamw_8bit, value, value.grad());
  }

  void launch(const std::vector<std::size_t>& list, const AdamWConfig& config, double learning_rate,
              const Tensor& numbers, const DeviceClip* clip) const {
    const Part& some = parts_[list.front()];
    const cuda::Kernels* const own = kernels_for(some);
    const auto given = [&](const Tensor DeviceClip::*which) {
      return clip != nullptr && (clip->*which).defined() ? (clip->*which).const_data_ptr<float>() : nullptr;
    };
    const Tensor sizes = numbers.select(0, 0), roots = numbers.select(0, 1);
    const cuda::AdamW8bit empty{.m = m_.mutable_data_ptr<std::uint8_t>(),
                                .v = v_.mutable_data_ptr<std::uint8_t>(),
                                .m_scale = m_scale_.mutable_data_ptr<float>(),
                                .v_scale = v_scale_.mutable_data_ptr<float>(),
                                .sizes = sizes.const_data_ptr<float>(),
                                .roots = roots.const_data_ptr<float>(),
                                .tables = tables_.const_data_ptr<float>(),
                                .divisor = given(&DeviceClip::divisor),
                                .skip = given(&DeviceClip::skip),
                                .beta1 = static_cast<float>(config.beta1),
                                .rest1 = static_cast<float>(1.0 - config.beta1),
                                .beta2 = static_cast<float>(config.beta2),
                                .rest2 = static_cast<float>(1.0 - config.beta2),
                                .epsilon = static_cast<float>(config.epsilon),
                                .element = tensor::element_of(some.parameter.value)};
    cuda::AdamW8bit a = empty;
    const auto flush = [&] {
      tensor::launch(*own, own->adamw_8bit, a, cuda::Kernel::adamw_8bit, some.parameter.value);
      a = empty;
    };
    for (const std::size_t i : list) {
      const Part& p = parts_[i];
      const double decay = p.parameter.weight_decay ? config.weight_decay : 0.0;
      a.items[a.count] = {.gradient = p.parameter.value.grad().const_data_ptr(),
                          .master = p.weight.master().mutable_data_ptr<float>(),
                          .value = p.weight.separate() ? p.parameter.value.mutable_data_ptr() : nullptr,
                          .elements = p.weight.master().numel(),
                          .block = p.first,
                          .number = static_cast<std::int32_t>(i),
                          .kept = static_cast<float>(1.0 - learning_rate * p.rate * decay)};
      a.first[a.count++] = a.blocks;
      a.blocks += static_cast<std::int32_t>(p.blocks);
      if (a.count == cuda::adamw_8bit_most) flush();
    }
    if (a.count > 0) flush();
  }

  // s of each block of x [blocks, 256], [blocks, 1], and the codes.
  [[nodiscard]] static std::pair<Tensor, Tensor> quantised(const Tensor& x, const Tensor& halves) {
    Tensor most = x.abs().amax(1, /*keepdim=*/true);
    const Tensor inverse = most.reciprocal();
    const Tensor scaled =
        tensor::where(inverse.eq(std::numeric_limits<float>::infinity()),
                      x.div(most.clamp_min(std::numeric_limits<float>::denorm_min())), x.mul(inverse));
    return {std::move(most),
            at::_ops::bucketize_Tensor::call(scaled, halves, /*out_int32=*/true, /*right=*/false).to(at::kByte)};
  }

  // Of blocks that lie one behind the other. Every product and sum is rounded by itself, as on the CPU.
  void update(const std::vector<Piece>& pieces, const AdamWConfig& config, const Tensor& numbers,
              const DeviceClip* clip) const {
    if (pieces.empty()) return;
    const std::int64_t first = pieces.front().first(), blocks = together(pieces);
    const Tensor wide = tensor::zeros({2, blocks * block}, m_scale_.options());
    std::vector<Tensor> gradients, masters, widened, moved;
    for (const Piece& p : pieces) {
      const std::int64_t at = (p.first() - first) * block;
      gradients.push_back(p.of(p.part->parameter.value.grad().contiguous()));
      masters.push_back(p.of(p.part->weight.master()));
      widened.push_back(wide.select(0, 0).narrow(0, at, p.elements()));
      moved.push_back(wide.select(0, 1).narrow(0, at, p.elements()));
    }
    at::_ops::_foreach_copy_::call(widened, gradients, false);
    at::_ops::_foreach_copy_::call(moved, masters, false);
    const Tensor g = wide.select(0, 0).view({blocks, block}), p = wide.select(0, 1).view({blocks, block});
    if (clip != nullptr && clip->divisor.defined()) g.div_(clip->divisor);
    const Tensor own = numbers.index_select(1, owners_.narrow(0, first, blocks)).unsqueeze(2);  // [3, blocks, 1]
    const auto codes_of = [&](const Tensor& all) { return all.narrow(0, first * block, blocks * block); };
    const auto scales_of = [&](const Tensor& all) { return all.narrow(0, first, blocks).unsqueeze(1); };
    const auto moment = [&](const Tensor& codes, const Tensor& scales, std::int64_t table, double beta) {
      return tables_.select(0, table)
          .index_select(0, codes_of(codes).to(at::kInt))
          .view({blocks, block})
          .mul_(scales_of(scales))
          .mul_(beta);
    };
    const Tensor m = moment(m_, m_scale_, 0, config.beta1).add_(g.mul(1.0 - config.beta1));
    const Tensor v = moment(v_, v_scale_, 1, config.beta2).add_(g.mul(1.0 - config.beta2).mul_(g));
    // (LibTorch's square root of a float on a CPU may differ by a last bit.)
    const Tensor change =
        m.mul(own[0]).div_(v.to(at::kDouble).sqrt_().to(at::kFloat).div_(own[1]).add_(config.epsilon));
    const Tensor after = p.mul(own[2]).add_(change);
    const Tensor skipped = clip != nullptr ? clip->skip.ne(0) : Tensor();
    const auto set = [&](const Tensor& place, const Tensor& value) {
      place.copy_(skipped.defined() ? tensor::where(skipped, place, value) : value);
    };
    set(p, after);
    for (const auto& [x, codes, scales, table] :
         {std::tuple(&m, &m_, &m_scale_, 2), std::tuple(&v, &v_, &v_scale_, 3)}) {
      const auto [most, found] = quantised(*x, tables_.select(0, table).narrow(0, 0, 255));
      set(codes_of(*codes), found.view({-1}));
      set(scales_of(*scales), most);
    }
    at::_ops::_foreach_copy_::call(masters, moved, false);
    std::vector<Tensor> values, rounded;
    for (std::size_t i = 0; i < pieces.size(); ++i)
      if (pieces[i].part->weight.separate()) {
        values.push_back(pieces[i].of(pieces[i].part->weight.value().detach()));
        rounded.push_back(moved[i]);
      }
    if (!values.empty()) at::_ops::_foreach_copy_::call(values, rounded, false);
  }

  std::vector<Part> parts_;
  Tensor m_, v_;              // [blocks · 256] uint8
  Tensor m_scale_, v_scale_;  // [blocks] float32
  Tensor updates_;            // [parameters] float32: t
  Tensor owners_;             // [blocks] int32: number of a block's parameter
  Tensor decayed_, rates_;    // [parameters] float64: 1 or 0; factors
  Tensor tables_;             // [4, 256] float32, as cuda::AdamW8bit has them
};

}  // namespace rlalgo::optim::detail
