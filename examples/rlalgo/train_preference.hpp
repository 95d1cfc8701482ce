// Trains on a dataset of preferences: the one translation unit in which preference trainers are compiled.
#pragma once

#include <rlalgo/config/run_config.hpp>

namespace rlalgo::cli {

// Returns the process exit status.
int train_preference(const config::RunConfig& run);

}  // namespace rlalgo::cli
