// Metrics that stay exact under any split into micro-batches and ranks.
//
// A metric is accumulated as (sum, weight), minimum, maximum or last value, and becomes a number only when it is read:
// merging the parts of a batch gives the value of the whole batch. NaN reads as "no value" (null in metrics.jsonl).
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace rlalgo::core {

class Metrics {
 public:
  enum class Kind { mean, minimum, maximum, last };
  struct Entry {
    std::string name;
    Kind kind;
    double value;         // Σ x·w for a mean, else the value itself
    double weight = 0.0;  // Σ w for a mean
  };

  // value = Σ sum / Σ weight over all calls; a total weight of 0 reads as NaN.
  void mean(const std::string& name, double sum, double weight) {
    Entry& e = entry(name, Kind::mean, 0.0);
    e.value += sum;
    e.weight += weight;
  }
  void minimum(const std::string& name, double value) {
    Entry& e = entry(name, Kind::minimum, std::numeric_limits<double>::quiet_NaN());
    e.value = std::fmin(e.value, value);
  }
  void maximum(const std::string& name, double value) {
    Entry& e = entry(name, Kind::maximum, std::numeric_limits<double>::quiet_NaN());
    e.value = std::fmax(e.value, value);
  }
  void last(const std::string& name, double value) { entry(name, Kind::last, value).value = value; }

  // What an entry of others says, as its kind has it.
  void add(const Entry& e) {
    switch (e.kind) {
      case Kind::mean:
        return mean(e.name, e.value, e.weight);
      case Kind::minimum:
        return minimum(e.name, e.value);
      case Kind::maximum:
        return maximum(e.name, e.value);
      case Kind::last:
        return last(e.name, e.value);
    }
  }
  void merge(const Metrics& other) {
    for (const Entry& e : other.entries_) add(e);
  }

  [[nodiscard]] const std::vector<Entry>& entries() const noexcept { return entries_; }
  [[nodiscard]] bool empty() const noexcept { return entries_.empty(); }

  [[nodiscard]] double value(const std::string& name) const {
    for (const Entry& e : entries_)
      if (e.name == name) return read(e);
    return std::numeric_limits<double>::quiet_NaN();
  }
  // (name, value) in the order of first appearance.
  [[nodiscard]] std::vector<std::pair<std::string, double>> values() const {
    std::vector<std::pair<std::string, double>> out;
    out.reserve(entries_.size());
    for (const Entry& e : entries_) out.emplace_back(e.name, read(e));
    return out;
  }

 private:
  static double read(const Entry& e) {
    if (e.kind != Kind::mean) return e.value;
    return e.weight == 0.0 ? std::numeric_limits<double>::quiet_NaN() : e.value / e.weight;
  }
  Entry& entry(const std::string& name, Kind kind, double initial) {
    for (Entry& e : entries_)
      if (e.name == name) return e;
    entries_.push_back({name, kind, initial});
    return entries_.back();
  }
  std::vector<Entry> entries_;
};

}  // namespace rlalgo::core
