// The warning of a run that asks for a base in 4 or 8 bits and gets it whole: how many weights, in what, how much memory.
//
// Numbers come from the headers of the model's safetensors files; where base_model cannot be found or read the warning has none, and
// who loads the model says why.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>

#include <rlalgo/config/run_config.hpp>
#include <rlalgo/core/home_path.hpp>
#include <rlalgo/data/hub_cache.hpp>
#include <rlalgo/data/rollout.hpp>

namespace rlalgo::config::detail {

// Elements of all tensors of one file; none when it is not safetensors.
[[nodiscard]] inline std::optional<std::uint64_t> elements_of(const std::filesystem::path& path) {
  constexpr std::uint64_t longest_header = std::uint64_t{100} << 20U;
  std::ifstream file(path, std::ios::binary);
  std::uint64_t length = 0;
  for (unsigned shift = 0; shift < 64; shift += 8) length |= static_cast<std::uint64_t>(file.get() & 0xFF) << shift;
  if (!file || length > longest_header) return std::nullopt;
  std::string text(static_cast<std::size_t>(length), '\0');
  if (!file.read(text.data(), static_cast<std::streamsize>(length))) return std::nullopt;
  const data::Json header = data::Json::parse(text, nullptr, false);
  if (!header.is_object()) return std::nullopt;
  std::uint64_t total = 0;
  for (const auto& [name, tensor] : header.items()) {
    if (name == "__metadata__" || !tensor.is_object() || !tensor.contains("shape") || !tensor["shape"].is_array())
      continue;
    std::uint64_t elements = 1;
    for (const data::Json& side : tensor["shape"])
      elements *= side.is_number_unsigned() ? side.get<std::uint64_t>() : 0;
    total += elements;
  }
  return total;
}

[[nodiscard]] inline std::optional<std::uint64_t> weights_of(const RunConfig& config) {
  std::error_code error;
  std::filesystem::path directory = config.base_model;
  if (!std::filesystem::is_directory(directory, error)) {
    if (!data::is_hub_id(config.base_model)) return std::nullopt;
    const auto cached =
        data::find_in_hub_cache(data::HubKind::models, config.base_model, config.model_revision.value_or(""));
    if (!cached) return std::nullopt;
    directory = *cached;
  }
  std::optional<std::uint64_t> total;
  for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    if (at->path().extension() != ".safetensors") continue;
    if (const auto elements = elements_of(at->path())) total = total.value_or(0) + *elements;
  }
  return total;
}

// 1234 → "1234 bytes", 5.4e8 → "0.54 GB".
[[nodiscard]] inline std::string as_memory(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text,
                bytes < 1e6   ? "%.0f bytes"
                : bytes < 1e9 ? "%.0f MB"
                              : "%.1f GB",
                bytes < 1e6 ? bytes : bytes / (bytes < 1e9 ? 1e6 : 1e9));
  return text;
}

[[nodiscard]] inline std::string whole_base_warning(const RunConfig& config) {
  const std::string& key = config.wants_smaller_base;
  const double each = config.bfloat16 ? 2 : 4;
  std::string out = key + " (" + config.place(key) + "): the base is not quantized here, it is loaded whole, in " +
                    (config.bfloat16 ? "bfloat16" : "float32") + ", " + (config.bfloat16 ? "2" : "4") +
                    " bytes for each weight";
  if (const auto weights = weights_of(config)) {
    const auto count = static_cast<double>(*weights);
    const double asked = key == "load_in_8bit" ? 1.0 : 0.5;
    out += ": " + as_memory(count * each) + " for " + std::to_string(*weights) + " weights, where " +
           as_memory(count * asked) + " were asked for";
  }
  return out + (config.bfloat16 ? "" : ". bf16: true halves that");
}

}  // namespace rlalgo::config::detail
