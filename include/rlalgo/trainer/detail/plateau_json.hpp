// What a schedule that follows evaluations knows, in a checkpoint.
#pragma once

#include <cstdint>

#include <rlalgo/optim/schedule.hpp>
#include <rlalgo/run/checkpoint.hpp>

namespace rlalgo::trainer::detail {

// A number that JSON keeps to the bit; no best value yet is null.
[[nodiscard]] inline run::Json plateau_json(const optim::PlateauState& s) {
  return {
      {"rate", s.rate}, {"best", s.best ? run::Json(*s.best) : run::Json()}, {"bad", s.bad}, {"cooldown", s.cooldown}};
}
[[nodiscard]] inline optim::PlateauState plateau_of(const run::Json& saved) {
  optim::PlateauState s{.rate = saved.at("rate").get<double>(),
                        .best = {},
                        .bad = saved.at("bad").get<std::int64_t>(),
                        .cooldown = saved.at("cooldown").get<std::int64_t>()};
  if (!saved.at("best").is_null()) s.best = saved.at("best").get<double>();
  return s;
}

}  // namespace rlalgo::trainer::detail
