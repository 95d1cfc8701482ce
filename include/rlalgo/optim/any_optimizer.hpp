// An optimizer of any type behind one: for programs that choose theirs at run time. AdamW, unless its Config names another.
//
//   AnyOptimizer::Config config = AnyOptimizer::of<AdamW8bit>({.adam = {.weight_decay = 0.1}});
//
// Schedules may move a momentum (optim/concept.hpp), so what is behind it has one. Errors: [rlalgo.optim.9] step() with a clip, of an
// optimizer that cannot; those of parameter_groups.hpp.
#pragma once

#include <concepts>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/optim/adamw.hpp>
#include <rlalgo/optim/concept.hpp>
#include <rlalgo/optim/parameter_groups.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::optim {

class AnyOptimizer {
  struct Held {
    Held() = default;
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    virtual ~Held() = default;
    virtual void step(double learning_rate) = 0;
    [[nodiscard]] virtual bool clips_on_device() const = 0;
    virtual void step(double learning_rate, const DeviceClip& clip) = 0;
    virtual void set_momentum(double beta1) = 0;
    virtual void set_rates(const Rates& rates) = 0;
    virtual void zero_grad() = 0;
    [[nodiscard]] virtual std::vector<std::pair<std::string, Tensor>> state() const = 0;
    virtual void load_state(const std::map<std::string, Tensor>& state) = 0;
  };

  template <class O>
  struct Holder final : Held {
    Holder(std::vector<model::Parameter> parameters, typename O::Config config)
        : optimizer(std::move(parameters), std::move(config)) {}
    void step(double learning_rate) override { optimizer.step(learning_rate); }
    [[nodiscard]] bool clips_on_device() const override {
      if constexpr (hooks_of<O>().clips_on_device) return optimizer.clips_on_device();
      return false;
    }
    void step(double learning_rate, const DeviceClip& clip) override {
      if constexpr (hooks_of<O>().clips_on_device)
        optimizer.step(learning_rate, clip);
      else
        core::raise("optim", 9,
                    {.what = "this optimizer cannot clip on a device",
                     .remedy = "ask clips_on_device(), and give it gradients that are clipped"});
    }
    void set_momentum(double beta1) override { optimizer.set_momentum(beta1); }
    void set_rates(const Rates& rates) override { optim::set_rates(optimizer, rates); }
    void zero_grad() override { optimizer.zero_grad(); }
    [[nodiscard]] std::vector<std::pair<std::string, Tensor>> state() const override { return optimizer.state(); }
    void load_state(const std::map<std::string, Tensor>& state) override { optimizer.load_state(state); }
    O optimizer;
  };

 public:
  static constexpr Hooks hooks{.set_momentum = true, .clips_on_device = true, .set_rates = true};
  // Which optimizer, and how it is set.
  class Config {
   public:
    Config() : Config(of<AdamW>({})) {}

   private:
    friend class AnyOptimizer;
    using Make = std::function<std::unique_ptr<Held>(std::vector<model::Parameter>)>;
    explicit Config(Make make) : make_(std::move(make)) {}
    Make make_;
  };

  template <Optimizer O>
  requires HasMomentum<O>
  [[nodiscard]] static Config of(typename O::Config config) {
    return Config([config = std::move(config)](std::vector<model::Parameter> parameters) -> std::unique_ptr<Held> {
      return std::make_unique<Holder<O>>(std::move(parameters), config);
    });
  }

  explicit AnyOptimizer(std::vector<model::Parameter> parameters, const Config& config = {})
      : held_(config.make_(std::move(parameters))) {}

  void step(double learning_rate) { held_->step(learning_rate); }
  [[nodiscard]] bool clips_on_device() const { return held_->clips_on_device(); }
  void step(double learning_rate, const DeviceClip& clip) { held_->step(learning_rate, clip); }
  void set_momentum(double beta1) { held_->set_momentum(beta1); }
  void set_rates(const Rates& rates) { held_->set_rates(rates); }
  void zero_grad() { held_->zero_grad(); }
  [[nodiscard]] std::vector<std::pair<std::string, Tensor>> state() const { return held_->state(); }
  void load_state(const std::map<std::string, Tensor>& state) { held_->load_state(state); }

 private:
  std::unique_ptr<Held> held_;
};

static_assert(Optimizer<AnyOptimizer> && HasMomentum<AnyOptimizer>);

}  // namespace rlalgo::optim
