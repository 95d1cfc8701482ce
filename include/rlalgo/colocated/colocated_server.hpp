// A generation server in the trainer's own process: others (agents of a Gym) ask it, the trainer hands its weights over.
//
//   const auto server = std::make_shared<ColocatedServer>(served, config);   listens, with the decoder's weights of now
//   server->publish(version);                                                the next request is answered with those of now
//
// The server computes with copies of what is trained, and shares what is frozen, so that a run of an adapter copies the
// adapter only. A request keeps the copy that it began with to its end, and the copy lives as long; publishing waits for
// no request. Weights have the name of the trainer's version, "v7", as those that are sent to a server have.
//
// It answers with its first weights before anybody can ask. `served.decoder` is the trainer's, which changes its tensors
// on the thread that publishes; a name that nothing has is the model's.
//
// Errors: those of serve/server.hpp; [rlalgo.http.8] where it cannot listen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <rlalgo/inference/weight_snapshots.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/serve/served_model.hpp>
#include <rlalgo/serve/server.hpp>
#include <rlalgo/serve/server_config.hpp>

namespace rlalgo::colocated {

class ColocatedServer {
 public:
  ColocatedServer(serve::ServedModel served, serve::ServerConfig config)
      : decoder_(served.decoder), server_(with_copy(std::move(served)), std::move(config)) {}

  // On the trainer's thread. Bytes that were copied.
  std::size_t publish(std::int64_t version) {
    auto [weights, bytes] = copy_of(*decoder_, version);
    server_.replace_weights(std::move(weights), "v" + std::to_string(version));
    return bytes;
  }

  [[nodiscard]] std::uint16_t port() const { return server_.port(); }
  [[nodiscard]] std::string url() const { return server_.url(); }
  [[nodiscard]] serve::Engine::Counts counts() const { return server_.counts(); }

  // Refuses new requests, and ends those that are not done in so many seconds.
  void stop(double seconds) { server_.stop(seconds); }

 private:
  using Weights = std::shared_ptr<const model::DecoderWeights>;

  // A snapshot that nothing is ever written to again.
  [[nodiscard]] static std::pair<Weights, std::size_t> copy_of(const model::Decoder& decoder, std::int64_t version) {
    inference::WeightSnapshots once(decoder.config(), decoder.weights());
    once.publish(version);
    const inference::WeightSnapshots::Handle snapshot = once.acquire();
    return {Weights(snapshot, &snapshot->weights), once.copied_bytes()};
  }
  [[nodiscard]] static serve::ServedModel with_copy(serve::ServedModel served) {
    served.weights = copy_of(*served.decoder, -1).first;
    served.any_name = true;
    return served;
  }

  std::shared_ptr<const model::Decoder> decoder_;
  serve::GenerationServer server_;
};

}  // namespace rlalgo::colocated
