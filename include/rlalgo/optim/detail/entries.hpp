// What optimizers do alike with their entries, of which each has a model::Parameter `parameter` and its MasterWeight `weight`.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/optim/detail/named_state.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::optim::detail {

template <class Entry>
void drop_gradients(std::vector<Entry>& entries) {
  for (Entry& e : entries) e.parameter.value.mutable_grad() = tensor::Tensor();
}

// Copies `given` into `own`, the optimizer's state, which it must fit ([rlalgo.optim.1]), and the masters to their parameters.
template <class Entry>
void load_entries(const std::vector<Entry>& entries, const NamedTensors& own,
                  const std::map<std::string, tensor::Tensor>& given) {
  const c10::NoGradGuard no_grad;
  load_tensors(own, given);
  for (const Entry& e : entries) e.weight.publish();
}

}  // namespace rlalgo::optim::detail
