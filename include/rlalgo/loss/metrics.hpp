// The metrics that a loss reports, as tensors: nothing waits for the device until they are read, once per step.
//
// What is read is what core::Metrics would hold had every number been fetched at once, in the same order and to the bit:
// numbers are widened to float64 (exact) and added up on the host. A number may be a scalar tensor of any dtype and
// device, or known already.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <rlalgo/core/metrics.hpp>
#include <rlalgo/tensor/reading.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::loss {

using tensor::Tensor;

class Metrics {
 public:
  class Number {
   public:
    template <class T>
    requires std::is_arithmetic_v<T> Number(T value) : value_(static_cast<double>(value)) {}
    Number(const Tensor& value) : tensor_(value.detach()) {}

   private:
    friend class Metrics;
    double value_ = 0.0;
    Tensor tensor_;  // [], or undefined: value_
  };

  // As core::Metrics has them. Where `given` is 0 the call counts as not made.
  void mean(const std::string& name, const Number& sum, const Number& weight, const Number& given = 1) {
    calls_.push_back({core::Metrics::Kind::mean, name, sum, weight, given});
  }
  void minimum(const std::string& name, const Number& value, const Number& given = 1) {
    calls_.push_back({core::Metrics::Kind::minimum, name, value, 0, given});
  }
  void maximum(const std::string& name, const Number& value, const Number& given = 1) {
    calls_.push_back({core::Metrics::Kind::maximum, name, value, 0, given});
  }
  void last(const std::string& name, const Number& value, const Number& given = 1) {
    calls_.push_back({core::Metrics::Kind::last, name, value, 0, given});
  }

  // Those of another part of the batch: they are added up among themselves first.
  void merge(const Metrics& other) {
    calls_.push_back({.part = std::make_shared<const std::vector<Call>>(other.calls_)});
  }

  // Has the numbers that lie on devices read with others': reading.fetch() comes between this and read_into(). No call after it is known.
  void add_to(tensor::Reading& reading) {
    far_.clear();
    collect(calls_, far_);
    for (Tensor& number : far_) reading.add(number);
  }
  // Adds everything to `total`: at most one transfer from each device, and none after add_to().
  void read_into(core::Metrics& total) const {
    std::vector<Tensor> far = far_;
    if (far.empty()) {
      tensor::Reading reading;
      collect(calls_, far);
      for (Tensor& number : far) reading.add(number);
      reading.fetch();
    }
    const Tensor* next = far.data();
    add(calls_, next, total);
  }
  [[nodiscard]] core::Metrics read() const {
    core::Metrics out;
    read_into(out);
    return out;
  }

  // Readings of all, for tests and inspection.
  [[nodiscard]] double value(const std::string& name) const { return read().value(name); }
  [[nodiscard]] std::vector<std::pair<std::string, double>> values() const { return read().values(); }

 private:
  struct Call {
    core::Metrics::Kind kind = core::Metrics::Kind::mean;
    std::string name = {};
    Number value = 0;
    Number weight = 0;
    Number given = 1;
    std::shared_ptr<const std::vector<Call>> part = {};  // a part's calls instead
  };

  static void collect(const std::vector<Call>& calls, std::vector<Tensor>& far) {
    for (const Call& call : calls) {
      if (call.part) collect(*call.part, far);
      for (const Number* number : {&call.value, &call.weight, &call.given})
        if (number->tensor_.defined() && !number->tensor_.is_cpu()) far.push_back(number->tensor_);
    }
  }

  // `next`: the numbers of collect(), in its order.
  static void add(const std::vector<Call>& calls, const Tensor*& next, core::Metrics& total) {
    const auto read = [&](const Number& number) {
      if (!number.tensor_.defined()) return number.value_;
      return (number.tensor_.is_cpu() ? number.tensor_ : *next++).item<double>();
    };
    for (const Call& call : calls) {
      if (call.part) {
        core::Metrics part;
        add(*call.part, next, part);
        total.merge(part);
        continue;
      }
      const double value = read(call.value), weight = read(call.weight), given = read(call.given);
      if (given != 0.0) total.add({call.name, call.kind, value, weight});
    }
  }

  std::vector<Call> calls_;
  std::vector<Tensor> far_;  // of add_to()
};

}  // namespace rlalgo::loss
