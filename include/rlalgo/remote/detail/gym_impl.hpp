// Definitions of gym.hpp.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/http/reply_message.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/os/interruption.hpp>
#include <rlalgo/remote/gym.hpp>

namespace rlalgo::remote {

RLALGO_INLINE void GymCookies::keep(const http::Headers& headers) {
  for (const http::Header& header : headers) {
    if (!http::same_name(header.name, "Set-Cookie")) continue;
    const std::string pair = header.value.substr(0, header.value.find(';'));
    const std::size_t equals = pair.find('=');
    if (equals != std::string::npos && equals > 0) values_[pair.substr(0, equals)] = pair.substr(equals + 1);
  }
}

RLALGO_INLINE std::string GymCookies::header() const {
  std::string out;
  for (const auto& [name, value] : values_) out += (out.empty() ? "" : "; ") + name + "=" + value;
  return out;
}

RLALGO_INLINE Gym::Gym(GymConfig config) : config_(std::move(config)) {
  if (config_.tell)
    waiting_ =
        http::one_in(50.0, [tell = config_.tell](const std::string& line) { tell("waiting for the Gym: " + line); });
  (void)client(config_.head);
}

RLALGO_INLINE http::Client& Gym::client(const std::string& url) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<http::Client>& one = clients_[url];
  if (one == nullptr)
    one = std::make_unique<http::Client>(
        http::ClientConfig{.base_url = url,
                           .retries = {.retries = config_.retries, .statuses = {429, 500, 502, 503, 504}},
                           .stop = config_.stop,
                           .waiting = waiting_});
  return *one;
}

RLALGO_INLINE void Gym::pause(double seconds) {
  std::mutex mutex;
  std::condition_variable_any changed;
  std::unique_lock lock(mutex);
  changed.wait_for(lock, config_.stop, std::chrono::duration<double>(seconds), [] { return false; });
  if (config_.stop.stop_requested())
    os::raise_interrupted("http", 7, {.what = "the wait for the Gym was given up", .where = config_.head});
}

// The head's document; null: nobody answers yet.
RLALGO_INLINE Gym::Json Gym::document() {
  const std::string path = "/global_config_dict_yaml";
  const http::Result result = client(config_.head).call({.method = "GET", .target = path}, {.seconds = 10.0});
  if (!result.answered()) {
    if (result.failure().kind == http::Failure::Kind::cancelled)
      os::raise_interrupted("http", 7, {.what = "the wait for the Gym was given up", .where = config_.head});
    return nullptr;
  }
  if (!result.ok()) {
    if (result.response().status >= 500) return nullptr;
    GymDirectory::unreadable(config_.head + path, result.text());
  }
  auto [quoted, problem] = core::read_json<Json>(result.response().body);
  if (!problem.text.empty() || !quoted.is_string())
    GymDirectory::unreadable(config_.head + path, result.response().body.substr(0, 200));
  try {
    Json out = config_.yaml(quoted.get<std::string>());
    if (!out.is_null()) return out;
    GymDirectory::unreadable(config_.head + path, "an empty document");
  } catch (const core::UsageError& e) {
    GymDirectory::unreadable(config_.head + path, e.what());
  }
}

RLALGO_INLINE void Gym::discover(const std::vector<Needed>& needed) {
  const os::Stopwatch watch;
  bool reported = false;
  const auto wait_for_more = [&](const std::string& what) {
    if (config_.still_starting) config_.still_starting();
    if (watch.seconds() >= config_.start_seconds)
      core::raise("remote", 73,
                  {.what = "the NeMo Gym is not up",
                   .found = what,
                   .expected = "an answer within " + std::to_string(static_cast<std::int64_t>(config_.start_seconds)) +
                               " s (nemo_gym_server_timeout)",
                   .where = config_.head,
                   .remedy = "start it (docs/environments.md), or set nemo_gym_auto_start: true"});
    if (!std::exchange(reported, true) && config_.tell)
      config_.tell(what + "; waiting at most " + std::to_string(static_cast<std::int64_t>(config_.start_seconds)) +
                   " s");
    pause(std::clamp(config_.start_seconds - watch.seconds(), 0.01, 1.0));
  };
  for (;;) {
    const Json found = document();
    if (found.is_null()) {
      wait_for_more("the head server " + config_.head + " does not answer");
      continue;
    }
    directory_ = GymDirectory(found, config_.head);
    std::string silent;
    for (const Needed& one : needed) {
      const GymServer& server = directory_.find(one.kind, one.name, one.where);
      const http::Result result = client(server.url).call({.method = "GET", .target = "/"}, {.seconds = 10.0});
      if (!result.answered())
        silent = GymDirectory::word(one.kind) + " " + server.name + " (" + server.url + "): " + result.text();
      if (!silent.empty()) break;
    }
    if (silent.empty()) return;
    wait_for_more(silent);
  }
}

RLALGO_INLINE std::string Gym::own_failure(const Json& body) {
  const auto said = [&](const char* key) {
    const auto found = body.find(key);
    return found != body.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  for (const char* key : {"_ng_failure_class", "failure_kind"})
    if (const std::string kind = said(key); !kind.empty()) {
      std::string why = said("failure_reason");
      if (why.empty()) why = said("_ng_failure_judge_error");
      return kind + (why.empty() ? "" : ": " + why);
    }
  if (const auto mask = body.find("mask_sample"); mask != body.end() && mask->is_boolean() && mask->get<bool>())
    return "mask_sample" + (said("failure_reason").empty() ? std::string() : ": " + said("failure_reason"));
  return {};
}

RLALGO_INLINE GymReply Gym::post(const std::string& url, const std::string& path, const Json& body, double seconds,
                                 GymCookies* cookies) {
  http::Request request{.method = "POST",
                        .target = path,
                        .headers = {{"Content-Type", "application/json"}},
                        .body = body.dump(-1, ' ', false, Json::error_handler_t::replace)};
  if (cookies != nullptr)
    if (const std::string header = cookies->header(); !header.empty()) request.headers.push_back({"Cookie", header});
  const http::Result result = client(url).call(std::move(request), {.seconds = seconds});
  GymReply out;
  if (!result.answered()) {
    using Kind = http::Failure::Kind;
    const Kind kind = result.failure().kind;
    if (kind == Kind::cancelled)
      os::raise_interrupted("http", 7, {.what = "a call to the Gym was given up", .where = "POST " + url + path});
    out.failure = kind == Kind::timeout                               ? "timeout"
                  : kind == Kind::unreachable || kind == Kind::broken ? "unreachable"
                                                                      : "malformed";
    out.detail = "POST " + url + path + ": " + result.text();
    return out;
  }
  const http::Response& response = result.response();
  out.status = response.status;
  if (cookies != nullptr) cookies->keep(response.headers);
  const auto beginning = [](const std::string& text, std::size_t most) {
    return text.size() <= most ? text : text.substr(0, most) + "…";
  };
  const std::string shown = beginning(response.body, 300);
  if (!response.ok()) {
    const bool passing = out.status >= 500 || out.status == 408 || out.status == 429;
    out.failure = passing ? "status" : "refused";
    out.detail = "POST " + url + path + ": " + result.text() + " " + beginning(http::reply_message(response.body), 600);
    return out;
  }
  auto [answer, problem] = core::read_json<Json>(response.body);
  if (!problem.text.empty() || !answer.is_object()) {
    out.failure = "malformed";
    out.detail = "POST " + url + path + ": no JSON object: " + shown;
    return out;
  }
  out.body = std::move(answer);
  return out;
}

}  // namespace rlalgo::remote
