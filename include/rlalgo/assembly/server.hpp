// A generation server draws: TRL's vllm-serve or stock vLLM, which it is is found out.
//
// An adapter that a server can load goes to it as files (sync/lora_file_sync.hpp), else the weights, merged where there is an adapter,
// over HTTP or by broadcast (sync/server_weight_sync.hpp). Every call ends within call_seconds; calls that are tried again, and the
// wait for a server that is not up yet, have a line of the log each. Of several ranks the first asks for all completions and
// publishes the weights. A server that is started anew gets its weights again (sync/weight_gate.hpp).
//
// Errors: those of remote/vllm_client.hpp and sync/server_weight_sync.hpp; [rlalgo.http.4] the address cannot be one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <ostream>
#include <string>
#include <utility>

#include <rlalgo/assembly/drawer.hpp>
#include <rlalgo/http/client.hpp>
#include <rlalgo/model/adapter_files.hpp>
#include <rlalgo/model/joined_experts.hpp>
#include <rlalgo/model/lent_weights.hpp>
#include <rlalgo/model/lora_config.hpp>
#include <rlalgo/model/merged_weights.hpp>
#include <rlalgo/remote/vllm_client.hpp>
#include <rlalgo/sync/first_rank_sync.hpp>
#include <rlalgo/sync/lora_file_sync.hpp>
#include <rlalgo/sync/server_weight_sync.hpp>

namespace rlalgo::assembly {

// What a server started with a key asks for: VLLM_API_KEY of the environment, vLLM's own name of it; empty: there is none.
[[nodiscard]] inline std::string server_key() {
  const char* const key = std::getenv("VLLM_API_KEY");
  return key == nullptr ? "" : key;
}
[[nodiscard]] inline http::Headers server_key_headers() {
  if (server_key().empty()) return {};
  return {{"Authorization", "Bearer " + server_key()}};
}

// Whether a server can load the adapter itself: it adds s·B A to the base model that it has, with one rank and scale.
[[nodiscard]] inline bool is_servable(const model::LoraConfig& adapter) {
  return !adapter.use_dora && adapter.modules_to_save.empty() && adapter.rank_pattern.empty() &&
         adapter.alpha_pattern.empty() && adapter.target_parameters.empty() && adapter.init != model::LoraInit::pissa;
}

struct Server {
  static constexpr bool serves = true;

  std::string url = {};
  double call_seconds = 600.0;
  double start_seconds = 240.0;             // of a server that is not up yet
  data::Json generation_kwargs = nullptr;   // passed on as they are
  bool loads_adapters = true;               // false: merged weights go there
  std::uint16_t group_port = 51216;         // of the group that broadcasts weights
  std::filesystem::path directory = "out";  // below it files for the server: lora_sync/, weight_sync/

  template <bool asynchronous, class Use>
  void open(const Opening& opening, Use&& use) const {
    const auto tell = [&log = opening.log](const std::string& line) { log << "warning: " << line << std::endl; };
    const auto gate = std::make_shared<sync::WeightGate>();
    const http::ClientConfig address{.base_url = url,
                                     .call_seconds = call_seconds,
                                     // 500, too, as TRL's client does
                                     .retries = {.statuses = {429, 500, 502, 503, 504},
                                                 .tell =
                                                     [tell, gate](const http::Retry& r) {
                                                       if (!r.answered) gate->doubt();
                                                       tell(r.text());
                                                     }},
                                     .headers = server_key_headers(),
                                     .stop = opening.stop,
                                     .waiting = http::one_in(50.0, [&log = opening.log](const std::string& line) {
                                       log << "waiting for the generation server: " << line << std::endl;
                                     })};
    const std::shared_ptr<model::Decoder> decoder = opening.model.decoder;
    const auto client =
        std::make_shared<remote::VllmClient>(remote::VllmConfig{.server = address,
                                                                .start_seconds = start_seconds,
                                                                .tell = tell,
                                                                .vocab_size = decoder->config().vocab_size,
                                                                .generation_kwargs = generation_kwargs,
                                                                .adapter = sync::LoraFileSync::adapter_name});
    const auto give = [&](auto policy) {
      use(Drawn<remote::VllmClient, decltype(policy)>{.generator = client, .sync = std::move(policy), .gate = gate});
    };
    if (opening.world->rank() > 0) return give(sync::FirstRankSync());
    if (decoder->adapter() != nullptr && loads_adapters && is_servable(decoder->adapter()->config)) {
      const auto save = [decoder, base = opening.model.base_model](const std::filesystem::path& target) {
        model::save_adapter(*decoder, target, base);
      };
      return give(sync::LoraFileSync(address, directory / "lora_sync", save, start_seconds, tell));
    }
    const auto weights = [decoder] {
      // By the names of the checkpoint, of which servers make theirs.
      if (decoder->adapter() != nullptr)
        return model::with_joined_experts(decoder->config(), model::merged_weights(*decoder));
      model::PendingTensors out;
      for (const model::Parameter& p : decoder->parameters()) out.push_back(model::pending(*decoder, p.name, p.value));
      return model::with_joined_experts(decoder->config(), std::move(out));
    };
    give(sync::ServerWeightSync(address, weights,
                                {.group_port = group_port,
                                 .seconds = std::min(call_seconds, sync::BroadcastSync::Settings().seconds),
                                 .device = std::max<int>(0, decoder->device().index())},
                                start_seconds, tell, directory / "weight_sync"));
  }
};

static_assert(Drawer<Server>);

}  // namespace rlalgo::assembly
