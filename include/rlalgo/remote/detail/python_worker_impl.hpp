// Definitions of python_worker.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/remote/detail/python_host.hpp>
#include <rlalgo/remote/detail/python_process.hpp>
#include <rlalgo/remote/detail/reward_worker_source.hpp>
#include <rlalgo/remote/python_worker.hpp>
#include <rlalgo/reward/function.hpp>

namespace rlalgo::remote {

RLALGO_INLINE PythonWorker::Loaded PythonWorker::load_function(const std::string& function) {
  if (!started_) start();
  const Json answer =
      ask({{"op", "load"}, {"function", function}, {"paths", paths_}}, function, config_.start_seconds, "importing");
  if (!answer.contains("name")) outside_protocol(function, answer.dump());
  return {answer.at("name").get<std::string>(), answer.value("async", false)};
}

RLALGO_INLINE std::vector<PythonWorker::Outcome> PythonWorker::call(const std::vector<Request>& requests,
                                                                    const reward::RewardCall& call,
                                                                    const std::string& attempt) {
  Json functions = Json::array();
  std::string names;
  for (const Request& r : requests) {
    functions.push_back(Json::array({r.function, r.keywords}));
    names += (names.empty() ? "" : ", ") + r.function;
  }
  const Json question = {
      {"op", "call"}, {"functions", std::move(functions)}, {"arguments", arguments(call)}, {"step", call.step}};
  const std::string where = "step " + std::to_string(call.step) + attempt;
  const Json answer = ask(question, names, config_.call_seconds, where);
  try {
    const Json& answers = answer.at("answers");
    if (!answers.is_array() || answers.size() != requests.size()) outside_protocol(names, answer.dump());
    std::vector<Outcome> outcomes;
    for (std::size_t i = 0; i < requests.size(); ++i) outcomes.push_back(outcome(answers[i], requests[i], where));
    return outcomes;
  } catch (const nlohmann::json::exception& e) {
    outside_protocol(names, core::json_reason(e.what()));
  }
}

RLALGO_INLINE std::vector<double> PythonWorker::call(const std::string& function, const reward::RewardCall& one_call) {
  Outcome only = std::move(call({Request{.function = function}}, one_call).front());
  if (only.error) std::rethrow_exception(only.error);
  if (one_call.log != nullptr) one_call.log->append(std::move(only.log));
  return std::move(only.values);
}

RLALGO_INLINE void PythonWorker::start() {
  if (const int error = process_.start(config_.python, detail::reward_worker_source); error != 0)
    core::raise("remote", 1,
                {.what = "Python for the reward functions cannot be started",
                 .found = std::strerror(error),
                 .where = process_.program(),
                 .remedy = "install python3, or set RLALGO_PYTHON to one"});
  started_ = true;
}

RLALGO_INLINE PythonWorker::Outcome PythonWorker::outcome(const Json& answer, const Request& request,
                                                          const std::string& where) {
  Outcome out;
  if (answer.contains("error")) {
    try {
      refuse(answer, request.function, where);
    } catch (const core::Error&) {
      out.error = std::current_exception();
    }
    return out;
  }
  for (const Json& value : answer.at("values")) out.values.push_back(detail::number_of(value));
  for (const Json& metric : answer.at("metrics"))
    out.log.metrics.emplace_back(metric.at(0).get<std::string>(), detail::number_of(metric.at(1)));
  for (const Json& extra : answer.at("extras"))
    out.log.extras.emplace_back(extra.at(0).get<std::string>(), extra.at(1));
  return out;
}

RLALGO_INLINE PythonWorker::Json PythonWorker::arguments(const reward::RewardCall& call) {
  Json out = Json::object();
  const std::size_t n = call.size();
  for (const Json& row : call.columns)
    for (const auto& [key, value] : row.items())
      if (!out.contains(key)) out[key] = Json(Json::array_t(n));  // null where a row lacks the column
  for (std::size_t i = 0; i < n; ++i)
    for (const auto& [key, value] : call.columns[i].items()) out[key][i] = value;
  out.erase("prompt");
  out.erase("completion");
  Json ids = Json::array();
  for (const auto row : call.completion_ids) ids.push_back(std::vector<std::int32_t>(row.begin(), row.end()));
  Json& prompts = out["prompts"] = Json::array();
  for (const Json* prompt : call.prompts) prompts.push_back(*prompt);
  out["completions"] = Json(Json::array_t(call.completions.begin(), call.completions.end()));
  out["completion_ids"] = std::move(ids);
  return out;
}

RLALGO_INLINE PythonWorker::Json PythonWorker::ask(const Json& question, const std::string& function, double seconds,
                                                   const std::string& where) {
  using Trouble = detail::PythonProcess::Trouble;
  auto result = process_.ask(question, seconds);
  if (Json* answer = std::get_if<Json>(&result)) return std::move(*answer);
  const auto& failure = std::get<detail::PythonProcess::Failure>(result);
  if (failure.trouble == Trouble::late)
    core::raise("remote", 6,
                {.what = "the reward function '" + function + "' did not answer in time",
                 .found = "no answer after " + seconds_text(failure.seconds),
                 .expected = "an answer within " + seconds_text(seconds),
                 .where = where,
                 .remedy = "make it faster, or raise the timeout; its process was killed"});
  if (failure.trouble == Trouble::ended)
    core::raise("remote", 7,
                {.what = "the Python process of the reward function '" + function + "' ended",
                 .found = failure.found,
                 .where = where,
                 .remedy = "what it printed is above"});
  if (failure.trouble == Trouble::unreadable) raise_unreadable(failure, function);
  refuse(failure.answer, function, where);
}

RLALGO_INLINE void PythonWorker::outside_protocol(const std::string& function, const std::string& found) {
  raise_unreadable(process_.unreadable(found), function);
}

RLALGO_INLINE void PythonWorker::raise_unreadable(const detail::PythonProcess::Failure& failure,
                                                  const std::string& function) {
  core::raise("remote", 8,
              {.what = "the Python process of the reward function '" + function + "' answered outside the protocol",
               .found = failure.found,
               .remedy = "file descriptor 3 belongs to the trainer: do not write to it"});
}

RLALGO_INLINE void PythonWorker::refuse(const Json& answer, const std::string& function, const std::string& where) {
  const std::string kind = answer.value("kind", "");
  const std::string message = answer.value("message", "");
  const std::string trace = answer.value("traceback", "");
  const std::string shown = trace.empty() ? "" : "\n" + trace;
  const std::string the_function = "the reward function '" + function + "' ";
  if (kind == "load")
    core::raise("remote", 2, {.what = "cannot load the reward function '" + function + "'", .found = message + shown});
  if (kind == "count")
    core::raise("remote", 4,
                {.what = the_function + "returned the wrong number of values",
                 .found = message,
                 .expected = "one number or None per completion",
                 .where = where});
  if (kind == "value")
    core::raise("remote", 5,
                {.what = the_function + "did not return numbers",
                 .found = message,
                 .expected = "one number or None per completion",
                 .where = where});
  core::raise("remote", 3, {.what = the_function + "raised an exception", .found = message, .where = where + shown});
}

RLALGO_INLINE std::string PythonWorker::seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", seconds);
  return text;
}

}  // namespace rlalgo::remote
