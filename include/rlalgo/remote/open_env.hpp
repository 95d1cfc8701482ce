// OpenEnv's servers as the environments of a run: one WebSocket, and so one session, for each episode.
//
//   reset {"seed", …the row's columns}     what it observes first is appended to the prompt
//   step  the action                       reward and done are the environment's, rewards are summed
//
// An environment of tools (MCP) offers them to the model; each call is a step. To any other one what the model says becomes an
// action: a JSON object as it is; else, where the action has one field, the text (or the last number in it) as that field.
// What the server calls an invalid action is shown to the model, and the episode goes on. Completions of one group have one
// seed, so they face the same task: the row's, if it has one.
//
// A server has room for so many sessions (one, unless it says otherwise). Those that it has no room for begin when others
// have ended. An episode whose session breaks, is late or raises on the server has failed: it leaves its group.
//
// Errors: [rlalgo.remote.80] the server does not answer, or has no room in time; [.81] it is no OpenEnv server; [.82] all
// episodes of a generation failed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/environment/concept.hpp>
#include <rlalgo/http/websocket.hpp>

namespace rlalgo::remote {

struct OpenEnvConfig {
  std::string url{};                 // ws://HOST:PORT[/PATH], or http://…
  double seconds = 60.0;             // one answer; also until there is room for one session
  std::size_t at_once = 64;          // sessions that are waited for side by side
  bool failures_end_the_run = true;  // when all episodes of a generation fail
  std::function<void(const std::string&)> tell = {};
  std::stop_token stop = {};
};

class OpenEnv final : public environment::Environments {
 public:
  using Json = environment::Json;

  explicit OpenEnv(OpenEnvConfig config);
  ~OpenEnv() override = default;

  [[nodiscard]] std::string reward_name() const override { return name_; }
  [[nodiscard]] Json tools() const override { return tools_; }
  RLALGO_INLINE std::size_t room(std::size_t wanted) override;
  RLALGO_INLINE std::vector<Json> begin(std::span<const environment::Start> starts) override;
  RLALGO_INLINE std::vector<environment::Turn> step(std::span<const environment::Said> said) override;
  RLALGO_INLINE std::vector<environment::Ending> finish() override;

  // What is shown of an observation; empty: nothing.
  [[nodiscard]] static std::string text_of(const Json& observation);
  // An action of what the model said, by the schema of actions, or why there is none.
  [[nodiscard]] static std::pair<Json, std::string> action_of(const std::string& said, const Json& schema);

 private:
  struct Session {
    std::unique_ptr<http::WebSocket> socket;
    std::string failure, detail;  // empty: none
    std::int64_t calls = 0, call_failures = 0;
  };
  enum class Opened { yes, full, unreachable };

  Opened open(Session& session, std::string& why);
  // An answer's data; "error" answers too. Nothing: the session has failed.
  std::optional<Json> ask(Session& session, const Json& message, std::string& type);
  environment::Turn act(Session& session, const Json& message);
  environment::Turn step_once(Session& session, const Json& action, const std::string& tool);
  void look_at_server();
  void list_tools();
  void pause(double seconds);

  OpenEnvConfig config_;
  std::string socket_url_, base_url_, name_ = "openenv";
  Json schema_ = nullptr;  // of actions
  Json tools_ = nullptr;
  std::vector<Session> ready_, playing_;
};

// Whether an environment's name is an address.
[[nodiscard]] inline bool is_open_env(const std::string& name) {
  return name.starts_with("ws://") || name.starts_with("http://") || name.starts_with("wss://") ||
         name.starts_with("https://");
}

}  // namespace rlalgo::remote

#ifndef RLALGO_COMPILED
#include <rlalgo/remote/detail/open_env_impl.hpp>
#endif
