// A C++ callable as a reward function: one line per reward, no class to write.
//
//   from("short", [](const std::string& text) { return text.size() < 40 ? 1.0 : 0.0; })
//   from("right", [](const std::string& text, const Json& columns) { return text == columns["answer"] ? 1.0 : 0.0; })
//   from("length", [](const Sample& sample) { return -0.001 * sample.ids.size(); })
//   from("rank", [](const RewardCall& batch) { return std::vector<double>(batch.size(), …); })
//
// A per-sample form returns something that converts to double (NaN = does not apply), the batch form a vector of
// double, one per completion. A callable that fits several forms is taken as the first of: batch, Sample, text and
// columns, text.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/reward/function.hpp>

namespace rlalgo::reward {

// One completion of a call, all views.
struct Sample {
  const std::string& text;
  std::span<const std::int32_t> ids{};  // end token included
  const Json& prompt;
  const Json& completion;
  const Json& columns;
  std::int64_t step{};
};

// All completions of a batch at once: one reward for each.
template <class F>
concept BatchScorer = requires(F& f, const RewardCall& call) {
  { f(call) } -> std::convertible_to<std::vector<double>>;
};
// One completion, with its ids, text and columns.
template <class F>
concept SampleScorer = requires(F& f, const Sample& sample) {
  { f(sample) } -> std::convertible_to<double>;
};
// The text of a completion and the columns of its row.
template <class F>
concept ColumnScorer = requires(F& f, const std::string& text, const Json& columns) {
  { f(text, columns) } -> std::convertible_to<double>;
};
// The text of a completion.
template <class F>
concept TextScorer = requires(F& f, const std::string& text) {
  { f(text) } -> std::convertible_to<double>;
};
// What may stand as a reward: a callable of one of these forms.
template <class F>
concept RewardFunctor = BatchScorer<F> || SampleScorer<F> || ColumnScorer<F> || TextScorer<F>;

namespace detail {

template <class F>
class FunctorReward final : public RewardFunction {
 public:
  FunctorReward(std::string name, F functor) : name_(std::move(name)), functor_(std::move(functor)) {}
  [[nodiscard]] std::string name() const override { return name_; }

  std::vector<double> operator()(const RewardCall& call) override {
    if constexpr (BatchScorer<F>) {
      return functor_(call);
    } else {
      std::vector<double> values;
      values.reserve(call.size());
      for (std::size_t i = 0; i < call.size(); ++i) values.push_back(static_cast<double>(one(call, i)));
      return values;
    }
  }

 private:
  auto one(const RewardCall& call, std::size_t i) {
    if constexpr (SampleScorer<F>)
      return functor_(Sample{call.texts[i], call.completion_ids[i], *call.prompts[i], call.completions[i],
                             call.columns[i], call.step});
    else if constexpr (ColumnScorer<F>)
      return functor_(call.texts[i], call.columns[i]);
    else
      return functor_(call.texts[i]);
  }
  std::string name_;
  F functor_;
};

}  // namespace detail

template <class F>
[[nodiscard]] std::shared_ptr<RewardFunction> from(std::string name, F functor) {
  static_assert(RewardFunctor<F>,
                "a reward functor is called as f(const std::string& text), f(text, const Json& columns) or "
                "f(const reward::Sample&) and returns a number, or as f(const reward::RewardCall&) and returns "
                "std::vector<double> with one value per completion");
  if constexpr (RewardFunctor<F>)
    return std::make_shared<detail::FunctorReward<F>>(std::move(name), std::move(functor));
  else
    return nullptr;
}

}  // namespace rlalgo::reward
