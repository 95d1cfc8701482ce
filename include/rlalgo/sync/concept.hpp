// What a sync policy is: how updated weights reach the generator.
//
// publish(version) is an act of the trainer, on its thread: before a batch whose generator is about to be asked, and
// before an evaluation of generated rows. When it returns, the next generate() call of the generator uses weights of
// that version. Publishing a version that is in force does nothing. version_source() gives what a sampler asks before
// it generates; the answer is the version last published, and asking moves no weights.
// What a policy may have beyond that it declares: Hooks.
// Errors: [rlalgo.sync.3] the policy does not reach the generator, where only the run knows which they are.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>

#include <rlalgo/core/error.hpp>
#include <rlalgo/core/hooks.hpp>
#include <rlalgo/inference/generator.hpp>

namespace rlalgo::sync {

// What a publish did.
struct Published {
  enum class Status {
    unchanged,  // the version was in force
    in_place,   // the generator reads the trainer's own tensors: nothing moved
    copied,     // to a second copy in this process
    sent        // to a server
  };
  std::int64_t version = -1;  // in force now
  Status status = Status::unchanged;
  std::int64_t bytes = 0;  // of weights that were copied or sent
  double seconds = 0.0;
};

// Optional members (core/hooks.hpp):
struct Hooks {
  // void training_begins(): a batch is complete and the weights are about to change, so that what the generator keeps of them is
  // of no use any more
  bool training_begins = false;
  bool forget =
      false;  // void forget(): the server that had the weights has lost them; the next publish() sends them again
  bool serves =
      false;  // bool serves(WeightSource) const: in the place of reaches() where only the run knows the policy
};

template <class Y>
[[nodiscard]] constexpr Hooks hooks_of() {
  constexpr Hooks declared = core::declared_hooks<Y, Hooks>();
  RLALGO_HOOK(
      training_begins, requires(Y & policy) { policy.training_begins(); });
  RLALGO_HOOK(
      forget, requires(Y & policy) { policy.forget(); });
  RLALGO_HOOK(
      serves, requires(const Y& policy) { policy.serves(inference::WeightSource::shared); });
  return declared;
}

template <class Y>
concept SyncPolicy = requires(Y& sync, const Y& policy, std::int64_t version, inference::WeightSource source) {
  { Y::reaches(source) } -> std::same_as<bool>;  // static, constexpr
  { sync.publish(version) } -> std::same_as<Published>;
  { policy.version_source() } -> std::convertible_to<std::function<std::int64_t()>>;
};

// Whether a policy reaches the weights of a generator, where only the run may know.
template <SyncPolicy Y>
[[nodiscard]] bool serves(const Y& policy, inference::WeightSource source) {
  if constexpr (hooks_of<Y>().serves)
    return policy.serves(source);
  else
    return Y::reaches(source);
}

// A policy serves a generator whose weights it reaches.
template <class Y, class G>
concept SyncPolicyFor = SyncPolicy<Y> && inference::DrawsFromWeights<G> && Y::reaches(G::weights);

// Says which rule is broken, in one place for all who put a policy and a generator together. What a generator makes is
// its sampler's business: completions (inference::Generator), or blocks (inference::BlockGenerator).
template <class Y, class G>
struct Pairing {
  static_assert(inference::DrawsFromWeights<G>,
                "the generator does not say whose weights it draws from; it needs a constexpr `weights` (an "
                "inference::WeightSource), as inference::LocalEngine has");
  static_assert(SyncPolicy<Y>,
                "the sync policy is not a sync::SyncPolicy; it needs a static constexpr `bool "
                "reaches(inference::WeightSource)`, `Published publish(std::int64_t version)` and `version_source() "
                "const` (sync::SharedWeights is one)");
  static_assert(!inference::DrawsFromWeights<G> || !SyncPolicy<Y> || SyncPolicyFor<Y, G>,
                "the sync policy does not reach the weights of this generator, which would stay as they are for ever: "
                "sync::SharedWeights (the default) serves a generator that reads the trainer's own tensors; for one "
                "that asks a server (remote::VllmClient) pass `.sync` = sync::HttpWeightSync or sync::LoraFileSync; "
                "for an AnyGenerator, sync::AnySync");
  static constexpr bool fits = SyncPolicyFor<Y, G>;
};

// The same where generator and policy are known at run time only.
template <SyncPolicy Y, inference::DrawsFromWeights G>
void require_reach(const Y& sync, const G& generator) {
  if constexpr (hooks_of<Y>().serves)
    if (!sync.serves(inference::source_of(generator)))
      core::raise("sync", 3,
                  {.what = "the sync policy does not reach the weights of the generator",
                   .remedy = "SharedWeights for a generator that reads the trainer's tensors, HttpWeightSync or "
                             "LoraFileSync for a server"});
}

}  // namespace rlalgo::sync
