// Definitions of model_card.hpp.
#pragma once

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/version.hpp>
#include <rlalgo/run/model_card.hpp>

namespace rlalgo::run {

namespace detail {

// The last part of a path or an id.
inline std::string short_name(const std::string& model) {
  std::filesystem::path path(model);
  if (!path.has_filename()) path = path.parent_path();
  return path.filename().string();
}

// In Markdown: no line, no backquote ends it.
inline std::string code(std::string text) {
  for (char& c : text)
    if (c == '`' || c == '\n' || c == '\r') c = ' ';
  return "`" + text + "`";
}

}  // namespace detail

RLALGO_INLINE std::string yaml_scalar(const std::string& text) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '/' || c == '.' ||
           c == '_' || c == '-' || c == '+';
  };
  // Letters first, so that it is no number, date, sign or mark; and none of the words that are values.
  static const std::set<std::string> values = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"};
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  const bool begins = !text.empty() && (text[0] == '/' || (lower[0] >= 'a' && lower[0] <= 'z'));
  if (begins && !values.contains(lower) && std::all_of(text.begin(), text.end(), plain)) return text;
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

RLALGO_INLINE std::string to_text(const ModelCard& card) {
  std::string out = "---\n";
  out += "base_model: " + yaml_scalar(card.base_model) + "\n";
  if (!card.datasets.empty()) {
    out += "datasets:\n";
    for (const std::string& id : card.datasets) out += "- " + yaml_scalar(id) + "\n";
  }
  out += std::string("library_name: ") + (card.adapter ? "peft" : "transformers") + "\n";
  out += "pipeline_tag: text-generation\n";
  std::set<std::string> tags = {"generated_from_trainer", "rlalgo"};
  if (card.adapter) tags.insert({"base_model:adapter:" + card.base_model, "lora", "transformers"});
  if (!card.method.empty()) tags.insert(card.method);
  out += "tags:\n";
  for (const std::string& tag : tags) {
    // A colon without a blank behind it is a letter like others.
    const bool plain = tag.starts_with("base_model:adapter:") && yaml_scalar(card.base_model) == card.base_model;
    out += "- " + (plain ? tag : yaml_scalar(tag)) + "\n";
  }
  out += "---\n\n";

  const std::string base = detail::code(card.base_model);
  out += "# " + detail::short_name(card.base_model);
  if (!card.method.empty()) out += ", trained by " + card.method;
  out += card.merged ? ", with an adapter added to its weights\n\n" : "\n\n";
  if (card.adapter)
    out += "A LoRA adapter in PEFT's format over " + base + ".";
  else if (card.merged)
    out += "The weights of " + base + " with an adapter added to them.";
  else
    out += "The weights of " + base + " after a training.";
  out += " Written by rlalgo.\n\n## Quick start\n\n```python\nfrom transformers import pipeline\n\n";
  out += "generator = pipeline(\"text-generation\", model=\"this directory or its id\")\n";
  out +=
      "print(generator([{\"role\": \"user\", \"content\": \"…\"}], max_new_tokens=128, "
      "return_full_text=False)[0][\"generated_text\"])\n```\n";
  if (!card.method.empty()) {
    out += "\n## Training procedure\n\nMethod: " + detail::code(card.method);
    if (!card.summary.empty()) out += ", " + card.summary;
    out += ".\n";
  }
  if (!card.settings.empty()) {
    out += "\n### Training hyperparameters\n\n";
    for (const auto& [name, value] : card.settings) out += "- " + name + ": " + value + "\n";
  }
  out += "\n### Framework versions\n\n- rlalgo " + std::string(version) + "\n";
  return out;
}

RLALGO_INLINE bool is_generated_card(std::string_view text) {
  if (!text.starts_with("---\n") && !text.starts_with("---\r\n")) return false;
  const std::size_t end = text.find("\n---", 3);
  if (end == std::string_view::npos) return false;
  const std::string_view front = text.substr(0, end);
  return front.find("generated_from_trainer") != std::string_view::npos ||
         front.find("library_name: peft") != std::string_view::npos;
}

}  // namespace rlalgo::run
