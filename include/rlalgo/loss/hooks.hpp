// Optional members of losses and of their parts, which declare those that they have: `static constexpr loss::Hooks hooks{…};`
// (core/hooks.hpp).
#pragma once

#include <rlalgo/core/hooks.hpp>

namespace rlalgo::loss {

struct Hooks {
  // Of a loss:
  bool active_needs = false;  // Needs active_needs() const: what this object reads, where it is less than its type's
  bool corrects_sampling = false;  // bool corrects_sampling() const: loss/concept.hpp
  // Of a loss and of a reduction:
  bool token_share = false;  // TokenShare token_share() const: token_share.hpp
  // Of a surrogate:
  bool ignores_ratio = false;  // no member: it weighs tokens by something else than the importance ratio
  bool takes_sampling_ratio =
      false;  // bool takes_sampling_ratio() const: it takes the ratio between generator and trainer
  // Of a weight of tokens:
  bool is_sampling_ratio = false;  // no member: it is the ratio between generator and trainer
  bool unit = false;               // Unit unit() const: of its values, else tokens
  // Of a divergence, and of an objective of pairs, that are chosen at run time:
  bool is_reverse_kl = false;   // bool is_reverse_kl() const
  bool all_use_scores = false;  // bool all_use_scores() const: uses_scores of what was chosen
  bool all_per_pair = false;    // bool all_per_pair() const: per_pair of what was chosen
};

template <class T>
[[nodiscard]] constexpr Hooks hooks_of() {
  constexpr Hooks declared = core::declared_hooks<T, Hooks>();
  RLALGO_HOOK(
      active_needs, requires(const T& part) { part.active_needs(); });
  RLALGO_HOOK(
      corrects_sampling, requires(const T& part) { part.corrects_sampling(); });
  RLALGO_HOOK(
      token_share, requires(const T& part) { part.token_share(); });
  RLALGO_HOOK(
      takes_sampling_ratio, requires(const T& part) { part.takes_sampling_ratio(); });
  RLALGO_HOOK(
      unit, requires(const T& part) { part.unit(); });
  RLALGO_HOOK(
      is_reverse_kl, requires(const T& part) { part.is_reverse_kl(); });
  RLALGO_HOOK(
      all_use_scores, requires(const T& part) { part.all_use_scores(); });
  RLALGO_HOOK(
      all_per_pair, requires(const T& part) { part.all_per_pair(); });
  return declared;
}

}  // namespace rlalgo::loss
