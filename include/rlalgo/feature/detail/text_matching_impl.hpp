// Definitions of text_matching.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <range/v3/iterator/operations.hpp>
#include <range/v3/view/chunk_by.hpp>
#include <range/v3/view/iota.hpp>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/moments.hpp>
#include <rlalgo/feature/gram.hpp>
#include <rlalgo/feature/matching.hpp>
#include <rlalgo/feature/network.hpp>
#include <rlalgo/feature/pooling.hpp>
#include <rlalgo/feature/text_matching.hpp>
#include <rlalgo/model/anchored_tree.hpp>
#include <rlalgo/model/token_tree.hpp>
#include <rlalgo/reward/function.hpp>

namespace rlalgo::feature {

RLALGO_INLINE Gram text_gram(const FeatureNetwork& network, const TextGroup& group, Pooling pooling, bool unit_length) {
  std::vector<const TokenIds*> texts = {&group.truth};
  for (const TokenIds& sample : group.samples) texts.push_back(&sample);
  for (std::size_t i = 0; i < texts.size(); ++i)
    if (texts[i]->empty())
      core::raise_usage("feature", 6,
                        {.what = "a text has no tokens, so it has no feature",
                         .where = i == 0 ? "ground truth" : "sample " + std::to_string(i - 1)});
  std::size_t common = texts.front()->size();
  for (const TokenIds* text : texts)
    common = static_cast<std::size_t>(
        std::mismatch(text->begin(), text->begin() + static_cast<std::ptrdiff_t>(std::min(common, text->size())),
                      texts.front()->begin())
            .first -
        text->begin());
  common = std::max<std::size_t>(common, 1);
  const bool shared = std::all_of(texts.begin(), texts.end(),
                                  [&](const TokenIds* text) { return text->front() == texts.front()->front(); });

  model::TokenTree tree;
  std::vector<std::size_t> first_equal(texts.size());
  std::vector<std::int64_t> begins(texts.size(), 0);  // of what follows the common tokens
  std::vector<model::Branch> branches;
  std::vector<std::size_t> branch(texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    first_equal[i] = static_cast<std::size_t>(
        std::find_if(texts.begin(), texts.end(), [&](const TokenIds* other) { return *other == *texts[i]; }) -
        texts.begin());
    branch[i] = branches.size();
    if (first_equal[i] == i && shared)
      branches.push_back({static_cast<std::int64_t>(common), std::span(*texts[i]).subspan(common)});
  }
  std::int64_t root = 0;
  if (shared) {
    const auto places = model::append_document(tree, std::span(*texts.front()).first(common), branches);
    root = places.begin;
    for (std::size_t i = 0; i < texts.size(); ++i)
      if (first_equal[i] == i) begins[i] = places.branches[branch[i]];
  } else {
    for (std::size_t i = 0; i < texts.size(); ++i)
      if (first_equal[i] == i) begins[i] = model::append_document(tree, *texts[i], {}).begin;
  }
  const TokenFeatures tokens = network(tree);
  std::vector<std::vector<double>> features;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (first_equal[i] < i) {
      features.push_back(features[first_equal[i]]);
      continue;
    }
    const auto length = static_cast<std::int64_t>(texts[i]->size());
    features.push_back(tokens.pooled(stretches(pooling, length, group.prompt_length), [&](std::int64_t t) {
      if (!shared) return begins[i] + t;
      return t < static_cast<std::int64_t>(common) ? root + t : begins[i] + t - static_cast<std::int64_t>(common);
    }));
    if (unit_length) normalize(features.back());
  }
  return gram(std::span(features).subspan(1), features.front());
}

namespace detail {

// The turns after the first answer; null where there are none.
inline const reward::Json* turns(const reward::Json& columns) {
  const auto found = columns.find("remaining_turns");
  return found != columns.end() && found->is_array() && !found->empty() ? &*found : nullptr;
}

inline bool has_failed(const reward::RewardCall& call, std::size_t row) {
  return !call.failed.empty() && call.failed[row] != 0;
}

// Values of the completions that did not fail, with NaN in the place of the others.
inline std::vector<double> with_gaps(const reward::RewardCall& call, std::size_t begin, std::size_t end,
                                     const std::vector<double>& values) {
  std::vector<double> out;
  auto next = values.begin();
  for (std::size_t i = begin; i < end; ++i)
    out.push_back(has_failed(call, i) ? std::numeric_limits<double>::quiet_NaN() : *next++);
  return out;
}

struct MatchingColumns {
  TextMatching matching;
  std::vector<double> diversity = {};  // of the call that alignment was asked last
};

class AlignmentReward final : public reward::RewardFunction {
 public:
  explicit AlignmentReward(std::shared_ptr<MatchingColumns> columns) : columns_(std::move(columns)) {}
  [[nodiscard]] std::string name() const override { return "alignment"; }
  RLALGO_INLINE std::vector<double> operator()(const reward::RewardCall& call) override {
    std::vector<double> alignment;
    columns_->diversity.clear();
    std::vector<double> mismatch;
    std::vector<TokenIds> embedded;
    for (const Matching& group : columns_->matching(call, &embedded)) {
      alignment.insert(alignment.end(), group.alignment.begin(), group.alignment.end());
      columns_->diversity.insert(columns_->diversity.end(), group.diversity.begin(), group.diversity.end());
      mismatch.push_back(group.mismatch);
    }
    if (call.log != nullptr && !alignment.empty()) {
      if (std::any_of(embedded.begin(), embedded.end(), [](const TokenIds& ids) { return !ids.empty(); })) {
        reward::Json column = reward::Json::array();
        for (const TokenIds& ids : embedded) column.push_back(ids.empty() ? reward::Json() : reward::Json(ids));
        call.log->extras.emplace_back("feature_ids", std::move(column));
      }
      reward::Json truths = reward::Json::array();
      for (const reward::Json& columns : call.columns) truths.push_back(columns.at(TextMatching::truth_column));
      call.log->extras.emplace_back("ground_truth", std::move(truths));
      const double al = core::moments(alignment).mean, dv = core::moments(columns_->diversity).mean;
      const TextMatchingConfig& c = columns_->matching.config();
      call.log->own_metrics.emplace_back("ebft/alignment", al);
      call.log->own_metrics.emplace_back("ebft/diversity", dv);
      call.log->own_metrics.emplace_back("ebft/reward", c.alignment_coef * al - c.diversity_coef * dv);
      call.log->own_metrics.emplace_back("ebft/cfm_loss", core::moments(mismatch).mean);
    }
    return alignment;
  }

 private:
  std::shared_ptr<MatchingColumns> columns_;
};

class DiversityReward final : public reward::RewardFunction {
 public:
  explicit DiversityReward(std::shared_ptr<MatchingColumns> columns) : columns_(std::move(columns)) {}
  [[nodiscard]] std::string name() const override { return "diversity"; }
  std::vector<double> operator()(const reward::RewardCall&) override { return columns_->diversity; }

 private:
  std::shared_ptr<MatchingColumns> columns_;
};

}  // namespace detail

RLALGO_INLINE TokenIds TextMatching::encode(const std::string& text) const {
  TokenIds ids = texts_.encode(text);
  if (ids.size() > config_.longest) ids.resize(config_.longest);
  return ids;
}

RLALGO_INLINE TextGroup TextMatching::group(const reward::RewardCall& call, std::size_t begin, std::size_t end) const {
  const auto truth = call.columns[begin].find(truth_column);
  if (truth == call.columns[begin].end() || !truth->is_string() || truth->get_ref<const std::string&>().empty())
    core::raise("feature", 5,
                {.what = "a row has no ground truth to match",
                 .found = truth == call.columns[begin].end()
                              ? "no column " + std::string(truth_column)
                              : truth->dump(-1, ' ', false, reward::Json::error_handler_t::replace),
                 .expected = "a text",
                 .remedy = "drop the row, or choose a type: ebft_….transform that fills it"});
  const std::string prompt = texts_.render(*call.prompts[begin], call.columns[begin]);
  TextGroup out;
  out.prompt_length = static_cast<std::int64_t>(texts_.encode(prompt).size());
  if (converses(call, begin)) {
    const auto texts =
        texts_.converse(*call.prompts[begin], call.columns[begin], *detail::turns(call.columns[begin]),
                        truth->get_ref<const std::string&>(), call.texts.subspan(begin, end - begin), begin, call.step);
    out.truth = encode(texts.at(0));
    for (std::size_t i = 1; i < texts.size(); ++i) out.samples.push_back(encode(texts[i]));
    return out;
  }
  out.truth = encode(prompt + truth->get_ref<const std::string&>());
  for (std::size_t i = begin; i < end; ++i)
    if (!detail::has_failed(call, i)) out.samples.push_back(encode(prompt + call.texts[i]));
  return out;
}

RLALGO_INLINE bool TextMatching::converses(const reward::RewardCall& call, std::size_t row) const {
  return detail::turns(call.columns[row]) != nullptr && texts_.converse != nullptr;
}

RLALGO_INLINE std::vector<Matching> TextMatching::operator()(const reward::RewardCall& call,
                                                             std::vector<TokenIds>* embedded) const {
  std::vector<Matching> out;
  const auto of_one_prompt = [&](std::size_t a, std::size_t b) { return call.prompts[a] == call.prompts[b]; };
  for (const auto rows : ranges::views::iota(std::size_t{0}, call.size()) | ranges::views::chunk_by(of_one_prompt)) {
    const std::size_t begin = rows.front(), end = begin + static_cast<std::size_t>(ranges::distance(rows));
    TextGroup texts = group(call, begin, end);
    Matching& one = out.emplace_back();
    if (texts.samples.empty())
      one.mismatch = std::numeric_limits<double>::quiet_NaN();
    else
      one = match(text_gram(network_, texts, config_.pooling, config_.matching.whitening == Whitening::none),
                  config_.matching);
    if (!converses(call, begin)) {
      one.alignment = detail::with_gaps(call, begin, end, one.alignment);
      one.diversity = detail::with_gaps(call, begin, end, one.diversity);
      texts.samples.assign(end - begin, {});
    }
    if (embedded != nullptr) embedded->insert(embedded->end(), texts.samples.begin(), texts.samples.end());
  }
  return out;
}

RLALGO_INLINE MatchingRewards matching_rewards(TextMatching matching) {
  const auto columns = std::make_shared<detail::MatchingColumns>(detail::MatchingColumns{std::move(matching)});
  return {std::make_shared<detail::AlignmentReward>(columns), std::make_shared<detail::DiversityReward>(columns)};
}

}  // namespace rlalgo::feature
