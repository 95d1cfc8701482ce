// Definitions of open_env.hpp.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/json_members.hpp>
#include <rlalgo/http/client.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/os/interruption.hpp>
#include <rlalgo/remote/detail/side_by_side.hpp>
#include <rlalgo/remote/open_env.hpp>

namespace rlalgo::remote {

RLALGO_INLINE OpenEnv::OpenEnv(OpenEnvConfig config) : config_(std::move(config)) {
  std::string address = config_.url;
  while (address.ends_with('/')) address.pop_back();
  const bool web = address.starts_with("http");
  const std::string rest = address.substr(address.find(':'));
  socket_url_ = (web ? (address.starts_with("https") ? "wss" : "ws") : address.substr(0, address.find(':'))) + rest;
  if (!socket_url_.ends_with("/ws")) socket_url_ += "/ws";
  (void)http::WebSocket({.url = socket_url_});
  base_url_ = "http" + socket_url_.substr(2, socket_url_.size() - 5);
  look_at_server();
}

RLALGO_INLINE void OpenEnv::pause(double seconds) {
  std::mutex mutex;
  std::condition_variable_any changed;
  std::unique_lock lock(mutex);
  changed.wait_for(lock, config_.stop, std::chrono::duration<double>(seconds), [] { return false; });
  if (config_.stop.stop_requested())
    os::raise_interrupted("http", 7, {.what = "the wait for an environment was given up", .where = socket_url_});
}

RLALGO_INLINE void OpenEnv::look_at_server() {
  const os::Stopwatch watch;
  http::Client client({.base_url = base_url_, .retries = {.retries = 0}, .stop = config_.stop});
  const auto get = [&](const char* path) {
    for (bool reported = false;; reported = true) {
      http::Result result =
          client.call({.method = "GET", .target = path}, {.seconds = std::min(10.0, config_.seconds)});
      if (result.answered() && result.response().status < 500) return result;
      if (watch.seconds() >= config_.seconds)
        core::raise("remote", 80,
                    {.what = "an environment's server does not answer",
                     .found = result.text(),
                     .expected = "an answer within trl.environment_timeout = " +
                                 std::to_string(static_cast<std::int64_t>(config_.seconds)) + " s",
                     .where = base_url_ + path,
                     .remedy = "start it, or correct trl.environment_factory"});
      if (!reported && config_.tell)
        config_.tell(base_url_ + ": " + result.text() + "; waiting for the environment's server");
      pause(0.5);
    }
  };
  const http::Result schema = get("/schema");
  auto [shapes, problem] = core::read_json<Json>(schema.ok() ? schema.response().body : std::string("null"));
  if (!problem.text.empty() || !shapes.is_object() || !shapes.contains("action"))
    core::raise("remote", 81,
                {.what = "the server of trl.environment_factory is no OpenEnv server",
                 .found = schema.ok() ? "no schema of actions" : schema.text(),
                 .expected = "what openenv's create_app makes",
                 .where = base_url_ + "/schema"});
  schema_ = shapes.at("action");
  const http::Result about = get("/metadata");
  if (about.ok()) {
    const Json said = core::read_json<Json>(about.response().body).value;
    if (std::string name = core::text_member(said, "name"); !name.empty()) name_ = std::move(name);
  }
  if (core::object_member(schema_, "properties").contains("tool_name")) list_tools();
}

RLALGO_INLINE void OpenEnv::list_tools() {
  (void)room(1);
  std::string type;
  const auto answer =
      ask(ready_.back(),
          {{"type", "mcp"},
           {"data", {{"jsonrpc", "2.0"}, {"id", 1}, {"method", "tools/list"}, {"params", Json::object()}}}},
          type);
  tools_ = Json::array();
  const Json result = answer ? core::object_member(*answer, "result") : Json::object();
  for (const Json& tool : core::list_member(result, "tools"))
    tools_.push_back({{"type", "function"},
                      {"function",
                       {{"name", core::text_member(tool, "name")},
                        {"description", core::text_member(tool, "description")},
                        {"parameters", core::member(tool, "inputSchema").is_object()
                                           ? tool["inputSchema"]
                                           : Json{{"type", "object"}, {"properties", Json::object()}}}}}});
  if (tools_.empty())
    core::raise("remote", 81,
                {.what = "the environment offers tools, but lists none",
                 .found = answer ? answer->dump().substr(0, 300) : ready_.back().detail,
                 .where = socket_url_});
}

RLALGO_INLINE OpenEnv::Opened OpenEnv::open(Session& session, std::string& why) {
  session = {};
  session.socket =
      std::make_unique<http::WebSocket>(http::WebSocketConfig{.url = socket_url_, .call_seconds = config_.seconds});
  const http::Result joined =
      session.socket->connect({.seconds = std::min(10.0, config_.seconds), .stop = config_.stop});
  if (!joined.answered() || joined.response().status != 101) {
    why = joined.text();
    return joined.answered() && joined.response().status < 500 && joined.response().status != 429 ? Opened::unreachable
                                                                                                  : Opened::full;
  }
  std::string type;
  const auto answer = ask(session, {{"type", "state"}}, type);
  if (!answer) {
    why = session.detail;
    return Opened::unreachable;
  }
  if (type == "error" && core::text_member(*answer, "code") == "CAPACITY_REACHED") {
    why = answer->value("message", "CAPACITY_REACHED");
    return Opened::full;
  }
  return Opened::yes;
}

RLALGO_INLINE std::size_t OpenEnv::room(std::size_t wanted) {
  const os::Stopwatch watch;
  while (ready_.size() < wanted) {
    std::string why;
    Session session;
    if (open(session, why) == Opened::yes) {
      ready_.push_back(std::move(session));
      continue;
    }
    if (config_.stop.stop_requested()) pause(0);
    if (!ready_.empty()) break;
    if (watch.seconds() >= config_.seconds)
      core::raise("remote", 80,
                  {.what = "an environment's server has no session for us",
                   .found = why,
                   .expected = "one within trl.environment_timeout",
                   .where = socket_url_,
                   .remedy = "is another client using its sessions? max_concurrent_envs is their number"});
    pause(0.2);
  }
  return std::min(wanted, ready_.size());
}

RLALGO_INLINE std::optional<OpenEnv::Json> OpenEnv::ask(Session& session, const Json& message, std::string& type) {
  const auto failed = [&](const http::Failure& failure) -> std::optional<Json> {
    if (failure.kind == http::Failure::Kind::cancelled)
      os::raise_interrupted("http", 7, {.what = "a call to an environment was given up", .where = socket_url_});
    session.failure = failure.kind == http::Failure::Kind::timeout ? "timeout" : "unreachable";
    session.detail = failure.text();
    return std::nullopt;
  };
  const http::WaitOptions wait{.seconds = config_.seconds, .stop = config_.stop};
  if (const auto failure = session.socket->send(message.dump(-1, ' ', false, Json::error_handler_t::replace), wait))
    return failed(*failure);
  const http::Received got = session.socket->receive(wait);
  if (!got.is_message()) {
    if (!got.is_closed()) return failed(got.failure());
    session.failure = "unreachable";
    session.detail = got.text();
    return std::nullopt;
  }
  auto [answer, problem] = core::read_json<Json>(got.message().data);
  if (!problem.text.empty() || !answer.is_object() || !answer.contains("type") || !answer["type"].is_string()) {
    session.failure = "malformed";
    session.detail = "an answer outside the protocol: " + got.message().data.substr(0, 200);
    return std::nullopt;
  }
  type = answer["type"].get<std::string>();
  return answer.contains("data") ? answer["data"] : Json::object();
}

// One reset or step: what it observed, its reward, whether it is over.
RLALGO_INLINE environment::Turn OpenEnv::act(Session& session, const Json& message) {
  std::string type;
  const auto data = ask(session, message, type);
  environment::Turn over{.observation = nullptr, .reward = 0.0, .done = true};
  if (!data) return over;
  if (type == "error") {
    const std::string code = core::text_member(*data, "code");
    std::string text = core::text_member(*data, "message");
    for (const Json& one : core::list_member(*data, "errors"))
      if (one.is_object()) text += "; " + core::member(one, "loc").dump() + ": " + core::text_member(one, "msg");
    if (code == "VALIDATION_ERROR" || code == "INVALID_JSON")
      return {.observation = "Invalid action: " + text, .reward = 0.0, .done = false};
    session.failure = "status";
    session.detail = code + ": " + text;
    return over;
  }
  const Json reward = core::member(*data, "reward");
  environment::Turn out{
      .observation = core::member(*data, "observation").is_null() ? Json::object() : core::member(*data, "observation"),
      .reward = reward.is_number()                          ? reward.get<double>()
                : reward.is_boolean() && reward.get<bool>() ? 1.0
                                                            : 0.0,
      .done = core::member(*data, "done") == true};
  if (type != "observation") {
    session.failure = "malformed";
    session.detail = "an answer of type " + type;
    return over;
  }
  if (!out.observation.is_object()) out.observation = Json{{"text", text_of(out.observation)}};
  return out;
}

RLALGO_INLINE std::vector<OpenEnv::Json> OpenEnv::begin(std::span<const environment::Start> starts) {
  if (room(starts.size()) < starts.size())
    core::raise("remote", 80,
                {.what = "an environment's server has fewer sessions than were asked for",
                 .found = std::to_string(ready_.size()),
                 .expected = std::to_string(starts.size()),
                 .where = socket_url_});
  playing_.clear();
  for (std::size_t i = 0; i < starts.size(); ++i) {
    playing_.push_back(std::move(ready_.back()));
    ready_.pop_back();
  }
  std::vector<Json> out(starts.size());
  detail::side_by_side(starts.size(), config_.at_once, [&](std::size_t i) {
    Json data = starts[i].row;
    data.erase("prompt");
    if (!data.contains("seed")) data["seed"] = starts[i].group_seed & 0x7fffffffU;
    const environment::Turn first = act(playing_[i], {{"type", "reset"}, {"data", std::move(data)}});
    if (first.observation.is_object())
      if (const std::string text = text_of(first.observation); !text.empty()) out[i] = text;
  });
  return out;
}

RLALGO_INLINE environment::Turn OpenEnv::step_once(Session& session, const Json& action, const std::string& tool) {
  environment::Turn turn = act(session, {{"type", "step"}, {"data", action}});
  if (!session.failure.empty()) return turn;
  if (tool.empty()) {
    if (turn.observation.is_object()) turn.observation = text_of(turn.observation);
    return turn;
  }
  ++session.calls;
  std::string text;
  if (turn.observation.is_string()) {  // refused
    ++session.call_failures;
    text = turn.observation.get<std::string>();
  } else {
    const Json error = core::member(turn.observation, "error");
    const Json result = core::member(turn.observation, "result");
    if (!error.is_null()) {
      text = "Error: " + core::text_member(error, "message", error.dump());
    } else if (core::member(result, "content").is_array()) {
      for (const Json& part : result["content"]) text += core::text_member(part, "text");
    } else {
      text = result.is_string() ? result.get<std::string>() : result.dump();
    }
    const bool failed = core::member(result, "is_error") == true;
    if (!error.is_null() || failed) ++session.call_failures;
  }
  turn.observation = {{"role", "tool"}, {"name", tool}, {"content", text}};
  return turn;
}

RLALGO_INLINE std::vector<environment::Turn> OpenEnv::step(std::span<const environment::Said> said) {
  std::vector<environment::Turn> out(said.size());
  detail::side_by_side(said.size(), config_.at_once, [&](std::size_t k) {
    Session& session = playing_[said[k].episode];
    const Json& message = said[k].message;
    environment::Turn& turn = out[k];
    if (!session.failure.empty()) {
      turn.done = true;
      return;
    }
    if (tools_.is_null()) {
      auto [action, why] = action_of(message.at("content").get<std::string>(), schema_);
      if (action.is_null())
        turn = {.observation = why, .reward = 0.0, .done = false};
      else
        turn = step_once(session, action, "");
      return;
    }
    const auto calls = message.find("tool_calls");
    if (calls == message.end() || calls->empty()) {
      turn.done = true;
      return;
    }
    turn.observation = Json::array();
    for (const Json& call : *calls) {
      const auto name = call.at("function").at("name").get<std::string>();
      environment::Turn one = step_once(
          session, {{"type", "call_tool"}, {"tool_name", name}, {"arguments", call.at("function").at("arguments")}},
          name);
      turn.reward += one.reward;
      turn.done = one.done;
      if (one.done) return;
      turn.observation.push_back(std::move(one.observation));
    }
  });
  return out;
}

RLALGO_INLINE std::vector<environment::Ending> OpenEnv::finish() {
  std::vector<environment::Ending> out;
  std::size_t failures = 0;
  std::string first;
  for (const Session& session : playing_) {
    out.push_back({.reward = 0.0,
                   .tool_calls = session.calls,
                   .tool_failures = session.call_failures,
                   .failure = session.failure});
    if (session.failure.empty()) continue;
    if (failures++ == 0) first = session.failure + ": " + session.detail;
  }
  detail::side_by_side(playing_.size(), config_.at_once, [&](std::size_t i) {
    (void)playing_[i].socket->close(1000, {}, {.seconds = 2.0, .stop = config_.stop});
  });
  const bool all = failures == playing_.size() && failures > 0;
  playing_.clear();
  if (all && config_.failures_end_the_run)
    core::raise("remote", 82,
                {.what = "all episodes of a generation failed",
                 .found = std::to_string(failures) + " failures; the first: " + first,
                 .where = socket_url_,
                 .remedy = "the server's own log says more; trl.reward_on_failure: nan goes on without them"});
  if (failures > 0 && config_.tell)
    config_.tell(std::to_string(failures) + " of " + std::to_string(out.size()) +
                 " episodes failed, and leave their groups: " + first);
  return out;
}

RLALGO_INLINE std::string OpenEnv::text_of(const Json& observation) {
  if (observation.is_string()) return observation.get<std::string>();
  if (!observation.is_object()) return observation.is_null() ? std::string() : observation.dump();
  for (const char* key : {"text", "message", "prompt", "content", "observation", "output", "stdout"})
    if (const auto found = observation.find(key); found != observation.end() && found->is_string())
      return found->get<std::string>();
  Json rest = Json::object();
  for (const auto& [key, value] : observation.items())
    if (key != "metadata" && key != "reward" && key != "done" && !value.is_null()) rest[key] = value;
  if (rest.size() == 1 && rest.begin()->is_string()) return rest.begin()->get<std::string>();
  if (!rest.empty()) return rest.dump(-1, ' ', false, Json::error_handler_t::replace);
  const auto metadata = observation.find("metadata");
  if (metadata != observation.end() && metadata->is_object())
    for (const char* key : {"text", "message", "prompt"})
      if (const auto found = metadata->find(key); found != metadata->end() && found->is_string())
        return found->get<std::string>();
  return {};
}

RLALGO_INLINE std::pair<OpenEnv::Json, std::string> OpenEnv::action_of(const std::string& said, const Json& schema) {
  const std::size_t open = said.find('{'), close = said.rfind('}');
  if (open != std::string::npos && close != std::string::npos && open < close) {
    auto [object, problem] = core::read_json<Json>(said.substr(open, close - open + 1));
    if (problem.text.empty() && object.is_object()) return {std::move(object), {}};
  }
  std::vector<std::pair<std::string, std::string>> fields;
  const Json properties = core::object_member(schema, "properties");
  for (const auto& [name, property] : properties.items())
    if (name != "metadata" && name != "type") fields.emplace_back(name, core::text_member(property, "type"));
  const std::string wanted = "Answer with a JSON object" + [&] {
    std::string names;
    for (const auto& [name, type] : fields)
      names += (names.empty() ? " of " : ", ") + name + (type.empty() ? "" : " (" + type + ")");
    return names;
  }() + ".";
  if (fields.size() != 1) return {nullptr, wanted};
  const auto& [name, type] = fields.front();
  const std::size_t begin = said.find_first_not_of(" \t\r\n"), end = said.find_last_not_of(" \t\r\n");
  const std::string text = begin == std::string::npos ? std::string() : said.substr(begin, end - begin + 1);
  if (type == "string") return {Json{{name, text}}, {}};
  if (type == "integer" || type == "number") {
    static const std::regex number("[-+]?[0-9]+(\\.[0-9]+)?");
    std::string last;
    for (auto at = std::sregex_iterator(text.begin(), text.end(), number); at != std::sregex_iterator(); ++at)
      last = at->str();
    const bool whole = last.find('.') == std::string::npos;
    if (last.empty() || last.size() > 18 || (type == "integer" && !whole)) return {nullptr, wanted};
    if (whole) return {Json{{name, std::stoll(last)}}, {}};
    return {Json{{name, std::stod(last)}}, {}};
  }
  return {nullptr, wanted};
}

}  // namespace rlalgo::remote
