// The rewards of one generation batch: one row per sample, one column per reward function.
//
// A NaN entry means "this function does not apply to this sample" (Python None). A row that is NaN in every column is
// unscorable: it gets advantage 0 and does not touch its group's baseline.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace rlalgo::core {

class RewardTable {
 public:
  RewardTable() = default;
  RewardTable(std::vector<std::string> names, std::vector<double> weights, std::size_t rows)
      : names_(std::move(names)),
        weights_(std::move(weights)),
        rows_(rows),
        values_(rows * names_.size(), std::numeric_limits<double>::quiet_NaN()) {
    if (weights_.empty()) weights_.assign(names_.size(), 1.0);
  }

  [[nodiscard]] std::size_t rows() const noexcept { return rows_; }
  [[nodiscard]] std::size_t columns() const noexcept { return names_.size(); }
  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }
  [[nodiscard]] const std::vector<double>& weights() const noexcept { return weights_; }
  [[nodiscard]] double operator()(std::size_t row, std::size_t column) const {
    return values_[row * columns() + column];
  }
  double& operator()(std::size_t row, std::size_t column) { return values_[row * columns() + column]; }

  // R_i = Σ_k w_k·R_ik over the columns that apply; NaN when none does.
  [[nodiscard]] double weighted_sum(std::size_t row) const {
    double sum = 0.0;
    bool scorable = false;
    for (std::size_t k = 0; k < columns(); ++k) {
      const double value = (*this)(row, k);
      if (std::isnan(value)) continue;
      scorable = true;
      sum += weights_[k] * value;
    }
    return scorable ? sum : std::numeric_limits<double>::quiet_NaN();
  }

 private:
  std::vector<std::string> names_;
  std::vector<double> weights_;
  std::size_t rows_ = 0;
  std::vector<double> values_;  // [rows, columns], row-major
};

}  // namespace rlalgo::core
