// What a generator is: prompts in, completions with sampling log-probs out.
//
// `LocalEngine` (this room) generates with the trainer's own weights; clients of remote servers are generators too. A
// generator never sees rewards, groups or losses.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <rlalgo/core/hooks.hpp>
#include <rlalgo/data/rollout.hpp>

namespace rlalgo::inference {

// How the next token is drawn. Order of application: repetition penalty → temperature → top_k → top_p → min_p.
struct SamplingConfig {
  double temperature = 1.0;         // 0 = greedy
  double top_p = 1.0;               // 1 = off
  std::int64_t top_k = 0;           // 0 = off
  double min_p = 0.0;               // 0 = off
  double repetition_penalty = 1.0;  // 1 = off; applies to prompt and completion tokens
  std::int64_t max_new_tokens = 512;
  std::vector<data::TokenId> stop_ids{};  // any of these ends a completion and is kept as its last token
  // A text with any of these in it ends one, too; the tokens that made it stay, the last of which may go on behind it.
  std::vector<std::string> stop_strings = {};
  std::int64_t min_new_tokens = 0;  // before so many no end id can be drawn, and no string ends
};

// `count` completions of one prompt.
struct Request {
  std::vector<data::TokenId> prompt{};
  std::int64_t count = 1;
  std::uint64_t first_index = 0;  // completion j draws from random index first_index + j: placement cannot change it
  // Not empty: nothing is drawn, these are the tokens of the completion, and their log-probs are log_softmax(l / T). No
  // other sampling setting has an effect, nor have stop ids. Only LocalEngine scores.
  std::vector<data::TokenId> given = {};
  std::int64_t max_new_tokens = 0;                // lower limit of this request alone; 0 = the sampling's
  std::uint32_t first_position = 0;               // of the first drawn token in its completion: a continued one goes on
  const data::TokenizedPrompt* source = nullptr;  // the dataset row behind the prompt, for those who play episodes
};

// The random draws of one generate call are a function of (seed, step, completion index, token position) only.
struct DrawKey {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
};

// Whose weights a generator draws from: a sync policy (sync/concept.hpp) must reach them.
enum class WeightSource {
  shared,    // the trainer's own tensors, read where they are
  snapshot,  // a copy in this process, replaced at a publish
  remote,    // a server's copy
  erased     // known at run time only: by source()
};

// Optional members of what draws tokens (core/hooks.hpp):
struct GeneratorHooks {
  bool quantizes = false;  // bool quantizes() const: its weights are quantized (quantization.hpp)
};

template <class G>
[[nodiscard]] constexpr GeneratorHooks hooks_of() {
  constexpr GeneratorHooks declared = core::declared_hooks<G, GeneratorHooks>();
  RLALGO_HOOK(
      quantizes, requires(const G& generator) { generator.quantizes(); });
  return declared;
}

// Whoever draws tokens says from which weights.
template <class G>
concept DrawsFromWeights = requires {
  { G::weights } -> std::convertible_to<WeightSource>;
};

// generate() returns, for each request, its `count` completions.
template <class G>
concept Generator = DrawsFromWeights<G> &&
    requires(G& generator, std::span<const Request> requests, const SamplingConfig& sampling, DrawKey key) {
  { generator.generate(requests, sampling, key) } -> std::same_as<std::vector<std::vector<data::Completion>>>;
};

template <DrawsFromWeights G>
[[nodiscard]] WeightSource source_of(const G& generator) {
  if constexpr (G::weights == WeightSource::erased)
    return generator.source();
  else
    return G::weights;
}

// Whether its weights are quantized (quantization.hpp): then log-probs that it reports are not the trainer's but for rounding.
template <DrawsFromWeights G>
[[nodiscard]] bool quantizes(const G& generator) {
  if constexpr (hooks_of<G>().quantizes)
    return generator.quantizes();
  else
    return false;
}

// Whether it draws with the policy of its weights in this process, whose log-probs the trainer's are but for rounding.
template <DrawsFromWeights G>
[[nodiscard]] bool draws_as_trained(const G& generator) {
  return source_of(generator) != WeightSource::remote && !quantizes(generator);
}

}  // namespace rlalgo::inference
