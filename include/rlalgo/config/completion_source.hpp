// Who makes the completions, as the configuration says: this process's engine on the trainer's own tensors, or a
// server.
//
//   the same with trl.async_prefetch              SnapshotEngine, SnapshotWeights: copies of what is trained
//   trl.use_vllm: false, or vllm_mode: colocate   LocalEngine, SharedWeights; what it has computed of a prompt serves the
//                                                 next turns and batches under the same version of the weights
//   nemo_gym_multi_turn without a server          ColocatedServer, which the agents ask, and ServedWeights; it listens on
//                                                 vllm_server_host and _port, or on a port that is free
//   trl.use_vllm: true, vllm_mode: server         VllmClient; LoraFileSync for an adapter that a server can load, else
//                                                 ServerWeightSync, of merged weights when there is an adapter; with the
//                                                 key VLLM_API_KEY where the environment has one
//
// Every call to the server ends within trl.request_timeout; calls that are tried again, and the wait for a server that
// is not up yet, are told about in a line of the log. The first signal of run/interrupt.hpp ends them all. Beside training
// (trl.async_prefetch), generator and hand-over of the weights take turns where a change would show within a completion,
// and stop() ends a generation. A server that is started anew gets its weights again (sync/weight_gate.hpp).
// Of several ranks each has an engine; a server is rank 0's: it asks for all completions, and hands the weights over.
//
// Errors: those of remote/vllm_client.hpp, sync/server_weight_sync.hpp and colocated/colocated_server.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <ostream>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/colocated/colocated_server.hpp>
#include <rlalgo/colocated/served_weights.hpp>
#include <rlalgo/config/detail/router_replay.hpp>
#include <rlalgo/config/language_model.hpp>
#include <rlalgo/config/ranks.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/distributed/flat_unit.hpp>
#include <rlalgo/distributed/sharded_weights.hpp>
#include <rlalgo/http/client.hpp>
#include <rlalgo/inference/any_generator.hpp>
#include <rlalgo/inference/local_engine.hpp>
#include <rlalgo/inference/multi_turn.hpp>
#include <rlalgo/inference/snapshot_engine.hpp>
#include <rlalgo/inference/text_streams.hpp>
#include <rlalgo/inference/weight_snapshots.hpp>
#include <rlalgo/model/adapter_files.hpp>
#include <rlalgo/model/joined_experts.hpp>
#include <rlalgo/model/lent_weights.hpp>
#include <rlalgo/model/lora_config.hpp>
#include <rlalgo/model/merged_weights.hpp>
#include <rlalgo/os/processors.hpp>
#include <rlalgo/remote/gym_agents.hpp>
#include <rlalgo/remote/rollout_function.hpp>
#include <rlalgo/remote/vllm_client.hpp>
#include <rlalgo/run/interrupt.hpp>
#include <rlalgo/sync/any_sync.hpp>
#include <rlalgo/sync/fetched_weights.hpp>
#include <rlalgo/sync/first_rank_sync.hpp>
#include <rlalgo/sync/gathered_weights.hpp>
#include <rlalgo/sync/lora_file_sync.hpp>
#include <rlalgo/sync/server_weight_sync.hpp>
#include <rlalgo/sync/shared_weights.hpp>
#include <rlalgo/sync/snapshot_weights.hpp>
#include <rlalgo/sync/weight_gate.hpp>

namespace rlalgo::config {

// The address of the generation server; 0.0.0.0, the default of those servers, is this machine.
[[nodiscard]] inline std::string server_url(const TrlConfig& t) {
  if (t.vllm_server_base_url) return *t.vllm_server_base_url;
  const std::string host = t.vllm_server_host == "0.0.0.0" ? "127.0.0.1" : t.vllm_server_host;
  return "http://" + host + ":" + std::to_string(t.vllm_server_port);
}

// What a server started with a key asks for: VLLM_API_KEY of the environment, vLLM's own name of it.
[[nodiscard]] inline http::Headers server_key() {
  const char* const key = std::getenv("VLLM_API_KEY");
  if (key == nullptr || *key == '\0') return {};
  return {{"Authorization", std::string("Bearer ") + key}};
}

// Refuses an address that cannot be one. [rlalgo.http.4]
inline void check_server(const RunConfig& c) {
  if (c.trl.generates_elsewhere()) (void)http::Client({.base_url = server_url(c.trl)});
}

// Whether a server can load the adapter itself: it adds s·B A to the base model that it has, with one rank and scale.
[[nodiscard]] inline bool is_servable(const model::LoraConfig& adapter) {
  return !adapter.use_dora && adapter.modules_to_save.empty() && adapter.rank_pattern.empty() &&
         adapter.alpha_pattern.empty() && adapter.target_parameters.empty() && adapter.init != model::LoraInit::pissa;
}

// Keeps the generator alive; the model and the log must outlive it.
class CompletionSource {
 public:
  CompletionSource(const RunConfig& c, const LanguageModel& model, std::ostream& log = std::cerr)
      : CompletionSource(c, model, log, std::stop_source()) {}

  // From here on completions have several turns.
  void play(std::shared_ptr<environment::Environments> environments, std::vector<inference::Dialogue> dialogues,
            inference::MultiTurnConfig config) {
    single_ = std::make_unique<inference::AnyGenerator>(generator_);
    turns_ = std::make_unique<inference::MultiTurn<inference::AnyGenerator>>(*single_, std::move(environments),
                                                                             std::move(dialogues), config);
    generator_ = inference::AnyGenerator(*turns_);
  }

  // From here on a user's function makes them, with what they have been made by.
  void roll(std::shared_ptr<remote::RolloutFunction> function, remote::RolloutTexts texts) {
    single_ = std::make_unique<inference::AnyGenerator>(generator_);
    function_ = std::move(function);
    function_->draw_from(*single_, std::move(texts));
    generator_ = inference::AnyGenerator(*function_);
  }

  // Where agents are to ask; of a server in this process, on rank 0.
  [[nodiscard]] const std::string& served_at() const { return served_at_; }

  // From here on a Gym's agents make them, who ask the server that this one hands the weights to.
  void run_agents(std::shared_ptr<remote::GymAgents> agents) {
    agents_ = std::move(agents);
    generator_ = inference::AnyGenerator(*agents_);
  }

  // From here on generator() may be asked by another thread than the one that publishes. After play() and roll(). Of several ranks with
  // an engine each: `trainers` and `callers` are where those threads meet.
  void beside_training(std::shared_ptr<sync::CallSchedule> schedule = nullptr,
                       std::shared_ptr<distributed::World> trainers = nullptr,
                       std::shared_ptr<distributed::World> callers = nullptr) {
    const bool exclusive =
        turns_ != nullptr || function_ != nullptr || generator_.source() == inference::WeightSource::remote;
    const std::shared_ptr<sync::WeightGate>& turns = hand_overs_;
    turns->stop = stop_.get_token();
    turns->schedule = std::move(schedule);
    if (generator_.source() != inference::WeightSource::remote) {
      turns->trainers = std::move(trainers);
      turns->callers = std::move(callers);
      turns->hold = exclusive ? nullptr : hold_;
    }
    alone_ = std::make_unique<inference::AnyGenerator>(generator_);
    in_turns_ = std::make_unique<sync::GatedGenerator<inference::AnyGenerator>>(*alone_, turns);
    generator_ = inference::AnyGenerator(*in_turns_);
    sync_ = sync::AnySync(sync::GatedSync<sync::AnySync>(std::move(sync_), turns, exclusive));
  }
  // From here on the weights lie in `shards`, and are whole only while they are published: all of them for an engine that reads
  // them, a layer for one with a copy of its own, a tensor for a server. Before beside_training().
  void hold_in(const std::shared_ptr<distributed::ShardedWeights>& shards, std::shared_ptr<distributed::World> world) {
    if (snapshots_ != nullptr)
      return snapshots_->fetch_by([shards](const inference::WeightSnapshots::See& see) {
        shards->each_whole([&](const distributed::FlatUnit& unit) {
          for (const auto& entry : unit.entries()) see(entry.value);
        });
        for (const tensor::Tensor& weight : shards->others()) see(weight);
      });
    if (generator_.source() != inference::WeightSource::remote) {
      sync_ = sync::AnySync(sync::GatheredWeights(
          std::move(sync_), [shards] { return shards->gather_all(); }, moved_));
      return;
    }
    hand_overs_->sources = std::move(world);
    if (!hands_over_) return;
    sync_ = sync::AnySync(sync::FetchedWeights(
        std::move(sync_), [shards](const std::function<void()>& use) { shards->fetch_within(use); }));
  }
  // Asked to stop, ends what generator() is doing; an interruption of the run asks it to.
  [[nodiscard]] const std::stop_source& stop() const { return stop_; }
  // For the trainer's thread, while it waits for generator(); with the version of its weights.
  [[nodiscard]] std::function<void(std::int64_t)> meanwhile() const {
    return [turns = hand_overs_](std::int64_t version) { sync::restore_if_lost(*turns, version); };
  }
  // A number that grows while the generator works; empty where nothing can be told.
  [[nodiscard]] const std::function<std::uint64_t()>& progress() const { return progress_; }

  [[nodiscard]] inference::AnyGenerator& generator() { return generator_; }
  [[nodiscard]] const sync::AnySync& sync() const { return sync_; }

 private:
  struct Parts {
    std::shared_ptr<void> owner;
    inference::AnyGenerator generator;
    sync::AnySync sync;
    std::function<std::uint64_t()> progress = {};
    std::shared_ptr<sync::WeightGate> turns = std::make_shared<sync::WeightGate>();
    std::function<std::int64_t()> hold = {};
    std::function<void()> moved = {};
    std::string served_at = {};
    std::shared_ptr<inference::WeightSnapshots> snapshots = {};  // of an engine with copies
    bool hands_over = true;                                      // false: another rank does
  };

  CompletionSource(const RunConfig& c, const LanguageModel& model, std::ostream& log, const std::stop_source& stop)
      : CompletionSource(c.trl.serves()                ? served(c, model, log, stop.get_token())
                         : c.trl.generates_elsewhere() ? server(c, model, log, stop.get_token())
                         : c.trl.generates_beside()    ? snapshot(c, model, stop.get_token())
                                                       : local(c, model),
                         stop) {}
  CompletionSource(Parts parts, std::stop_source stop)
      : stop_(std::move(stop)),
        interrupted_(std::make_unique<Interrupted>(run::Interrupt::token(), Stop{stop_})),
        owner_(std::move(parts.owner)),
        generator_(std::move(parts.generator)),
        sync_(std::move(parts.sync)),
        hand_overs_(std::move(parts.turns)),
        progress_(std::move(parts.progress)),
        hold_(std::move(parts.hold)),
        moved_(std::move(parts.moved)),
        served_at_(std::move(parts.served_at)),
        snapshots_(std::move(parts.snapshots)),
        hands_over_(parts.hands_over) {}

  // Copies of what is trained, and an engine with half of the processors: the others train.
  static Parts snapshot(const RunConfig& c, const LanguageModel& model, std::stop_token stop) {
    const auto snapshots =
        std::make_shared<inference::WeightSnapshots>(model.decoder->config(), model.decoder->weights());
    const auto engine = std::make_shared<inference::SnapshotEngine>(
        snapshots,
        inference::EngineConfig{.threads = std::max(1, os::usable_processors() / 2),
                                .quantization = quantization(c),
                                .routed_experts = detail::replays_experts(c, *model.decoder),
                                .texts = texts(c, model)},
        std::move(stop));
    return {engine,
            inference::AnyGenerator(*engine),
            sync::AnySync(sync::SnapshotWeights(snapshots)),
            [engine] { return engine->passes(); },
            std::make_shared<sync::WeightGate>(),
            [engine] { return engine->hold(); },
            {},
            {},
            snapshots};
  }

  static inference::Quantization quantization(const RunConfig& c) {
    return inference::quantization_named(c.trl.generation_quantization, "trl.generation_quantization");
  }

  // Special tokens count as their text, so that a stop string can name one.
  static auto texts(const RunConfig& c, const LanguageModel& model) -> decltype(inference::EngineConfig::texts) {
    if (c.trl.stop_strings.empty()) return nullptr;
    return [tokenizer = model.tokenizer](std::span<const data::TokenId> prompt,
                                         const inference::SamplingConfig& sampling) {
      return inference::text_streams(tokenizer, prompt, sampling.stop_ids, false);
    };
  }

  static Parts local(const RunConfig& c, const LanguageModel& model) {
    const auto engine = std::make_shared<inference::LocalEngine>(
        model.decoder->config(), model.decoder->weights(),
        inference::EngineConfig{.keep_prefixes = true,
                                .quantization = quantization(c),
                                .routed_experts = detail::replays_experts(c, *model.decoder),
                                .texts = texts(c, model)});
    return {engine,
            inference::AnyGenerator(*engine),
            sync::AnySync(
                sync::SharedWeights([engine] { engine->weights_changed(); }, [engine] { engine->release_memory(); })),
            {},
            std::make_shared<sync::WeightGate>(),
            {},
            [engine] { engine->weights_changed(); }};
  }

  // What the server draws with where a request says nothing: as the engine of this process would.
  [[nodiscard]] static serve::ServedModel served_model(const RunConfig& c, const LanguageModel& model) {
    const TrlConfig& t = c.trl;
    return {.name = c.nemo_gym.model_name.value_or(model.base_model),
            .root = model.base_model,
            .decoder = model.decoder,
            .tokenizer = model.tokenizer,
            .chat_template = model.chat_template,
            .stop_ids = model.stop_ids,
            .sampling = {.temperature = t.temperature,
                         .top_p = t.top_p,
                         .min_p = t.min_p,
                         .repetition_penalty = t.repetition_penalty,
                         .top_k = t.top_k,
                         .max_tokens = {}}};
  }

  // A server in this process, of rank 0; calls of generator() ask it, too. While it answers beside training, it has half of the
  // processors.
  static Parts served(const RunConfig& c, const LanguageModel& model, std::ostream& log, std::stop_token stop) {
    const TrlConfig& t = c.trl;
    (void)detail::replays_experts(c, *model.decoder);  // refuses
    const auto world = world_of(c);
    std::shared_ptr<colocated::ColocatedServer> server;
    std::string url;
    if (world->rank() == 0) {
      const char* const key = std::getenv("VLLM_API_KEY");
      server = std::make_shared<colocated::ColocatedServer>(
          served_model(c, model),
          serve::ServerConfig{
              .http = {.host = t.vllm_server_host, .port = static_cast<std::uint16_t>(t.vllm_server_port)},
              .engine = {.engine = {.threads = t.generates_beside() ? std::max(1, os::usable_processors() / 2) : 0,
                                    .quantization = quantization(c)}},
              .api_key = key != nullptr ? key : "",
              .drawn_log_probs = true,
              .seed = c.seed,
              .report_seconds = 0.0,
              .tell = [&log](const std::string& line) { log << "warning: " << line << std::endl; }});
      url = server->url();
      log << "agents ask this process: " << url << "/v1" << std::endl;
    }
    url = world->gather("address of the generation server", url).front();
    const auto client = std::make_shared<remote::VllmClient>(
        remote::VllmConfig{.server = {.base_url = url, .headers = server_key(), .stop = std::move(stop)},
                           .vocab_size = model.decoder->config().vocab_size});
    Parts out{
        server != nullptr ? std::shared_ptr<void>(std::make_shared<Both>(server, client)) : client,
        inference::AnyGenerator(*client),
        server != nullptr ? sync::AnySync(colocated::ServedWeights(server)) : sync::AnySync(sync::FirstRankSync())};
    out.served_at = url;
    return out;
  }
  using Both = std::pair<std::shared_ptr<colocated::ColocatedServer>, std::shared_ptr<remote::VllmClient>>;

  static Parts server(const RunConfig& c, const LanguageModel& model, std::ostream& log, std::stop_token stop) {
    const TrlConfig& t = c.trl;
    (void)detail::replays_experts(c, *model.decoder);  // refuses
    const auto tell = [&log](const std::string& line) { log << "warning: " << line << std::endl; };
    const auto turns = std::make_shared<sync::WeightGate>();
    const http::ClientConfig address{.base_url = server_url(t),
                                     .call_seconds = t.request_timeout,
                                     // 500, too, as TRL's client does
                                     .retries = {.statuses = {429, 500, 502, 503, 504},
                                                 .tell =
                                                     [tell, turns](const http::Retry& r) {
                                                       if (!r.answered) turns->doubt = true;
                                                       tell(r.text());
                                                     }},
                                     .headers = server_key(),
                                     .stop = std::move(stop),
                                     .waiting = http::one_in(50.0, [&log](const std::string& line) {
                                       log << "waiting for the generation server: " << line << std::endl;
                                     })};
    data::Json kwargs = t.generation_kwargs;
    if (t.vllm_structured_outputs_regex) {
      if (!kwargs.is_object()) kwargs = data::Json::object();
      kwargs["structured_outputs"] = {{"regex", *t.vllm_structured_outputs_regex}};
    }
    const auto client =
        std::make_shared<remote::VllmClient>(remote::VllmConfig{.server = address,
                                                                .start_seconds = t.vllm_server_timeout,
                                                                .tell = tell,
                                                                .vocab_size = model.decoder->config().vocab_size,
                                                                .generation_kwargs = std::move(kwargs),
                                                                .adapter = sync::LoraFileSync::adapter_name});
    const std::shared_ptr<model::Decoder> decoder = model.decoder;
    const inference::AnyGenerator generator(*client);
    if (c.world != nullptr && c.world->rank() > 0)
      return {.owner = client,
              .generator = generator,
              .sync = sync::AnySync(sync::FirstRankSync()),
              .turns = turns,
              .hands_over = false};
    if (decoder->adapter() != nullptr && t.vllm_lora_sync && is_servable(decoder->adapter()->config)) {
      const auto save = [decoder, base = model.base_model](const std::filesystem::path& directory) {
        model::save_adapter(*decoder, directory, base);
      };
      return {client,
              generator,
              sync::AnySync(sync::LoraFileSync(address, std::filesystem::path(c.output_dir) / "lora_sync", save,
                                               t.vllm_server_timeout, tell)),
              {},
              turns};
    }
    const auto weights = [decoder] {
      // By the names of the checkpoint, of which servers make theirs.
      if (decoder->adapter() != nullptr)
        return model::with_joined_experts(decoder->config(), model::merged_weights(*decoder));
      model::PendingTensors out;
      for (const model::Parameter& p : decoder->parameters()) out.push_back(model::pending(*decoder, p.name, p.value));
      return model::with_joined_experts(decoder->config(), std::move(out));
    };
    return {client,
            generator,
            sync::AnySync(sync::ServerWeightSync(
                address, weights,
                {.group_port = static_cast<std::uint16_t>(t.vllm_group_port),
                 .seconds = std::min(t.request_timeout, sync::BroadcastSync::Settings().seconds)},
                t.vllm_server_timeout, tell, std::filesystem::path(c.output_dir) / "weight_sync")),
            {},
            turns};
  }

  struct Stop {
    std::stop_source source;
    void operator()() { source.request_stop(); }
  };
  using Interrupted = std::stop_callback<Stop>;

  std::stop_source stop_;
  std::unique_ptr<Interrupted> interrupted_;
  std::shared_ptr<void> owner_;
  inference::AnyGenerator generator_;
  sync::AnySync sync_;
  std::shared_ptr<sync::WeightGate> hand_overs_;
  std::function<std::uint64_t()> progress_;
  std::function<std::int64_t()> hold_;
  std::function<void()> moved_;
  std::string served_at_;
  std::shared_ptr<inference::WeightSnapshots> snapshots_;
  bool hands_over_;
  std::unique_ptr<inference::AnyGenerator> single_;  // of single turns, under turns_ or function_
  std::shared_ptr<remote::RolloutFunction> function_;
  std::shared_ptr<remote::GymAgents> agents_;
  std::unique_ptr<inference::MultiTurn<inference::AnyGenerator>> turns_;
  std::unique_ptr<inference::AnyGenerator> alone_;  // of one thread, under in_turns_
  std::unique_ptr<sync::GatedGenerator<inference::AnyGenerator>> in_turns_;
};

}  // namespace rlalgo::config
