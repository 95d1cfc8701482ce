// Definitions of sampling_fields.hpp.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/core/compiled.hpp>
#include <rlalgo/serve/detail/json_value.hpp>
#include <rlalgo/serve/pattern.hpp>
#include <rlalgo/serve/refusal.hpp>
#include <rlalgo/serve/sampling_fields.hpp>
#include <rlalgo/serve/schema_pattern.hpp>

namespace rlalgo::serve {

namespace detail {

inline constexpr float forbidden_logit = -1e30f;

// What changes logits before a token is drawn.
struct LogitRules {
  std::vector<std::pair<data::TokenId, float>> bias;
  std::vector<char> allowed;  // [V], or empty: all
  float presence = 0.0f, frequency = 0.0f;

  [[nodiscard]] bool any() const { return !bias.empty() || !allowed.empty() || presence != 0.0f || frequency != 0.0f; }
  void operator()(std::span<float> logits, std::span<const data::TokenId> completion) const {
    for (const auto& [id, value] : bias) logits[static_cast<std::size_t>(id)] += value;
    if (presence != 0.0f || frequency != 0.0f) {
      std::vector<data::TokenId> ids(completion.begin(), completion.end());
      std::sort(ids.begin(), ids.end());
      for (std::size_t begin = 0; begin < ids.size();) {
        std::size_t end = begin;
        while (end < ids.size() && ids[end] == ids[begin]) ++end;
        logits[static_cast<std::size_t>(ids[begin])] -= presence + frequency * static_cast<float>(end - begin);
        begin = end;
      }
    }
    if (allowed.empty()) return;
    for (std::size_t v = 0; v < logits.size(); ++v)
      if (allowed[v] == 0) logits[v] = forbidden_logit;
  }
};

inline void read_bias(Fields& fields, std::int64_t vocab, LogitRules& rules) {
  const Json* const bias = fields.object("logit_bias");
  if (bias == nullptr) return;
  for (const auto& [key, value] : bias->items()) {
    data::TokenId id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error == std::errc::invalid_argument || (error == std::errc() && end != key.data() + key.size()))
      fields.wrong_type("logit_bias", Json(key), "token ids as names");
    if (error != std::errc() || id < 0 || id >= vocab)
      fields.out_of_range("logit_bias", "token id " + key, "0 to " + std::to_string(vocab - 1));
    if (!value.is_number()) fields.wrong_type("logit_bias." + key, value, "a number");
    const double amount = value.get<double>();
    if (!(amount >= -100.0 && amount <= 100.0)) fields.out_of_range("logit_bias." + key, value.dump(), "-100 to 100");
    rules.bias.emplace_back(id, static_cast<float>(amount));
  }
}

inline void read_allowed(Fields& fields, std::int64_t vocab, LogitRules& rules) {
  if (!fields.has("allowed_token_ids")) return;
  const std::vector<data::TokenId> ids = fields.ids("allowed_token_ids", vocab);
  if (ids.empty()) fields.out_of_range("allowed_token_ids", "an empty list", "at least one id");
  rules.allowed.assign(static_cast<std::size_t>(vocab), 0);
  for (const data::TokenId id : ids) rules.allowed[static_cast<std::size_t>(id)] = 1;
}

[[noreturn]] inline void refuse_structured(const std::string& name) {
  refuse_request(
      400, 12,
      {.what = "this kind of structured output is not supported", .found = name, .expected = "json, regex or choice"},
      name);
}

inline std::string json_pattern(Fields& fields, const std::string& name, bool spaces) {
  const Json& value = fields.required(name);
  if (!value.is_string()) return schema_pattern(value, spaces);
  auto [schema, problem] = core::read_json<Json>(value.get_ref<const std::string&>());
  if (!problem.text.empty())
    refuse_request(400, 24,
                   {.what = "a JSON schema for structured output cannot be used",
                    .found = problem.text,
                    .expected = "JSON",
                    .where = fields.place_of(name)},
                   fields.place_of(name));
  return schema_pattern(schema, spaces);
}

inline std::string choice_pattern(Fields& fields, const std::string& name) {
  const std::vector<std::string> choices = fields.texts(name);
  if (choices.empty()) fields.out_of_range(name, "an empty list", "at least one text");
  std::string out;
  for (const std::string& one : choices) out += (out.empty() ? "(" : "|") + escaped(one);
  return out + ")";
}

// The expression that the completion's text must match, of whichever name; none: any text.
inline std::optional<std::string> read_pattern(Fields& fields) {
  std::optional<std::string> out;
  if (fields.has("guided_json")) out = json_pattern(fields, "guided_json", true);
  if (const auto regex = fields.text("guided_regex")) out = plain_expression(*regex);
  if (fields.has("guided_choice")) out = choice_pattern(fields, "guided_choice");
  if (fields.has("guided_grammar")) refuse_structured("guided_grammar");
  (void)fields.find("guided_decoding_backend");
  if (const Json* const format = fields.object("response_format")) {
    Fields inner(*format, "response_format");
    const std::string type = inner.required_text("type");
    if (type == "json_schema") {
      const Json* const named = inner.object("json_schema");
      if (named == nullptr) (void)inner.required("json_schema");
      Fields schema(*named, "response_format.json_schema");
      out = json_pattern(schema, "schema", true);
    } else if (type == "json_object") {
      out = any_object_pattern();
    } else if (type != "text") {
      refuse_structured("response_format " + type);
    }
  }
  if (const Json* const structured = fields.object("structured_outputs")) {
    Fields inner(*structured, "structured_outputs");
    const bool spaces = !inner.flag("disable_any_whitespace", false);
    if (inner.has("json")) out = json_pattern(inner, "json", spaces);
    if (inner.flag("json_object", false)) out = any_object_pattern(spaces);
    if (const auto regex = inner.text("regex")) out = plain_expression(*regex);
    if (inner.has("choice")) out = choice_pattern(inner, "choice");
    for (const char* name : {"grammar", "structural_tag", "whitespace_pattern"})
      if (inner.has(name)) refuse_structured(std::string("structured_outputs.") + name);
    for (const char* name : {"disable_fallback", "disable_additional_properties"}) (void)inner.find(name);
    if (!out || !inner.unread().empty())
      refuse_structured("structured_outputs" + (inner.unread().empty() ? "" : "." + inner.unread().front()));
  }
  if (const auto regex = fields.text("structured_outputs_regex")) out = plain_expression(*regex);
  return out;
}

inline std::uint64_t fresh_seed() {
  static thread_local std::mt19937_64 source{std::random_device{}()};
  return source();
}

}  // namespace detail

RLALGO_INLINE SamplingRequest read_sampling(Fields& fields, const SamplingLimits& limits,
                                            std::optional<std::int64_t> otherwise, const SamplingDefaults& defaults) {
  constexpr std::int64_t most = std::int64_t{1} << 40U;
  SamplingRequest out;
  inference::SamplingConfig& sampling = out.spec.sampling;
  out.spec.count = fields.integer("n", 1, limits.most_completions).value_or(1);
  out.max_tokens = fields.integer("max_tokens", 0, most);
  if (!out.max_tokens) out.max_tokens = otherwise;
  if (defaults.max_tokens) out.max_tokens = std::min(out.max_tokens.value_or(most), *defaults.max_tokens);
  sampling.max_new_tokens = std::clamp<std::int64_t>(out.max_tokens.value_or(limits.length), 1, limits.length);
  sampling.temperature =
      fields.number("temperature", 0.0, detail::any_number).value_or(defaults.temperature.value_or(1.0));
  sampling.top_p = fields.number("top_p", 0.0, 1.0).value_or(defaults.top_p.value_or(1.0));
  if (sampling.top_p == 0.0) fields.out_of_range("top_p", "0", "above 0, to 1");
  sampling.top_k = std::max<std::int64_t>(0, fields.integer("top_k", -1, most).value_or(defaults.top_k.value_or(0)));
  sampling.min_p = fields.number("min_p", 0.0, 1.0).value_or(defaults.min_p.value_or(0.0));
  sampling.repetition_penalty =
      fields.number("repetition_penalty", 0.0, detail::any_number).value_or(defaults.repetition_penalty.value_or(1.0));
  if (sampling.repetition_penalty == 0.0) fields.out_of_range("repetition_penalty", "0", "above 0");
  sampling.stop_ids = fields.ids("stop_token_ids", limits.vocab_size);
  const auto seed = fields.integer("seed", INT64_MIN, INT64_MAX);
  out.seeded = seed.has_value();
  out.spec.key =
      seed ? inference::DrawKey{static_cast<std::uint64_t>(*seed), 0} : inference::DrawKey{detail::fresh_seed(), 1};

  out.spec.stop_strings = fields.texts("stop");
  for (const std::string& stop : out.spec.stop_strings)
    if (stop.empty()) fields.out_of_range("stop", "an empty text", "texts of at least one character");
  out.spec.min_new_tokens = fields.integer("min_tokens", 0, most).value_or(0);
  if (out.spec.min_new_tokens > out.max_tokens.value_or(limits.length))
    fields.out_of_range("min_tokens", std::to_string(out.spec.min_new_tokens),
                        "at most max_tokens = " + std::to_string(out.max_tokens.value_or(limits.length)));
  out.spec.min_new_tokens = std::min(out.spec.min_new_tokens, sampling.max_new_tokens);
  out.spec.ignore_eos = fields.flag("ignore_eos", false);
  out.include_stop_text = fields.flag("include_stop_str_in_output", false);
  out.skip_special_tokens = fields.flag("skip_special_tokens", true);

  auto rules = std::make_shared<detail::LogitRules>();
  rules->presence = static_cast<float>(fields.number("presence_penalty", -2.0, 2.0).value_or(0.0));
  rules->frequency = static_cast<float>(fields.number("frequency_penalty", -2.0, 2.0).value_or(0.0));
  detail::read_bias(fields, limits.vocab_size, *rules);
  detail::read_allowed(fields, limits.vocab_size, *rules);
  if (rules->any())
    out.spec.edit_logits = [rules = std::shared_ptr<const detail::LogitRules>(rules)](
                               std::span<float> logits, std::span<const data::TokenId> completion) {
      (*rules)(logits, completion);
    };

  out.pattern = detail::read_pattern(fields);
  return out;
}

}  // namespace rlalgo::serve
