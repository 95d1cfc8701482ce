// The median that the benchmarks report of their turns.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace benchmarks {

// The upper one of two; of at least one value.
inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace benchmarks
