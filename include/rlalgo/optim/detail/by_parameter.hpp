// One update for each parameter that has a gradient, each whole on one thread: its sums then have one order, whatever the number of
// threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/tensor/on_threads.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::optim::detail {

// Entries have a model::Parameter `parameter`. On another device than the CPU one after the other.
template <class Entry, class F>
void by_parameter(std::vector<Entry>& entries, const F& update) {
  std::vector<Entry*> moved;
  for (Entry& e : entries)
    if (e.parameter.value.grad().defined()) moved.push_back(&e);
  // The largest first, so that no thread begins with it when the others are done.
  std::stable_sort(moved.begin(), moved.end(), [](const Entry* a, const Entry* b) {
    return a->parameter.value.numel() > b->parameter.value.numel();
  });
  const bool here =
      std::all_of(moved.begin(), moved.end(), [](const Entry* e) { return e->parameter.value.device().is_cpu(); });
  const auto one = [&](std::int64_t i) {
    const c10::NoGradGuard no_grad;  // of this thread
    update(*moved[static_cast<std::size_t>(i)]);
  };
  const auto count = static_cast<std::int64_t>(moved.size());
  if (here) return tensor::on_threads(count, one);
  for (std::int64_t i = 0; i < count; ++i) one(i);
}

}  // namespace rlalgo::optim::detail
