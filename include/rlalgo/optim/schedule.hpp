// Learning-rate schedules: the rate of every optimizer step.
//
//   w = warm-up steps, T = total steps, t = step (0-based), p = (t − w)/max(1, T − w), m = minimum ratio, c = cycles
//   t < w                      t / max(1, w), squared with quadratic_warmup
//   linear                     max(0, (T − t)/max(1, T − w))
//   cosine                     max(0, (1 − m)·½(1 + cos 2πcp) + m), c = ½;   cosine_with_min_lr is the same (m is
//                              meant to be set)
//   cosine_with_restarts       ½(1 + cos π(cp mod 1)), c = 1; 0 from p = 1 on
//   cosine_warmup_with_min_lr  the cosine at p = (t − w + 1)/max(1, T − w) after a warm-up of (t + 1)/max(1, w), or
//                              from first_ratio r: r + (1 − r)·t/max(1, w − 1)
//   polynomial                 (1 − m)(1 − p)^power + m;  m after T
//   inverse_sqrt               √(τ/(t − w + τ)), τ = timescale, else w, else 10,000
//   constant                   1 from the first step on
//   constant_with_warmup       1 after the warm-up
//   rex                        u = t + 1; u ≤ w: u/w; else m + (1 − m)·z/(0.1 + 0.9z), z = (T − u)/(T − w);  m from
//                              u = T on
//   warmup_stable_decay        stable_decay.hpp
//   one_cycle                  one_cycle.hpp; it also moves β₁
//   reduce_lr_on_plateau       plateau.hpp: what evaluations say, without warm-up
//
// Source: the schedules of transformers by these names; axolotl's cosine_min_lr_ratio m, cosine_constant_lr_ratio c (T
// is replaced by ⌊c·T⌋ and t stops there, so the rate stays at m) and lr_quadratic_warmup (with plain cosine); rex: Chen,
// Wolfe & Kyrillidis, arXiv 2107.04197, as axolotl steps it. The rate of step t is the one used in that update: with
// warm-up the first update has rate 0 unless the schedule says otherwise. Host only.
//
// Errors (usage): [rlalgo.optim.2] no schedule of that name; [.3] a ratio outside 0 … 1, a negative number of steps, or
// another option out of its range; [.5] a schedule that falls, without a number of steps; [.6] the phases of
// warmup_stable_decay are longer than the run, or it has no decay.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <rlalgo/optim/one_cycle.hpp>
#include <rlalgo/optim/plateau.hpp>
#include <rlalgo/optim/stable_decay.hpp>

namespace rlalgo::optim {

struct ScheduleConfig {
  std::string name = "linear";
  double learning_rate = 1e-6;  // the peak
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 0;         // 0 = as many as the run has
  double min_ratio = 0.0;               // cosines, polynomial, rex, warmup_stable_decay: rate at the end / peak
  double constant_ratio = 0.0;          // cosine: share of the run after which the rate stays at its minimum; 0 = never
  bool quadratic_warmup = false;        // square of the linear warm-up
  std::optional<double> cycles{};       // cosines: waves, half a one unless set; cosine_with_restarts: falls, one
  std::optional<double> first_ratio{};  // cosine_warmup_with_min_lr: rate of the first step / peak
  double power = 1.0;                   // polynomial
  std::int64_t timescale = 0;           // inverse_sqrt: steps; 0 = the warm-up's, or 10,000 without one
  StableDecayConfig stable_decay{};
  OneCycleConfig one_cycle{};
  PlateauConfig plateau{};
};

class Schedule {
 public:
  using Config = ScheduleConfig;

  // `run_steps`: the optimizer steps of the run, for a configuration that leaves total_steps to it.
  explicit Schedule(ScheduleConfig config, std::int64_t run_steps = 0);

  // The learning rate of update `step` (0-based).
  [[nodiscard]] double operator()(std::int64_t step) const {
    return observes() ? plateau_.rate : config_.learning_rate * factor(step);
  }

  // Rate / peak, of a schedule that is a function of the step.
  [[nodiscard]] double factor(std::int64_t step) const;

  // β₁ of update `step`, where the schedule moves it.
  [[nodiscard]] std::optional<double> momentum(std::int64_t step) const;
  [[nodiscard]] bool moves_momentum() const { return factor_ == &Schedule::cycle && config_.one_cycle.cycle_momentum; }

  // Whether the rate depends on evaluations; observe() takes one into account.
  [[nodiscard]] bool observes() const { return factor_ == &Schedule::held; }
  void observe(double metric) { plateau_ = after_evaluation(config_.plateau, plateau_, metric); }
  [[nodiscard]] const PlateauState& state() const { return plateau_; }
  void restore(const PlateauState& state) { plateau_ = state; }

  // "linear, cosine, …"
  [[nodiscard]] static std::string names();

 private:
  enum class Warmup { linear, own };
  struct Shape {
    std::string_view name;
    double (Schedule::*factor)(double) const;
    Warmup warmup = Warmup::linear;
    bool endless = false;  // needs no number of steps
  };

  [[nodiscard]] double linear(double t) const;
  [[nodiscard]] double cosine(double t) const;
  [[nodiscard]] double restarts(double t) const;
  [[nodiscard]] double warmed_cosine(double t) const;
  [[nodiscard]] double polynomial(double t) const;
  [[nodiscard]] double inverse_sqrt(double t) const;
  [[nodiscard]] double constant(double) const { return 1.0; }
  [[nodiscard]] double rex(double t) const;
  [[nodiscard]] double wsd(double t) const;
  [[nodiscard]] double cycle(double t) const;
  [[nodiscard]] double held(double) const { return plateau_.rate / config_.learning_rate; }

  [[nodiscard]] OneCyclePoint cycle_at(double t) const;
  [[nodiscard]] StableDecayPhases phases() const;
  void check() const;
  void require(const char* name, double value, bool holds, const char* expected) const;

  static const std::array<Shape, 13> shapes;

  ScheduleConfig config_;
  double (Schedule::*factor_)(double) const = nullptr;
  Warmup warmup_ = Warmup::linear;
  PlateauState plateau_;
};

inline constexpr std::array<Schedule::Shape, 13> Schedule::shapes = {
    {{"linear", &Schedule::linear},
     {"cosine", &Schedule::cosine},
     {"cosine_with_min_lr", &Schedule::cosine},
     {"cosine_warmup_with_min_lr", &Schedule::warmed_cosine, Warmup::own},
     {"cosine_with_restarts", &Schedule::restarts},
     {"polynomial", &Schedule::polynomial},
     {"inverse_sqrt", &Schedule::inverse_sqrt, Warmup::linear, true},
     {"constant", &Schedule::constant, Warmup::own, true},
     {"constant_with_warmup", &Schedule::constant, Warmup::linear, true},
     {"rex", &Schedule::rex, Warmup::own},
     {"warmup_stable_decay", &Schedule::wsd, Warmup::own},
     {"one_cycle", &Schedule::cycle, Warmup::own},
     {"reduce_lr_on_plateau", &Schedule::held, Warmup::own, true}}};

}  // namespace rlalgo::optim

#ifndef RLALGO_COMPILED
#include <rlalgo/optim/detail/schedule_impl.hpp>
#endif
