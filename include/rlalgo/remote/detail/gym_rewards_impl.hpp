// Definitions of gym_rewards.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/data/gym_row.hpp>
#include <rlalgo/environment/tool_calls.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/remote/detail/gym_row_names.hpp>
#include <rlalgo/remote/detail/side_by_side.hpp>
#include <rlalgo/remote/gym_rewards.hpp>

namespace rlalgo::remote {

RLALGO_INLINE std::string gym_resources_of(const nlohmann::ordered_json& row, const GymDirectory& directory) {
  const std::string where = "the row " + detail::row_words(row);
  if (const std::string name = detail::named_in(row, "agent_ref", "resources_servers"); !name.empty()) return name;
  if (const std::string name = detail::named_in(row, gym_server_column, nullptr); !name.empty()) return name;
  if (const std::string agent = detail::named_in(row, "agent_ref", "responses_api_agents"); !agent.empty()) {
    const GymServer& server = directory.find(GymKind::agent, agent, where);
    if (!server.resources.empty()) return server.resources;
    core::raise("remote", 71,
                {.what = "the agent of a row does not say which resources server it uses",
                 .found = agent,
                 .where = where,
                 .remedy = "write server_name beside the path in nemo_gym_datasets"});
  }
  core::raise("remote", 71,
              {.what = "a row names no server of the Gym",
               .expected = "agent_ref in the row, or server_name beside the path in nemo_gym_datasets",
               .where = where});
}

RLALGO_INLINE nlohmann::ordered_json gym_response(const std::string& text, bool tools, const std::string& model) {
  using Json = nlohmann::ordered_json;
  const Json message = tools ? environment::assistant_message(text) : Json{{"content", text}};
  const bool calls = message.contains("tool_calls");
  Json output = Json::array();
  if (const auto content = message.at("content").get<std::string>(); !content.empty() || !calls)
    output.push_back({{"id", "msg"},
                      {"role", "assistant"},
                      {"type", "message"},
                      {"status", "completed"},
                      {"content", {{{"type", "output_text"}, {"text", content}, {"annotations", Json::array()}}}}});
  if (calls) {
    std::size_t number = 0;
    for (const Json& call : message.at("tool_calls")) {
      const std::string id = "call_" + std::to_string(number++);
      output.push_back({{"type", "function_call"},
                        {"call_id", id},
                        {"id", id},
                        {"name", call.at("function").at("name")},
                        {"arguments", call.at("function").at("arguments").dump()},
                        {"status", "completed"}});
    }
  }
  return {{"id", "resp"},
          {"created_at", 0},
          {"model", model},
          {"object", "response"},
          {"output", std::move(output)},
          {"parallel_tool_calls", true},
          {"tool_choice", "auto"},
          {"tools", Json::array()}};
}

RLALGO_INLINE GymVerifier::Outcome GymVerifier::ask(const Json& columns, const std::string& text,
                                                    const std::string& server) {
  const os::Stopwatch watch;
  const std::string url = gym_->directory().find(GymKind::resources, server, "a dataset row").url;
  Json body = columns;
  body.erase(gym_server_column);
  GymCookies cookies;
  Outcome out;
  const auto failed = [&](const GymReply& reply) {
    out.failure = reply.failure;
    out.detail = reply.detail;
    out.refused_row = reply.failure == "refused";
    return out;
  };
  bool seeded = false;
  {
    const std::lock_guard lock(mutex_);
    seeded = stateless_.contains(server);
  }
  if (!seeded) {
    const GymReply reply = gym_->post(url, "/seed_session", body, config_.seconds, &cookies);
    if (reply.status == 404 || reply.status == 405) {
      const std::lock_guard lock(mutex_);
      stateless_.insert(server);
    } else if (!reply.failure.empty()) {
      return failed(reply);
    }
  }
  body["response"] = gym_response(text, !data::gym_tools(columns).is_null(), config_.model);
  const double left = std::max(0.05, config_.seconds - watch.seconds());
  const GymReply reply = gym_->post(url, "/verify", body, left, &cookies);
  if (reply.status == 404)
    core::raise("remote", 75,
                {.what = "a resources server cannot judge a single turn: it has no /verify",
                 .found = server,
                 .where = url,
                 .remedy = "it is one that is stepped; set nemo_gym_multi_turn: true and name its agent in the rows"});
  if (!reply.failure.empty()) return failed(reply);
  if (const std::string own = Gym::own_failure(reply.body); !own.empty()) {
    out.failure = "judge";
    out.detail = "POST " + url + "/verify: " + own;
    return out;
  }
  const auto value = reply.body.find("reward");
  if (value == reply.body.end() || !value->is_number() || !reward::is_usable(value->get<double>())) {
    out.failure = "malformed";
    out.detail = "POST " + url + "/verify: the reply has no reward";
    return out;
  }
  out.reward = value->get<double>();
  if (const auto components = reply.body.find("reward_components");
      components != reply.body.end() && components->is_object())
    for (const auto& [name, one] : components->items())
      if (one.is_number() && reward::is_usable(one.get<double>())) out.components[name] = one.get<double>();
  return out;
}

RLALGO_INLINE std::vector<GymVerifier::Outcome> GymVerifier::ask_all(const reward::RewardCall& call) {
  std::vector<std::string> servers;
  for (const Json& row : call.columns) servers.push_back(gym_resources_of(row, gym_->directory()));
  std::vector<Outcome> out(call.size());
  detail::side_by_side(out.size(), config_.at_once,
                       [&](std::size_t i) { out[i] = ask(call.columns[i], call.texts[i], servers[i]); });
  return out;
}

RLALGO_INLINE std::shared_ptr<const std::vector<GymVerifier::Outcome>> GymVerifier::verify(
    const reward::RewardCall& call, const std::string& who) {
  {
    const std::lock_guard lock(mutex_);
    if (kept_.outcomes != nullptr && kept_.step == call.step && !kept_.served.contains(who) &&
        std::equal(kept_.texts.begin(), kept_.texts.end(), call.texts.begin(), call.texts.end()) &&
        std::equal(kept_.columns.begin(), kept_.columns.end(), call.columns.begin(), call.columns.end())) {
      kept_.served.insert(who);
      return kept_.outcomes;
    }
  }
  std::vector<Outcome> outcomes = ask_all(call);
  const auto silent = [](const Outcome& one) { return one.failure == "unreachable" || one.failure == "timeout"; };
  if (!outcomes.empty() && std::all_of(outcomes.begin(), outcomes.end(), silent)) {
    std::vector<Gym::Needed> needed;
    std::set<std::string> names;
    for (const Json& row : call.columns)
      if (const std::string name = gym_resources_of(row, gym_->directory()); names.insert(name).second)
        needed.push_back({GymKind::resources, name, "a dataset row"});
    if (gym_->config().tell) gym_->config().tell(outcomes.front().detail + "; looking for the Gym again");
    gym_->discover(needed);
    outcomes = ask_all(call);
  }
  report(outcomes, call);
  const auto shared = std::make_shared<const std::vector<Outcome>>(std::move(outcomes));
  const std::lock_guard lock(mutex_);
  kept_ = {.step = call.step,
           .texts = {call.texts.begin(), call.texts.end()},
           .columns = {call.columns.begin(), call.columns.end()},
           .served = {who},
           .outcomes = shared};
  return shared;
}

RLALGO_INLINE void GymVerifier::report(const std::vector<Outcome>& outcomes, const reward::RewardCall& call) {
  std::map<std::string, std::size_t> classes;
  const Outcome* first = nullptr;
  std::vector<std::size_t> failed;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    const Outcome& one = outcomes[i];
    if (one.failure.empty()) continue;
    if (one.refused_row && config_.refusals_end_the_run)
      core::raise("remote", 74,
                  {.what = "a server of the Gym refuses a row",
                   .found = one.detail,
                   .where = "the row " + detail::row_words(call.columns[i]),
                   .remedy = "correct the row, or set trl.reward_on_failure: nan to count it as a failure"});
    ++classes[one.failure];
    failed.push_back(i);
    if (first == nullptr) first = &one;
  }
  const auto n = static_cast<double>(outcomes.size());
  if (!failed.empty() && failed.size() == outcomes.size() && config_.refusals_end_the_run)
    core::raise("remote", 76,
                {.what = "the Gym could judge no completion of a batch",
                 .found = std::to_string(failed.size()) + " failures; the first: " + first->detail,
                 .where = "step " + std::to_string(call.step),
                 .remedy = "its servers' own logs say more"});
  if (call.log == nullptr || outcomes.empty()) return;
  call.log->own_metrics.emplace_back("rollout/failed", static_cast<double>(failed.size()) / n);
  std::string counts;
  for (const auto& [name, count] : classes) {
    counts += (counts.empty() ? "" : ", ") + std::to_string(count) + " " + name;
    classes_.insert(name);
  }
  for (const std::string& name : classes_)
    call.log->own_metrics.emplace_back("rollout/failed/" + name, static_cast<double>(classes[name]) / n);
  if (first != nullptr)
    call.log->warnings.push_back("the Gym could not judge " + std::to_string(failed.size()) + " of " +
                                 std::to_string(outcomes.size()) + " completions, which leave their groups (" + counts +
                                 "): " + first->detail);
  call.log->failed.insert(call.log->failed.end(), failed.begin(), failed.end());
}

RLALGO_INLINE std::string GymReward::name() const { return component_.empty() ? "nemo_gym" : "nemo_gym." + component_; }

RLALGO_INLINE std::vector<double> GymReward::operator()(const reward::RewardCall& call) {
  const auto outcomes = verifier_->verify(call, component_);
  std::vector<double> out;
  for (const GymVerifier::Outcome& one : *outcomes) {
    if (!one.failure.empty()) {
      out.push_back(std::numeric_limits<double>::quiet_NaN());
      continue;
    }
    if (component_.empty()) {
      out.push_back(one.reward);
      continue;
    }
    const auto found = one.components.find(component_);
    if (found == one.components.end()) {
      std::string names;
      for (const auto& [name, value] : one.components) names += (names.empty() ? "" : ", ") + name;
      core::raise("remote", 77,
                  {.what = "a reply of the Gym has no such reward component",
                   .found = component_,
                   .expected = names.empty() ? "it has none: use nemo_gym" : "one of " + names,
                   .where = "trl.reward_funcs"});
    }
    out.push_back(found->second);
  }
  return out;
}

}  // namespace rlalgo::remote
