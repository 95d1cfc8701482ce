// Takes factors of the rate (optim/parameter_groups.hpp) into an optimizer's entries.
#pragma once

#include <vector>

#include <rlalgo/optim/concept.hpp>

namespace rlalgo::optim::detail {

// Entries have a model::Parameter `parameter` and its factor `rate`.
template <class Entry>
void take_rates(std::vector<Entry>& entries, const Rates& rates) {
  for (Entry& e : entries) {
    const auto found = rates.find(e.parameter.name);
    e.rate = found == rates.end() ? 1.0 : found->second;
  }
}

}  // namespace rlalgo::optim::detail
