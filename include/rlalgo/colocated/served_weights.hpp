// Weight sync to a generation server in the trainer's own process (colocated_server.hpp): tensors, no HTTP.
//
// publish(v) copies what is trained, on the trainer's thread, and makes it what the server answers the next request with.
// A request that is under way keeps the version that it began with. The same version again copies nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include <rlalgo/colocated/colocated_server.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/sync/concept.hpp>

namespace rlalgo::colocated {

class ServedWeights {
 public:
  // To those who draw by way of the server, it is one like any other.
  static constexpr bool reaches(inference::WeightSource source) { return source == inference::WeightSource::remote; }

  explicit ServedWeights(std::shared_ptr<ColocatedServer> server)
      : server_(std::move(server)), version_(std::make_shared<std::atomic<std::int64_t>>(-1)) {}

  sync::Published publish(std::int64_t version) {
    if (version == *version_) return {.version = version};
    const os::Stopwatch watch;
    const std::size_t bytes = server_->publish(version);
    *version_ = version;
    return {.version = version,
            .status = sync::Published::Status::copied,
            .bytes = static_cast<std::int64_t>(bytes),
            .seconds = watch.seconds()};
  }
  // The version published last; −1 before the first publish().
  [[nodiscard]] std::function<std::int64_t()> version_source() const {
    return [version = version_] { return version->load(); };
  }

 private:
  std::shared_ptr<ColocatedServer> server_;
  std::shared_ptr<std::atomic<std::int64_t>> version_;
};

static_assert(sync::SyncPolicy<ServedWeights>);

}  // namespace rlalgo::colocated
