// How completions are made, put together by value from independent choices:
//
//   Completions plain(model, Engine());                                 this process draws, while training waits
//   Completions games(model, Engine(), Turns{environments, {dialogue(model)}}, Asynchronous());
//   Completions far(model, Server{.url = "http://gpu-7:8000"}, Plain(), Asynchronous(), Sharded{sharding}, {.world = world});
//
//   who draws             Engine  Server  ColocatedServer      concept Drawer, drawer.hpp
//   what a completion is  Plain  Turns  RolledOut  Agents      concept Form, form.hpp
//   when                  Synchronous  Asynchronous            concept Timing, timing.hpp
//   where weights lie     Whole  Sharded                       layout.hpp
//
// What comes of it is a generator and the sync policy that reaches it, each erased once, for trainer::OnlineInputs (online_inputs()
// below). A pair that does not fit does not compile; where both are chosen at run time (the constructor from variants) it is refused by
// name. The first signal of run/interrupt.hpp ends what the generator does. During asynchronous generation, generator and publishing of
// weights exclude each other where a change would show within a completion (sync/weight_gate.hpp).
//
// Errors: [rlalgo.assembly.1] agents ask a server, and this process's engine draws; those of the choices.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <ostream>
#include <stop_token>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <rlalgo/assembly/agents.hpp>
#include <rlalgo/assembly/colocated_server.hpp>
#include <rlalgo/assembly/drawer.hpp>
#include <rlalgo/assembly/engine.hpp>
#include <rlalgo/assembly/form.hpp>
#include <rlalgo/assembly/language_model.hpp>
#include <rlalgo/assembly/layout.hpp>
#include <rlalgo/assembly/model_inputs.hpp>
#include <rlalgo/assembly/rolled_out.hpp>
#include <rlalgo/assembly/server.hpp>
#include <rlalgo/assembly/timing.hpp>
#include <rlalgo/assembly/turns.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/distributed/world.hpp>
#include <rlalgo/inference/any_generator.hpp>
#include <rlalgo/run/interrupt.hpp>
#include <rlalgo/sampler/prefetch_config.hpp>
#include <rlalgo/sync/any_sync.hpp>
#include <rlalgo/sync/asynchronous.hpp>
#include <rlalgo/trainer/online.hpp>

namespace rlalgo::assembly {

// Choices that are made at run time.
using AnyDrawer = std::variant<Engine, Server, ColocatedServer>;
using AnyForm = std::variant<Plain, Turns, RolledOut, Agents>;
using AnyTiming = std::variant<Synchronous, Asynchronous>;
using AnyLayout = std::variant<Whole, Sharded>;

template <class D, class F>
inline constexpr bool fits = D::serves || !F::asks_server;

class Completions {
 public:
  struct Context {
    std::shared_ptr<distributed::World> world = std::make_shared<distributed::World>();  // the ranks of the run
    std::ostream& log = std::cerr;
  };

  // `model` and the log must outlive it.
  template <Drawer D, Form F = Plain, Timing T = Synchronous, class W = Whole>
  explicit Completions(const LanguageModel& model, const D& drawer, const F& form = {}, const T& timing = {},
                       const W& layout = {})
      : Completions(model, drawer, form, timing, layout, Context()) {}
  template <Drawer D, Form F, Timing T, class W>
  Completions(const LanguageModel& model, const D& drawer, const F& form, const T& timing, const W& layout,
              Context context)
      : world_(std::move(context.world)) {
    static_assert(fits<D, F>,
                  "assembly::Completions: agents ask a generation server, and assembly::Engine is none: choose "
                  "assembly::Server or "
                  "assembly::ColocatedServer");
    if constexpr (fits<D, F>) make(model, drawer, form, timing, layout, context.log);
  }
  Completions(const LanguageModel& model, const AnyDrawer& drawer, const AnyForm& form, const AnyTiming& timing,
              const AnyLayout& layout, Context context)
      : world_(std::move(context.world)) {
    std::visit(
        [&]<class D, class F, class T>(const D& who, const F& what, const T& when, const auto& where) {
          if constexpr (fits<D, F>)
            make(model, who, what, when, where, context.log);
          else
            core::raise_usage("assembly", 1,
                              {.what = "agents ask a generation server, and this process's engine draws",
                               .remedy = "choose a server, or one in this process"});
        },
        drawer, form, timing, layout);
  }
  Completions(const Completions&) = delete;

  [[nodiscard]] inference::AnyGenerator& generator() { return *generator_; }
  [[nodiscard]] const sync::AnySync& sync() const { return *sync_; }
  // Asked to stop, ends what generator() is doing; an interruption of the run asks it to.
  [[nodiscard]] const std::stop_source& stop() const { return stop_; }
  [[nodiscard]] const std::shared_ptr<distributed::World>& world() const { return world_; }

  // How far asynchronous generation runs ahead, as trainer::AsynchronousConfig has it, with what it must know of these completions.
  [[nodiscard]] sampler::PrefetchConfig ahead(sampler::PrefetchConfig config = {}) const {
    config.stop = stop_;
    config.progress = progress_;
    config.world = callers_;
    config.meanwhile = [gated = gated_](std::int64_t version) { gated.meanwhile(version); };
    if (callers_ != nullptr)
      config.meanwhile = [world = world_, own = std::move(config.meanwhile)](std::int64_t version) {
        world->check();
        own(version);
      };
    return config;
  }

 private:
  struct Stop {
    std::stop_source source;
    void operator()() { source.request_stop(); }
  };

  template <Drawer D, Form F, Timing T, class W>
  void make(const LanguageModel& model, const D& drawer, const F& form, const T& timing, const W& layout,
            std::ostream& log) {
    drawer.template open<T::asynchronous>({model, world_, log, stop_.get_token()},
                                          [&](auto drawn) { join<D::serves>(std::move(drawn), form, timing, layout); });
  }
  template <bool serves, class G, class Y, class F, class T, class W>
  void join(Drawn<G, Y> drawn, const F& form, const T& timing, const W& layout) {
    progress_ = drawn.progress;
    gated_.gate = drawn.gate;
    if constexpr (serves) gated_.publishers = layout.publishers(world_);
    const auto generator = form.around(drawn.generator, drawn.address);
    auto policy = layout.template policy<serves>(drawn);
    if constexpr (T::asynchronous || serves) {
      constexpr bool exclusive = F::exclusive || serves;
      gated_.exclusive = exclusive;
      if constexpr (T::asynchronous) gated_.schedule = timing.schedule;
      if (T::asynchronous && world_->size() > 1) callers_ = world_->duplicate("generation");
      gated_.gate->stop_with(stop_.get_token());
      if (!serves && callers_ != nullptr) {
        gated_.publishers.trainers = world_;
        gated_.callers.world = callers_;
      }
      if (!exclusive) gated_.callers.hold = drawn.hold;
      using Made = typename std::remove_cvref_t<decltype(*generator)>;
      keep(std::make_shared<sync::AsynchronousGenerator<Made>>(sync::asynchronous_generator(*generator, gated_)),
           generator);
      sync_.emplace(sync::asynchronous_sync(std::move(policy), gated_));
    } else {
      keep(generator, nullptr);
      sync_.emplace(std::move(policy));
    }
  }
  template <class G>
  void keep(std::shared_ptr<G> generator, std::shared_ptr<void> under) {
    generator_.emplace(*generator);
    owners_ = {std::move(under), std::move(generator)};
  }

  std::stop_source stop_;
  std::stop_callback<Stop> interrupted_{run::Interrupt::token(), Stop{stop_}};
  std::shared_ptr<distributed::World> world_, callers_;
  sync::Asynchronous gated_;
  std::function<std::uint64_t()> progress_;
  std::vector<std::shared_ptr<void>> owners_;
  std::optional<inference::AnyGenerator> generator_;
  std::optional<sync::AnySync> sync_;
};

// What model and completions say of the inputs of online training; rewards, prompts and what a method compares with are the caller's.
template <class R = trainer::NoReference>
[[nodiscard]] trainer::OnlineInputs<inference::AnyGenerator, sync::AnySync, R> online_inputs(
    const LanguageModel& model, Completions& completions, std::vector<data::TokenizedPrompt> prompts,
    std::vector<sampler::WeightedReward> rewards, const std::shared_ptr<Sharding>& sharding = nullptr) {
  trainer::OnlineInputs<inference::AnyGenerator, sync::AnySync, R> out{
      .policy = model.decoder,
      .generator = completions.generator(),
      .prompts = std::move(prompts),
      .rewards = std::move(rewards),
      .decode = [&model](std::span<const data::TokenId> ids) { return model.tokenizer.decode(ids); },
      .sync = completions.sync()};
  set_model(out, model, completions.world(), sharding);
  return out;
}

}  // namespace rlalgo::assembly
