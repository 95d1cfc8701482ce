// The sampler of strided energy-based fine-tuning: documents → blocks of the current policy at every stride → features
// of a frozen network → rewards → advantages.
//
//   anchors of a document of S tokens: e_k = a0 + k·stride while e_k + G ≤ S
//   a0 = context_length; of a document with a prompt max(prompt_length + min_completion_prefix, context_length)
//
// Source: "Energy-based fine-tuning", arXiv 2603.12248; axolotl 0.19 `AxolotlStridedEBFTTrainer`. Departures: a0 is the
// document's own, not the longest of the batch, so that a split into micro-batches changes nothing; anchors and windows
// stay inside of the real document; sampling has no dropout, in float32 (docs/algorithms/ebft.md).
// A document without blocks trains its likelihood alone; without that it is left out of its micro-batch. The last step of
// an epoch takes the documents that are left (epoch_order.hpp).
// Draws are functions of (seed, step, sample, token), so order, micro-batches, threads and ranks change none. Each rank makes
// the blocks of its share of the documents and hands them to all others.
// Metrics of a step: ebft/mean_reward, alignment, diversity (means over samples), cfm_loss (over blocks), num_blocks and
// anchor_offset (over documents), advantages_std (over all samples of the step, n − 1), steps_without_blocks.
// State: the number of the next step. Errors: [rlalgo.sampler.2] a setting out of range; [.7] a checkpoint of another run;
// [.20] no documents; those of generator and features.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/data/document.hpp>
#include <rlalgo/distributed/world.hpp>
#include <rlalgo/feature/block_matching.hpp>
#include <rlalgo/feature/group_estimators.hpp>
#include <rlalgo/feature/matching.hpp>
#include <rlalgo/feature/network.hpp>
#include <rlalgo/feature/pooling.hpp>
#include <rlalgo/inference/block_generator.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/sampler/batch.hpp>
#include <rlalgo/sampler/concept.hpp>
#include <rlalgo/sampler/detail/generation_state.hpp>
#include <rlalgo/sampler/epoch_order.hpp>
#include <rlalgo/sampler/strided_rows.hpp>

namespace rlalgo::sampler {

struct StridedConfig {
  std::int64_t stride = 8;                 // tokens between anchors
  std::int64_t context_length = 8;         // tokens before the first anchor, at least
  std::int64_t generate_max_len = 8;       // G: tokens of a block
  std::int64_t samples = 4;                // n: samples of a block
  std::int64_t min_completion_prefix = 0;  // tokens of an answer before its first anchor
  double temperature = 0.6;                // 0 = greedy
  double top_p = 1.0;                      // 0 = the most likely token alone
  feature::Pooling pooling = feature::Pooling::last_token;
  feature::MatchingConfig matching{};  // whitening
  double alignment_coef = 1.0;
  double diversity_coef = 1.0;
  bool likelihood = false;            // the loss has a likelihood term
  std::int64_t micro_batch_size = 1;  // documents
  std::int64_t gradient_accumulation_steps = 1;
  std::uint64_t seed = 42;
  bool shuffle = true;                                  // permute the documents anew each epoch
  std::shared_ptr<distributed::World> world = nullptr;  // the ranks that draw together; null: one
};

// The first anchor of a document.
[[nodiscard]] std::int64_t first_anchor(const data::Document& document, const StridedConfig& config);

// Where blocks start: anchors whose window ends in the document, and with texts apart those whose window lies in one text
// behind a token of it.
[[nodiscard]] std::vector<std::int64_t> block_starts(const data::Document& document, const StridedConfig& config);

namespace detail {

[[nodiscard]] StridedConfig checked(const StridedConfig& config);

// The blocks that other ranks made of their shares of the documents of a step.
void share_blocks(std::vector<StridedDocument>& rows, distributed::World& world);

// Metrics and warnings of the documents of a step.
void measure(const std::vector<StridedDocument>& rows, Batch<StridedDocument>& batch);

}  // namespace detail

template <inference::BlockGenerator G, feature::GroupEstimator E = feature::LeaveOutPairs>
class StridedBlocks {
 public:
  using Config = StridedConfig;
  using Rows = StridedRows;
  using Generator = G;
  static constexpr Hooks hooks{.generates = true};

  // `generator` must outlive the sampler.
  StridedBlocks(std::vector<data::Document> documents, G& generator, feature::FeatureNetwork network, E estimator,
                StridedConfig config)
      : generator_(&generator),
        network_(std::move(network)),
        estimator_(std::move(estimator)),
        config_(detail::checked(config)),
        order_({.examples = documents.size(),
                .micro_batch_size = config.micro_batch_size,
                .gradient_accumulation_steps = config.gradient_accumulation_steps,
                .shuffle = config.shuffle,
                .seed = config.seed}) {
    for (data::Document& document : documents)
      documents_.push_back(std::make_shared<const data::Document>(std::move(document)));
  }

  [[nodiscard]] const StridedConfig& config() const noexcept { return config_; }
  // Optimizer steps of one pass over the documents.
  [[nodiscard]] std::int64_t steps() const { return order_.steps(); }
  [[nodiscard]] double last_step_share() const { return order_.last_step_share(); }

  Batch<StridedDocument> next(std::int64_t step) {
    auto rows = std::make_shared<std::vector<StridedDocument>>();
    double generating = 0.0, matching = 0.0;
    std::uint64_t index = 0;
    const std::span<const std::size_t> chosen = order_.step(step);
    const distributed::Share own =
        config_.world ? config_.world->share(chosen.size()) : distributed::Share{0, chosen.size()};
    for (std::size_t at = 0; at < chosen.size(); ++at) {
      const std::size_t i = chosen[at];
      StridedDocument row{.document = documents_[i],
                          .anchor = first_anchor(*documents_[i], config_),
                          .likelihood = config_.likelihood,
                          .blocks = {}};
      const bool makes = at >= own.begin && at < own.end;
      os::Stopwatch watch;
      draw(row, step, index, makes);
      generating += watch.seconds();
      const os::Stopwatch reward_watch;
      if (makes) reward(row);
      matching += reward_watch.seconds();
      rows->push_back(std::move(row));
    }
    if (config_.world) detail::share_blocks(*rows, *config_.world);
    Batch<StridedDocument> batch;
    detail::measure(*rows, batch);
    batch.seconds = {{"generate", generating}, {"reward", matching}};
    const loss::Needs needs{.answer_likelihood = config_.likelihood};
    const auto part_rows = static_cast<std::size_t>(config_.micro_batch_size);
    for (std::size_t at = 0; at < rows->size(); at += part_rows) {
      std::vector<StridedDocument*> part;
      for (std::size_t i = at; i < std::min(at + part_rows, rows->size()); ++i)
        if (StridedRows::trained((*rows)[i], needs)) part.push_back(&(*rows)[i]);
      if (!part.empty()) batch.parts.push_back(std::move(part));
    }
    if (batch.parts.empty())  // no part reports its losses
      for (const char* name : {"ebft/rl_loss", "ebft/ce_loss"}) batch.metrics.mean(name, 0.0, 1.0);
    batch.owners.push_back(rows);
    latest_ = std::move(rows);
    next_step_ = step + 1;
    return batch;
  }

  // All documents of the last batch, those that nothing is trained of included.
  [[nodiscard]] const std::vector<StridedDocument>& latest() const { return *latest_; }

  [[nodiscard]] nlohmann::ordered_json state() const {
    nlohmann::ordered_json out = fingerprint();
    out["next_step"] = next_step_;
    return out;
  }
  void restore(const nlohmann::ordered_json& state) {
    try {
      detail::check_fingerprint(state, fingerprint());
      next_step_ = state.at("next_step").get<std::int64_t>();
    } catch (const nlohmann::json::exception& e) {
      detail::raise_state("the state is damaged", core::json_reason(e.what()));
    }
  }

 private:
  [[nodiscard]] nlohmann::ordered_json fingerprint() const {
    return {{"micro_batch_size", config_.micro_batch_size},
            {"gradient_accumulation_steps", config_.gradient_accumulation_steps},
            {"seed", config_.seed},
            {"shuffle", config_.shuffle},
            {"documents", documents_.size()}};
  }

  // Samples of all blocks; `index` counts the samples of the step, also where another rank makes them.
  void draw(StridedDocument& row, std::int64_t step, std::uint64_t& index, bool makes) {
    const std::vector<std::int64_t> starts = block_starts(*row.document, config_);
    // A share of 0 and one that rounds to it keep the most likely token.
    const inference::SamplingConfig sampling{.temperature = config_.temperature,
                                             .top_p = std::max(config_.top_p, 1e-30)};
    for (const data::TextSpan text : data::text_spans(*row.document)) {
      inference::BlockRequest request{.document = ids_of(row, text),
                                      .starts = {},
                                      .count = config_.samples,
                                      .length = config_.generate_max_len,
                                      .first_index = index};
      for (const std::int64_t start : starts)
        if (start >= text.begin && start < text.end) request.starts.push_back(start - text.begin);
      if (request.starts.empty()) continue;
      index += request.starts.size() * static_cast<std::uint64_t>(config_.samples);
      if (!makes) continue;
      auto samples = generator_->generate(request, sampling, {config_.seed, static_cast<std::uint64_t>(step)});
      for (std::size_t k = 0; k < samples.size(); ++k)
        row.blocks.push_back({.start = text.begin + request.starts[k],
                              .samples = std::move(samples[k]),
                              .alignment = {},
                              .diversity = {},
                              .reward = {},
                              .advantage = {}});
    }
  }

  void reward(StridedDocument& row) {
    row.mismatch.clear();
    for (const data::TextSpan text : data::text_spans(*row.document)) {
      std::vector<Block*> blocks;
      std::vector<feature::SampledBlock> views;
      for (Block& block : row.blocks)
        if (block.start >= text.begin && block.start < text.end) {
          blocks.push_back(&block);
          views.push_back({block.start - text.begin, block.samples});
        }
      const auto grams = feature::block_grams(network_, ids_of(row, text), views, config_.pooling);
      for (std::size_t k = 0; k < blocks.size(); ++k) {
        Block& block = *blocks[k];
        feature::Matching match = feature::match(grams[k], config_.matching);
        std::vector<double> al = match.alignment, dv = match.diversity;
        for (double& value : al) value *= config_.alignment_coef;
        for (double& value : dv) value *= config_.diversity_coef;
        block.reward = feature::Reward()(al, dv);
        block.advantage = estimator_(al, dv);
        block.alignment = std::move(match.alignment);
        block.diversity = std::move(match.diversity);
        row.mismatch.push_back(match.mismatch);
      }
    }
  }

  [[nodiscard]] static std::span<const data::TokenId> ids_of(const StridedDocument& row, data::TextSpan text) {
    return std::span(row.document->ids)
        .subspan(static_cast<std::size_t>(text.begin), static_cast<std::size_t>(text.end - text.begin));
  }

  std::vector<std::shared_ptr<const data::Document>> documents_;
  G* generator_;
  feature::FeatureNetwork network_;
  E estimator_;
  StridedConfig config_;
  EpochOrder order_;
  std::shared_ptr<std::vector<StridedDocument>> latest_ = std::make_shared<std::vector<StridedDocument>>();
  std::int64_t next_step_ = 0;
};

}  // namespace rlalgo::sampler

#ifndef RLALGO_COMPILED
#include <rlalgo/sampler/detail/strided_blocks_impl.hpp>
#endif
