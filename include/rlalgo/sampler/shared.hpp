// A generation that several ranks make together: each makes its share of the groups and has all of them.
//
//   engine     rank r draws and scores the groups of its share ─┐
//   server     rank 0 asks for all groups ─► others get theirs  ├─► gather: every rank has every completion, with its reward
//              rank r scores the groups of its share           ─┘
//
// Shares are neighbours, of equal size but for one group (World::share), so completions are the same on one rank and on many, and
// what is computed over a generation (advantages, metrics, the state) is the same on all ranks. A reward function sees the
// completions of its rank. A server is asked as one rank would ask it. Where so many groups are finished at a time
// (GenerationCall::groups), they are so many of each rank. On one rank everything is that of the source within.
// What ranks send each other: detail/generation_wire.hpp. Measured: docs/distributed.md.
// Errors: [rlalgo.sampler.10] what another rank sent cannot be read; those of the source and of the World.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/distributed/world.hpp>
#include <rlalgo/inference/generator.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/sampler/batch.hpp>
#include <rlalgo/sampler/detail/generation_wire.hpp>
#include <rlalgo/sampler/detail/growing_generation.hpp>
#include <rlalgo/sampler/generation_batches.hpp>
#include <rlalgo/sampler/open_generation.hpp>

namespace rlalgo::sampler {

struct SharedConfig {
  std::shared_ptr<distributed::World> world = nullptr;  // the ranks that generate together; null: one
  // Of several ranks: held while this one generates and scores its share, never while it waits for others; for samplers that
  // share generator and rewards. With it, the generator is asked for an empty share, too: it may have to agree with others.
  std::shared_ptr<std::mutex> mutex = nullptr;
};

// A source that draws and scores some groups of a generation by themselves.
template <class S>
concept DrawsParts = GenerationSource<S> &&
    requires(S& source, const S& known, std::int64_t number, const std::vector<std::size_t>& chosen, std::size_t group,
             detail::GenerationPart& part, detail::GrowingGeneration& generation, const std::vector<Made>& made) {
  { source.draw(number, chosen, group, group) } -> std::same_as<detail::GenerationPart>;
  { known.score(part, number) } -> std::same_as<void>;
  { source.complete(generation) } -> std::same_as<void>;
  { source.take_back(made) } -> std::same_as<void>;
};

template <class S>
class Shared : public GenerationBatches<Shared<S>> {
  static_assert(
      DrawsParts<S>,
      "sampler::Shared<Sampler>: the sampler within does not draw parts of a generation; it needs `draw(number, "
      "prompts, begin, end)`, `score(part, step) const`, `complete(generation)` and `take_back(made)` "
      "(sampler::Rollouts has them; combinators stand around Shared, not within)");

 public:
  using Config = SharedConfig;
  using Generator = typename S::Generator;

  Shared(SharedConfig config, std::shared_ptr<S> source) : config_(std::move(config)), source_(std::move(source)) {}

  [[nodiscard]] const auto& root() const { return source_->root(); }

  [[nodiscard]] std::unique_ptr<OpenGeneration> open(GenerationCall call) {
    if (is_alone()) return source_->open(std::move(call));
    return std::make_unique<Together>(*this, std::move(call));
  }
  // Ranks meet after every part: of several none runs ahead.
  [[nodiscard]] bool draws_ahead() const { return is_alone() && source_->draws_ahead(); }

  [[nodiscard]] std::function<Json()> capture() const { return source_->capture(); }
  void restore_source(const Json& state) { source_->restore_source(state); }
  void take_back(const std::vector<Made>& made) { source_->take_back(made); }

 private:
  class Together final : public detail::GrowingGeneration {
   public:
    Together(Shared& shared, GenerationCall call)
        : GrowingGeneration(call.number, static_cast<std::size_t>(shared.geometry().prompts()), shared.copies(),
                            shared.source_->other_prompts(call), shared.source_->rewards()),
          shared_(shared),
          call_(std::move(call)),
          chosen_(shared.source_->prompts_of(call_)) {}

    std::size_t pull() override {
      const std::size_t begin = rows() / shared_.copies(), left = chosen_.size() - begin;
      const auto most = static_cast<std::size_t>(call_.groups) * static_cast<std::size_t>(shared_.world().size());
      const distributed::Share piece{begin, begin + (call_.groups > 0 ? std::min(left, most) : left)};
      detail::GenerationPart own = shared_.make_share(call_, chosen_, piece);
      generating_ += own.generating;  // of this rank, not of the others
      rewarding_ += own.rewarding;
      const std::vector<std::string> parts = shared_.world().gather("completions", detail::pack_part(own));
      for (int rank = 0; rank < shared_.world().size(); ++rank) {
        const bool mine = rank == shared_.world().rank();
        detail::GenerationPart part =
            mine ? std::move(own) : shared_.unpack(parts[static_cast<std::size_t>(rank)], chosen_, piece, rank);
        note(part);
        add(std::move(*part.generation));
      }
      if (has_all_rows()) shared_.source_->complete(*this);
      return finish_rows(rows());
    }

   private:
    Shared& shared_;
    GenerationCall call_;
    std::vector<std::size_t> chosen_;
  };

  [[nodiscard]] bool is_alone() const { return config_.world == nullptr || config_.world->size() == 1; }
  [[nodiscard]] distributed::World& world() const { return *config_.world; }
  [[nodiscard]] std::size_t copies() const { return static_cast<std::size_t>(this->geometry().num_generations); }

  // The groups of `piece` that a rank makes, by their places in the generation.
  [[nodiscard]] distributed::Share share_of(const distributed::Share& piece, int rank) const {
    const distributed::Share share = world().share(piece.size(), rank);
    return {piece.begin + share.begin, piece.begin + share.end};
  }

  [[nodiscard]] std::unique_lock<std::mutex> lock() const {
    return config_.mutex == nullptr ? std::unique_lock<std::mutex>() : std::unique_lock(*config_.mutex);
  }

  detail::GenerationPart make_share(const GenerationCall& call, const std::vector<std::size_t>& chosen,
                                    const distributed::Share& piece) {
    const distributed::Share share = share_of(piece, world().rank());
    std::unique_lock<std::mutex> held;
    detail::GenerationPart own;
    const os::Stopwatch watch;
    if (inference::source_of(root().generator()) == inference::WeightSource::remote) {
      own = scatter(call, chosen, piece, share);
      held = lock();
    } else {
      held = lock();
      own = draw(call, chosen, share);
    }
    own.generating = watch.seconds();  // with the wait for a server that rank 0 asks
    source_->score(own, call.step);
    return own;
  }

  detail::GenerationPart draw(const GenerationCall& call, const std::vector<std::size_t>& chosen,
                              const distributed::Share& groups) {
    if (groups.size() > 0 || config_.mutex != nullptr)
      return source_->draw(call.number, chosen, groups.begin, groups.end);
    detail::GenerationPart none;
    none.generation = std::make_shared<Generation>();
    return none;
  }

  // This rank's share of what rank 0 got from the server.
  detail::GenerationPart scatter(const GenerationCall& call, const std::vector<std::size_t>& chosen,
                                 const distributed::Share& piece, const distributed::Share& share) {
    detail::GenerationPart all;
    if (world().rank() == 0) {
      const auto held = lock();
      all = draw(call, chosen, piece);
    }
    const std::string bytes =
        world().broadcast("completions of the server", world().rank() == 0 ? detail::pack_part(all) : std::string());
    if (world().rank() > 0)
      all = detail::unpack_part(bytes, {.prompts = root().prompts(),
                                        .chosen = std::span(chosen).subspan(piece.begin, piece.size()),
                                        .copies = copies()});
    detail::GenerationPart own;
    own.generation = std::make_shared<Generation>();
    for (std::size_t g = share.begin - piece.begin; g < share.end - piece.begin; ++g) {
      for (std::size_t i = g * copies(); i < (g + 1) * copies(); ++i)
        own.generation->episodes.push_back(std::move(all.generation->episodes[i]));
      own.generation->groups.append(copies());
    }
    return own;
  }

  [[nodiscard]] detail::GenerationPart unpack(const std::string& bytes, const std::vector<std::size_t>& chosen,
                                              const distributed::Share& piece, int rank) const {
    const distributed::Share share = share_of(piece, rank);
    detail::GenerationPart part =
        detail::unpack_part(bytes, {.prompts = root().prompts(),
                                    .chosen = std::span(chosen).subspan(share.begin, share.size()),
                                    .copies = copies(),
                                    .rewards = source_->rewards(),
                                    .rank = rank});
    for (data::Episode& r : part.generation->episodes)
      detail::decode_rows(r, [&](auto ids) { return root().decode(ids); });
    return part;
  }

  SharedConfig config_;
  std::shared_ptr<S> source_;
};

}  // namespace rlalgo::sampler
