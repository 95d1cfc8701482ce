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
//   Config, parts        settings of its own in the place of Loss::Config, and MethodParts<Loss, Estimator, Aggregation> of these
//                        settings: parts(config), or parts(config, sampling) where they follow the settings of sampling, or
//                        sampling follows them (a reference). One is not there without the other.
//   Run<O>               settings of its run, where the defaults of its kind of rows do not fit; declared (MethodHooks)
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
#include <rlalgo/core/hooks.hpp>
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

// Optional members of a method that it declares, `static constexpr trainer::MethodHooks hooks{.run = true};` (core/hooks.hpp):
struct MethodHooks {
  bool run = false;  // template <class O> struct Run
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
template <class T>
concept HasSettings = requires {
  typename T::Config;
};

template <class M>
constexpr auto settings_of() {
  if constexpr (HasSettings<M>)
    return std::type_identity<typename M::Config>{};
  else if constexpr (!HasLoss<M>)
    return std::type_identity<NoSettings>{};
  else if constexpr (HasSettings<typename M::Loss>)
    return std::type_identity<typename M::Loss::Config>{};
  else
    return std::type_identity<NoSettings>{};
}
template <class M>
using Settings = typename decltype(settings_of<M>())::type;

template <class M>
concept HasEstimator = requires {
  typename M::Estimator;
};
template <class M>
concept HasAggregation = requires {
  typename M::Aggregation;
};
template <class M>
concept HasParts = requires {
  &M::parts;
}
|| requires(const Settings<M>& settings) { M::parts(settings); };

template <class M>
constexpr auto estimator_of() {
  if constexpr (HasEstimator<M>)
    return std::type_identity<typename M::Estimator>{};
  else
    return std::type_identity<advantage::None>{};
}
template <class M>
using EstimatorOf = typename decltype(estimator_of<M>())::type;

template <class M>
constexpr auto aggregation_of() {
  if constexpr (HasAggregation<M>)
    return std::type_identity<typename M::Aggregation>{};
  else
    return std::type_identity<aggregation::None>{};
}
template <class M>
using AggregationOf = typename decltype(aggregation_of<M>())::type;

template <class M>
constexpr MethodHooks hooks_of() {
  constexpr MethodHooks declared = core::declared_hooks<M, MethodHooks>();
  RLALGO_HOOK(
      run, requires { typename M::template Run<optim::AdamW>; });
  return declared;
}

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

// Settings and what is made of them are there together.
template <class M>
constexpr bool is_paired() {
  return HasSettings<M> == HasParts<M>;
}

template <class L>
concept TakesConfig = requires(const typename L::Config& config) {
  L{config};
};

// Whether a loss can be made of its settings. Of an empty Config nothing has to be taken.
template <class L>
constexpr bool takes_settings() {
  if constexpr (TakesConfig<L>)
    return true;
  else if constexpr (HasSettings<L>)
    return std::is_empty_v<typename L::Config> && std::is_default_constructible_v<L>;
  else
    return std::is_default_constructible_v<L>;
}

template <class M>
constexpr bool is_whole() {
  if constexpr (is_method<M>())
    return is_paired<M>() && (HasParts<M> || takes_settings<typename M::Loss>());
  else
    return false;
}

template <class M>
constexpr bool declares_hooks() {
  (void)hooks_of<M>();
  return true;
}

// The rules of a method, each in a sentence. Who asks whether they are kept asks is_whole(): a compiler says more than the
// broken rule where members of a class with a failed assertion are used.
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
  static_assert(!is_method<M>() || is_paired<M>() || HasParts<M>,
                "a method with a Config of its own says what that means, in `parts`: `static "
                "trainer::MethodParts<Loss, Estimator, Aggregation> parts(const Config&)`; is it missing or misspelt?");
  static_assert(
      !is_method<M>() || is_paired<M>() || HasSettings<M>,
      "a method with `parts` names what they are made of, its `Config`: is that missing or misspelt? Settings that are "
      "those of the loss are `using Config = Loss::Config;`");
  static_assert(
      !is_method<M>() || !is_paired<M>() || is_whole<M>(),
      "the method's Loss cannot be made of its settings: it needs a constructor `explicit Loss(Config)` for its "
      "`Config`, or a default constructor where it has none (is one of them misspelt?); or the method has "
      "a `Config` and `parts`");
  static_assert(declares_hooks<M>());
};

}  // namespace detail

// What a method is trained with. O: the optimizer (optim/concept.hpp).
template <class M, class O = optim::AdamW>
struct TrainConfig {
  static_assert(sizeof(detail::MethodRules<M>) > 0);
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
        "is the method's");
    using L = typename M::Loss;
    if constexpr (TakesConfig<L>)
      return {L{config}};
    else
      return {L{}};
  }
}

template <class M, class C>
struct IsConfigOf : std::false_type {};
template <class M, class O>
struct IsConfigOf<M, TrainConfig<M, O>> : std::true_type {};

template <class M, class C>
constexpr bool trains_with() {
  return is_whole<M>() && IsConfigOf<M, C>::value;
}

// The rules of a call of train and its like.
template <class M, class C>
struct TrainRules {
  static_assert(sizeof(MethodRules<M>) > 0);
  static_assert(!is_whole<M>() || trains_with<M, C>(),
                "rlalgo::train<Method>(config, inputs): the configuration is not this method's: pass a "
                "TrainConfig<Method>, or TrainConfig<Method, Optimizer> for another optimizer than optim::AdamW");
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
