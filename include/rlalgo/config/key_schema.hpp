// The keys as a JSON schema (draft 2020-12), for editors and for programs that write configurations: `rlalgo keys --json-schema`.
//
//   # yaml-language-server: $schema=rlalgo.schema.json
//
// A row (config/key.hpp) becomes a property: its sentence, default, range and words; `trl.` and the other prefixes become sections. A
// name with several rows (a key that two methods read in two ways) takes what one of them takes. Keys that axolotl has and that have no
// effect are `deprecated`, with the reason; those that this program lacks take what asks for nothing; all others are refused. null
// stands for a key that is not there, and a number may be a text, such as PyYAML's "1e-6". What hangs on other keys is not in the
// schema: `rlalgo train` judges it.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/config/detail/read_adapter.hpp>
#include <rlalgo/config/detail/read_datasets.hpp>
#include <rlalgo/config/detail/read_optimizer.hpp>
#include <rlalgo/config/detail/read_quantisation.hpp>
#include <rlalgo/config/key_page.hpp>
#include <rlalgo/config/plugins.hpp>
#include <rlalgo/config/recognised.hpp>

namespace rlalgo::config {

namespace detail {

using data::Json;

[[nodiscard]] inline Json list_of(Json item) { return {{"type", "array"}, {"items", std::move(item)}}; }

// A number within a range.
[[nodiscard]] inline Json number_schema(const char* type, const Key& row) {
  Json out = {{"type", type}};
  const auto bound = [&out](const char* name, double at) {
    if (!std::isfinite(at)) return;
    if (std::floor(at) == at)
      out[name] = static_cast<std::int64_t>(at);
    else
      out[name] = at;
  };
  if (row.ranged) {
    const Range& range = row.range;
    if (row.or_zero)
      out["minimum"] = 0;
    else
      bound(range.open_low ? "exclusiveMinimum" : "minimum", range.low);
    bound(range.open_high ? "exclusiveMaximum" : "maximum", range.high);
  }
  return out;
}

// Of one form; null where `form` is a word.
[[nodiscard]] inline Json form_schema(std::string_view form, const Key& row) {
  if (form == "true, false") return {{"type", "boolean"}};
  if (form == "number") return number_schema("number", row);
  if (form == "whole number") return number_schema("integer", row);
  if (form == "text" || form == "word" || form == "a name") return {{"type", "string"}};
  if (form == "section") return {{"type", "object"}};
  if (form == "list") return list_of(Json::object());
  if (form == "list of texts" || form == "list of words") return list_of({{"type", "string"}});
  if (form == "list of whole numbers") return list_of({{"type", "integer"}});
  if (form == "list of numbers" || form == "[lowest, highest]") return list_of({{"type", "number"}});
  return nullptr;
}

// Of several, with commas between them; words among them are themselves.
[[nodiscard]] inline std::vector<Json> forms_schema(std::string_view forms, const Key& row) {
  if (forms.empty()) return {Json::object()};
  if (forms == "number" || forms == "whole number") return {form_schema(forms, row), {{"$ref", "#/$defs/number"}}};
  if (Json one = form_schema(forms, row); !one.is_null()) return {std::move(one)};
  std::vector<Json> out;
  Json words = Json::array();
  for (std::size_t at = 0; at < forms.size();) {
    const std::size_t end = std::min(forms.find(", ", at), forms.size());
    const std::string_view piece = forms.substr(at, end - at);
    at = end + 2;
    if (piece == "true" || piece == "false") {
      words.push_back(piece == "true");
    } else if (std::int64_t number = 0;
               std::from_chars(piece.data(), piece.data() + piece.size(), number).ptr == piece.data() + piece.size()) {
      words.push_back(number);
      words.push_back(piece);  // as a text
    } else if (Json known = form_schema(piece, row); !known.is_null()) {
      out.push_back(std::move(known));
    } else {
      words.push_back(piece);
    }
  }
  if (!words.empty()) out.push_back({{"enum", words}});
  return out;
}

// What a row takes; YAML's bare no is false.
[[nodiscard]] inline std::vector<Json> values_schema(const Key& row) {
  if (row.words.known.empty()) return forms_schema(row.form.empty() ? row.target.form : row.form, row);
  Json words = Json::array();
  for (const std::string& word : row.words.supported) {
    words.push_back(word);
    if (word == "no") words.push_back(false);
  }
  for (const auto& [word, stands_for] : row.synonyms) {
    if (word == "true" || word == "false")
      words.push_back(word == "true");
    else
      words.push_back(word);
  }
  return {Json{{"enum", words}}};
}

// The properties of an object, to which rows add theirs.
class SchemaObject {
 public:
  void add(const Key& row, const Keys& siblings) {
    Property& property = at(row.name);
    std::vector<Json> values = values_schema(row);
    if (row.synonyms.size() > 0 && row.words.known.empty()) values.push_back(synonyms_of(row));
    for (Json& value : values) join(property.values, std::move(value));
    if (!property.said.empty()) return;
    const std::string says =
        row.stands_for.empty() ? meaning_of(row, siblings) : "another name of " + std::string(row.stands_for);
    if (!says.empty()) property.said["description"] = says;
    if (row.renamed) property.said["deprecated"] = true;
    if (row.shown.empty() && row.target.json != nullptr && row.stands_for.empty() && row.form.empty())
      if (Json value = row.target.json(row.target.at); !value.is_null() && !value.empty() && value != "")
        property.said["default"] = std::move(value);
  }
  // A key without effect, or one that is lacking, which takes `values` alone.
  void add(std::string_view name, const std::string& reason, std::vector<Json> values) {
    Property& property = at(name);
    if (!property.values.empty()) return;  // a method reads it
    property.said = {{"description", reason}, {"deprecated", true}};
    property.values = values.empty() ? std::vector{Json::object()} : std::move(values);
  }
  void add_family(std::string_view prefix, const std::string& reason) {
    families_["^" + std::string(prefix)] = {{"description", reason}, {"deprecated", true}};
  }

  [[nodiscard]] Json json() const {
    Json out = {{"type", "object"}, {"properties", Json::object()}, {"additionalProperties", false}};
    for (const auto& [name, property] : properties_) {
      Json own = property.said;
      if (property.section) {
        Json section = property.section->json();
        section["type"] = {"object", "null"};
        if (property.text) section = {{"anyOf", Json::array({section, {{"type", "string"}}})}};
        if (property.list) section = {{"type", {"array", "null"}}, {"items", section}};
        own.update(section);
      } else if (property.values.size() > 1) {
        std::vector<Json> any = property.values;
        any.push_back({{"type", "null"}});
        own["anyOf"] = any;
      } else if (Json value = property.values.front(); !value.empty()) {
        if (value.contains("enum")) value["enum"].push_back(nullptr);
        if (value.contains("type")) value["type"] = {value["type"], "null"};
        own.update(value);
      }
      out["properties"][name] = std::move(own);
    }
    if (!families_.empty()) out["patternProperties"] = families_;
    return out;
  }

 private:
  struct Property {
    Json said = Json::object();
    std::vector<Json> values = {};
    std::shared_ptr<SchemaObject> section = {};
    bool list = false;  // of such sections
    bool text = false;  // which may be written as a text, too
  };

  // What is taken already is not said again; words are one list.
  static void join(std::vector<Json>& values, Json value) {
    for (Json& known : values) {
      if (known == value) return;
      if (!known.contains("enum") || !value.contains("enum")) continue;
      for (Json& word : value["enum"])
        if (std::find(known["enum"].begin(), known["enum"].end(), word) == known["enum"].end())
          known["enum"].push_back(std::move(word));
      return;
    }
    values.push_back(std::move(value));
  }
  static Json synonyms_of(const Key& row) {
    Json words = Json::array();
    for (const auto& [word, stands_for] : row.synonyms) words.push_back(word);
    return {{"enum", words}};
  }

  // The property of a name, within the sections that dots divide; `[]` is a list of them.
  Property& at(std::string_view name) {
    const std::size_t dot = name.find('.');
    if (dot == std::string_view::npos) return property(std::string(name));
    std::string_view own = name.substr(0, dot);
    const bool list = own.ends_with("[]");
    if (list) own.remove_suffix(2);
    Property& outer = property(std::string(own));
    outer.list = list;
    outer.text = own == "optim_args";
    if (!outer.section) outer.section = std::make_shared<SchemaObject>();
    return outer.section->at(name.substr(dot + 1));
  }
  Property& property(const std::string& name) {
    for (auto& [known, property] : properties_)
      if (known == name) return property;
    return properties_.emplace_back(name, Property{}).second;
  }

  std::deque<std::pair<std::string, Property>> properties_;
  Json families_ = Json::object();
};

inline void add_reasons(SchemaObject& out, std::string_view prefix, std::span<const Reason> idle,
                        std::span<const Reason> lacking) {
  for (const RecognisedKey& key : each_key(idle))
    out.add(std::string(prefix) + std::string(key.key), "no effect: " + std::string(key.reason), {});
  for (const RecognisedKey& key : each_key(lacking)) {
    const std::string reason = "not here: " + std::string(key.reason);
    std::vector<Json> nothing;
    if (key.computes) nothing.push_back({{"enum", {false, 0, 1, "", Json::array()}}});
    out.add(std::string(prefix) + std::string(key.key), reason, std::move(nothing));
  }
}

}  // namespace detail

[[nodiscard]] inline data::Json key_schema() {
  detail::SchemaObject out;
  for (const KeySection& section : key_sections())
    for (const Key& row : section.rows) out.add(row, section.rows);
  for_each_reading([&](const Recipe&, const Keys& rows) {
    for (const Key& row : rows) out.add(row, rows);
  });
  for (const Key& row : nested_argument_keys()) out.add(row, {});
  for (const Key& row : entry_keys()) {
    Key other = row;
    const std::string name = "test_" + std::string(row.name);
    other.name = name;
    out.add(other, {});
  }
  detail::add_reasons(out, "", idle_keys(), lacking_keys());
  detail::add_reasons(out, "", {}, detail::lacking_adapter_keys());
  detail::add_reasons(out, "bnb_config_kwargs.", detail::idle_bnb_keys(), detail::lacking_bnb_keys());
  detail::add_reasons(out, "optim_args.", {}, detail::lacking_adafactor_keys());
  detail::add_reasons(out, "trl.", idle_trl_keys(), lacking_trl_keys());
  detail::add_reasons(out, "datasets[].", detail::idle_dataset_keys(), {});
  detail::add_reasons(out, "test_datasets[].", detail::idle_dataset_keys(), {});
  for (const RecognisedKey& key : each_key(idle_prefixes()))
    out.add_family(key.key, "no effect: " + std::string(key.reason));
  for (const Plugin& plugin : plugins())
    for (const std::string_view key : plugin.keys) {
      const std::string reason = "of the plugin " + std::string(plugin.class_name) + ": " + std::string(plugin.reason);
      if (key.ends_with('_'))
        out.add_family(key, reason);
      else
        out.add(key, reason, {});
    }
  data::Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                       {"title", "a configuration of rlalgo"}};
  schema.update(out.json());
  schema["$defs"]["number"] = {{"description", "a number that a reader of YAML 1.1 takes for a text"},
                               {"type", "string"},
                               {"pattern", "^[-+]?[0-9.]+([eE][-+]?[0-9]+)?$"}};
  schema["required"] = {"base_model", "rl", "learning_rate"};
  return schema;
}

}  // namespace rlalgo::config
