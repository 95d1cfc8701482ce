// Definitions of led_run.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/metrics.hpp>
#include <rlalgo/distributed/context_group.hpp>
#include <rlalgo/distributed/world.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/os/interruption.hpp>
#include <rlalgo/run/interrupt.hpp>
#include <rlalgo/run/loop.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/trainer/led_run.hpp>

namespace rlalgo::trainer {

namespace detail {

inline void tell(distributed::World& world, const run::Json& what) { (void)world.broadcast("next", what.dump()); }

// What one rank gives up since a stop was asked for, all give up.
template <class F>
auto whole_or_given_up(distributed::World& world, const F& work) {
  try {
    return work();
  } catch (const os::Interrupted&) {
    if (os::Interruption::requested()) world.give_up(os::Interruption::signal());
    throw;
  }
}

}  // namespace detail

RLALGO_INLINE run::Callbacks led(distributed::World& world, run::Callbacks callbacks, bool saves_together) {
  if (world.size() == 1) return callbacks;
  callbacks.train_step = [&world, own = std::move(callbacks.train_step)](std::int64_t step) {
    return detail::whole_or_given_up(world, [&] {
      detail::tell(world, {{"do", "step"}, {"step", step}});
      return own(step);
    });
  };
  if (callbacks.evaluate)
    callbacks.evaluate = [&world, own = std::move(callbacks.evaluate)] {
      return detail::whole_or_given_up(world, [&] {
        detail::tell(world, {{"do", "evaluate"}});
        return own();
      });
    };
  if (callbacks.restore_state)
    callbacks.restore_state = [&world, own = std::move(callbacks.restore_state)](const std::filesystem::path& directory,
                                                                                 const run::Json& state) {
      detail::tell(world, {{"do", "restore"}, {"directory", directory.string()}, {"state", state}});
      own(directory, state);
    };
  const auto save = [&](const char* what, auto& callback) {
    if (callback)
      callback = [&world, what, own = std::move(callback)](const std::filesystem::path& directory) {
        detail::tell(world, {{"do", what}, {"directory", directory.string()}});
        return own(directory);
      };
  };
  if (saves_together) {
    save("save model", callbacks.save_model);
    save("save output", callbacks.save_output);
    save("save state", callbacks.save_state);
  }
  return callbacks;
}

RLALGO_INLINE void end(distributed::World& world, const run::Outcome& outcome) {
  if (world.size() == 1) return;
  detail::tell(world, {{"do", "end"},
                       {"step", outcome.step},
                       {"interrupted", outcome.interrupted},
                       {"status", outcome.status},
                       {"stopped", outcome.stopped}});
}

RLALGO_INLINE run::Outcome follow(distributed::World& world, const run::Callbacks& callbacks, bool signals) {
  std::optional<run::Interrupt> interrupt;
  if (signals) interrupt.emplace();  // a request to stop goes to rank 0, which decides
  const auto next = [&]() -> std::optional<run::Outcome> {
    const run::Json order = run::Json::parse(world.broadcast("next", {}));
    const auto what = order.at("do").get<std::string>();
    if (what == "step")
      (void)callbacks.train_step(order.at("step").get<std::int64_t>());
    else if (what == "evaluate")
      (void)callbacks.evaluate();
    else if (what == "save model")
      callbacks.save_model(order.at("directory").get<std::string>());
    else if (what == "save output")
      callbacks.save_output(order.at("directory").get<std::string>());
    else if (what == "save state")
      (void)callbacks.save_state(order.at("directory").get<std::string>());
    else if (what == "restore")
      callbacks.restore_state(order.at("directory").get<std::string>(), order.at("state"));
    else
      return run::Outcome{order.at("step").get<std::int64_t>(), order.at("interrupted").get<bool>(),
                          order.at("status").get<int>(), order.at("stopped").get<std::string>()};
    return std::nullopt;
  };
  for (;;) {
    try {
      if (const auto outcome = detail::whole_or_given_up(world, next)) return *outcome;
    } catch (const os::Interrupted&) {
      if (!os::Interruption::requested()) throw;  // else rank 0 saves, and says the last word
    }
  }
}

RLALGO_INLINE void require_same_start(distributed::World& world, std::span<const model::Parameter> parameters) {
  if (world.size() == 1) return;
  std::vector<double> own;
  for (const model::Parameter& p : parameters) {
    const tensor::Tensor values = p.value.detach().to(at::Device(at::kCPU), at::kDouble);
    own.push_back(values.sum().item<double>());
    own.push_back(values.abs().sum().item<double>());
  }
  const std::vector<std::string> all = world.gather("weights at the start", distributed::to_bytes(own));
  for (std::size_t r = 0; r < all.size(); ++r) {
    const std::vector<double> theirs = distributed::doubles_of(all[r]);
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (theirs.size() == own.size() &&
          std::bit_cast<std::uint64_t>(theirs[i]) == std::bit_cast<std::uint64_t>(own[i]))
        continue;
      core::raise("trainer", 40,
                  {.what = "the ranks do not begin with the same weights",
                   .found = theirs.size() != own.size() ? "another number of parameters" : parameters[i / 2].name,
                   .where = "rank " + std::to_string(r) + " and rank " + std::to_string(world.rank()),
                   .remedy = "give all ranks the same files, and the same kind of processor"});
    }
  }
}

RLALGO_INLINE void share_contexts(const std::shared_ptr<distributed::World>& world, model::Dealing dealing,
                                  std::initializer_list<std::shared_ptr<model::Policy>> scorers) {
  if (world->context_size() == 1) return;
  at::Device device(at::kCPU);
  for (const auto& scorer : scorers)
    if (scorer)
      if (const auto parameters = scorer->parameters(); !parameters.empty()) {
        device = parameters.front().value.device();
        break;
      }
  const auto ring = std::make_shared<distributed::ContextGroup>(world, device);
  // What is raised next ends this rank: the others must have its connections by then, or they would blame those.
  world->barrier("context groups");
  for (const auto& scorer : scorers)
    if (scorer) scorer->share_context({ring, dealing});
}

RLALGO_INLINE double together(distributed::World& world, double loss, core::Metrics& metrics, double mark) {
  if (world.size() == 1) return loss;
  const std::array<double, 3> own = {loss, static_cast<double>(os::Interruption::signal()), mark};
  double total = 0.0;
  const std::vector<std::string> all = world.gather("losses", distributed::to_bytes(own));
  for (std::size_t r = 0; r < all.size(); ++r) {
    const std::vector<double> theirs = distributed::doubles_of(all[r]);
    if (world.leads_group(static_cast<int>(r))) total += theirs.at(0);
    if (theirs.at(1) != 0.0) os::Interruption::request(static_cast<int>(theirs.at(1)));
    if (std::bit_cast<std::uint64_t>(theirs.at(2)) == std::bit_cast<std::uint64_t>(mark)) continue;
    core::raise("trainer", 41,
                {.what = "the ranks have drifted apart",
                 .found = "another gradient norm in the step before on rank " + std::to_string(r),
                 .expected = "the same bits on all ranks",
                 .where = "rank " + std::to_string(world.rank()),
                 .remedy = "give all ranks processors of one kind and the same number of threads"});
  }
  metrics = world.merged(metrics);
  return total;
}

RLALGO_INLINE void wait_for_turn_to_fail(distributed::World& world, bool cause) {
  const std::vector<std::string> all = world.gather("what is not finite", cause ? "known" : "");
  std::size_t first = 0;
  while (first < all.size() && all[first].empty()) ++first;
  if (first == all.size()) first = 0;
  if (static_cast<std::size_t>(world.rank()) != first) world.barrier("another rank's error");
}

RLALGO_INLINE std::vector<PartColumn> columns_of_others(distributed::World& world, std::span<const PartColumn> own) {
  run::Json sizes = run::Json::array();
  std::vector<float> flat;
  for (const PartColumn& one : own) {
    const tensor::Tensor values = one.log_prob.detach().to(at::Device(at::kCPU), at::kFloat).contiguous();
    sizes.push_back({one.part, values.numel()});
    flat.insert(flat.end(), values.const_data_ptr<float>(), values.const_data_ptr<float>() + values.numel());
  }
  const std::vector<std::string> all = world.gather("log-probs", sizes.dump() + "\n" + distributed::to_bytes(flat));
  std::vector<PartColumn> out;
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (world.group_of(static_cast<int>(r)) == world.group()) continue;
    if (!world.leads_group(static_cast<int>(r))) continue;
    const std::size_t line = all[r].find('\n');
    const std::vector<float> values = distributed::floats_of(all[r].substr(line + 1));
    std::size_t at = 0;
    for (const run::Json& entry : run::Json::parse(all[r].substr(0, line))) {
      const auto count = entry.at(1).get<std::int64_t>();
      tensor::Tensor column = tensor::empty({count}, at::TensorOptions().dtype(at::kFloat));
      std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(at), count, column.mutable_data_ptr<float>());
      out.push_back({entry.at(0).get<std::size_t>(), std::move(column)});
      at += static_cast<std::size_t>(count);
    }
  }
  return out;
}

RLALGO_INLINE std::vector<tensor::Tensor> summed_gradients(distributed::World& world,
                                                           std::span<const model::Parameter> parameters) {
  std::vector<double> there;
  for (const model::Parameter& p : parameters) there.push_back(p.value.grad().defined() ? 1.0 : 0.0);
  world.sum(there);
  std::vector<tensor::Tensor> gradients;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (there[i] == 0.0) continue;
    tensor::Tensor& gradient = parameters[i].value.mutable_grad();
    if (!gradient.defined()) gradient = tensor::zeros_like(parameters[i].value.detach());
    gradients.push_back(gradient);
  }
  world.sum(std::span<tensor::Tensor>(gradients));
  return gradients;
}

}  // namespace rlalgo::trainer
