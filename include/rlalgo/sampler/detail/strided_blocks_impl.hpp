// Definitions of strided_blocks.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <range/v3/algorithm/upper_bound.hpp>
#include <range/v3/functional/comparisons.hpp>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/filter.hpp>
#include <range/v3/view/iota.hpp>
#include <range/v3/view/stride.hpp>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/moments.hpp>
#include <rlalgo/distributed/world.hpp>
#include <rlalgo/sampler/strided_blocks.hpp>

namespace rlalgo::sampler {

RLALGO_INLINE std::int64_t first_anchor(const data::Document& document, const StridedConfig& config) {
  if (!document.prompt_length) return config.context_length;
  return std::max(*document.prompt_length + config.min_completion_prefix, config.context_length);
}

RLALGO_INLINE std::vector<std::int64_t> block_starts(const data::Document& document, const StridedConfig& config) {
  namespace views = ranges::views;
  const std::vector<data::TextSpan> texts = data::text_spans(document);
  const std::int64_t first = first_anchor(document, config), end = std::max(first, texts.back().end);
  const auto fits_a_text = [&](std::int64_t start) {
    const data::TextSpan& text = *ranges::upper_bound(texts, start, ranges::less{}, &data::TextSpan::end);
    return start > text.begin && start + config.generate_max_len <= text.end;
  };
  return views::iota(first, end) | views::stride(config.stride) | views::filter(fits_a_text) |
         ranges::to<std::vector>();
}

RLALGO_INLINE StridedConfig detail::checked(const StridedConfig& c) {
  const auto require = [](bool good, const char* name, double value, const char* expected) {
    if (!good)
      core::raise_usage(
          "sampler", 2,
          {.what = std::string(name) + " is out of range", .found = std::to_string(value), .expected = expected});
  };
  const auto at_least_one = [&](const char* name, std::int64_t value) {
    require(value >= 1, name, static_cast<double>(value), "at least 1");
  };
  at_least_one("stride", c.stride);
  at_least_one("context_length", c.context_length);
  at_least_one("generate_max_len", c.generate_max_len);
  at_least_one("n_samples_per_prompt", c.samples);
  at_least_one("micro_batch_size", c.micro_batch_size);
  at_least_one("gradient_accumulation_steps", c.gradient_accumulation_steps);
  require(c.min_completion_prefix >= 0, "min_completion_prefix", static_cast<double>(c.min_completion_prefix),
          "0 or more");
  require(c.temperature >= 0 && std::isfinite(c.temperature), "temperature", c.temperature, "0 or more");
  require(c.top_p >= 0 && c.top_p <= 1, "top_p", c.top_p, "from 0 to 1");
  return c;
}

RLALGO_INLINE void detail::share_blocks(std::vector<StridedDocument>& rows, distributed::World& world) {
  if (world.size() == 1) return;
  using nlohmann::json;
  json made = json::array();
  const distributed::Share own = world.share(rows.size());
  for (std::size_t i = own.begin; i < own.end; ++i) {
    json blocks = json::array();
    for (const Block& b : rows[i].blocks)
      blocks.push_back({b.start, b.samples, b.alignment, b.diversity, b.reward, b.advantage});
    made.push_back({blocks, rows[i].mismatch});
  }
  const std::vector<std::uint8_t> packed = json::to_cbor(made);  // numbers return bit for bit
  const std::vector<std::string> all = world.gather("blocks", {packed.begin(), packed.end()});
  for (int r = 0; r < world.size(); ++r) {
    if (r == world.rank()) continue;
    const json theirs = json::from_cbor(all[static_cast<std::size_t>(r)]);
    const distributed::Share share = world.share(rows.size(), r);
    for (std::size_t i = share.begin; i < share.end; ++i) {
      const json& row = theirs.at(i - share.begin);
      for (const json& b : row.at(0)) {
        using Numbers = std::vector<double>;
        rows[i].blocks.push_back({.start = b.at(0).get<std::int64_t>(),
                                  .samples = b.at(1).get<std::vector<std::vector<data::TokenId>>>(),
                                  .alignment = b.at(2).get<Numbers>(),
                                  .diversity = b.at(3).get<Numbers>(),
                                  .reward = b.at(4).get<Numbers>(),
                                  .advantage = b.at(5).get<Numbers>()});
      }
      rows[i].mismatch = row.at(1).get<std::vector<double>>();
    }
  }
}

RLALGO_INLINE void detail::measure(const std::vector<StridedDocument>& rows, Batch<StridedDocument>& batch) {
  std::vector<double> advantages;
  double reward = 0, alignment = 0, diversity = 0, mismatch = 0, blocks = 0, anchors = 0, prompted = 0;
  for (const StridedDocument& row : rows) {
    blocks += static_cast<double>(row.blocks.size());
    if (row.document->prompt_length) {
      anchors += static_cast<double>(row.anchor);
      ++prompted;
    }
    for (const Block& block : row.blocks) {
      for (const double value : block.reward) reward += value;
      for (const double value : block.alignment) alignment += value;
      for (const double value : block.diversity) diversity += value;
      advantages.insert(advantages.end(), block.advantage.begin(), block.advantage.end());
    }
    for (const double value : row.mismatch) mismatch += value;
  }
  constexpr double weightless = 1e-300;  // 0/0 reads as 0, and vanishes beside a step with blocks
  const double samples = static_cast<double>(advantages.size()) + weightless;
  core::Metrics& m = batch.metrics;
  m.mean("ebft/mean_reward", reward, samples);
  m.mean("ebft/alignment", alignment, samples);
  m.mean("ebft/diversity", diversity, samples);
  m.mean("ebft/cfm_loss", mismatch, blocks + weightless);
  m.mean("ebft/num_blocks", blocks, static_cast<double>(rows.size()));
  if (prompted > 0) m.mean("ebft/anchor_offset", anchors, prompted);
  const core::Moments moments = core::moments(advantages);
  if (advantages.size() > 1) m.mean("ebft/advantages_std", moments.deviation, 1.0);
  m.mean("ebft/steps_without_blocks", blocks == 0 ? 1.0 : 0.0, 1.0);
  if (blocks == 0)
    batch.warnings.push_back(
        "no document of the step is long enough for a block (context or prompt, and generate_max_len tokens): it "
        "trains nothing but the likelihood of its documents");
}

}  // namespace rlalgo::sampler
