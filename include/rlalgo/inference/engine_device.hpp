// What an engine takes from the device that its weights lie on: memory for pages of keys and values, a pass over rows, and
// how weights are read. engine_device_for.hpp is the one place where it is chosen.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <rlalgo/inference/forward.hpp>
#include <rlalgo/inference/kv_cache.hpp>
#include <rlalgo/model/weights.hpp>

namespace rlalgo::inference {

class EngineDevice {
 public:
  EngineDevice() = default;
  EngineDevice(const EngineDevice&) = delete;
  EngineDevice& operator=(const EngineDevice&) = delete;
  virtual ~EngineDevice() = default;

  [[nodiscard]] virtual KvCache& cache() = 0;
  [[nodiscard]] virtual Forward& forward() = 0;
  // Reads where the tensors lie. They must stay as they are while the view is used; `owner` keeps them, null: somebody
  // else does. `contents`: a number that an earlier view of the same values had, whose copies then serve again.
  [[nodiscard]] virtual std::shared_ptr<Forward::Weights> view(const model::DecoderWeights& weights,
                                                               std::shared_ptr<const void> owner,
                                                               std::optional<std::uint64_t> contents) = 0;
  // Gives back the memory of copies that no view uses.
  virtual void release_memory() = 0;
  // Raises what a device says that computes nothing any more: a number is written there and read.
  virtual void check() {}
};

}  // namespace rlalgo::inference
