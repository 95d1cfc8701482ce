// A method: what a paper defines, as a struct, and how it is trained.
//
//   struct Mine {
//     using Loss = CappedReinforce;                           // loss/concept.hpp
//     using Estimator = advantage::LeaveOneOut;               // where rows have rewards: advantage/concept.hpp,
//     using Aggregation = aggregation::SumThenNormalize;      // aggregation/concept.hpp
//   };
//   TrainConfig<Mine> config;                                 // config.method: CappedReinforce::Config
//   run::Outcome outcome = train<Mine>(config, inputs);       // or make_trainer<Mine>(config, inputs), to take its steps
//
// What a method may have beyond that:
//   Config               settings of its own in the place of Loss::Config; `parts` must then be there
//   parts(config)        MethodParts<Loss, Estimator, Aggregation> of these settings; or parts(config, sampling), where they
//                        follow the settings of sampling, or sampling follows them (a reference)
//   Run<O>               settings of its run, where the defaults of its kind of rows do not fit
// TrainConfig<Mine, optim::AdamW8bit> trains with another optimizer. The inputs say what the method learns from:
// trainer::OnlineInputs (online.hpp), OfflineInputs (offline.hpp), StridedInputs (strided.hpp); train_async (asynchronous.hpp)
// generates and trains at the same time. Underneath is Trainer<Loss, Estimator, Sampler, Aggregation, SyncPolicy, Optimizer>.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include <rlalgo/advantage/none.hpp>
#include <rlalgo/aggregation/none.hpp>
#include <rlalgo/loss/concept.hpp>
#include <rlalgo/optim/adamw.hpp>
#include <rlalgo/run/loop.hpp>
#include <rlalgo/run/step.hpp>

namespace rlalgo::trainer {

// The parts of a method as values.
template <class L, class A = advantage::None, class G = aggregation::None>
struct MethodParts {
  L loss{};
  A estimator{};
  G aggregation{};
};

// Settings of a run whose loss reads rows of this kind; the headers of such runs specialise it.
template <loss::RowKind rows, class O>
struct RunConfigOf;

namespace detail {

struct NoSettings {};

template <class M>
concept HasLoss = requires {
  typename M::Loss;
};
template <class M>
concept HasSettings = requires {
  typename M::Config;
};

template <class M>
constexpr auto settings_of() {
  if constexpr (HasSettings<M>)
    return std::type_identity<typename M::Config>{};
  else if constexpr (!HasLoss<M>)
    return std::type_identity<NoSettings>{};
  else if constexpr (requires { typename M::Loss::Config; })
    return std::type_identity<typename M::Loss::Config>{};
  else
    return std::type_identity<NoSettings>{};
}
template <class M>
using Settings = typename decltype(settings_of<M>())::type;

template <class M>
constexpr auto estimator_of() {
  if constexpr (requires { typename M::Estimator; })
    return std::type_identity<typename M::Estimator>{};
  else
    return std::type_identity<advantage::None>{};
}
template <class M>
using EstimatorOf = typename decltype(estimator_of<M>())::type;

template <class M>
constexpr auto aggregation_of() {
  if constexpr (requires { typename M::Aggregation; })
    return std::type_identity<typename M::Aggregation>{};
  else
    return std::type_identity<aggregation::None>{};
}
template <class M>
using AggregationOf = typename decltype(aggregation_of<M>())::type;

template <class M, class O>
constexpr auto run_of() {
  if constexpr (requires { typename M::template Run<O>; })
    return std::type_identity<typename M::template Run<O>>{};
  else if constexpr (loss::Loss<typename M::Loss>)
    return std::type_identity<typename RunConfigOf<M::Loss::rows, O>::type>{};
  else
    return std::type_identity<NoSettings>{};
}

template <class M>
constexpr bool is_method() {
  if constexpr (!HasLoss<M>)
    return false;
  else
    return loss::Loss<typename M::Loss>;
}

// The rules of a method, each in a sentence.
template <class M>
struct MethodRules {
  static_assert(
      HasLoss<M>,
      "this is not a method: a method is a struct with `using Loss = …;` and, where rows have rewards, `using "
      "Estimator = …; using Aggregation = …;` (rlalgo::Grpo is one; trainer/method.hpp)");
  static_assert(!HasLoss<M> || is_method<M>(),
                "the method's Loss is not a loss::Loss: it needs `static constexpr loss::Needs needs{…};` and `static "
                "constexpr loss::RowKind rows = …;`, both constexpr, and `loss::Result operator()(const loss::Scored&, "
                "const loss::Counts&) const`");
  static constexpr bool fits = is_method<M>();
};

}  // namespace detail

// What a method is trained with. O: the optimizer (optim/concept.hpp).
template <class M, class O = optim::AdamW>
struct TrainConfig {
  static_assert(detail::MethodRules<M>::fits, "rlalgo::TrainConfig: this is no method, see above");
  using Run = typename decltype(detail::run_of<M, O>())::type;

  detail::Settings<M> method{};
  Run run{};
};

namespace detail {

// The parts that the settings of a method describe.
template <class M, class Sampling>
MethodParts<typename M::Loss, EstimatorOf<M>, AggregationOf<M>> parts_of(const Settings<M>& config,
                                                                         Sampling& sampling) {
  if constexpr (requires { M::parts(config, sampling); })
    return M::parts(config, sampling);
  else if constexpr (requires { M::parts(config); })
    return M::parts(config);
  else {
    static_assert(
        !requires { &M::parts; },
        "the method's `parts` does not take its settings: it is `static trainer::MethodParts<Loss, Estimator, "
        "Aggregation> parts(const Config&)`, or `parts(const Config&, const sampler::RolloutsConfig&)`, and Config "
        "is the method's, or else its Loss's");
    static_assert(!HasSettings<M>,
                  "a method with a Config of its own says what that means: `static "
                  "trainer::MethodParts<Loss, Estimator, Aggregation> parts(const Config&)`");
    using L = typename M::Loss;
    if constexpr (requires { L{config}; })
      return {L{config}};
    else
      return {L{}};
  }
}

template <class M, class C>
struct IsConfigOf : std::false_type {};
template <class M, class O>
struct IsConfigOf<M, TrainConfig<M, O>> : std::true_type {};

// The rules of a call of train and its like.
template <class M, class C>
struct TrainRules {
  static_assert(!MethodRules<M>::fits || IsConfigOf<M, C>::value,
                "rlalgo::train<Method>(config, inputs): the configuration is not this method's: pass a "
                "TrainConfig<Method>, or TrainConfig<Method, Optimizer> for another optimizer than optim::AdamW");
  static constexpr bool fits = MethodRules<M>::fits && IsConfigOf<M, C>::value;
};

// What stands for a trainer where the parts do not fit, so that the rule that was broken is the only error.
struct Refused {
  run::Outcome run(std::span<run::Observer* const> /*observers*/ = {}) { return {}; }
  run::StepResult step(std::int64_t /*index*/) { return {}; }
};

}  // namespace detail

// Trains to the end, or to an interruption; resumes where LoopConfig::resume_from_checkpoint says. Inputs are those of the
// method's kind, see above.
template <class M, class C, class I>
run::Outcome train(C config, I inputs, std::span<run::Observer* const> observers = {}) {
  return make_trainer<M>(std::move(config), std::move(inputs)).run(observers);
}

}  // namespace rlalgo::trainer

namespace rlalgo {
using trainer::train;
using trainer::TrainConfig;
}  // namespace rlalgo
