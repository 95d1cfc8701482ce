// Definitions of samples_log.hpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/core/compiled.hpp>
#include <rlalgo/run/detail/durable.hpp>
#include <rlalgo/run/samples_log.hpp>
#include <rlalgo/run/step.hpp>

namespace rlalgo::run {

RLALGO_INLINE std::string readable_prompt(const Json& prompt) {
  if (prompt.is_string()) return prompt.get<std::string>();
  if (!prompt.is_array()) return prompt.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string out;
  for (const Json& message : prompt) {
    const Json content = message.is_object() ? message.value("content", Json()) : message;
    if (!out.empty()) out += "\n";
    if (message.is_object() && message.contains("role") && message["role"].is_string())
      out += message["role"].get<std::string>() + ": ";
    out +=
        content.is_string() ? content.get<std::string>() : content.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return out;
}

RLALGO_INLINE void SamplesLog::cut(std::int64_t step) {
  std::string kept;
  std::ifstream in;
  if (os::is_regular_file(file_.path())) in.open(file_.path(), std::ios::binary);
  std::string line;
  while (step > 0 && std::getline(in, line)) {
    const Json entry = core::read_json<Json>(line).value;
    const bool whole = entry.is_object() && entry.contains("step") && entry["step"].is_number_integer() && !in.eof();
    if (whole && entry["step"].get<std::int64_t>() <= step) kept += line + '\n';
  }
  in.close();
  file_.replace(kept);
}

RLALGO_INLINE void SamplesLog::copy_to(const std::filesystem::path& checkpoint) const {
  std::error_code error;
  if (std::filesystem::file_size(file_.path(), error) > 0 && !error)
    detail::copy_whole_file(file_.path(), checkpoint / samples_file);
}

RLALGO_INLINE std::string SamplesLog::lines(std::int64_t step, const std::vector<Sample>& samples) {
  std::string out;
  for (const Sample& sample : samples) {
    std::string rewards;
    for (const auto& [name, value] : sample.rewards)
      rewards += (rewards.empty() ? "" : ", ") + text(name) + ": " + format_number(value);
    std::string turns;
    for (const Turn& turn : sample.turns)
      turns += std::string(turns.empty() ? "" : ", ") + (turn.model ? "{\"model\": " : "{\"environment\": ") +
               text(turn.text) + "}";
    out += "{\"step\": " + std::to_string(step) + ", \"prompt\": " + text(sample.prompt) +
           ", \"completion\": " + text(sample.completion) + ", \"rewards\": {" + rewards +
           "}, \"advantage\": " + format_number(sample.advantage) + ", \"cut\": " + (sample.cut ? "true" : "false") +
           (sample.logged.is_null() ? "" : ", \"logged\": " + text(sample.logged)) +
           (turns.empty() ? "" : ", \"turns\": [" + turns + "]") + "}\n";
  }
  return out;
}

}  // namespace rlalgo::run
