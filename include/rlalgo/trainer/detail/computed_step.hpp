// What a step has on the device until the host reads it: columns of a micro-batch on their way there, and what came of all micro-batches;
// and the update that follows.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <rlalgo/loss/concept.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/model/token_tree.hpp>
#include <rlalgo/optim/concept.hpp>
#include <rlalgo/optim/device_clip.hpp>
#include <rlalgo/sampler/rows.hpp>
#include <rlalgo/tensor/host_block.hpp>
#include <rlalgo/tensor/reading.hpp>
#include <rlalgo/tensor/tensor.hpp>
#include <rlalgo/trainer/led_run.hpp>
#include <rlalgo/trainer/placement.hpp>

namespace rlalgo::trainer::detail {

// Where columns of rows go: the device of the parameters, in the dtype in which log-probs of such a model are computed.
[[nodiscard]] inline at::TensorOptions numbers_of(std::span<const model::Parameter> parameters) {
  auto out = at::TensorOptions().dtype(at::kFloat);
  for (const model::Parameter& p : parameters) {
    out = out.device(p.value.device());
    if (p.value.scalar_type() == at::kDouble) out = out.dtype(at::kDouble);
  }
  return out;
}

// Of a parameter.
[[nodiscard]] inline double mean_elements(std::span<const model::Parameter> parameters) {
  double out = 0.0;
  for (const model::Parameter& p : parameters)
    out += static_cast<double>(p.value.numel()) / static_cast<double>(parameters.size());
  return out;
}

struct NoColumns {};
template <class R>
struct ColumnsOf {
  using type = NoColumns;
};
template <sampler::PreparedRows R>
struct ColumnsOf<R> {
  using type = typename R::Columns;
};

// A micro-batch whose columns and whatever the policy needs of it go to the device in one copy.
template <class Rows>
class MicroBatch {
  using View = std::span<const typename Rows::Row* const>;

 public:
  MicroBatch(View rows, const loss::Needs& needs, const at::TensorOptions& numbers)
      : rows_(rows), needs_(needs), block_(numbers) {
    if constexpr (sampler::PreparedRows<Rows>) columns_ = Rows::columns(rows_, needs_, block_);
  }

  [[nodiscard]] model::Scores score(model::Policy& policy, const model::TokenTree& tree, model::ScoreOptions options) {
    options.block = &block_;
    return policy.score(tree, options);
  }

  // `reference`: log-probs [N] that lie where they were computed; undefined: columns have them, or nobody reads them.
  [[nodiscard]] loss::Scored collate(const model::Scores& scores, const tensor::Tensor& reference = {}) {
    return sampler::with_reference(collated(scores), reference);
  }

 private:
  [[nodiscard]] loss::Scored collated(const model::Scores& scores) {
    if constexpr (sampler::PreparedRows<Rows>)
      if (block_.device() == scores.log_prob.device() && block_.number_type() == scores.log_prob.scalar_type()) {
        block_.send();
        return Rows::collate(rows_, scores, needs_, columns_);
      }
    // Where log-probs lie elsewhere or have another dtype, columns are made again.
    return Rows::collate(rows_, scores, needs_);
  }

  View rows_;
  loss::Needs needs_;
  tensor::HostBlock block_;
  [[no_unique_address]] typename ColumnsOf<Rows>::type columns_;
};

// The micro-batches of a step, where they were computed; no graph.
template <class Row>
struct ComputedStep {
  struct Part {
    std::span<const Row* const> rows;
    std::size_t part;
    tensor::Tensor log_prob;  // [N]
    loss::Result result;
  };
  std::vector<Part> parts = {};
  loss::Metrics reported = {};

  [[nodiscard]] std::vector<tensor::Tensor> losses() const {
    std::vector<tensor::Tensor> out;
    for (const Part& one : parts) out.push_back(one.result.value);
    return out;
  }

  // Log-probs by the numbers that the parts have among those of all ranks; this rank's begin with `first`.
  [[nodiscard]] std::vector<PartColumn> columns(std::size_t first) const {
    std::vector<PartColumn> out;
    for (const Part& one : parts) out.push_back({first + one.part, one.log_prob});
    return out;
  }

  // Losses, metrics, margins, log-probs where they are kept, and `extra`: to the host in one copy.
  void fetch(bool keeps_log_probs, tensor::Tensor* extra) {
    tensor::Reading reading;
    for (Part& one : parts) {
      reading.add(one.result.value);
      reading.add(one.result.margins);
      if (keeps_log_probs) reading.add(one.log_prob);
    }
    reported.add_to(reading);
    if (extra != nullptr) reading.add(*extra);
    reading.fetch();
  }
};

// Whether the host may leave the norm of the gradients to the device.
template <optim::Optimizer O>
[[nodiscard]] bool clips_on_device(const O& optimizer, const Placement& placement) {
  if constexpr (optim::hooks_of<O>().clips_on_device)
    return optimizer.clips_on_device() && placement.clips_on_device();
  else
    return false;
}

// One update, and no gradients after it. `clip`: null where they are clipped already.
template <optim::Optimizer O>
void update(O& optimizer, double learning_rate, const optim::DeviceClip* clip = nullptr) {
  if (clip == nullptr) optimizer.step(learning_rate);
  if constexpr (optim::hooks_of<O>().clips_on_device)
    if (clip != nullptr) optimizer.step(learning_rate, *clip);
  optimizer.zero_grad();
}

}  // namespace rlalgo::trainer::detail
