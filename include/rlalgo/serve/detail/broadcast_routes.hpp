// Routes of trainers that broadcast weights: TRL's and axolotl's communicator.
//
//   POST /init_communicator/ {"host", "port", "world_size": 2, "client_device_uuid", "backend": "gloo"}
//   POST /update_named_param/ {"name", "dtype": "torch.bfloat16", "shape"}, /batch_update_named_params/ {"params": [these]}
//   POST /close_communicator/
//
// The store listens where the server does, whatever "host" says. Unlike there, an answer of 200 says that the server is
// ready for the broadcast, and a name or shape that does not fit is refused before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/distributed/nccl_library.hpp>
#include <rlalgo/distributed/process_group.hpp>
#include <rlalgo/serve/broadcasts.hpp>
#include <rlalgo/serve/detail/answers.hpp>
#include <rlalgo/serve/detail/service.hpp>
#include <rlalgo/serve/wire_tensor.hpp>

namespace rlalgo::serve::detail {

// Raises serve.12 where weights cannot be broadcast with that backend; `backend` null: the server's own.
inline Broadcasts::Transport require_backend(const Service& service, const std::optional<std::string>& backend,
                                             const std::string& target) {
  const std::string name = backend.value_or(service.config.broadcast_backend);
  const bool gloo = name == "gloo";
  std::string why;
  if (gloo && distributed::gloo_built()) return Broadcasts::Transport::gloo;
  if (name == "nccl") {
    why = distributed::nccl_trouble();
    if (why.empty()) return Broadcasts::Transport::nccl;
  }
  refuse_request(400, 12,
                 {.what = "weights cannot be broadcast to this server with " + name,
                  .found = target + (why.empty() ? "" : ", and " + why),
                  .expected = std::string(distributed::gloo_built() ? "gloo, " : "") +
                              "/http_update_weights/, /set_lora_adapter/ or /v1/load_lora_adapter",
                  .remedy = gloo ? "install libgloo-dev and compile rlalgo again, or train with HTTP weights"
                                 : "say \"backend\": \"gloo\" (or start the server with --weight-transfer-config "
                                   "'{\"backend\": \"gloo\"}'), or train with HTTP weights or LoRA files"},
                 "backend");
}

inline AnnouncedTensor read_announced(const std::string& name, const std::string& type, const Json& shape,
                                      const std::string& place) {
  return {name, wire_type(type, place), wire_shape(shape, place)};
}

class BroadcastRoutes {
 public:
  explicit BroadcastRoutes(Service& service) : service_(service) {}

  void open(const SharedExchange& exchange) {
    const Json body = parse_body(exchange->request().body);
    Fields fields(body);
    const Broadcasts::Transport transport =
        require_backend(service_, fields.text("backend"), exchange->request().target);
    (void)fields.required("port");
    const auto port = static_cast<std::uint16_t>(*fields.integer("port", 1, 65535));
    if (fields.has("world_size")) (void)fields.integer("world_size", 2, 2);
    for (const char* ignored : {"host", "client_device_uuid"}) (void)fields.find(ignored);
    service_.check_unread(fields);
    service_.broadcasts.open(port, transport,
                             Service::answer_when_done(exchange, "Request received, initializing communicator", true));
  }

  void announce_one(const SharedExchange& exchange) {
    const Json body = parse_body(exchange->request().body);
    Fields fields(body);
    std::vector<AnnouncedTensor> one = {read(fields, "the body")};
    service_.check_unread(fields);
    service_.broadcasts.announce(
        std::move(one), Service::answer_when_done(exchange, "Request received, updating named parameter", true));
  }

  void announce(const SharedExchange& exchange) {
    const Json body = parse_body(exchange->request().body);
    Fields fields(body);
    const Json& list = fields.required("params");
    if (!list.is_array()) fields.wrong_type("params", list, "a list of tensors");
    service_.check_unread(fields);
    std::vector<AnnouncedTensor> tensors;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::string place = "params[" + std::to_string(i) + "]";
      Fields inner(list[i], place);
      tensors.push_back(read(inner, place));
    }
    service_.broadcasts.announce(std::move(tensors),
                                 Service::answer_when_done(exchange, "Request received, updating parameters", true));
  }

  void close(const SharedExchange& exchange) {
    service_.broadcasts.close(Service::answer_when_done(exchange, "Request received, closing communicator", true));
  }

 private:
  [[nodiscard]] static AnnouncedTensor read(Fields& fields, const std::string& place) {
    const std::string name = fields.required_text("name"), type = fields.required_text("dtype");
    return read_announced(name, type, fields.required("shape"), place + ", " + name);
  }

  Service& service_;
};

}  // namespace rlalgo::serve::detail
