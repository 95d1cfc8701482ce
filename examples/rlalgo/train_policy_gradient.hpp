// Runs a training whose parts are assembled: the one translation unit in which policy-gradient trainers are compiled.
#pragma once

#include <rlalgo/config/language_model.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/inference/local_engine.hpp>
#include <rlalgo/sampler/rollouts.hpp>
#include <rlalgo/trainer/loop.hpp>
#include <rlalgo/trainer/online.hpp>

namespace rlalgo::cli {

trainer::Outcome train_policy_gradient(const config::RunConfig& run, const trainer::OnlineConfig& settings,
                                       trainer::OnlineInputs<inference::LocalEngine> inputs);

}  // namespace rlalgo::cli
