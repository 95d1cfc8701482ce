// How weights are updated: steps, optimizer, schedule, ranks.
//
// lr_scheduler_kwargs takes what transformers' schedule of that name takes (torch's OneCycleLR and ReduceLROnPlateau); rates among them
// become ratios of the peak.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/config/key.hpp>
#include <rlalgo/config/rate_group_keys.hpp>
#include <rlalgo/optim/schedule.hpp>

namespace rlalgo::config {

// optim_args of the optimizers that take some (optim/muon.hpp, optim/adafactor.hpp, optim/sgd.hpp, optim/adagrad.hpp, optim/rmsprop.hpp).
struct MuonArguments {
  double momentum = 0.95;
  bool nesterov = true;
  std::int64_t ns_steps = 5;
};
struct AdafactorArguments {
  double epsilon_square = 1e-30, epsilon_scale = 1e-3;
  double clip_threshold = 1.0;
  double decay_rate = -0.8;
  std::optional<double> beta1;
  bool scale_parameter = false;
};
struct SgdArguments {
  double momentum = 0.0, dampening = 0.0;
  bool nesterov = false;
};
struct AdagradArguments {
  double lr_decay = 0.0, epsilon = 1e-10;
};
struct RmsPropArguments {
  double momentum = 0.0, alpha = 0.99, epsilon = 1e-8;
  bool centered = false;
};

struct TrainingConfig {
  std::int64_t micro_batch_size = 1;
  std::int64_t gradient_accumulation_steps = 1;
  std::optional<std::int64_t> eval_batch_size;
  double num_epochs = 1.0;
  std::optional<std::int64_t> max_steps;
  std::string optimizer = "adamw_torch_fused";  // see supported.hpp
  MuonArguments muon;
  AdafactorArguments adafactor;
  SgdArguments sgd;
  AdagradArguments adagrad;
  RmsPropArguments rmsprop;
  RateGroupsConfig groups;
  double learning_rate = 0.0;  // required
  std::string lr_scheduler = "cosine";
  std::optional<double> cosine_min_lr_ratio, cosine_constant_lr_ratio;
  bool lr_quadratic_warmup = false;
  optim::ScheduleConfig schedule;                    // what lr_scheduler_kwargs says; the rest is of schedule_of()
  std::optional<std::string> metric_for_best_model;  // of reduce_lr_on_plateau: with or without eval_; loss unless set
  std::optional<std::int64_t> warmup_steps;
  std::optional<double> warmup_ratio;
  double weight_decay = 0.0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  double max_grad_norm = 1.0;
  std::optional<std::int64_t> ddp_timeout;
  std::int64_t context_parallel_size = 1;
  std::optional<std::string> ring_attn_func;
  std::int64_t expert_parallel_size = 1;
  std::string sum_order = "auto";
};

// clang-format off
[[nodiscard]] inline Keys step_keys(TrainingConfig& t) {
  return {
    key("micro_batch_size", t.micro_batch_size, "completions per forward and backward pass").within(count(1)),
    key("gradient_accumulation_steps", t.gradient_accumulation_steps, "passes per optimizer step; `batch_size` may stand for it beside "
        "`micro_batch_size`").within(count(1)),
    key("eval_batch_size", t.eval_batch_size, "the same for an evaluation").within(count(1)).shows("`micro_batch_size`")
        .free(resume::evaluation),
    key("num_epochs", t.num_epochs, "passes over the rows").within(above(0).to(Range::most)).free(resume::longer),
    key("max_steps", t.max_steps, "optimizer steps; it wins over `num_epochs`").within(count(1)).free(resume::longer),
  };
}

// Read by config/detail/read_optimizer.hpp, with optim_args.
[[nodiscard]] inline Key optimizer_key(TrainingConfig& t) {
  return key("optimizer", t.optimizer, "AdamW. `adamw_8bit`, `adamw_bnb_8bit`, `paged_adamw_8bit`: with moments in 8 bits, as "
      "bitsandbytes has them ([below](#an-optimizer-with-moments-in-8-bits)). Every other spelling of AdamW is the same one; where its "
      "state would be smaller elsewhere (`adamw_torch_8bit`, `ao_adamw_fp8`, `paged_adamw` …), one warning says that it is not here. "
      "`lion` (`lion_32bit`; the spellings of less memory with a warning), `adafactor`, `muon`, `sgd`, `adagrad`, `rmsprop`: "
      "[below](#other-optimizers). Others "
      "are refused by name; `schedule_free_*` trains on one point and saves an average of all, which no schedule goes with").by("a name",
      nullptr).free({"spellings of one optimizer; what moves the weights, and whether moments have 8 bits, is compared"});
}

[[nodiscard]] inline Keys rate_keys(TrainingConfig& t) {
  const bool follows = t.lr_scheduler == "reduce_lr_on_plateau";
  Keys out = {
    key("lr_scheduler", t.lr_scheduler, "see below").one_of(schedulers()),
    key("cosine_min_lr_ratio", t.cosine_min_lr_ratio, "with `cosine` and `rex`").within(fraction),
    key("cosine_constant_lr_ratio", t.cosine_constant_lr_ratio, "with `cosine`, together with `cosine_min_lr_ratio`").within(fraction),
    key("lr_quadratic_warmup", t.lr_quadratic_warmup, "with `cosine`, without `cosine_min_lr_ratio`"),
  };
  if (follows) out.push_back(key("metric_for_best_model", t.metric_for_best_model, "what `reduce_lr_on_plateau` follows").shows("loss"));
  return out;
}

[[nodiscard]] inline Keys update_keys(TrainingConfig& t) {
  return {
    key("learning_rate", t.learning_rate, "required: the peak").within(at_least(0)).shows("–"),
    key("warmup_steps", t.warmup_steps, "1 becomes 2. Neither: 3 % of all steps; at most 100 steps for preference methods")
        .within(count(0)),
    key("warmup_ratio", t.warmup_ratio, "excludes `warmup_steps`. It is rounded up; for preference methods down, and it counts the steps "
        "of `num_epochs` even where `max_steps` is set").within(fraction),
    key("weight_decay", t.weight_decay, "share of the rate by which weights shrink").within(at_least(0)),
    key("adam_beta1", t.adam_beta1, "of the first moment").within(at_least(0).below(1)),
    key("adam_beta2", t.adam_beta2, "of the second moment").within(at_least(0).below(1)),
    key("adam_epsilon", t.adam_epsilon, "added to the second moment's root").within(above(0)),
    key("max_grad_norm", t.max_grad_norm, "norm that gradients are clipped to").within(at_least(0).meaning("0 = no clipping")),
    // The ranges of these two are those of ranks (config/ranks.hpp).
    key("ddp_timeout", t.ddp_timeout, "seconds that a rank may be silent, and that ranks wait for each other at the start "
        "([distributed](distributed.md))").shows("60").free(resume::wait),
    key("sequence_parallel_degree", t.context_parallel_size, "").old_name_of("context_parallel_size").free(resume::ranks),
    key("context_parallel_size", t.context_parallel_size, "ranks that share the tokens of their rows: long rows on several ranks "
        "([distributed](distributed.md#rows-that-are-shared-context-parallel))").free(resume::ranks),
    key("ring_attn_func", t.ring_attn_func, "how they do").one_of({"batch_ring", "batch_zigzag", "batch_stripe", "varlen_llama3"})
        .free(resume::ranks),
    key("expert_parallel_size", t.expert_parallel_size, "ranks that divide the experts of every layer among them "
        "([distributed](distributed.md#experts-that-are-shared-expert-parallel))").within(count(1)).free(resume::layout),
    key("sum_order", t.sum_order, "how ranks on GPUs add gradients: in the order of the `ranks`, or as `nccl` does; `auto`: `nccl` from 9 "
        "ranks on ([distributed](distributed.md#the-order-of-sums)). On the CPU always `ranks`").one_of({"auto", "ranks", "nccl"})
        .free(resume::sums),
  };
}

// The options of the schedule; none: it has none. `learning_rate` is read.
[[nodiscard]] inline Keys schedule_keys(TrainingConfig& t) {
  using Shape = optim::StableDecayConfig::Shape;
  optim::ScheduleConfig& s = t.schedule;
  const std::string& name = t.lr_scheduler;
  const auto shape = [](std::string_view key_name, Shape& to) {
    return key(key_name, to, "").by("linear, cosine, 1-sqrt", [&to, key_name](const Node& node) {
      const std::string word = detail::chosen(std::string(key_name), node, {"linear", "cosine", "1-sqrt"});
      to = word == "linear" ? Shape::linear : word == "cosine" ? Shape::cosine : Shape::one_minus_sqrt;
    });
  };
  const auto flag = [](std::string_view key_name, bool& to, const char* off, const char* on) {
    return key(key_name, to, "").by("word", [&to, key_name, off, on](const Node& node) { to = detail::chosen(std::string(key_name), node,
        {off, on}) == on; });
  };
  const Range momentum = at_least(0).below(1);
  const auto option = [](std::string_view key_name, auto& to) { return key(key_name, to, ""); };
  if (name == "polynomial")
    return {option("lr_scheduler_kwargs.power", s.power).within(positive)};  // lr_end: config/detail/read_schedule.hpp
  if (name == "warmup_stable_decay")
    return {option("lr_scheduler_kwargs.num_decay_steps", s.stable_decay.decay_steps).within(count(1)),
            option("lr_scheduler_kwargs.num_stable_steps", s.stable_decay.stable_steps).within(count(0)),
            shape("lr_scheduler_kwargs.warmup_type", s.stable_decay.warmup),
            shape("lr_scheduler_kwargs.decay_type", s.stable_decay.decay),
            option("lr_scheduler_kwargs.min_lr_ratio", s.min_ratio).within(fraction),
            option("lr_scheduler_kwargs.num_cycles", s.cycles).within(positive)};
  if (name == "one_cycle")
    return {option("lr_scheduler_kwargs.pct_start", s.one_cycle.rise_share).within(fraction),
            flag("lr_scheduler_kwargs.anneal_strategy", s.one_cycle.straight, "cos", "linear"),
            option("lr_scheduler_kwargs.cycle_momentum", s.one_cycle.cycle_momentum),
            option("lr_scheduler_kwargs.base_momentum", s.one_cycle.base_momentum).within(momentum),
            option("lr_scheduler_kwargs.max_momentum", s.one_cycle.max_momentum).within(momentum),
            option("lr_scheduler_kwargs.div_factor", s.one_cycle.div_factor).within(positive),
            option("lr_scheduler_kwargs.final_div_factor", s.one_cycle.final_div_factor).within(positive),
            option("lr_scheduler_kwargs.three_phase", s.one_cycle.three_phases)};
  if (name == "reduce_lr_on_plateau")
    return {flag("lr_scheduler_kwargs.mode", s.plateau.grows, "min", "max"),
            option("lr_scheduler_kwargs.factor", s.plateau.factor).within(momentum),
            option("lr_scheduler_kwargs.patience", s.plateau.patience).within(count(0)),
            option("lr_scheduler_kwargs.threshold", s.plateau.threshold).within(at_least(0)),
            flag("lr_scheduler_kwargs.threshold_mode", s.plateau.absolute, "rel", "abs"),
            option("lr_scheduler_kwargs.cooldown", s.plateau.cooldown).within(count(0)),
            option("lr_scheduler_kwargs.min_lr", s.plateau.min_rate).within(at_least(0)),
            option("lr_scheduler_kwargs.eps", s.plateau.epsilon).within(at_least(0))};
  if (name == "inverse_sqrt") return {option("lr_scheduler_kwargs.timescale", s.timescale).within(count(0))};
  if (!name.starts_with("cosine")) return {};
  Keys out = {option("lr_scheduler_kwargs.num_cycles", s.cycles).within(positive)};
  if (name == "cosine_warmup_with_min_lr") out.push_back(option("lr_scheduler_kwargs.warmup_lr_rate", s.first_ratio).within(fraction));
  return out;
}

[[nodiscard]] inline Keys muon_keys(MuonArguments& m) {
  return {
    key("optim_args.momentum", m.momentum, "").within(at_least(0).below(1)),
    key("optim_args.nesterov", m.nesterov, ""),
    key("optim_args.ns_steps", m.ns_steps, "").within(at_least(1).to(99)),
  };
}

// eps, two numbers: config/detail/read_optimizer.hpp.
[[nodiscard]] inline Keys adafactor_keys(AdafactorArguments& a) {
  return {
    key("optim_args.clip_threshold", a.clip_threshold, "").within(above(0)),
    key("optim_args.decay_rate", a.decay_rate, "").within(Range{}.below(0)),
    key("optim_args.beta1", a.beta1, "").within(at_least(0).below(1)),
    key("optim_args.scale_parameter", a.scale_parameter, ""),
  };
}

[[nodiscard]] inline Keys sgd_keys(SgdArguments& s) {
  return {
    key("optim_args.momentum", s.momentum, "").within(at_least(0).below(1)),
    key("optim_args.dampening", s.dampening, "").within(at_least(0)),
    key("optim_args.nesterov", s.nesterov, ""),
  };
}

[[nodiscard]] inline Keys adagrad_keys(AdagradArguments& a) {
  return {
    key("optim_args.lr_decay", a.lr_decay, "").within(at_least(0)),
    key("optim_args.eps", a.epsilon, "").within(above(0)),
  };
}

[[nodiscard]] inline Keys rmsprop_keys(RmsPropArguments& r) {
  return {
    key("optim_args.momentum", r.momentum, "").within(at_least(0).below(1)),
    key("optim_args.alpha", r.alpha, "").within(fraction),
    key("optim_args.eps", r.epsilon, "").within(above(0)),
    key("optim_args.centered", r.centered, ""),
  };
}
// clang-format on

// The optim_args of an optimizer; none: it takes none.
[[nodiscard]] inline Keys optimizer_argument_keys(TrainingConfig& t, UpdateRule rule) {
  switch (rule) {
    case UpdateRule::muon:
      return muon_keys(t.muon);
    case UpdateRule::adafactor:
      return adafactor_keys(t.adafactor);
    case UpdateRule::sgd:
      return sgd_keys(t.sgd);
    case UpdateRule::adagrad:
      return adagrad_keys(t.adagrad);
    case UpdateRule::rmsprop:
      return rmsprop_keys(t.rmsprop);
    case UpdateRule::adamw:
    case UpdateRule::lion:
      break;
  }
  return {};
}

[[nodiscard]] inline bool moves_momentum(const TrainingConfig& t) {
  return t.lr_scheduler == "one_cycle" && t.schedule.one_cycle.cycle_momentum;
}
// Whether sgd or rmsprop has buffers of momentum: it is set, or the schedule sets it.
[[nodiscard]] inline bool buffers_momentum(const TrainingConfig& t) {
  const bool set = optimizer_named(t.optimizer).rule == UpdateRule::sgd ? t.sgd.momentum > 0 : t.rmsprop.momentum > 0;
  return set || moves_momentum(t);
}

}  // namespace rlalgo::config
