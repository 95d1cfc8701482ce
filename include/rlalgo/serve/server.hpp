// A generation server: OpenAI's routes and TRL's over one scheduler.
//
//   serve::GenerationServer server({.name = "m", .root = dir, .decoder = …, .tokenizer = …}, {.http = {.port = 8000}});
//   … server.stop(30);      new requests are refused, those under way may take so long
//
// docs/serving.md has the table of routes. It listens when the constructor returns. Threads: those of the HTTP server
// parse requests, one runs the scheduler and writes the answers, one changes weights.
//
// Without an API key it listens on an address of this machine alone (127.0.0.0/8, ::1), unless open_to_all says otherwise.
// With one, every route but /health, /ping, /version and /metrics asks for it.
//
// Errors: [rlalgo.serve.22] (usage) an address that others reach, and no key; [.31] (usage) an adapter of its configuration has the
// model's name. To requests: [.6] no such route; [.7] a
// method that a route has not; [.8] no key, or a wrong one; [.11] a body that is too large; and those of the parts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <rlalgo/core/error.hpp>
#include <rlalgo/serve/served_model.hpp>
#include <rlalgo/serve/server_config.hpp>

namespace rlalgo::serve {

class GenerationServer {
 public:
  GenerationServer(ServedModel model, ServerConfig config);
  ~GenerationServer();
  GenerationServer(const GenerationServer&) = delete;
  GenerationServer& operator=(const GenerationServer&) = delete;

  [[nodiscard]] std::uint16_t port() const;
  [[nodiscard]] std::string url() const;
  [[nodiscard]] Engine::Counts counts() const;
  // Why it answers nothing any more but errors: its device computes nothing ([rlalgo.serve.33]). It is to be ended then.
  [[nodiscard]] std::optional<core::Error> failure() const;

  // From the next request on the answers are of these weights (weight_store.hpp: replace), in the trainer's own process.
  // Not from a thread of the server.
  void replace_weights(std::shared_ptr<const model::DecoderWeights> weights, const std::string& name);

  // Refuses new requests with 503, waits at most `seconds` for those under way, ends the rest as aborted.
  void stop(double seconds);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rlalgo::serve

#ifndef RLALGO_COMPILED
#include <rlalgo/serve/detail/server_impl.hpp>
#endif
