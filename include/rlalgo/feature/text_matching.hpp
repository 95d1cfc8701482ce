// Rewards of completions as texts: each completion of a prompt against the answer that is known.
//
//   text of a completion = prompt as the model was asked it + the completion's text, as one text, at most 2048 tokens
//   frozen pass over all texts of a prompt → pooled → of length 1 unless whitened → Gram matrix → alignment, diversity
//
// A row with further turns (column remaining_turns) is a conversation: what the model said first is carried on, the
// other side's turns as the dataset has them, the model's as it makes them, and its text is that of all of it. The ground
// truth's is the dataset's conversation.
//
// A completion whose environment failed has no feature, and is NaN; the others of its group are matched as if it were not there.
// Equal texts share one feature to the bit, the ground truth's included; the texts of a prompt share their common tokens
// in the pass. An end token is in no text.
//
// For a run two reward functions are made of it, alignment and diversity, both computed when the first is asked; their
// weights are c_al and −c_dv. Metrics: ebft/alignment, ebft/diversity, ebft/reward, ebft/cfm_loss. Logged beside every
// completion: its ground_truth.
// Errors: [rlalgo.feature.5] a row has no ground truth; [.6] (usage) a text without tokens; those of network.hpp and
// gram.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/feature/gram.hpp>
#include <rlalgo/feature/matching.hpp>
#include <rlalgo/feature/network.hpp>
#include <rlalgo/feature/pooling.hpp>
#include <rlalgo/reward/function.hpp>

namespace rlalgo::feature {

using TokenIds = std::vector<std::int32_t>;

// The texts of one prompt: its samples and its ground truth, of which the first `prompt_length` tokens are the prompt's.
struct TextGroup {
  std::vector<TokenIds> samples;  // [n]
  TokenIds truth;
  std::int64_t prompt_length = 0;
};

[[nodiscard]] Gram text_gram(const FeatureNetwork& network, const TextGroup& group, Pooling pooling, bool unit_length);

struct TextMatchingConfig {
  Pooling pooling = Pooling::last_token;
  MatchingConfig matching{};
  double alignment_coef = 1.0;
  double diversity_coef = 1.0;
  std::size_t longest = 2048;  // tokens of a text
};

// How texts are made and read.
struct Texts {
  // The prompt as the model was asked it; `columns`: the row's others.
  std::function<std::string(const reward::Json& prompt, const reward::Json& columns)> render;
  std::function<TokenIds(std::string_view text)> encode;  // without added special tokens
  // The conversation that dataset and samples have in turn, as texts: of the ground truth first, then of each answer.
  std::function<std::vector<std::string>(
      const reward::Json& prompt, const reward::Json& columns, const reward::Json& turns, const std::string& truth,
      std::span<const std::string> answers, std::size_t first_row, std::int64_t step)>
      converse = {};
};

class TextMatching {
 public:
  static constexpr const char* truth_column = "ground_truth";

  TextMatching(FeatureNetwork network, Texts texts, TextMatchingConfig config)
      : network_(std::move(network)), texts_(std::move(texts)), config_(config) {}

  // One Matching per group of `call`: rows in turn with one prompt. `embedded`: of conversations the tokens that were
  // embedded, [N], empty for other rows.
  [[nodiscard]] std::vector<Matching> operator()(const reward::RewardCall& call,
                                                 std::vector<TokenIds>* embedded = nullptr) const;

  [[nodiscard]] const TextMatchingConfig& config() const noexcept { return config_; }

 private:
  [[nodiscard]] TokenIds encode(const std::string& text) const;

  [[nodiscard]] TextGroup group(const reward::RewardCall& call, std::size_t begin, std::size_t end) const;
  // Whether the answers of the row's group are carried on.
  [[nodiscard]] bool converses(const reward::RewardCall& call, std::size_t row) const;

  FeatureNetwork network_;
  Texts texts_;
  TextMatchingConfig config_;
};

// The two reward functions, alignment first; both are asked in this order for the same completions.
struct MatchingRewards {
  std::shared_ptr<reward::RewardFunction> alignment, diversity;
};
[[nodiscard]] MatchingRewards matching_rewards(TextMatching matching);

}  // namespace rlalgo::feature

#ifndef RLALGO_COMPILED
#include <rlalgo/feature/detail/text_matching_impl.hpp>
#endif
