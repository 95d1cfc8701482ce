// Runs a training whose parts are assembled: the one translation unit in which policy-gradient trainers are compiled.
#pragma once

#include <memory>

#include <rlalgo/config/entropy.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/inference/any_generator.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/run/loop.hpp>
#include <rlalgo/sync/any_sync.hpp>
#include <rlalgo/trainer/online.hpp>

namespace rlalgo::cli {

using OnlineInputs = trainer::OnlineInputs<inference::AnyGenerator, sync::AnySync, std::shared_ptr<model::Policy>>;

run::Outcome train_policy_gradient(const config::RunConfig& run, const trainer::OnlineConfig& settings,
                                   const config::EntropyCoefficient& coefficient, OnlineInputs inputs);

}  // namespace rlalgo::cli
