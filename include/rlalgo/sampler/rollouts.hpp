// The sampler of online RL: prompts → completions of the current policy → rewards → the rows of one optimizer step.
//
// A generation serves S·μ micro-steps (sampler/geometry.hpp); next(k) cuts the rows of optimizer step k into
// micro-batches and generates whenever the next micro-step needs a generation that is not there. Everything that is
// random is a function of (seed, generation number, completion index, token position).
// Ranks: each makes and scores its share of the groups (contiguous, the same on one rank and on many), and hands the
// completions with their rewards to all others. So every rank holds the whole generation, and what is computed over it
// (advantages, metrics, the state) is the same on all. A reward function sees the completions of its rank.
// A server is asked by rank 0 alone, for all groups, as one rank would ask it; the others get their share from rank 0.
// Source: TRL `GRPOTrainer` (buffering, masks, metric names). stop ids: every end id counts, as in TRL 1.16.
// Departure: rows keep the order of their groups; TRL permutes them at random before cutting micro-batches. All
// denominators are counts over the optimizer step, so the split does not matter, and a group's prompt is encoded once.
// State: the number of the generation under way, the rows that are still to be trained on (ids, log-probs, advantages,
// bit for bit) and the running token count; what follows from config and dataset is not stored.
// Metrics of a fresh generation: num_tokens, completions/*, rewards/<name>/mean|std, reward, reward_std, and what reward
// functions log. min/max merge as minimum and maximum, where TRL averages them over generations.
// Errors: [rlalgo.sampler.1–5] see repeat_order.hpp and geometry.hpp, [rlalgo.sampler.6] the generator broke its
// contract, [rlalgo.sampler.7] a checkpoint of another run.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/data/rollout.hpp>
#include <rlalgo/distributed/world.hpp>
#include <rlalgo/inference/generator.hpp>
#include <rlalgo/loss/concept.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/sampler/batch.hpp>
#include <rlalgo/sampler/concept.hpp>
#include <rlalgo/sampler/detail/score_generation.hpp>
#include <rlalgo/sampler/generation_batches.hpp>
#include <rlalgo/sampler/geometry.hpp>
#include <rlalgo/sampler/repeat_order.hpp>
#include <rlalgo/sampler/weighted_reward.hpp>

namespace rlalgo::sampler {

struct RolloutsConfig {
  Geometry geometry{};
  std::uint64_t seed = 42;
  bool shuffle = true;                      // permute the prompts anew each epoch
  inference::SamplingConfig sampling{};     // its ends also decide what counts as terminated
  bool mask_truncated_completions = false;  // completions without an end token carry no loss
  bool count_tokens = true;                 // report num_tokens; evaluation does not
  // Tokens that the completions of a prompt may take, where prompts differ: the largest of a generation is the limit of
  // all its completions, below sampling.max_new_tokens.
  std::function<std::int64_t(const data::TokenizedPrompt&)> completion_limit = {};
  std::shared_ptr<distributed::World> world = nullptr;  // the ranks that generate together; null: one
  // Of several ranks: held while this one generates and scores its share, never while it waits for others; for samplers that
  // share generator and rewards. With it, the generator is asked for an empty share, too: it may have to agree with others.
  std::shared_ptr<std::mutex> mutex = nullptr;
};

template <class G>
class Rollouts : public GenerationBatches<Rollouts<G>> {
  static_assert(inference::Generator<G>,
                "sampler::Rollouts<Generator>: not an inference::Generator; it needs a constexpr `weights` and "
                "`generate(std::span<const Request>, const SamplingConfig&, DrawKey)` (inference::LocalEngine is one)");
  friend class GenerationBatches<Rollouts<G>>;

 public:
  using Config = RolloutsConfig;
  using Generator = G;
  static constexpr Hooks hooks{.needs_weights = true, .draws_ahead = true, .in_pieces = true};

  // `weights_version` is asked before each generation; `generator` must outlive the sampler.
  Rollouts(std::vector<data::TokenizedPrompt> prompts, G& generator, std::vector<WeightedReward> rewards, Decode decode,
           RolloutsConfig config, std::function<std::int64_t()> weights_version)
      : prompts_(std::move(prompts)),
        generator_(&generator),
        rewards_(std::move(rewards)),
        decode_(std::move(decode)),
        config_(checked(std::move(config))),
        weights_version_(std::move(weights_version)),
        order_({.prompts = prompts_.size(),
                .prompts_per_chunk = static_cast<std::size_t>(config_.geometry.prompts()),
                .copies = static_cast<std::size_t>(config_.geometry.num_generations),
                .repeats = static_cast<std::size_t>(config_.geometry.micro_steps()),
                .shuffle = config_.shuffle,
                .seed = config_.seed}) {}

  [[nodiscard]] const RolloutsConfig& config() const noexcept { return config_; }
  [[nodiscard]] const std::vector<data::TokenizedPrompt>& prompts() const noexcept { return prompts_; }
  [[nodiscard]] const RepeatOrder& order() const noexcept { return order_; }
  [[nodiscard]] const G& generator() const noexcept { return *generator_; }
  [[nodiscard]] std::string decode(std::span<const data::TokenId> ids) const { return decode_(ids); }
  [[nodiscard]] std::vector<std::string> reward_names() const { return sampler::reward_names(rewards_); }
  [[nodiscard]] const Rollouts& root() const noexcept { return *this; }

  // Makes generation `number` of the order's prompts, or of others: indices of the dataset, one for each group.
  Made produce(std::int64_t number, std::int64_t step, const Pieces& pieces = {}) {
    return produce(number, step, order_.chunk(static_cast<std::uint64_t>(number)), pieces);
  }
  Made produce(std::int64_t number, std::int64_t step, const std::vector<std::size_t>& chosen,
               const Pieces& pieces = {}) {
    if (!draws_ahead()) return produce_together(number, step, chosen, pieces);
    if (pieces.groups > 0) return produce_in_pieces(number, step, chosen, pieces);
    Made made = draw(number, chosen);
    score(made, step);
    return made;
  }

  // produce() in two halves. The first touches nothing that the second does: a generation may be drawn while the one before
  // is scored.
  [[nodiscard]] bool draws_ahead() const { return config_.world == nullptr || config_.world->size() == 1; }
  Made draw(std::int64_t number) { return draw(number, order_.chunk(static_cast<std::uint64_t>(number))); }
  Made draw(std::int64_t number, const std::vector<std::size_t>& chosen) {
    Made made{.number = number, .generation = nullptr, .tokens = 0, .about = {}};
    const os::Stopwatch watch;
    made.generation = detail::generate(*generator_, std::span<const data::TokenizedPrompt>(prompts_), chosen,
                                       config_.geometry.num_generations, sampling_of(chosen),
                                       {config_.seed, static_cast<std::uint64_t>(number)}, weights_version_());
    made.about.seconds = {{"generate", watch.seconds()}};
    made.tokens = tokens_of(*made.generation);
    return made;
  }
  void score(Made& made, std::int64_t step) {
    if (config_.count_tokens) made.about.metrics.last("num_tokens", static_cast<double>(num_tokens_ + made.tokens));
    const double rewarding = detail::score(*made.generation, rewards_, decode_, config_.sampling,
                                           config_.mask_truncated_completions, step, made.about);
    made.about.seconds.emplace_back("reward", rewarding);
    num_tokens_ += made.tokens;
  }

  [[nodiscard]] std::function<Json()> capture() const {
    return [tokens = num_tokens_] { return Json{{"num_tokens", tokens}}; };
  }
  void restore_source(const Json& state) { num_tokens_ = state.at("num_tokens").template get<std::int64_t>(); }

 private:
  static RolloutsConfig checked(RolloutsConfig config) {
    config.geometry.check(1);
    return config;
  }

  static std::int64_t tokens_of(const Generation& generation) {
    std::int64_t tokens = 0;
    for (const data::Rollout& r : generation.rollouts) {
      tokens += detail::drawn_tokens(r);
      data::each_row(r, [&](const data::Rollout& row) { tokens += static_cast<std::int64_t>(row.prompt_ids.size()); });
    }
    return tokens;
  }

  // One generate call and one call of each reward function for a piece; a piece is scored while the next is generated.
  // Completions are those of a generation in one.
  Made produce_in_pieces(std::int64_t number, std::int64_t step, const std::vector<std::size_t>& chosen,
                         const Pieces& pieces) {
    Made made{.number = number, .generation = std::make_shared<Generation>(), .tokens = 0, .about = {}};
    Generation& whole = *made.generation;
    const auto copies = static_cast<std::size_t>(config_.geometry.num_generations);
    whole.rollouts.resize(chosen.size() * copies);
    for (std::size_t p = 0; p < chosen.size(); ++p) whole.groups.append(copies);
    std::vector<double> weights;
    for (const WeightedReward& reward : rewards_) weights.push_back(reward.weight);
    whole.rewards = core::RewardTable(reward_names(), std::move(weights), whole.rollouts.size());
    const inference::SamplingConfig sampling = sampling_of(chosen);
    detail::CompletionLengths lengths;
    double generating = 0, rewarding = 0;
    std::future<void> scoring;  // of the piece before; it ends before what it writes to
    for (std::size_t begin = 0; begin < chosen.size();) {
      const std::size_t count = std::min(static_cast<std::size_t>(pieces.groups), chosen.size() - begin);
      const os::Stopwatch watch;
      const auto piece =
          detail::generate(*generator_, std::span<const data::TokenizedPrompt>(prompts_),
                           std::span(chosen).subspan(begin, count), config_.geometry.num_generations, sampling,
                           {config_.seed, static_cast<std::uint64_t>(number)}, weights_version_(), begin);
      generating += watch.seconds();
      made.tokens += tokens_of(*piece);
      if (scoring.valid()) scoring.get();
      scoring = std::async(std::launch::async, [&, piece, first = begin * copies] {
        rewarding += detail::score_piece(*piece, rewards_, decode_, config_.sampling,
                                         config_.mask_truncated_completions, step, lengths, made.about);
        const std::size_t rows = piece->rollouts.size();
        for (std::size_t i = 0; i < rows; ++i) {
          whole.rollouts[first + i] = std::move(piece->rollouts[i]);
          for (std::size_t k = 0; k < rewards_.size(); ++k) whole.rewards(first + i, k) = piece->rewards(i, k);
        }
        pieces.finished(made.generation, first + rows);
      });
      begin += count;
    }
    if (scoring.valid()) scoring.get();
    if (config_.count_tokens) made.about.metrics.last("num_tokens", static_cast<double>(num_tokens_ + made.tokens));
    detail::score_whole(whole, lengths, made.about);
    made.about.seconds = {{"generate", generating}, {"reward", rewarding}};
    num_tokens_ += made.tokens;
    return made;
  }

  // This rank's share of the groups, and those that the others made of theirs; so many groups of each rank at a time.
  // Completions are those of one rank.
  Made produce_together(std::int64_t number, std::int64_t step, const std::vector<std::size_t>& chosen,
                        const Pieces& pieces) {
    const auto copies = static_cast<std::size_t>(config_.geometry.num_generations);
    const auto ranks = static_cast<std::size_t>(config_.world->size());
    const std::size_t most = pieces.groups > 0 ? static_cast<std::size_t>(pieces.groups) * ranks : chosen.size();
    Made made{.number = number, .generation = std::make_shared<Generation>(), .tokens = 0, .about = {}};
    Generation& whole = *made.generation;
    whole.rollouts.resize(chosen.size() * copies);
    for (std::size_t p = 0; p < chosen.size(); ++p) whole.groups.append(copies);
    std::vector<double> weights;
    for (const WeightedReward& reward : rewards_) weights.push_back(reward.weight);
    whole.rewards = core::RewardTable(reward_names(), std::move(weights), whole.rollouts.size());
    detail::CompletionLengths lengths;
    double generating = 0, rewarding = 0;
    for (std::size_t begin = 0; begin < chosen.size();) {
      const distributed::Share piece{begin, std::min(chosen.size(), begin + most)};
      add_together(made, step, chosen, piece, lengths, generating, rewarding);
      begin = piece.end;
      if (pieces.groups > 0) pieces.finished(made.generation, begin * copies);
    }
    if (config_.count_tokens) made.about.metrics.last("num_tokens", static_cast<double>(num_tokens_ + made.tokens));
    detail::score_whole(whole, lengths, made.about);
    made.about.seconds = {{"generate", generating}, {"reward", rewarding}};
    num_tokens_ += made.tokens;
    return made;
  }

  // The groups of `piece` among those that were chosen.
  void add_together(Made& made, std::int64_t step, const std::vector<std::size_t>& chosen, distributed::Share piece,
                    detail::CompletionLengths& all_lengths, double& generating, double& rewarding) {
    distributed::World& world = *config_.world;
    const std::int64_t number = made.number, copies = config_.geometry.num_generations;
    const std::span<const std::size_t> groups = std::span(chosen).subspan(piece.begin, piece.size());
    const auto groups_of = [&](int rank) {
      const distributed::Share share = world.share(groups.size(), rank);
      return groups.subspan(share.begin, share.size());
    };
    std::unique_lock<std::mutex> held;
    const auto lock = [&] {
      if (config_.mutex != nullptr) held = std::unique_lock(*config_.mutex);
    };
    const os::Stopwatch watch;
    Made own{.number = number, .generation = nullptr, .tokens = 0, .about = {}};
    if (inference::source_of(*generator_) == inference::WeightSource::remote) {
      std::shared_ptr<Generation> all;
      if (world.rank() == 0) {
        lock();
        all = make_share(number, chosen, groups);
        held = {};
      }
      own.generation = scattered(number, {groups.begin(), groups.end()}, std::move(all));
      lock();
    } else {
      lock();
      own.generation = make_share(number, chosen, groups_of(world.rank()));
    }
    generating += watch.seconds();
    own.tokens = tokens_of(*own.generation);
    detail::CompletionLengths lengths;
    if (!own.generation->rollouts.empty())
      rewarding += detail::score_piece(*own.generation, rewards_, decode_, config_.sampling,
                                       config_.mask_truncated_completions, step, lengths, own.about);
    held = {};
    Json packed = detail::pack_made(own);
    packed["lengths"] = detail::pack_lengths(lengths);
    packed["episodes"] = detail::pack_episodes(*own.generation);

    std::size_t row = piece.begin * static_cast<std::size_t>(copies);
    const std::vector<std::string> parts =
        world.gather("completions", packed.dump(-1, ' ', false, Json::error_handler_t::replace));
    for (int r = 0; r < world.size(); ++r) {
      const Json part = Json::parse(parts[static_cast<std::size_t>(r)]);
      const auto of_rank = groups_of(r);
      Made theirs = r == world.rank() ? std::move(own)
                                      : detail::unpack_made(part, prompts_, {of_rank.begin(), of_rank.end()}, copies);
      if (r != world.rank()) detail::unpack_episodes(part.at("episodes"), *theirs.generation);
      all_lengths.merge(detail::unpack_lengths(part.at("lengths")));
      made.tokens += theirs.tokens;
      made.about.metrics.merge(theirs.about.metrics);
      for (std::string& warning : theirs.about.warnings) made.about.warnings.push_back(std::move(warning));
      place(*made.generation, row, std::move(*theirs.generation), r != world.rank());
    }
  }

  // `groups`: of `chosen`, this rank's. Without any there are no rows, but the names of the rewards.
  std::shared_ptr<Generation> make_share(std::int64_t number, const std::vector<std::size_t>& chosen,
                                         std::span<const std::size_t> groups) {
    if (!groups.empty() || config_.mutex != nullptr)
      return detail::generate(*generator_, std::span<const data::TokenizedPrompt>(prompts_), groups,
                              config_.geometry.num_generations, sampling_of(chosen),
                              {config_.seed, static_cast<std::uint64_t>(number)}, weights_version_(),
                              static_cast<std::size_t>(groups.data() - chosen.data()));
    return make_empty();
  }
  [[nodiscard]] std::shared_ptr<Generation> make_empty() const {
    auto none = std::make_shared<Generation>();
    std::vector<double> weights;
    for (const WeightedReward& reward : rewards_) weights.push_back(reward.weight);
    none->rewards = core::RewardTable(reward_names(), std::move(weights), 0);
    return none;
  }

  // This rank's share of what rank 0 got from the server.
  std::shared_ptr<Generation> scattered(std::int64_t number, const std::vector<std::size_t>& chosen,
                                        std::shared_ptr<Generation> all) {
    distributed::World& world = *config_.world;
    const std::int64_t copies = config_.geometry.num_generations;
    Json packed;
    if (world.rank() == 0) {
      packed = detail::pack_generation(*all, number);
      packed["episodes"] = detail::pack_episodes(*all);
    }
    const std::string bytes = world.broadcast(
        "completions of the server",
        world.rank() == 0 ? packed.dump(-1, ' ', false, Json::error_handler_t::replace) : std::string());
    if (world.rank() > 0) {
      packed = Json::parse(bytes);
      all = detail::unpack_generation(packed, prompts_, chosen, copies);
      detail::unpack_episodes(packed.at("episodes"), *all);
    }
    const distributed::Share share = world.share(chosen.size());
    auto own = make_empty();
    const auto size = static_cast<std::size_t>(copies);
    for (std::size_t i = share.begin * size; i < share.end * size; ++i)
      own->rollouts.push_back(std::move(all->rollouts[i]));
    for (std::size_t g = share.begin; g < share.end; ++g) own->groups.append(size);
    return own;
  }

  // At `row`, which moves on.
  void place(Generation& whole, std::size_t& row, Generation&& part, bool decodes) const {
    for (std::size_t i = 0; i < part.rollouts.size(); ++i, ++row) {
      if (decodes) detail::decode_rows(part.rollouts[i], decode_);
      for (std::size_t k = 0; k < rewards_.size(); ++k) whole.rewards(row, k) = part.rewards(i, k);
      whole.rollouts[row] = std::move(part.rollouts[i]);
    }
  }

  // They are made again: draws are a function of the number.
  void take_back(std::vector<Made> made) {
    for (const Made& one : made) num_tokens_ -= one.tokens;
  }

  [[nodiscard]] inference::SamplingConfig sampling_of(const std::vector<std::size_t>& chosen) const {
    inference::SamplingConfig out = config_.sampling;
    if (!config_.completion_limit) return out;
    std::int64_t limit = 1;
    for (const std::size_t i : chosen) limit = std::max(limit, config_.completion_limit(prompts_[i]));
    out.max_new_tokens = std::min(out.max_new_tokens, limit);
    return out;
  }

  std::vector<data::TokenizedPrompt> prompts_;
  G* generator_;
  std::vector<WeightedReward> rewards_;
  Decode decode_;
  RolloutsConfig config_;
  std::function<std::int64_t()> weights_version_;
  RepeatOrder order_;
  std::int64_t num_tokens_ = 0;
};

}  // namespace rlalgo::sampler
