// Counts of values in bands with fixed upper bounds, as Prometheus wants them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace rlalgo::serve {

class Histogram {
 public:
  // `bounds` rise; values above the last are counted in total only.
  explicit Histogram(std::vector<double> bounds = {}) : bounds_(std::move(bounds)), counts_(bounds_.size()) {}

  void add(double value) {
    const auto at = static_cast<std::size_t>(std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin());
    if (at < counts_.size()) ++counts_[at];
    ++total_;
    sum_ += value;
  }

  [[nodiscard]] const std::vector<double>& bounds() const noexcept { return bounds_; }
  // Values of at most bounds()[i].
  [[nodiscard]] std::uint64_t up_to(std::size_t i) const {
    std::uint64_t out = 0;
    for (std::size_t k = 0; k <= i; ++k) out += counts_[k];
    return out;
  }
  [[nodiscard]] std::uint64_t total() const noexcept { return total_; }
  [[nodiscard]] double sum() const noexcept { return sum_; }

 private:
  std::vector<double> bounds_;
  std::vector<std::uint64_t> counts_;
  std::uint64_t total_ = 0;
  double sum_ = 0.0;
};

}  // namespace rlalgo::serve
