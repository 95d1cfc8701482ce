// The settings of a generation server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <rlalgo/http/server.hpp>
#include <rlalgo/serve/engine.hpp>

namespace rlalgo::serve {

struct NamedAdapter {
  std::string name;
  std::filesystem::path path;
};

struct ServerConfig {
  http::ServerConfig http = {.port = 8000, .body_limit = std::size_t{1} << 30};  // weights come in large bodies
  Engine::Config engine{};
  // Of a device other than the CPU, unless engine.engine.cache_bytes is set: what the model, passes, keys and values may take of its memory;
  // 0: as on the CPU.
  double memory_fraction = 0.9;
  std::string api_key{};                               // empty: none is asked for
  bool open_to_all = false;                            // no key, although the address is not this machine's own
  std::vector<std::filesystem::path> allowed_paths{};  // adapters are read below these only; empty: anywhere
  std::vector<NamedAdapter> adapters = {};             // loaded before it listens, each asked for by its name
  bool strict = false;                                 // a field that no route knows is an error
  bool drawn_log_probs = false;      // OpenAI's routes: of the distribution that was drawn from, not of the model
  std::int64_t most_log_probs = 20;  // beside a token; −1 = the vocabulary
  std::optional<std::uint64_t> seed =
      {};                           // of requests without one (repeatable_draws.hpp); none: they differ every time
  double request_seconds = 3600.0;  // of one request, from its arrival; 0 = no limit
  std::size_t body_limit = std::size_t{16} << 20;     // of requests that bring no weights
  std::uint64_t answer_bytes = 0;                     // memory for answers; 0: answer_budget.hpp says how much
  std::vector<std::string> allowed_hosts{};           // names by which requests without a key may call this machine
  std::string broadcast_backend = "nccl";             // of trainers that do not name theirs: nccl or gloo
  double broadcast_seconds = 120.0;                   // for a trainer to come, and for each tensor that it broadcasts
  double report_seconds = 10.0;                       // between two lines about the load; 0 = none
  bool access_log = false;                            // a line for every request
  std::function<void(const std::string&)> tell = {};  // hears notes, reports and the access log
};

}  // namespace rlalgo::serve
