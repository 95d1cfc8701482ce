// How config.json is read: typed fields of a JSON object, and its rotary embeddings (spellings of transformers 4 and 5).
//
// Errors: [rlalgo.model.9] a field missing or of the wrong type or value; [.11] unsupported feature; [.12] unknown RoPE type.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/error.hpp>
#include <rlalgo/model/decoder_config.hpp>

namespace rlalgo::model::detail {

using Json = nlohmann::ordered_json;

// Typed access to the fields of one JSON object; null counts as absent, as in transformers.
class JsonFields {
 public:
  JsonFields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  [[nodiscard]] const Json* find(std::string_view key) const;
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view key) const;
  [[nodiscard]] std::optional<double> number(std::string_view key) const;
  [[nodiscard]] std::optional<bool> boolean(std::string_view key) const;
  [[nodiscard]] std::optional<std::string> text(std::string_view key) const;
  // Written, as null.
  [[nodiscard]] bool has_null(std::string_view key) const;
  // An integer or a list of them.
  [[nodiscard]] std::vector<std::int64_t> integers(std::string_view key) const;
  // A required count.
  [[nodiscard]] std::int64_t positive(std::string_view key, std::optional<std::int64_t> fallback = std::nullopt) const;
  [[noreturn]] void wrong(std::string_view key, const Json& value, const std::string& expected) const;
  [[noreturn]] void unsupported(std::string_view key, const Json& value, const std::string& expected) const;
  [[nodiscard]] const std::string& where() const { return where_; }
  [[nodiscard]] const Json& object() const { return object_; }

 private:
  const Json& object_;
  std::string where_;
};

// What the rotation of a family may be beyond one of all elements of a head.
struct RotationKind {
  std::int64_t head_dim = 0;   // 0: partial rotations are refused
  double partial = 1.0;        // share of a head that is rotated where config.json says nothing
  bool longrope = false;       // with original_max_position_embeddings beside rope_parameters
  double original_length = 0;  // … and where config.json does not say it
  bool interleaved = false;
};

[[nodiscard]] RopeConfig parse_rope(const JsonFields& fields, std::int64_t max_positions, double theta,
                                    const RotationKind& kind = {});

// A rotation for each kind of layers, as families with several kinds write them.
struct RotationOfKind {
  std::string_view kind;       // its name in rope_parameters
  std::string_view theta_key;  // what an older file calls its theta
  double theta;
};
// rope_parameters has an object for each kind; older files have rope_scaling for the first one, and the thetas.
[[nodiscard]] std::vector<RopeConfig> parse_ropes_of_kinds(const JsonFields& fields, std::int64_t max_positions,
                                                           const std::vector<RotationOfKind>& kinds);

inline std::vector<double> numbers_of(const JsonFields& inner, std::string_view key, std::size_t count) {
  const Json* value = inner.find(key);
  const auto usable = [](const Json& one) { return one.is_number() && one.get<double>() > 0; };
  if (value == nullptr || !value->is_array() || value->size() != count ||
      !std::all_of(value->begin(), value->end(), usable))
    inner.wrong(key, value == nullptr ? Json(nullptr) : *value, std::to_string(count) + " positive numbers");
  return value->get<std::vector<double>>();
}

// As Phi-3 writes it, "su" and "yarn" being older names.
inline RopeConfig read_longrope(const JsonFields& fields, const JsonFields& inner, std::int64_t max_positions,
                                const std::string& type, const RotationKind& kind, RopeConfig rope) {
  if (type != "longrope" && type != "su" && type != "yarn")
    core::raise(
        "model", 12,
        {.what = "unknown RoPE type", .found = type, .expected = "default or longrope", .where = inner.where()});
  rope.kind = RopeConfig::Kind::longrope;
  const auto half = static_cast<std::size_t>(rope.rotated(kind.head_dim) / 2);
  rope.short_factor = numbers_of(inner, "short_factor", half);
  rope.long_factor = numbers_of(inner, "long_factor", half);
  const double original = fields.number("original_max_position_embeddings").value_or(kind.original_length);
  if (!(original > 1)) fields.wrong("original_max_position_embeddings", Json(original), "more than 1");
  rope.original_max_position_embeddings = original;
  rope.factor = inner.number("factor").value_or(static_cast<double>(max_positions) / original);
  rope.attention_factor =
      inner.number("attention_factor")
          .value_or(rope.factor <= 1 ? 1.0 : std::sqrt(1 + std::log(rope.factor) / std::log(original)));
  return rope;
}

// The rotation that an object of config.json describes.
inline RopeConfig read_rotation(const JsonFields& fields, const JsonFields& inner, std::int64_t max_positions,
                                double theta, const RotationKind& kind_of = {}) {
  RopeConfig rope;
  rope.interleaved = kind_of.interleaved;
  rope.theta = inner.number("rope_theta").value_or(theta);
  if (!(rope.theta > 0)) inner.wrong("rope_theta", Json(rope.theta), "a positive number");
  const std::string type = inner.text("rope_type").value_or(inner.text("type").value_or("default"));
  const double partial =
      inner.number("partial_rotary_factor").value_or(fields.number("partial_rotary_factor").value_or(kind_of.partial));
  if (partial != 1.0) {
    if (kind_of.head_dim == 0) inner.unsupported("partial_rotary_factor", Json(partial), "1.0");
    rope.width = static_cast<std::int64_t>(static_cast<double>(kind_of.head_dim) * partial);
    if (!(partial > 0 && partial < 1) || rope.width < 2 || rope.width % 2 != 0)
      inner.wrong("partial_rotary_factor", Json(partial),
                  "a share of head_dim " + std::to_string(kind_of.head_dim) + " that is an even number");
  }
  if (type == "default") return rope;
  if (kind_of.longrope) return read_longrope(fields, inner, max_positions, type, kind_of, std::move(rope));
  static constexpr std::pair<std::string_view, RopeConfig::Kind> kinds[] = {{"linear", RopeConfig::Kind::linear},
                                                                            {"dynamic", RopeConfig::Kind::dynamic},
                                                                            {"llama3", RopeConfig::Kind::llama3},
                                                                            {"yarn", RopeConfig::Kind::yarn}};
  const auto kind = std::find_if(std::begin(kinds), std::end(kinds), [&](const auto& k) { return k.first == type; });
  if (kind == std::end(kinds)) {
    core::raise("model", 12,
                {.what = "unknown RoPE type",
                 .found = type,
                 .expected = "default, linear, dynamic, llama3 or yarn",
                 .where = inner.where()});
  }
  rope.kind = kind->second;
  const auto positive = [&](std::string_view name, std::optional<double> fallback = std::nullopt) {
    const auto value = inner.number(name);
    if (!value && !fallback)
      core::raise("model", 9,
                  {.what = "a required field is missing", .found = "no " + std::string(name), .where = inner.where()});
    const double number = value ? *value : *fallback;
    if (!(number > 0) || !std::isfinite(number)) inner.wrong(name, Json(number), "a positive number");
    return number;
  };
  const double most = static_cast<double>(max_positions);
  rope.original_max_position_embeddings =
      rope.kind == RopeConfig::Kind::dynamic
          ? most
          : positive("original_max_position_embeddings",
                     fields.number("original_max_position_embeddings").value_or(most));
  rope.factor = rope.kind == RopeConfig::Kind::yarn ? positive("factor", most / rope.original_max_position_embeddings)
                                                    : positive("factor");
  if (rope.kind == RopeConfig::Kind::llama3) {
    rope.low_freq_factor = positive("low_freq_factor");
    rope.high_freq_factor = positive("high_freq_factor");
    if (rope.high_freq_factor <= rope.low_freq_factor)
      inner.wrong("high_freq_factor", Json(rope.high_freq_factor), "more than low_freq_factor");
  } else if (rope.kind == RopeConfig::Kind::yarn) {
    if (rope.theta <= 1) inner.wrong("rope_theta", Json(rope.theta), "more than 1");
    rope.beta_fast = positive("beta_fast", 32.0);
    rope.beta_slow = positive("beta_slow", 1.0);
    rope.truncate = inner.boolean("truncate").value_or(true);
    const auto scale = [&](double m) { return rope.factor <= 1 ? 1.0 : 0.1 * m * std::log(rope.factor) + 1.0; };
    const double mscale = inner.number("mscale").value_or(0), all = inner.number("mscale_all_dim").value_or(0);
    rope.attention_factor =
        positive("attention_factor", mscale != 0 && all != 0 ? scale(mscale) / scale(all) : scale(1));
  }
  return rope;
}

inline RopeConfig parse_rope(const JsonFields& fields, std::int64_t max_positions, double theta,
                             const RotationKind& kind) {
  theta = fields.number("rope_theta").value_or(theta);
  const Json* parameters = fields.find("rope_parameters");
  const Json* scaling = parameters != nullptr ? parameters : fields.find("rope_scaling");
  const std::string key = parameters != nullptr ? "rope_parameters" : "rope_scaling";
  static const Json nothing = Json::object();
  if (scaling == nullptr) scaling = &nothing;
  if (!scaling->is_object()) fields.wrong(key, *scaling, "object");
  const JsonFields inner(*scaling, fields.where() + ", " + key);
  for (const auto& [name, value] : scaling->items())
    if (value.is_object()) inner.unsupported(name, value, "one rotation for all layers, not one for each kind of them");
  return read_rotation(fields, inner, max_positions, theta, kind);
}

inline std::vector<RopeConfig> parse_ropes_of_kinds(const JsonFields& fields, std::int64_t max_positions,
                                                    const std::vector<RotationOfKind>& kinds) {
  const Json* parameters = fields.find("rope_parameters");
  const Json* scaling = fields.find("rope_scaling");
  const std::string where = fields.where() + ", rope_parameters";
  if (parameters != nullptr && !parameters->is_object()) fields.wrong("rope_parameters", *parameters, "object");
  if (scaling != nullptr && !scaling->is_object()) fields.wrong("rope_scaling", *scaling, "object");
  if (parameters != nullptr)
    for (const auto& [name, value] : parameters->items())
      if (std::none_of(kinds.begin(), kinds.end(), [&](const RotationOfKind& kind) { return kind.kind == name; }))
        JsonFields(*parameters, where).unsupported(name, value, "one rotation for each kind of layers");
  std::vector<RopeConfig> out;
  for (const RotationOfKind& kind : kinds) {
    Json own = Json::object();
    if (parameters != nullptr) {
      const JsonFields inner(*parameters, where);
      if (const Json* given = inner.find(kind.kind); given != nullptr) {
        if (!given->is_object()) inner.wrong(kind.kind, *given, "object");
        own = *given;
      }
    }
    if (scaling != nullptr && out.empty()) own.update(*scaling);
    const JsonFields inner(own, where + ", " + std::string(kind.kind));
    if (!own.contains("rope_type") && own.contains("type"))
      inner.unsupported("type", own.at("type"), "rope_type, which transformers reads in its place");
    out.push_back(read_rotation(fields, inner, max_positions, fields.number(kind.theta_key).value_or(kind.theta)));
  }
  return out;
}

inline const Json* JsonFields::find(std::string_view key) const {
  const auto it = object_.find(std::string(key));
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

inline std::optional<std::int64_t> JsonFields::integer(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_integer()) wrong(key, *value, "integer");
  return value->get<std::int64_t>();
}

inline std::optional<double> JsonFields::number(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) wrong(key, *value, "number");
  return value->get<double>();
}

inline std::optional<bool> JsonFields::boolean(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) wrong(key, *value, "true or false");
  return value->get<bool>();
}

inline std::optional<std::string> JsonFields::text(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) wrong(key, *value, "string");
  return value->get<std::string>();
}

inline bool JsonFields::has_null(std::string_view key) const {
  const auto it = object_.find(std::string(key));
  return it != object_.end() && it->is_null();
}

inline std::vector<std::int64_t> JsonFields::integers(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return {};
  if (value->is_number_integer()) return {value->get<std::int64_t>()};
  const auto is_integer = [](const Json& v) { return v.is_number_integer(); };
  if (!value->is_array() || !std::all_of(value->begin(), value->end(), is_integer))
    wrong(key, *value, "integer or list of integers");
  return value->get<std::vector<std::int64_t>>();
}

inline std::int64_t JsonFields::positive(std::string_view key, std::optional<std::int64_t> fallback) const {
  const auto value = integer(key);
  if (!value && !fallback) {
    core::raise("model", 9,
                {.what = "a required field is missing", .found = "no " + std::string(key), .where = where_});
  }
  const std::int64_t n = value ? *value : *fallback;
  if (n < 1 || n > std::numeric_limits<std::int32_t>::max()) wrong(key, Json(n), "a positive count");
  return n;
}

inline void JsonFields::wrong(std::string_view key, const Json& value, const std::string& expected) const {
  core::raise("model", 9,
              {.what = "field " + std::string(key) + " has a wrong value",
               .found = value.dump(),
               .expected = expected,
               .where = where_});
}

inline void JsonFields::unsupported(std::string_view key, const Json& value, const std::string& expected) const {
  core::raise("model", 11,
              {.what = "the model uses a feature that is not supported: " + std::string(key),
               .found = value.dump(),
               .expected = expected,
               .where = where_});
}

}  // namespace rlalgo::model::detail
