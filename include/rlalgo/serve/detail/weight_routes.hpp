// Routes that change what a server answers with: adapters, weights, pauses.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <rlalgo/core/digest.hpp>
#include <rlalgo/core/version.hpp>
#include <rlalgo/distributed/nccl_library.hpp>
#include <rlalgo/distributed/process_group.hpp>
#include <rlalgo/http/message.hpp>
#include <rlalgo/model/safetensors.hpp>
#include <rlalgo/os/regular_file.hpp>
#include <rlalgo/serve/broadcasts.hpp>
#include <rlalgo/serve/detail/answers.hpp>
#include <rlalgo/serve/detail/broadcast_routes.hpp>
#include <rlalgo/serve/detail/service.hpp>
#include <rlalgo/serve/detail/target.hpp>
#include <rlalgo/serve/weight_transfer.hpp>
#include <rlalgo/serve/wire_tensor.hpp>

namespace rlalgo::serve::detail {

class WeightRoutes {
 public:
  explicit WeightRoutes(Service& service) : service_(service), transfer_(service.store) {}

  // vLLM's.

  void load_adapter(const SharedExchange& exchange) {
    const Json body = parse_body(exchange->request().body);
    Fields fields(body);
    const std::string name = adapter_name(fields);
    const std::filesystem::path path = allowed(fields.required_text("lora_path"));
    const bool in_place = fields.flag("load_inplace", false);
    (void)fields.find("lora_int_id");
    service_.check_unread(fields);
    service_.later(exchange, false, [this, exchange, name, path, in_place] {
      service_.store.load_adapter(name, path, in_place);
      answer_text(*exchange, "Success: LoRA adapter '" + name + "' added successfully.");
    });
  }

  void unload_adapter(const SharedExchange& exchange) {
    const Json body = parse_body(exchange->request().body);
    Fields fields(body);
    const std::string name = adapter_name(fields);
    (void)fields.find("lora_int_id");
    service_.check_unread(fields);
    service_.later(exchange, false, [this, exchange, name] {
      service_.store.unload_adapter(name);
      if (service_.active_adapter() == name) service_.set_active_adapter({});
      answer_text(*exchange, "Success: LoRA adapter '" + name + "' removed successfully.");
    });
  }

  // axolotl's. Unlike there, the answer says whether the files could be used.

  void set_adapter(const SharedExchange& exchange) {
    const Json body = parse_body(exchange->request().body);
    Fields fields(body);
    const std::string name = adapter_name(fields);
    const std::filesystem::path path = allowed(fields.required_text("lora_path"));
    for (const char* ignored : {"lora_int_id", "load_inplace"}) (void)fields.find(ignored);
    service_.check_unread(fields);
    service_.later(exchange, true, [this, exchange, name, path] {
      service_.store.load_adapter(name, path, true);
      service_.set_active_adapter(name);
      answer_json(*exchange, {{"status", "ok"}});
    });
  }

  void clear_adapter(const SharedExchange& exchange) {
    service_.later(exchange, true, [this, exchange] {
      if (const std::string name = service_.active_adapter(); !name.empty()) {
        service_.set_active_adapter({});
        if (service_.store.find(name)) service_.store.unload_adapter(name);
      }
      answer_json(*exchange, {{"status", "ok"}});
    });
  }

  // A request is applied whole or, where one tensor does not fit, not at all.
  void http_update(const SharedExchange& exchange) {
    service_.later(exchange, true, [this, exchange] {
      const Json body = parse_body(exchange->request().body);
      Fields fields(body);
      const Json& list = fields.required("params");
      if (!list.is_array()) fields.wrong_type("params", list, "a list of tensors");
      service_.check_unread(fields);
      std::vector<model::NamedTensor> tensors;
      for (std::size_t i = 0; i < list.size(); ++i)
        tensors.push_back(read_wire_tensor(list[i], "params[" + std::to_string(i) + "]"));
      service_.store.update(tensors);
      answer_json(*exchange, {{"message", "HTTP weight update for " + std::to_string(tensors.size()) + " params"}});
    });
  }

  // vLLM's transfer: {"update_info": {"names", "dtype_names", "shapes"}}, and the tensors by broadcast from the trainer
  // that /init_weight_transfer_engine named; or over HTTP, with "data": [base64], the bytes of the type that they name;
  // or {"update_info": {"path": a safetensors file, or a directory of them}}; or, as application/octet-stream, a
  // safetensors file itself, whose metadata may name the session.

  void init_transfer(const SharedExchange& exchange) {
    const Json body = parse_body(exchange->request().body);
    Fields fields(body);
    Fields info(checked_object(fields, "init_info"), "init_info");
    const auto backend = info.text("backend");
    if (backend == "http" || backend == "file")
      return answer_json(*exchange, {{"message", "Weight transfer initialized"}});
    Broadcasts::Meeting meeting;
    meeting.transport = require_backend(service_, backend, exchange->request().target);
    meeting.host = info.required_text("master_address");
    for (const char* name : {"master_port", "world_size"}) (void)info.required(name);
    meeting.port = static_cast<std::uint16_t>(*info.integer("master_port", 1, 65535));
    meeting.size = static_cast<int>(*info.integer("world_size", 2, 4096));
    meeting.rank = static_cast<int>(info.integer("rank_offset", 1, meeting.size - 1).value_or(1));
    meeting.packed_bytes = packed_bytes(info).value_or(0);
    const std::string session = fields.text("session").value_or("");
    service_.later(exchange, false, [this, exchange, meeting, session] {
      transfer_.require_free(session);
      service_.broadcasts.join(meeting, Service::answer_when_done(exchange, "Weight transfer initialized", false));
    });
  }

  // Each act may bring a "session": see weight_transfer.hpp.
  void start_transfer(const SharedExchange& exchange) {
    const std::string session = text_in(exchange, "session");
    service_.later(exchange, false, [this, exchange, session] {
      transfer_.start(session);
      answer_json(*exchange, {{"message", "Weight update started"}});
    });
  }

  void update_transfer(const SharedExchange& exchange) {
    service_.later(exchange, false, [this, exchange] {
      const std::string* const type = http::find_header(exchange->request().headers, "Content-Type");
      if (type != nullptr && type->starts_with("application/octet-stream")) return update_by_bytes(*exchange);
      const Json body = parse_body(exchange->request().body);
      Fields fields(body);
      Fields info(checked_object(fields, "update_info"), "update_info");
      const std::string session = fields.text("session").value_or("");
      transfer_.touch(session);
      if (const auto path = info.text("path"))
        transfer_.add(tensors_of_files(allowed(*path)), session);
      else if (info.has("data"))
        transfer_.add(tensors_of(info), session);
      else
        return receive(exchange, info, session);
      answer_json(*exchange, {{"message", "Weights updated"}});
    });
  }

  void finish_transfer(const SharedExchange& exchange) {
    const std::string version = text_in(exchange, "weight_version"), session = text_in(exchange, "session");
    service_.later(exchange, false, [this, exchange, version, session] {
      transfer_.finish(version, session);
      answer_json(*exchange, {{"message", "Weight update finished"}});
    });
  }

  void server_info(const SharedExchange& exchange) {
    Json transports = {"http", "file"};
    const bool nccl = distributed::nccl_trouble().empty();
    if (distributed::gloo_built()) transports.push_back("gloo");
    if (nccl) transports.push_back("nccl");
    const std::string& backend = service_.config.broadcast_backend;
    const bool speaks = backend == "gloo" ? distributed::gloo_built() : nccl;
    answer_json(*exchange,
                {{"vllm_config",
                  {{"model_config",
                    {{"model", service_.model.name},
                     {"max_model_len", service_.model.length_limit()},
                     {"logprobs_mode", service_.config.drawn_log_probs ? "processed_logprobs" : "raw_logprobs"}}},
                   {"weight_transfer_config", speaks ? Json{{"backend", backend}} : Json(nullptr)}}},
                 {"rlalgo",
                  {{"version", std::string(rlalgo::version)},
                   {"weight_transfer", std::move(transports)},
                   {"weight_version", service_.store.version_name()}}}});
  }

  // Pauses.

  void pause(const SharedExchange& exchange, const std::string& mode) {
    PauseMode chosen = PauseMode::abort;
    if (mode == "keep")
      chosen = PauseMode::keep;
    else if (mode == "wait")
      chosen = PauseMode::wait;
    else if (!mode.empty() && mode != "abort")
      refuse_value("mode", mode, "abort, wait or keep");
    service_.engine.pause(chosen, [exchange] { answer_json(*exchange, {{"status", "paused"}}); });
  }
  void resume(const SharedExchange& exchange) {
    require_awake();
    service_.engine.resume();
    answer_json(*exchange, {{"status", "resumed"}});
  }
  void is_paused(const SharedExchange& exchange) { answer_json(*exchange, {{"is_paused", service_.engine.paused()}}); }

  // Sleep. The memory of keys, values and prefixes is given back; weights stay where they are, whatever the level, since
  // they are the file's own pages or what a trainer has sent. Requests wait as in a pause.
  void sleep(const SharedExchange& exchange, const Target& target) {
    const std::string level = target.query("level"), mode = target.query("mode");
    if (!level.empty() && level != "1" && level != "2") refuse_value("level", level, "1 or 2");
    if (!mode.empty() && mode != "abort" && mode != "wait") refuse_value("mode", mode, "abort or wait");
    asleep_ = true;
    const auto release = [this, exchange] {
      service_.engine.call([](inference::DecoderEngine& engine) { engine.release_memory(); });
      answer_json(*exchange, {{"status", "asleep"}, {"freed", {"kv_cache"}}, {"kept", {"weights"}}});
    };
    service_.engine.pause(mode == "wait" ? PauseMode::wait : PauseMode::abort, [this, exchange, release] {
      try {
        service_.later(exchange, false, release);
      } catch (const std::exception& error) {  // too much waits: nothing may escape on the engine's thread
        answer_error(*exchange, error, false);
      }
    });
  }
  // Weights are there all the time: the server goes on when the cache is asked for.
  void wake_up(const SharedExchange& exchange, const Target& target) {
    const std::vector<std::string> tags = target.queries("tags");
    bool all = tags.empty();
    for (const std::string& tag : tags) {
      if (tag != "weights" && tag != "kv_cache") refuse_value("tags", tag, "weights or kv_cache");
      all = all || tag == "kv_cache";
    }
    if (all && asleep_.exchange(false)) service_.engine.resume();
    answer_json(*exchange, {{"status", asleep_ ? "asleep" : "awake"}});
  }
  void is_sleeping(const SharedExchange& exchange) { answer_json(*exchange, {{"is_sleeping", asleep_.load()}}); }

  // Digests (XXH64) of the base model's tensors: of their bytes as they are served.
  void weight_checker(const SharedExchange& exchange) {
    const Json body = parse_body(exchange->request().body);
    Fields fields(body);
    const std::string action = fields.required_text("action");
    if (action == "reset")
      refuse_request(400, 12,
                     {.what = "weights are not replaced by random ones",
                      .found = action,
                      .expected = "checksum or compare",
                      .remedy = "POST an update of the weights"},
                     "action");
    if (action != "checksum" && action != "compare") fields.out_of_range("action", action, "checksum or compare");
    std::map<std::string, std::string> baseline;
    if (action == "compare")
      for (const auto& [name, digest] : checked_object(fields, "baseline").items())
        baseline[name] = digest.is_string() ? digest.get<std::string>() : std::string();
    else
      (void)fields.find("baseline");
    service_.check_unread(fields);
    service_.later(exchange, false, [this, exchange, action, baseline] {
      std::map<std::string, std::string> sums;
      for (const auto& [name, value] : service_.store.named_tensors()) {
        const tensor::Tensor plain = service_.store.numbers_of(name, value).to(at::Device(at::kCPU)).contiguous();
        core::Digest digest;
        sums[name] = digest.update({static_cast<const char*>(plain.const_data_ptr()), plain.nbytes()}).hex();
      }
      if (action == "checksum") return answer_json(*exchange, {{"checksums", sums}});
      Json mismatches = Json::array();
      for (const auto& [name, sum] : baseline)
        if (const auto at = sums.find(name); at == sums.end() || at->second != sum) mismatches.push_back(name);
      for (const auto& [name, sum] : sums)
        if (!baseline.contains(name)) mismatches.push_back(name);
      answer_json(*exchange, {{"match", mismatches.empty()}, {"mismatches", mismatches}});
    });
  }

  void abort_requests(const SharedExchange& exchange) {
    std::vector<std::string> ids;
    if (!exchange->request().body.empty()) {
      const Json body = parse_body(exchange->request().body);
      Fields fields(body);
      ids = fields.texts("request_ids");
      if (fields.has("request_ids") && ids.empty())
        return answer_json(*exchange, {{"status", "aborted"}, {"aborted", 0}});
    }
    service_.later(exchange, false, [this, exchange, ids] {
      const std::size_t count = service_.engine.abort(ids);
      answer_json(*exchange, {{"status", "aborted"}, {"aborted", count}});
    });
  }

  void weight_info(const SharedExchange& exchange) {
    answer_json(*exchange, {{"weight_version", service_.store.version_name()}});
  }
  void name_version(const SharedExchange& exchange) {
    const Json body = parse_body(exchange->request().body);
    Fields fields(body);
    const std::string name = fields.required_text("new_version");
    service_.store.name_version(name);
    answer_json(*exchange, {{"success", true}, {"new_version", name}});
  }

 private:
  [[noreturn]] static void refuse_value(const char* name, const std::string& found, const char* expected) {
    refuse_request(400, 4, {.what = "a value is out of range", .found = found, .expected = expected, .where = name},
                   name);
  }
  void require_awake() const {
    if (asleep_) refuse_request(409, 26, {.what = "the server sleeps", .remedy = "POST /wake_up"});
  }

  static void answer_text(http::Exchange& exchange, const std::string& text) {
    exchange.respond({.status = 200, .headers = {{"Content-Type", "text/plain; charset=utf-8"}}, .body = text});
  }

  [[nodiscard]] std::string adapter_name(Fields& fields) const {
    const std::string name = fields.required_text("lora_name");
    if (name.empty()) fields.out_of_range("lora_name", "an empty text", "a name");
    if (name == service_.model.name || name == service_.model.root)
      fields.out_of_range("lora_name", name, "another name than the model's");
    return name;
  }

  // A path below one that adapters may be read from. Links are followed first.
  [[nodiscard]] std::filesystem::path allowed(const std::string& given) const {
    std::error_code error;
    const std::filesystem::path path = std::filesystem::weakly_canonical(given, error);
    const auto& roots = service_.config.allowed_paths;
    bool inside = !error && roots.empty() && service_.any_path();
    for (const std::filesystem::path& root : roots) {
      std::error_code ignored;
      const std::filesystem::path real = std::filesystem::weakly_canonical(root, ignored);
      const auto [end, rest] = std::mismatch(real.begin(), real.end(), path.begin(), path.end());
      inside = inside || (!error && !ignored && (end == real.end() || (*end).empty()));
    }
    if (!inside)
      refuse_request(403, 17,
                     {.what = "the server does not read from that path",
                      .found = given,
                      .remedy = "start it with --allowed-path and a directory above it"},
                     "lora_path");
    return path;
  }

  // A text of a body that may be missing altogether; empty where it is.
  [[nodiscard]] static std::string text_in(const SharedExchange& exchange, const std::string& name) {
    if (exchange->request().body.empty()) return {};
    const Json body = parse_body(exchange->request().body);
    return Fields(body).text(name).value_or("");
  }

  [[nodiscard]] static const Json& checked_object(Fields& fields, const std::string& name) {
    const Json& value = fields.required(name);
    if (!value.is_object()) fields.wrong_type(name, value, "an object");
    return value;
  }

  // The number of bytes after which a packed buffer ends, 0 where each tensor comes alone; nothing where it is not said.
  [[nodiscard]] static std::optional<std::size_t> packed_bytes(Fields& info) {
    constexpr std::int64_t usual = std::int64_t{1} << 30U;
    const std::int64_t bytes = info.integer("packed_buffer_size_bytes", 1, std::int64_t{1} << 40U).value_or(usual);
    (void)info.find("packed_num_buffers");
    if (!info.has("packed")) return std::nullopt;
    return info.flag("packed", false) ? static_cast<std::size_t>(bytes) : 0;
  }

  struct Lists {
    const Json &names, &types, &shapes;
  };
  [[nodiscard]] static Lists lists_of(Fields& info) {
    const Json *const names = info.list("names"), *const types = info.list("dtype_names"),
                      *const shapes = info.list("shapes");
    for (const auto& [list, name] : {std::pair{names, "names"}, {types, "dtype_names"}, {shapes, "shapes"}})
      if (list == nullptr || names == nullptr || list->size() != names->size())
        info.wrong_type(name, list == nullptr ? Json() : *list, "a list as long as names");
    for (const auto& [list, name] : {std::pair{names, "names"}, {types, "dtype_names"}})
      for (const Json& one : *list)
        if (!one.is_string()) info.wrong_type(name, one, "a list of texts");
    return {*names, *types, *shapes};
  }

  [[nodiscard]] static std::vector<model::NamedTensor> tensors_of(Fields& info) {
    const Lists lists = lists_of(info);
    const Json* const data = info.list("data");
    if (data == nullptr || data->size() != lists.names.size())
      info.wrong_type("data", data == nullptr ? Json() : *data, "a list as long as names");
    std::vector<model::NamedTensor> out;
    for (std::size_t i = 0; i < data->size(); ++i) {
      const auto type = lists.types[i].get<std::string>();
      out.push_back(
          read_wire_tensor(WireTensor{lists.names[i].get<std::string>(), type, type, lists.shapes[i], (*data)[i]},
                           "update_info[" + std::to_string(i) + "]"));
    }
    return out;
  }

  void update_by_bytes(http::Exchange& exchange) {
    const model::SafetensorsFile file(std::as_bytes(std::span(exchange.request().body)), "the request's body");
    const auto session = file.metadata().find("session");
    const std::string named = session == file.metadata().end() ? "" : session->second;
    transfer_.touch(named);
    std::vector<model::NamedTensor> tensors;
    append_tensors(tensors, file);
    transfer_.add(std::move(tensors), named);
    answer_json(exchange, {{"message", "Weights updated"}});
  }

  static void append_tensors(std::vector<model::NamedTensor>& out, const model::SafetensorsFile& file) {
    for (const auto& [name, entry] : file.entries()) out.emplace_back(name, file.read(name));
  }

  // Tensors that are broadcast while the request waits for its answer.
  void receive(const SharedExchange& exchange, Fields& info, const std::string& session) {
    const Lists lists = lists_of(info);
    std::vector<AnnouncedTensor> tensors;
    for (std::size_t i = 0; i < lists.names.size(); ++i)
      tensors.push_back(read_announced(lists.names[i].get<std::string>(), lists.types[i].get<std::string>(),
                                       lists.shapes[i], "update_info[" + std::to_string(i) + "]"));
    const auto later = [this, exchange](const std::function<void()>& task) {
      try {
        service_.later(exchange, false, task);
      } catch (const std::exception& error) {
        answer_error(*exchange, error, false);
      }
    };
    service_.broadcasts.receive(
        std::move(tensors), packed_bytes(info),
        [this, exchange, session, later](std::vector<model::NamedTensor> received) {
          later([this, exchange, session, received = std::move(received)] {
            transfer_.add(received, session);
            answer_json(*exchange, {{"message", "Weights updated"}});
          });
        },
        [this, session, later](const std::exception_ptr& failure) {
          later([this, session, failure] {
            try {
              std::rethrow_exception(failure);
            } catch (const Refusal& refusal) {
              if (refusal.number() == Broadcasts::failed) transfer_.abandon(session);
              throw;
            }
          });
        });
  }

  [[nodiscard]] static std::vector<model::NamedTensor> tensors_of_files(const std::filesystem::path& path) {
    std::vector<std::filesystem::path> files = {path};
    if (os::is_directory(path)) {
      files.clear();
      std::error_code error;
      for (std::filesystem::directory_iterator at(path, error), end; !error && at != end; at.increment(error))
        if (at->path().extension() == ".safetensors") files.push_back(at->path());
      if (error)
        refuse_request(400, 19,
                       {.what = "the directory cannot be read", .found = error.message(), .where = path.string()});
    }
    std::vector<model::NamedTensor> out;
    for (const std::filesystem::path& file : files) append_tensors(out, model::SafetensorsFile(file));
    if (out.empty())
      refuse_request(400, 19,
                     {.what = "there are no tensors", .expected = "a safetensors file", .where = path.string()});
    return out;
  }

  Service& service_;
  WeightTransfer transfer_;  // used by tasks only
  std::atomic<bool> asleep_ = false;
};

}  // namespace rlalgo::serve::detail
