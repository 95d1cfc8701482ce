// Whether the settings of sampler/prefetch.hpp can work with a generator of that kind. [rlalgo.sampler.8]
#pragma once

#include <string>

#include <rlalgo/core/error.hpp>
#include <rlalgo/inference/generator.hpp>

namespace rlalgo::sampler::detail {

template <class Config>
void check_prefetch(const Config& config, inference::WeightSource source) {
  const auto refuse = [](const char* what, const std::string& found, const std::string& expected) {
    core::raise_usage("sampler", 8, {.what = what, .found = found, .expected = expected});
  };
  if (config.depth < 0) refuse("the depth of the queue is out of range", std::to_string(config.depth), "0 or more");
  if (config.stream_groups < 0)
    refuse("the number of groups that are streamed together is out of range", std::to_string(config.stream_groups),
           "0 or more");
  if (config.sync_interval < 1)
    refuse("the sync interval is out of range", std::to_string(config.sync_interval), "1 step or more");
  if (config.max_staleness >= 0 && config.max_staleness < config.sync_interval - 1)
    refuse("max_staleness is less than the weights in force may be behind", std::to_string(config.max_staleness),
           "sync_interval − 1 = " + std::to_string(config.sync_interval - 1) + " or more");
  if ((config.depth > 0 || config.stream_groups > 0) && source == inference::WeightSource::shared)
    refuse("the generator reads the trainer's own tensors, which the optimizer writes at the same time",
           "depth " + std::to_string(config.depth), "a generator on a snapshot, or a server");
}

}  // namespace rlalgo::sampler::detail
