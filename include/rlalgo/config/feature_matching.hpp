// From a configuration to the parts of energy-based fine-tuning: the frozen network, rewards, advantages, documents.
//
// The feature network is ebft.feature_model, else the policy as base_model has it: a copy, or with an adapter the same
// tensors with the adapter off.
// Errors: [rlalgo.config.35] a feature model with another vocabulary; [.33] a row without a ground truth; [.34] (usage) a
// dataset's type is of the other ebft.mode; [.8] (usage) a dataset whose documents are not packed; [.36] packing without
// an end token; [.20] no such model; those of data/ and feature/.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <rlalgo/config/fingerprints.hpp>
#include <rlalgo/config/language_model.hpp>
#include <rlalgo/config/load_data.hpp>
#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/prompt_tokens.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/config/sharding.hpp>
#include <rlalgo/core/digest.hpp>
#include <rlalgo/core/metrics.hpp>
#include <rlalgo/core/moments.hpp>
#include <rlalgo/data/document_transform.hpp>
#include <rlalgo/data/pack_documents.hpp>
#include <rlalgo/data/split.hpp>
#include <rlalgo/feature/group_estimators.hpp>
#include <rlalgo/feature/matching.hpp>
#include <rlalgo/feature/network.hpp>
#include <rlalgo/feature/pooling.hpp>
#include <rlalgo/feature/text_matching.hpp>
#include <rlalgo/inference/any_generator.hpp>
#include <rlalgo/inference/generator.hpp>
#include <rlalgo/loss/with_cross_entropy.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/sampler/rollouts.hpp>
#include <rlalgo/sampler/strided_blocks.hpp>

namespace rlalgo::config {

// `sharding` (or null) holds the policy, and then the network in the same way. `apart`: it shares no memory with the policy,
// which may be held otherwise.
[[nodiscard]] inline feature::FeatureNetwork feature_network(const RunConfig& c, const LanguageModel& model,
                                                             Sharding* sharding = nullptr, bool apart = false) {
  std::shared_ptr<model::Decoder> network;
  if (c.ebft.feature_model) {
    const std::filesystem::path directory = resolve_model(*c.ebft.feature_model, c.place("ebft.feature_model"));
    network = model::load_decoder(directory, {.dtype = model.decoder->dtype(),
                                              .memory = model::memory_of_weights(sharding != nullptr),
                                              .device = model.decoder->device()});
    network->set_trained(false);
    const std::int64_t found = network->config().vocab_size, expected = model.decoder->config().vocab_size;
    if (found != expected)
      core::raise("config", 35,
                  {.what = "the feature model has another vocabulary than the policy",
                   .found = std::to_string(found) + " ids",
                   .expected = std::to_string(expected),
                   .where = c.place("ebft.feature_model"),
                   .remedy = "name a model that shares the policy's tokenizer"});
    if (sharding != nullptr) sharding->hold_frozen(*network);
  } else {
    network = apart                                 ? model.decoder->without_adapter()->frozen_copy()
              : model.decoder->adapter() != nullptr ? model.decoder->without_adapter()
              : sharding != nullptr                 ? sharding->frozen_copy(*model.decoder)
                                                    : model.decoder->frozen_copy();
  }
  const bool joint = c.ebft.feature_normalization == "joint";
  auto depths = feature::tap_depths(c.ebft.feature_layers, network->config().layers);
  return {std::move(network), std::move(depths),
          joint ? feature::Normalization::joint : feature::Normalization::per_layer};
}

// What is said where relative depths that differ are one layer of this network; empty otherwise (that depths are the same is
// said when the file is read).
[[nodiscard]] inline std::string repeated_layers(const RunConfig& c, const feature::FeatureNetwork& network) {
  const auto distinct = [](const auto& list) { return std::set(list.begin(), list.end()).size(); };
  if (distinct(network.depths()) == distinct(c.ebft.feature_layers)) return {};
  std::string depths;
  for (const std::int64_t depth : network.depths()) depths += (depths.empty() ? "" : ", ") + std::to_string(depth);
  return "ebft.feature_layers are the layers " + depths +
         " of this network: one that occurs more than once counts as often";
}

[[nodiscard]] inline feature::Pooling pooling(const RunConfig& c) {
  switch (pooling_of(c).part) {
    case PoolingPart::mean_pooling:
      return feature::Pooling::mean_pooling;
    case PoolingPart::completion_mean:
      return feature::Pooling::completion_mean;
    case PoolingPart::concat:
      return feature::Pooling::concat;
    case PoolingPart::last_token:
      break;
  }
  return feature::Pooling::last_token;
}

[[nodiscard]] inline feature::MatchingConfig matching(const RunConfig& c) {
  using feature::Whitening;
  if (!c.ebft.use_whitening) return {};
  return {.whitening = c.ebft.whitening_space == "sample" ? Whitening::sample : Whitening::feature};
}

[[nodiscard]] inline feature::AnyGroupEstimator matching_estimator(const RunConfig& c) {
  using feature::AnyGroupEstimator;
  switch (matching_estimator_of(c).part) {
    case MatchingPart::leave_one_out:
      return AnyGroupEstimator(feature::LeaveOneOut());
    case MatchingPart::group_norm:
      return AnyGroupEstimator(feature::GroupNorm());
    case MatchingPart::reward:
      return AnyGroupEstimator(feature::Reward());
    case MatchingPart::leave_out_pairs:
      break;
  }
  return AnyGroupEstimator(feature::LeaveOutPairs());
}

// Whether advantages are those of ebft.advantage_estimator: else trl.scale_rewards was asked for.
[[nodiscard]] inline bool estimates_from_matching(const RunConfig& c) {
  return matches_features(c) && (c.was_set("ebft.advantage_estimator") || !c.was_set("trl.scale_rewards"));
}

namespace detail {

// Carries conversations on: the other side's turns are the dataset's, the assistant's are generated, one call for all
// samples of a prompt and turn. Draws are those of the samples' places, at positions that no first answer reaches.
class Conversation {
 public:
  Conversation(const RunConfig& c, const LanguageModel& model, inference::AnyGenerator& generator,
               inference::SamplingConfig sampling)
      : model_(&model),
        generator_(&generator),
        kwargs_(c.trl.chat_template_kwargs),
        sampling_(std::move(sampling)),
        seed_(c.seed) {}

  std::vector<std::string> operator()(const data::Json& prompt, const data::Json& columns, const data::Json& turns,
                                      const std::string& truth, std::span<const std::string> answers,
                                      std::size_t first_row, std::int64_t step) const {
    const RowTemplate shown(columns, kwargs_);
    const auto render = [&](const data::Json& messages, bool prompt_after) {
      return model_->render(messages, prompt_after, shown.kwargs, shown.tools);
    };
    const data::Json opening =
        prompt.is_array() ? prompt : data::Json::array({data::Json{{"role", "user"}, {"content", prompt}}});
    const auto begun = [&](const std::string& answer) {
      data::Json out = opening;
      out.push_back({{"role", "assistant"}, {"content", answer}});
      return out;
    };
    data::Json dataset = begun(truth);
    for (const data::Json& turn : turns) dataset.push_back(turn);
    std::vector<data::Json> played;
    for (const std::string& answer : answers) played.push_back(begun(answer));
    std::uint32_t number = 0;
    for (const data::Json& turn : turns) {
      ++number;
      if (turn.at("role") != "assistant") {
        for (data::Json& messages : played) messages.push_back(turn);
        continue;
      }
      std::vector<inference::Request> requests;
      for (std::size_t j = 0; j < played.size(); ++j)
        requests.push_back({.prompt = model_->tokenizer.encode(render(played[j], true), false),
                            .count = 1,
                            .first_index = first_row + j,
                            .first_position = number << 24U});
      const auto replies = generator_->generate(requests, sampling_, {seed_, static_cast<std::uint64_t>(step)});
      for (std::size_t j = 0; j < played.size(); ++j)
        played[j].push_back({{"role", "assistant"}, {"content", model_->tokenizer.decode(replies.at(j).at(0).ids)}});
    }
    std::vector<std::string> out = {render(dataset, false)};
    for (const data::Json& messages : played) out.push_back(render(messages, false));
    return out;
  }

 private:
  const LanguageModel* model_;
  inference::AnyGenerator* generator_;
  data::Json kwargs_;
  inference::SamplingConfig sampling_;
  std::uint64_t seed_;
};

}  // namespace detail

// Alignment and diversity as reward functions with their weights; `model` and `generator` must outlive them.
[[nodiscard]] inline std::vector<sampler::WeightedReward> matching_rewards(const RunConfig& c,
                                                                           const LanguageModel& model,
                                                                           feature::FeatureNetwork network,
                                                                           inference::AnyGenerator& generator,
                                                                           inference::SamplingConfig sampling) {
  const data::Json kwargs = c.trl.chat_template_kwargs;
  feature::Texts texts{
      .render =
          [&model, kwargs, played = plays_rows(c)](const data::Json& prompt, const data::Json& columns) {
            if (prompt.is_string()) return prompt.get<std::string>();
            if (played) return model.render(prompt, true, kwargs);
            const RowTemplate shown(columns, kwargs);
            return model.render(prompt, true, shown.kwargs, shown.tools);
          },
      .encode = [&model](std::string_view text) { return model.tokenizer.encode(text, false); }};
  // Where environments, agents or a function have made the turns, there are no others.
  if (!c.trl.has_turns() && !c.trl.rollout_func && !c.nemo_gym.multi_turn)
    texts.converse = detail::Conversation(c, model, generator, std::move(sampling));
  const feature::MatchingRewards rewards = feature::matching_rewards({std::move(network),
                                                                      std::move(texts),
                                                                      {.pooling = pooling(c),
                                                                       .matching = matching(c),
                                                                       .alignment_coef = c.ebft.alignment_coef,
                                                                       .diversity_coef = c.ebft.diversity_coef}});
  return {{rewards.alignment, c.ebft.alignment_coef}, {rewards.diversity, -c.ebft.diversity_coef}};
}

// ebft/advantages_std: over all completions of a step, n − 1.
inline void add_advantage_spread(std::span<const data::Rollout* const> rows, core::Metrics& metrics) {
  std::vector<double> advantages;
  for (const data::Rollout* row : rows) advantages.push_back(row->advantage);
  if (advantages.size() > 1) metrics.mean("ebft/advantages_std", core::moments(advantages).deviation, 1.0);
}

// The tokens of ground truths, encoded once.
class Truths {
 public:
  // Encodes what was not encoded before.
  const std::vector<data::TokenId>& add(const LanguageModel& model, const data::Json& columns) {
    const std::string* const text = text_of(columns);
    if (text == nullptr) return none_;
    const auto [entry, added] = ids_.try_emplace(*text);
    if (added) entry->second = model.tokenizer.encode(*text, false);
    return entry->second;
  }
  // Of a row that was added; empty for others.
  [[nodiscard]] const std::vector<data::TokenId>& of(const data::Json& columns) const {
    const std::string* const text = text_of(columns);
    const auto found = text == nullptr ? ids_.end() : ids_.find(*text);
    return found == ids_.end() ? none_ : found->second;
  }

 private:
  static const std::string* text_of(const data::Json& columns) {
    const auto truth = columns.find(feature::TextMatching::truth_column);
    return truth == columns.end() || !truth->is_string() ? nullptr : &truth->get_ref<const std::string&>();
  }

  std::unordered_map<std::string, std::vector<data::TokenId>> ids_;
  std::vector<data::TokenId> none_;
};

// Every prompt must have a ground truth; with a likelihood term its tokens become the prompt's answer.
inline void require_truths(const RunConfig& c, const LanguageModel& model, Truths& truths,
                           std::vector<data::TokenizedPrompt>& prompts) {
  for (data::TokenizedPrompt& prompt : prompts) {
    const std::vector<data::TokenId>& truth = truths.add(model, prompt.columns);
    if (truth.empty())
      core::raise("config", 33,
                  {.what = "a row has no ground truth, so there is nothing that completions could match",
                   .expected = "a column ground_truth with a text",
                   .where = "dataset row " + std::to_string(prompt.row),
                   .remedy = "drop the row, or set datasets[].type: ebft_….transform"});
    if (c.ebft.ce_coef > 0) prompt.answer_ids = truth;
  }
}

// Takes the thoughts of answers out of their likelihood; prompts are tokenized.
inline void mask_thoughts(const RunConfig& c, const LanguageModel& model, std::vector<data::TokenizedPrompt>& prompts) {
  if (!c.ebft.mask_thinking_ce) return;
  const data::DocumentTools tools{
      .encode = [&](const std::string& text, bool special) { return model.tokenizer.encode(text, special); },
      .render = {}};
  for (data::TokenizedPrompt& prompt : prompts) {
    std::vector<data::TokenId> ids = prompt.ids;
    ids.insert(ids.end(), prompt.answer_ids.begin(), prompt.answer_ids.end());
    std::vector<std::uint8_t> mask(ids.size(), 1);
    data::mask_thoughts(ids, prompt.ids.size(), mask, tools);
    prompt.answer_mask.assign(mask.begin() + static_cast<std::ptrdiff_t>(prompt.ids.size()), mask.end());
  }
}

// Tokens that the completions of a prompt may take: gt_length_multiplier times its ground truth's, 64 at least.
[[nodiscard]] inline std::function<std::int64_t(const data::TokenizedPrompt&)> completion_limit(
    const RunConfig& c, std::shared_ptr<const Truths> truths) {
  if (!matches_features(c) || !c.ebft.adaptive_max_tokens) return nullptr;
  return [truths = std::move(truths), factor = c.ebft.gt_length_multiplier](const data::TokenizedPrompt& prompt) {
    const auto tokens = static_cast<double>(truths->of(prompt.columns).size());
    return std::max<std::int64_t>(static_cast<std::int64_t>(tokens * factor), 64);
  };
}

struct Documents {
  std::vector<data::Document> train, evaluation;
  std::vector<std::string> notes = {};  // for the user: what the files hold that is not read
};

namespace detail {

// Documents by their content: rows of a table name them, so that merging, shuffling, deduplication and splits are those
// of any table and token ids are held once.
class DocumentStore {
 public:
  data::Json put(data::Document document) {
    std::string name = digest_of(document);
    data::Json row = {{"document", name}};
    documents_.try_emplace(std::move(name), std::move(document));
    return row;
  }
  [[nodiscard]] std::vector<data::Document> of(const data::Table& table) const {
    std::vector<data::Document> out;
    for (std::size_t i = 0; i < table.size(); ++i) {
      out.push_back(documents_.at(table.row(i).at("document").get<std::string>()));
      out.back().row = static_cast<std::int64_t>(i);
    }
    return out;
  }

  static std::string digest_of(const data::Document& d) {
    core::Digest digest;
    add(digest, d);
    const std::string half = digest.hex();  // two digests: equal names are equal documents
    return half + core::Digest().add("second half").add(half).add(ids(d)).add(mask(d)).hex();
  }

  static void add(core::Digest& digest, const data::Document& d) {
    const std::int64_t sizes[] = {static_cast<std::int64_t>(d.ids.size()), d.prompt_length.value_or(-1)};
    digest.add({reinterpret_cast<const char*>(sizes), sizeof(sizes)}).add(ids(d)).add(mask(d));
    if (!d.texts.empty())
      digest.add({reinterpret_cast<const char*>(d.texts.data()), d.texts.size() * sizeof(std::int64_t)});
  }

 private:
  static std::string_view ids(const data::Document& d) {
    return {reinterpret_cast<const char*>(d.ids.data()), d.ids.size() * sizeof(data::TokenId)};
  }
  static std::string_view mask(const data::Document& d) {
    return {reinterpret_cast<const char*>(d.loss_mask.data()), d.loss_mask.size()};
  }

  std::unordered_map<std::string, data::Document> documents_;
};

inline data::Table load_documents(const std::vector<DatasetConfig>& entries, const std::string& key, const RunConfig& c,
                                  const LanguageModel& model, DocumentStore& store, std::vector<std::string>& notes) {
  const std::vector<std::string>& names = data::document_transform_names();
  const std::string& packable = names.front();
  const auto vocabulary = static_cast<std::int64_t>(model.tokenizer.vocab_size());
  std::vector<data::Table> tables;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::string type = entries[i].type.is_string() ? entries[i].type.get<std::string>() : "";
    const std::string where = key + "[" + std::to_string(i) + "].type at " + entries[i].place.text();
    const bool own = is_python_dataset(entries[i], names, c);
    if (!own && std::find(names.begin(), names.end(), type) == names.end()) {
      std::string all;
      for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
      core::raise_usage("config", 34,
                        {.what = "this type does not make the documents that ebft.mode: strided trains on",
                         .found = entries[i].type.is_null() ? "no type" : entries[i].type.dump(),
                         .expected = all,
                         .where = where});
    }
    if (c.ebft.pack_documents && type != packable)
      core::raise_usage("config", 8,
                        {.what = "ebft.pack_documents is for texts without a prompt",
                         .found = type,
                         .expected = packable,
                         .where = where,
                         .remedy = "remove ebft.pack_documents"});
    const data::DocumentConfig settings{
        .length = c.ebft.pack_documents ? std::numeric_limits<std::int64_t>::max() : c.ebft.sequence_len,
        .mask_thinking = c.ebft.mask_thinking_ce};
    const data::Table rows = own ? load_python_dataset(entries[i], c, notes) : load_rows(entries[i], c, notes);
    const data::DocumentTools tools{
        .encode = [&](const std::string& text, bool special) { return model.tokenizer.encode(text, special); },
        .render = model.renderer(c.trl.chat_template_kwargs, model.template_of(entries[i]))};
    data::Table out;
    for (std::size_t r = 0; r < rows.size(); ++r)
      out.append(
          core::located(rows.where(r),
                        [&] {
                          return store.put(own ? data::document_of_ids(rows.row(r), rows.where(r), vocabulary, settings)
                                               : data::document_of(type, rows.row(r), rows.where(r), tools, settings));
                        }),
          rows.origin(r));
    tables.push_back(std::move(out));
  }
  return data::merge(
      tables,
      {.seed = c.seed, .shuffle = c.shuffle_merged_datasets, .shuffle_before = c.shuffle_before_merging_datasets});
}

// What ebft.pack_documents puts between texts.
inline data::TokenId separator(const RunConfig& c, const LanguageModel& model) {
  const auto eos = model.tokenizer.eos_id();
  if (!eos)
    core::raise("config", 36,
                {.what = "ebft.pack_documents needs an end token between texts, and the tokenizer has none",
                 .where = model.directory.string(),
                 .remedy = "remove " + std::string("ebft.pack_documents (") + c.place("ebft.pack_documents") +
                           "), or set eos_token in tokenizer_config.json"});
  return *eos;
}

}  // namespace detail

// Loads, tokenizes, merges, shuffles, deduplicates and splits as load_prompts() does; then packs, where that is asked
// for, training and held-out texts apart.
[[nodiscard]] inline Documents load_documents(const RunConfig& c, const LanguageModel& model) {
  detail::DocumentStore store;
  data::HeldOut rows;
  std::vector<std::string> notes;
  rows.train = detail::load_documents(c.datasets, "datasets", c, model, store, notes);
  if (c.dataset_exact_deduplication) rows.train = data::deduplicated(rows.train);
  if (!c.test_datasets.empty()) {
    rows.evaluation = detail::load_documents(c.test_datasets, "test_datasets", c, model, store, notes);
    if (c.dataset_exact_deduplication) rows.evaluation = data::deduplicated_against(rows.train, rows.evaluation);
  } else if (c.val_set_size > 0) {
    rows = data::hold_out(rows.train, c.val_set_size);
  }
  Documents out{store.of(rows.train), store.of(rows.evaluation), std::move(notes)};
  if (!c.ebft.pack_documents) return out;
  const data::PackingConfig packing{
      .length = c.ebft.sequence_len, .separator = detail::separator(c, model), .apart = c.ebft.document_masking};
  return {data::pack_documents(out.train, packing), data::pack_documents(out.evaluation, packing),
          std::move(out.notes)};
}

[[nodiscard]] inline sampler::StridedConfig strided_sampling(const RunConfig& c) {
  const EbftConfig& e = c.ebft;
  return {.stride = e.stride,
          .context_length = e.context_length,
          .generate_max_len = e.generate_max_len,
          .samples = e.n_samples_per_prompt,
          .min_completion_prefix = e.min_completion_prefix,
          .temperature = e.temperature,
          .top_p = e.top_p,
          .pooling = pooling(c),
          .matching = matching(c),
          .alignment_coef = e.alignment_coef,
          .diversity_coef = e.diversity_coef,
          .likelihood = e.ce_coef > 0,
          .micro_batch_size = c.micro_batch_size,
          .gradient_accumulation_steps = c.gradient_accumulation_steps,
          .seed = c.seed,
          .shuffle = c.trl.shuffle_dataset};
}

// Of a run over documents: what resuming it compares beside its settings.
[[nodiscard]] inline data::Json fingerprints(const RunConfig& c, const Documents& documents) {
  const auto digest = [](const std::vector<data::Document>& list) {
    core::Digest out;
    for (const data::Document& d : list) detail::DocumentStore::add(out, d);
    return out.hex();
  };
  data::Json out = {{"rows of datasets", digest(documents.train)}};
  if (!documents.evaluation.empty()) out["held-out rows"] = digest(documents.evaluation);
  detail::add_features(c, out);
  return out;
}

}  // namespace rlalgo::config
