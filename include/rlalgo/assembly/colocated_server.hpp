// A generation server in this process draws, on rank 0, which agents of others ask, too; while it answers during training it has half of
// the processors.
//
// Errors: those of colocated/colocated_server.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>

#include <rlalgo/assembly/drawer.hpp>
#include <rlalgo/assembly/server.hpp>
#include <rlalgo/colocated/colocated_server.hpp>
#include <rlalgo/colocated/served_weights.hpp>
#include <rlalgo/inference/kv_cache.hpp>
#include <rlalgo/inference/quantization.hpp>
#include <rlalgo/os/processors.hpp>
#include <rlalgo/remote/vllm_client.hpp>
#include <rlalgo/sync/first_rank_sync.hpp>

namespace rlalgo::assembly {

struct ColocatedServer {
  static constexpr bool serves = true;

  std::string name = {};                  // of the model, in requests; empty: as it was named
  serve::SamplingDefaults sampling = {};  // where a request says nothing
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  // 0: one that is free
  inference::Quantization quantization = inference::Quantization::none;
  std::optional<inference::CacheElement> cache_element = {};  // of keys and values: EngineConfig's
  bool invariant = false;                                     // of a device: EngineConfig's
  std::uint64_t seed = 42;
  std::size_t cache_bytes = 0;  // for keys and values; 0: as serve/server.hpp

  template <bool asynchronous, class Use>
  void open(const Opening& opening, Use&& use) const {
    struct Both {
      std::shared_ptr<colocated::ColocatedServer> server;
      std::unique_ptr<remote::VllmClient> client;
    };
    const auto both = std::make_shared<Both>();
    const LanguageModel& model = opening.model;
    std::string url;
    if (opening.world->rank() == 0) {
      both->server = std::make_shared<colocated::ColocatedServer>(
          serve::ServedModel{.name = name.empty() ? model.base_model : name,
                             .root = model.base_model,
                             .decoder = model.decoder,
                             .tokenizer = model.tokenizer,
                             .chat_template = model.chat_template,
                             .stop_ids = model.stop_ids,
                             .sampling = sampling},
          serve::ServerConfig{
              .http = {.host = host, .port = port},
              .engine = {.engine = {.threads = asynchronous ? std::max(1, os::usable_processors() / 2) : 0,
                                    .cache_bytes = cache_bytes,
                                    .cache_element = cache_element,
                                    .quantization = quantization,
                                    .invariant = invariant}},
              .memory_fraction = 0.0,
              .api_key = server_key(),
              .drawn_log_probs = true,
              .seed = seed,
              .report_seconds = 0.0,
              .tell = [&log = opening.log](const std::string& line) { log << "warning: " << line << std::endl; }});
      url = both->server->url();
      opening.log << "agents ask this process: " << url << "/v1" << std::endl;
    }
    url = opening.world->gather("address of the generation server", url).front();
    both->client = std::make_unique<remote::VllmClient>(
        remote::VllmConfig{.server = {.base_url = url, .headers = server_key_headers(), .stop = opening.stop},
                           .vocab_size = model.decoder->config().vocab_size});
    const std::shared_ptr<remote::VllmClient> client(both, both->client.get());
    const auto give = [&](auto policy) {
      use(Drawn<remote::VllmClient, decltype(policy)>{.generator = client, .sync = std::move(policy), .address = url});
    };
    if (both->server != nullptr) return give(colocated::ServedWeights(both->server));
    give(sync::FirstRankSync());
  }
};

static_assert(Drawer<ColocatedServer>);

}  // namespace rlalgo::assembly
