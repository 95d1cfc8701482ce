// The sampler of online RL: prompts → completions of the current policy → rewards → the rows of one optimizer step.
//
// A generation serves S·μ micro-steps (sampler/geometry.hpp); next(k) cuts the rows of optimizer step k into
// micro-batches and generates whenever the next micro-step needs a generation that is not there. Everything that is
// random is a function of (seed, generation number, completion index, token position).
// Where a generation is finished so many groups at a time (GenerationCall::groups), they are one call of the generator and of each
// reward function, and scored while the next groups are drawn. Completions are those of a generation in one.
// Several ranks share a generation with sampler/shared.hpp around this.
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
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/data/rollout.hpp>
#include <rlalgo/inference/generator.hpp>
#include <rlalgo/loss/concept.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/sampler/batch.hpp>
#include <rlalgo/sampler/concept.hpp>
#include <rlalgo/sampler/detail/growing_generation.hpp>
#include <rlalgo/sampler/detail/score_generation.hpp>
#include <rlalgo/sampler/generation_batches.hpp>
#include <rlalgo/sampler/geometry.hpp>
#include <rlalgo/sampler/open_generation.hpp>
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

  [[nodiscard]] std::unique_ptr<OpenGeneration> open(GenerationCall call) {
    return std::make_unique<Drawn>(*this, std::move(call));
  }
  [[nodiscard]] bool draws_ahead() const { return true; }

  // --- for combinators that make a generation of parts of their own (shared.hpp)

  // Indices of the prompts, one for each group.
  [[nodiscard]] std::vector<std::size_t> prompts_of(const GenerationCall& call) const {
    return call.prompts.empty() ? order_.chunk(static_cast<std::uint64_t>(call.number)) : call.prompts;
  }
  // Generation::prompts.
  [[nodiscard]] std::vector<std::size_t> other_prompts(const GenerationCall& call) const {
    if (call.prompts.empty() || call.prompts == order_.chunk(static_cast<std::uint64_t>(call.number))) return {};
    return call.prompts;
  }
  // The groups [begin, end) of those of `chosen`, the prompts of generation `number`; one call of the generator, also for none.
  detail::GenerationPart draw(std::int64_t number, const std::vector<std::size_t>& chosen, std::size_t begin,
                              std::size_t end) {
    detail::GenerationPart part;
    const os::Stopwatch watch;
    part.generation = detail::generate(*generator_, std::span<const data::TokenizedPrompt>(prompts_),
                                       std::span(chosen).subspan(begin, end - begin), config_.geometry.num_generations,
                                       sampling_of(chosen), {config_.seed, static_cast<std::uint64_t>(number)},
                                       weights_version_(), begin);
    part.generating = watch.seconds();
    return part;
  }
  void score(detail::GenerationPart& part, std::int64_t step) const {
    detail::score(part, rewards_, decode_, config_.sampling, config_.mask_truncated_completions, step);
  }
  // With all rows of it: the run has its tokens.
  void complete(detail::GrowingGeneration& generation) {
    const std::int64_t tokens = num_tokens_ + generation.made().tokens;
    generation.complete(config_.count_tokens ? std::optional(tokens) : std::nullopt);
    num_tokens_ = tokens;
  }
  [[nodiscard]] std::span<const WeightedReward> rewards() const noexcept { return rewards_; }
  // What a step could not use is made again: draws are a function of the number.
  void take_back(const std::vector<Made>& made) {
    for (const Made& one : made) num_tokens_ -= one.tokens;
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

  class Drawn final : public detail::GrowingGeneration {
   public:
    Drawn(Rollouts& source, GenerationCall call)
        : GrowingGeneration(call.number, static_cast<std::size_t>(source.config_.geometry.prompts()),
                            static_cast<std::size_t>(source.config_.geometry.num_generations),
                            source.other_prompts(call), source.rewards_),
          source_(source),
          call_(std::move(call)),
          chosen_(source.prompts_of(call_)) {}

    void draw() override {
      if (!drawn_) drawn_ = next_.valid() ? next_.get() : draw_next();
    }
    std::size_t pull() override {
      draw();
      detail::GenerationPart part = std::move(*std::exchange(drawn_, std::nullopt));
      if (begun_ < chosen_.size()) next_ = std::async(std::launch::async, [this] { return draw_next(); });
      source_.score(part, call_.step);
      generating_ += part.generating;
      rewarding_ += part.rewarding;
      note(part);
      add(std::move(*part.generation));
      if (has_all_rows()) source_.complete(*this);
      return finish_rows(rows());
    }

   private:
    detail::GenerationPart draw_next() {
      const std::size_t begin = begun_, left = chosen_.size() - begin;
      begun_ += call_.groups > 0 ? std::min(left, static_cast<std::size_t>(call_.groups)) : left;
      return source_.draw(call_.number, chosen_, begin, begun_);
    }

    Rollouts& source_;
    GenerationCall call_;
    std::vector<std::size_t> chosen_;
    std::size_t begun_ = 0;  // groups
    std::optional<detail::GenerationPart> drawn_;
    std::future<detail::GenerationPart> next_;  // last: it uses all the others until it ends
  };

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
