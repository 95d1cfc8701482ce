// Cuts generations into the batches of optimizer steps: what all samplers of completions share, plain or combined.
//
// A sampler of completions is a source of numbered generations, and this base around it, which makes it a
// sampler::Sampler by the geometry of geometry.hpp. So combinators nest: each takes the source within, adds something to
// the generations that pass through, and is a sampler like the one within.
//
//   open(call)              generation `call.number` as one that is asked for more of itself (open_generation.hpp). An exception, of
//                           opening it or of asking, leaves the source as it was. Asked for in order
//   capture()               a function that gives what the source knows after the latest generation, as an object; called
//                           later, it does not touch the source
//   restore_source(state)   the inverse; an exception leaves the source as it was
//   root()                  the sampler::Rollouts at the bottom: prompts, their order, settings
//   draws_ahead()           whether a generation may be drawn (OpenGeneration::draw) while the one before is scored
//
// A combinator with nothing to add while a generation is made has produce(call) within and gives WholeGeneration(made).
//
// Errors: [rlalgo.sampler.7] a state that belongs to another run, or is damaged; [rlalgo.sampler.11] a micro-batch was asked for, and no step
// is open.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/sampler/batch.hpp>
#include <rlalgo/sampler/concept.hpp>
#include <rlalgo/sampler/detail/generation_state.hpp>
#include <rlalgo/sampler/detail/score_generation.hpp>
#include <rlalgo/sampler/geometry.hpp>
#include <rlalgo/sampler/open_generation.hpp>
#include <rlalgo/sampler/rollout_rows.hpp>

namespace rlalgo::sampler {

using Json = nlohmann::ordered_json;

// What GenerationBatches cuts into batches: generations, made one after another, with a state of their own.
template <class S>
concept GenerationSource = requires(S& source, const S& known, const GenerationCall& call, const Json& state) {
  typename S::Generator;
  { source.open(call) } -> std::same_as<std::unique_ptr<OpenGeneration>>;
  { known.draws_ahead() } -> std::same_as<bool>;
  { known.capture() } -> std::same_as<std::function<Json()>>;
  { source.restore_source(state) } -> std::same_as<void>;
  { known.root().geometry() } -> std::convertible_to<Geometry>;
};

// `Self` derives from this and is a GenerationSource.
template <class Self>
class GenerationBatches {
 public:
  using Batch = RolloutBatch;
  using Rows = RolloutRows;
  static constexpr Hooks hooks{.generates = true, .needs_weights = true};

  [[nodiscard]] const Geometry& geometry() const { return self().root().config().geometry; }
  [[nodiscard]] std::int64_t dataset_size() const { return static_cast<std::int64_t>(self().root().prompts().size()); }
  // Optimizer steps of one pass over the dataset.
  [[nodiscard]] std::int64_t steps() const { return geometry().steps(dataset_size(), 1.0); }
  // Whether next(step) will ask the source.
  [[nodiscard]] bool needs_weights(std::int64_t step) const {
    const std::int64_t first = step * geometry().gradient_accumulation_steps;
    const std::int64_t last = first + geometry().gradient_accumulation_steps - 1;
    return !current_ || geometry().generation_of(first) != current_number_ ||
           geometry().generation_of(last) != current_number_;
  }

  // An exception leaves the sampler as it was.
  Batch next(std::int64_t step) {
    std::vector<Made> made = obtain(step);
    return cut(step, std::move(made));
  }

  // Generation `call.number`, in one.
  Made produce(GenerationCall call) { return finish(*self().open(std::move(call))); }

  [[nodiscard]] Json state() const {
    Json out = fingerprint();
    out["next_step"] = next_step_;
    out.update(self().capture()());
    const bool unfinished =
        current_ && geometry().generation_of(next_step_ * geometry().gradient_accumulation_steps) == current_number_;
    out["generation"] = unfinished ? detail::pack_generation(*current_, current_number_) : Json();
    if (!kept_.empty()) out["kept"] = pack_all(kept_);
    return out;
  }

  void restore(const Json& state) {
    try {
      restore_checked(state);
    } catch (const nlohmann::json::exception& e) {
      detail::raise_state("the state is damaged", core::json_reason(e.what()));
    }
  }

 protected:
  GenerationBatches() = default;

  // Generations that a step obtained and could not use, since another one failed: the next try has them.
  void take_back(std::vector<Made> made) {
    for (Made& one : made) kept_.push_back(std::move(one));
  }

  template <class List>
  [[nodiscard]] static Json pack_all(const List& list) {
    Json out = Json::array();
    for (const Made& one : list) out.push_back(detail::pack_made(one));
    return out;
  }
  [[nodiscard]] std::vector<Made> unpack_all(const Json& packed) const {
    std::vector<Made> out;
    for (const Json& one : packed) {
      const auto& root = self().root();
      out.push_back(detail::unpack_made(one, root.prompts(), chunk(one.at("number").template get<std::int64_t>()),
                                        geometry().num_generations));
      decode(*out.back().generation);
    }
    return out;
  }

  // --- of a sampler that streams: a step whose rows come one micro-batch after the other

  // Of what self().open gives, so many groups at a time.
  Batch begin_stream(std::int64_t step, std::int64_t groups) {
    abandon_stream();
    const Geometry& g = geometry();
    Batch batch;
    batch.reward_names = self().root().reward_names();
    batch.parts.assign(static_cast<std::size_t>(g.gradient_accumulation_steps),
                       std::vector<data::Episode*>(static_cast<std::size_t>(g.micro_batch_size), nullptr));
    batch.pulled = 0;
    stream_ =
        Stream{.step = step, .groups = groups, .before = current_, .number_before = current_number_, .opened = {}};
    return batch;
  }

  // The next micro-batch of the batch that begin_stream gave.
  void pull_stream(Batch& batch) {
    if (!stream_ || !batch.is_open())
      core::raise("sampler", 11,
                  {.what = "the next micro-batch was asked for, and no step is open",
                   .remedy = "call next(step) first, and pull() once for each micro-batch of its batch"});
    try {
      grow(batch, static_cast<std::int64_t>(batch.pulled));
    } catch (...) {
      abandon_stream();
      throw;
    }
    if (++batch.pulled == batch.parts.size()) stream_.reset();
  }

 private:
  [[nodiscard]] Self& self() { return static_cast<Self&>(*this); }
  [[nodiscard]] const Self& self() const { return static_cast<const Self&>(*this); }

  [[nodiscard]] Json fingerprint() const {
    const auto& config = self().root().config();
    return detail::fingerprint(config.geometry, config.seed, config.shuffle, self().root().prompts().size());
  }
  [[nodiscard]] std::vector<std::size_t> chunk(std::int64_t number) const {
    if (number < 0) detail::raise_state("a generation without a number", std::to_string(number));
    return self().root().order().chunk(static_cast<std::uint64_t>(number));
  }
  void decode(Generation& generation) const {
    for (data::Episode& r : generation.episodes)
      detail::decode_rows(r, [&](auto ids) { return self().root().decode(ids); });
  }

  // The generations that step `step` needs beside the current one, in order.
  std::vector<Made> obtain(std::int64_t step) {
    const Geometry& g = geometry();
    std::vector<Made> made;
    std::int64_t have = current_ ? current_number_ : -1;
    try {
      for (std::int64_t j = 0; j < g.gradient_accumulation_steps; ++j) {
        const std::int64_t number = g.generation_of(step * g.gradient_accumulation_steps + j);
        if (number == have) continue;
        made.push_back(obtain_one(number, step));
        have = number;
      }
    } catch (...) {
      self().take_back(std::move(made));
      throw;
    }
    return made;
  }

  Made obtain_one(std::int64_t number, std::int64_t step) {
    if (kept_.empty() || kept_.front().number != number) return self().produce({.number = number, .step = step});
    Made out = std::move(kept_.front());
    kept_.erase(kept_.begin());
    return out;
  }

  struct Stream {
    std::int64_t step = 0;
    std::int64_t groups = 0;
    std::shared_ptr<Generation> before;  // current_ and current_number_ as they were
    std::int64_t number_before = -1;
    std::vector<std::unique_ptr<OpenGeneration>> opened;  // of this step, in order; the last one may still be made
    std::size_t kept = 0;                                 // those of them, the first ones, that were in kept_
    std::size_t rows = 0;                                 // of the last one, that are in the batch
  };

  // As if the step that is open had not begun.
  void abandon_stream() {
    if (!stream_) return;
    Stream stream = std::move(*stream_);
    stream_.reset();
    current_ = std::move(stream.before);
    current_number_ = stream.number_before;
    std::vector<Made> made;
    for (const auto& one : stream.opened) made.push_back(std::move(one->made()));
    const auto first_new = made.begin() + static_cast<std::ptrdiff_t>(stream.kept);
    self().take_back(std::vector<Made>(std::make_move_iterator(first_new), std::make_move_iterator(made.end())));
    kept_.insert(kept_.begin(), std::make_move_iterator(made.begin()), std::make_move_iterator(first_new));
  }

  void open_next(Stream& stream, std::int64_t number) {
    if (!kept_.empty() && kept_.front().number == number) {
      stream.opened.push_back(std::make_unique<WholeGeneration>(obtain_one(number, stream.step)));
      ++stream.kept;
    } else {
      stream.opened.push_back(self().open({.number = number, .step = stream.step, .groups = stream.groups}));
    }
    stream.rows = 0;
    current_number_ = number;
  }

  // Adds micro-batch number j.
  void grow(Batch& batch, std::int64_t j) {
    const Geometry& g = geometry();
    Stream& stream = *stream_;
    const std::int64_t micro_step = stream.step * g.gradient_accumulation_steps + j;
    const std::int64_t number = g.generation_of(micro_step);
    const bool ends = j + 1 == g.gradient_accumulation_steps;
    if (!current_ || current_number_ != number) open_next(stream, number);
    const std::int64_t begin = g.slice_of(micro_step) * g.micro_batch_size;
    if (!stream.opened.empty() && stream.opened.back()->made().number == number) {
      OpenGeneration& open = *stream.opened.back();
      const std::int64_t groups = (begin + g.micro_batch_size + g.num_generations - 1) / g.num_generations;
      const bool last = ends || g.generation_of(micro_step + 1) != number;
      const auto rows = static_cast<std::size_t>(last ? g.completions() : groups * g.num_generations);
      while (open.finished() < rows) open.pull();
      current_ = open.made().generation;
      // No more than are needed, whatever is finished: which rows are completed together does not depend on the clock.
      if (rows > stream.rows) batch.fresh.emplace_back(current_, std::exchange(stream.rows, rows), rows);
      if (last) tell(open.made().about, batch);
    }
    if (batch.owners.empty() || batch.owners.back() != current_) batch.owners.push_back(current_);
    std::vector<data::Episode*>& part = batch.parts[static_cast<std::size_t>(j)];
    for (std::size_t i = 0; i < part.size(); ++i) part[i] = &current_->episodes[static_cast<std::size_t>(begin) + i];
    if (ends) next_step_ = stream.step + 1;
  }

  Batch cut(std::int64_t step, std::vector<Made> made) {
    const Geometry& g = geometry();
    Batch batch;
    batch.seconds = {{"generate", 0.0}, {"reward", 0.0}};
    batch.reward_names = self().root().reward_names();
    auto next = made.begin();
    for (std::int64_t j = 0; j < g.gradient_accumulation_steps; ++j) {
      const std::int64_t micro_step = step * g.gradient_accumulation_steps + j;
      if (const std::int64_t number = g.generation_of(micro_step); !current_ || current_number_ != number) {
        current_ = next->generation;
        current_number_ = number;
        tell(next->about, batch);
        batch.fresh.push_back(current_);
        ++next;
      }
      if (batch.owners.empty() || batch.owners.back() != current_) batch.owners.push_back(current_);
      std::vector<data::Episode*> part;
      const std::int64_t begin = g.slice_of(micro_step) * g.micro_batch_size;
      for (std::int64_t i = begin; i < begin + g.micro_batch_size; ++i)
        part.push_back(&current_->episodes[static_cast<std::size_t>(i)]);
      batch.parts.push_back(std::move(part));
    }
    next_step_ = step + 1;
    return batch;
  }

  static void tell(RolloutBatch& about, Batch& batch) {
    batch.metrics.merge(about.metrics);
    for (const auto& [name, value] : about.seconds) {
      const auto found = std::find_if(batch.seconds.begin(), batch.seconds.end(),
                                      [&name = name](const auto& entry) { return entry.first == name; });
      if (found == batch.seconds.end())
        batch.seconds.emplace_back(name, value);
      else
        found->second += value;
    }
    for (std::string& warning : about.warnings) batch.warnings.push_back(std::move(warning));
  }

  void restore_checked(const Json& state) {
    detail::check_fingerprint(state, fingerprint());
    const auto next_step = state.at("next_step").template get<std::int64_t>();
    std::shared_ptr<Generation> current;
    std::int64_t number = -1;
    if (const auto& packed = state.at("generation"); !packed.is_null()) {
      number = packed.at("number").template get<std::int64_t>();
      const Geometry& g = geometry();
      if (next_step < 0 || number != g.generation_of(next_step * g.gradient_accumulation_steps))
        detail::raise_state("a generation that the next step does not use", std::to_string(number));
      current = detail::unpack_generation(packed, self().root().prompts(), chunk(number), g.num_generations);
      decode(*current);
    }
    std::vector<Made> kept = unpack_all(state.value("kept", Json::array()));
    self().restore_source(state);
    stream_.reset();
    next_step_ = next_step;
    current_ = std::move(current);
    current_number_ = number;
    kept_ = std::move(kept);
  }

  std::shared_ptr<Generation> current_;
  std::int64_t current_number_ = -1;
  std::int64_t next_step_ = 0;
  std::vector<Made> kept_;
  std::optional<Stream> stream_;  // the step that is open
};

}  // namespace rlalgo::sampler
