// The language model that a configuration names: decoder, tokenizer, chat template, end tokens; and saving it as it
// came.
//
// base_model is a directory, or an id in the local Hugging Face cache; nothing is downloaded. The weights are computed
// with in f32 whatever the file holds, or in bf16 when the configuration says so. A whole model is saved in the dtype of the base's
// files, unless `float32: true` asks for what was computed with; checkpoints to go on from are always that, to the bit.
//
// special_tokens, tokens and added_tokens_overrides change the tokenizer, and are saved with it; a new eos_token ends
// completions beside the model's ends, and comes first in generation_config.json.
//
// Errors (usage): [rlalgo.config.14] a quantised base is to be trained without an adapter, [.37] or sharded; [.20] base_model is neither; [.21] messages without a chat template; [.47] a new token for
// which the model has no embedding, or an adapter trains none. Those of model/load.hpp and text/tokenizer.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/config/device.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/located.hpp>
#include <rlalgo/data/hub_cache.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/data/template_columns.hpp>
#include <rlalgo/model/adapter_files.hpp>
#include <rlalgo/model/hf_config.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/lora.hpp>
#include <rlalgo/model/save.hpp>
#include <rlalgo/os/atomic_file.hpp>
#include <rlalgo/os/home_path.hpp>
#include <rlalgo/os/regular_file.hpp>
#include <rlalgo/run/model_card.hpp>
#include <rlalgo/text/chat_template.hpp>
#include <rlalgo/text/tokenizer.hpp>

namespace rlalgo::config {

struct LanguageModel {
  std::filesystem::path directory;  // of the tokenizer
  std::string base_model;           // as it was named; an adapter's files repeat it
  text::Tokenizer tokenizer;
  std::optional<text::ChatTemplate> chat_template;  // none: only plain-text prompts can be used
  bool chosen_template = false;                     // chat_template is not the tokenizer's own: saved with the model
  std::shared_ptr<model::Decoder> decoder;          // null in what load_text_half() gives
  std::optional<data::Json> generation_config;      // as on disk
  std::int64_t max_positions = 0;                   // max_position_embeddings
  std::int64_t files = 1;                           // that save() spreads the weights over
  run::ModelCard card = {};                         // of a training; base and kind are filled in by save()
  model::SavedDtype output_dtype = model::SavedDtype::stored;  // of what others open
  std::vector<std::string> notes = {};                         // for the user, of its files
  std::time_t started = 0;                                     // what templates take for the time; 0: the clock
  std::vector<data::TokenId> stop_ids;  // ends of generation_config.json and config.json, and the tokenizer's

  // The model in a Hugging Face directory, or of an id in the local cache, in f32. A PEFT directory: its base with the
  // adapter on it.
  [[nodiscard]] static LanguageModel load(const std::string& name);

  // A prompt (text, or messages through the template with the generation prompt) as token ids.
  [[nodiscard]] std::vector<data::TokenId> encode(const data::Json& prompt, const data::Json& kwargs = nullptr,
                                                  const data::Json& tools = nullptr,
                                                  const text::ChatTemplate* other = nullptr) const {
    if (prompt.is_string()) return tokenizer.encode(prompt.get_ref<const std::string&>());
    return tokenizer.encode(render(prompt, true, kwargs, tools, other), false);
  }

  // Messages through the chat template, or through `other`; the text holds its special tokens.
  [[nodiscard]] std::string render(const data::Json& messages, bool generation_prompt,
                                   const data::Json& kwargs = nullptr, const data::Json& tools = nullptr,
                                   const text::ChatTemplate* other = nullptr) const {
    if (!chat_template && other == nullptr)
      core::raise_usage("config", 21,
                        {.what = "the prompts are chat messages, but the tokenizer has no chat template",
                         .where = directory.string(),
                         .remedy = "set chat_template (chatml, for example) or use text prompts"});
    text::ChatOptions options{.add_generation_prompt = generation_prompt, .tools = tools};
    if (kwargs.is_object()) options.kwargs = kwargs;
    return (other != nullptr ? *other : *chat_template).render(messages, options);
  }

  // The template of a data set that names its own (datasets[].chat_template, chat_template_jinja); null: it has none.
  [[nodiscard]] std::shared_ptr<const text::ChatTemplate> template_of(const DatasetConfig& entry) const {
    if (!entry.has_template()) return nullptr;
    return core::located(entry.place.text(), [&] {
      auto out = std::make_shared<text::ChatTemplate>(
          text::ChatTemplate::select(entry.chat_template.value_or(""), entry.chat_template_jinja,
                                     text::ChatTemplate::from_directory(directory), tokenizer.special_tokens()));
      out->fix_time(started);
      return std::shared_ptr<const text::ChatTemplate>(std::move(out));
    });
  }

  // Messages of a row of such a data set with the row's own columns, and the run's variables.
  [[nodiscard]] data::Render renderer(data::Json kwargs = nullptr,
                                      std::shared_ptr<const text::ChatTemplate> other = nullptr) const {
    return [this, kwargs = std::move(kwargs), other = std::move(other)](const data::Json& messages, bool prompt,
                                                                        const data::TemplateColumns& columns) {
      return render(messages, prompt, data::merged_kwargs(kwargs, columns.kwargs), columns.tools, other.get());
    };
  }

  // A complete Hugging Face directory, or with an adapter a PEFT one, and its model card.
  void save(const std::filesystem::path& target, model::SavedDtype dtype = model::SavedDtype::computed) const {
    run::ModelCard of_it = card;
    of_it.base_model = base_model;
    of_it.adapter = decoder->adapter() != nullptr;
    if (of_it.adapter)
      model::save_adapter(*decoder, target, base_model);
    else
      model::save_decoder(*decoder, target, {.generation_config = generation_config, .files = files, .dtype = dtype});
    os::write_file(target / run::model_card_file, run::to_text(of_it));
    tokenizer.save(target);
    if (chosen_template || (chat_template && os::exists(directory / "chat_template.jinja")))
      os::write_file(target / "chat_template.jinja", chat_template->source());
    if (!chosen_template) copy_further_templates(target);
  }

 private:
  void copy_further_templates(const std::filesystem::path& target) const {
    static constexpr const char* folder = "additional_chat_templates";
    constexpr std::uint64_t most = std::uint64_t{16} << 20U;  // bytes of a template
    std::error_code absent;
    for (const auto& entry : std::filesystem::directory_iterator(directory / folder, absent)) {
      if (entry.path().extension() != ".jinja") continue;
      std::filesystem::create_directories(target / folder);
      os::write_file(target / folder / entry.path().filename(), os::read_regular_file(entry.path(), most).text);
    }
  }
};

// A directory (~ is the home directory), or an id in the hub cache.
[[nodiscard]] inline std::filesystem::path resolve_model(const std::string& given, const std::string& place,
                                                         const std::string& revision = {}) {
  const std::string name = os::expand_home(given, place);
  if (os::is_directory(name)) return name;
  if (data::is_hub_id(name))
    if (const auto cached = data::find_in_hub_cache(data::HubKind::models, name, revision)) return *cached;
  core::raise_usage("config", 20,
                    {.what = "there is no such model",
                     .found = name + (os::exists(name) ? ", which is no directory" : ""),
                     .expected = "a directory, or an id in the local cache " + data::hub_cache_directory().string(),
                     .where = place,
                     .remedy = data::is_hub_id(name) && !os::exists(name)
                                   ? "nothing is downloaded unless you ask for it: rlalgo fetch " + name +
                                         (revision.empty() ? "" : " --revision " + revision)
                                   : "give the path of a Hugging Face model directory"});
}

namespace detail {

// Puts the adapter of the configuration, or the one found in base_model's place, on the decoder.
inline void adapt(model::Decoder& decoder, const RunConfig& config, const std::filesystem::path& adapter_directory) {
  if (!config.unfrozen_parameters.empty()) decoder.train_only(config.unfrozen_parameters);
  if (config.lora_model_dir) {
    model::load_adapter(decoder, resolve_model(*config.lora_model_dir, config.place("lora_model_dir")), config.seed);
  } else if (!adapter_directory.empty()) {
    model::load_adapter(decoder, adapter_directory, config.seed);
  } else if (config.lora) {
    model::attach_lora(decoder, *config.lora, config.seed);
  }
}

}  // namespace detail

// Where the parts of a model are. A base_model that is a PEFT directory stands for its base with the adapter on it.
struct ModelPlaces {
  std::filesystem::path base, adapter, tokenizer;  // adapter: empty if base_model is none
  std::string base_model;                          // as it was named, or as the adapter names it
};

[[nodiscard]] inline ModelPlaces find_model(const RunConfig& config) {
  ModelPlaces out{
      .base = resolve_model(config.base_model, config.place("base_model"), config.model_revision.value_or("")),
      .adapter = {},
      .tokenizer = {},
      .base_model = os::expand_home(config.base_model, config.place("base_model"))};
  if (model::is_adapter_directory(out.base) && !os::exists(out.base / "model.safetensors") &&
      !os::exists(out.base / "model.safetensors.index.json")) {
    out.adapter = out.base;
    out.base_model = model::adapter_base_model(out.adapter);
    out.base = resolve_model(out.base_model, (out.adapter / model::adapter_config_file).string(),
                             model::adapter_base_revision(out.adapter));
  }
  out.tokenizer = config.tokenizer_config ? resolve_model(*config.tokenizer_config, config.place("tokenizer_config"))
                  : !out.adapter.empty() && os::exists(out.adapter / "tokenizer.json") ? out.adapter
                                                                                       : out.base;
  return out;
}

namespace detail {

// Whether the names that an adapter or unfrozen_parameters asks for are in the model, by its config.json alone.
inline void check_parameter_names(const RunConfig& config, const ModelPlaces& places) {
  const bool fresh_adapter = config.lora && !config.lora_model_dir && places.adapter.empty();
  if (config.unfrozen_parameters.empty() && !fresh_adapter) return;
  const std::unique_ptr<model::Decoder> outline = model::outline_decoder(model::read_hf_config(places.base));
  if (!config.unfrozen_parameters.empty()) outline->train_only(config.unfrozen_parameters);
  if (fresh_adapter) model::check_lora_targets(*outline, *config.lora);
}

}  // namespace detail

// `memory`: of the weights; unset: as a training wants it.
[[nodiscard]] inline std::shared_ptr<model::Decoder> load_decoder(const RunConfig& config, const ModelPlaces& places,
                                                                  std::optional<model::WeightMemory> memory = {}) {
  std::shared_ptr<model::Decoder> decoder =
      model::load_decoder(places.base, {.dtype = config.bfloat16 ? at::ScalarType::BFloat16 : at::ScalarType::Float,
                                        .memory = memory.value_or(model::memory_of_weights(config.sharding.on())),
                                        .device = device_of(config),
                                        .quantisation = config.quantisation()});
  decoder->set_checkpointing(config.gradient_checkpointing,
                             {.memory = config.activation_offloading == "host"   ? model::CheckpointMemory::host
                                        : config.activation_offloading == "disk" ? model::CheckpointMemory::disk
                                                                                 : model::CheckpointMemory::device});
  detail::adapt(*decoder, config, places.adapter);
  return decoder;
}

// What a base in 4 or 8 bits takes; "" where there is none. Refuses to train one without an adapter, which would leave all of it that
// matters as it is, and to shard its weights over ranks.
[[nodiscard]] inline std::string judge_bits(const RunConfig& config, const model::Decoder& decoder) {
  std::size_t maps = 0, bytes = 0;
  double weights = 0.0;
  std::string_view code;
  model::visit_maps(decoder.config(), decoder.weights(), [&](const std::string&, const model::Linear& map, auto, bool) {
    if (!map.quantised) return;
    ++maps;
    bytes += map.quantised->bytes();
    weights += static_cast<double>(map.weight.numel());
    code = model::name_of(map.quantised->code());
  });
  if (maps == 0) return {};
  if (decoder.adapter() == nullptr)
    core::raise_usage("config", 14,
                      {.what = "the base model is quantised, and only an adapter can be trained on it",
                       .found = std::to_string(maps) + " linear maps in " + std::string(code),
                       .where = config.place("base_model"),
                       .remedy = "set adapter: lora, or take the unquantised model"});
  if (config.sharding.weights() && config.world != nullptr)
    core::raise_usage("config", 37,
                      {.what = "a base in 4 or 8 bits is not sharded",
                       .found = config.sharding.layout.value_or(""),
                       .where = config.place(config.sharding.key),
                       .remedy = "each rank holds its own copy of such a base: take stage 1 or 2, or no shards"});
  char text[160];
  std::snprintf(text, sizeof text, "the base: %zu linear maps in %s, %.1f MB for %.1f million weights, %.3f bytes each",
                maps, std::string(code).c_str(), static_cast<double>(bytes) / 1e6, weights / 1e6,
                static_cast<double>(bytes) / weights);
  return text;
}

// The ids that end a completion: those of generation_config.json and config.json, and the tokenizer's.
[[nodiscard]] inline std::vector<data::TokenId> stop_ids(const std::filesystem::path& base,
                                                         const text::Tokenizer* tokenizer) {
  std::vector<data::TokenId> out;
  for (const std::int64_t id : model::eos_token_ids(base)) out.push_back(static_cast<data::TokenId>(id));
  const std::optional<data::TokenId> eos = tokenizer == nullptr ? std::nullopt : tokenizer->eos_id();
  if (eos && std::find(out.begin(), out.end(), *eos) == out.end()) out.push_back(*eos);
  return out;
}

namespace detail {

[[noreturn]] inline void refuse_new_token(const RunConfig& config, const std::string& token, const std::string& found,
                                          const std::string& expected, const std::string& remedy) {
  std::string where = config.file;
  for (const char* key : {"tokens", "special_tokens.bos_token", "special_tokens.eos_token", "special_tokens.pad_token",
                          "special_tokens.unk_token", "special_tokens.additional_special_tokens"})
    if (config.was_set(key)) where = config.place(key);
  core::raise_usage("config", 47,
                    {.what = "the token '" + token + "' is new to the tokenizer, and cannot be trained",
                     .found = found,
                     .expected = expected,
                     .where = where,
                     .remedy = remedy});
}

// A new pad_token that is nothing else.
[[nodiscard]] inline bool pads_out_of_range(const text::Tokenizer& tokenizer, std::int64_t rows) {
  const auto& roles = tokenizer.changes().roles;
  if (!roles.contains("pad_token") || tokenizer.pad_id().value_or(0) < rows) return false;
  const std::vector<std::string> added = tokenizer.new_tokens();
  const std::string& pad = roles.at("pad_token");
  return std::find(added.begin(), added.end(), pad) != added.end() &&
         std::count_if(roles.begin(), roles.end(), [&](const auto& role) { return role.second == pad; }) == 1;
}

// A new token needs a row of the embedding, and, unless it only pads, one that is trained.
inline void check_new_tokens(const RunConfig& config, const text::Tokenizer& tokenizer, std::int64_t rows) {
  for (const std::string& token : tokenizer.new_tokens()) {
    const std::int64_t id = tokenizer.token_id(token).value_or(0);
    if (id >= rows)
      refuse_new_token(
          config, token,
          "it would be token " + std::to_string(id) + ", and the embedding has " + std::to_string(rows) + " rows",
          "a token of the vocabulary, or a free row",
          "name a token that tokenizer.json has, rename a reserved one (added_tokens_overrides), or "
          "resize the embedding beforehand");
    const auto& roles = tokenizer.changes().roles;
    const bool means = std::any_of(roles.begin(), roles.end(),
                                   [&](const auto& role) { return role.second == token && role.first != "pad_token"; });
    if (!means || !config.lora) continue;
    const auto& whole = config.lora->modules_to_save;
    const auto saved = [&](const char* name) { return std::find(whole.begin(), whole.end(), name) != whole.end(); };
    if (!saved("embed_tokens") || !saved("lm_head"))
      refuse_new_token(config, token, "an adapter that leaves the embedding as it is",
                       "lora_modules_to_save: [embed_tokens, lm_head]",
                       "set that, or name a token that tokenizer.json has");
  }
}

// Roles that the configuration sets, in generation_config.json: the end first, before those that it has.
inline void align_generation_config(const text::Tokenizer& tokenizer, const model::HfConfig& base,
                                    std::optional<data::Json>& generation) {
  const auto& roles = tokenizer.changes().roles;
  if (!roles.contains("eos_token") && !roles.contains("bos_token") && !roles.contains("pad_token")) return;
  if (!generation) generation = model::detail::default_generation_config(base.json);
  data::Json& config = *generation;
  if (roles.contains("eos_token")) {
    data::Json ends = data::Json::array({*tokenizer.eos_id()});
    const data::Json before = config.value("eos_token_id", data::Json());
    for (const data::Json& id : before.is_array() ? before : data::Json::array({before}))
      if (id.is_number_integer() && id != ends[0]) ends.push_back(id);
    config["eos_token_id"] = ends.size() == 1 ? ends[0] : ends;
  }
  if (roles.contains("bos_token")) config["bos_token_id"] = *tokenizer.bos_id();
  if (roles.contains("pad_token")) config["pad_token_id"] = *tokenizer.pad_id();
}

}  // namespace detail

// Everything of the model but its weights: texts become token ids with it. What config.json says of an adapter's or
// unfrozen parameters' names is checked here, too.
[[nodiscard]] inline LanguageModel load_text_half(const RunConfig& config, const ModelPlaces& places) {
  detail::check_parameter_names(config, places);
  const model::HfConfig base = model::read_hf_config(places.base);
  text::TokenChanges changes = config.token_changes();
  text::Tokenizer tokenizer = text::Tokenizer::from_directory(places.tokenizer, changes);
  std::vector<std::string> notes;
  if (detail::pads_out_of_range(tokenizer, base.decoder.vocab_size)) {
    notes.push_back("special_tokens.pad_token: " + tokenizer.pad_token() +
                    " is not in the vocabulary, and the embedding has no row for it: it is left out, for nothing is "
                    "padded");
    changes.roles.erase("pad_token");
    tokenizer = text::Tokenizer::from_directory(places.tokenizer, changes);
  }
  for (const auto& [part, count] : model::unread_tensors(places.base, base.decoder))
    notes.push_back("base_model: warning: " + std::to_string(count) + " tensors " + part + "… of " +
                    places.base.string() + " are not read and not saved: what is trained is the text model, as " +
                    base.decoder.model_type);
  detail::check_new_tokens(config, tokenizer, base.decoder.vocab_size);
  const text::SpecialTokens special_tokens = tokenizer.special_tokens();
  LanguageModel out{.directory = places.tokenizer,
                    .base_model = places.base_model,
                    .tokenizer = std::move(tokenizer),
                    .chat_template = text::ChatTemplate::from_directory(places.tokenizer, special_tokens),
                    .chosen_template = config.chat_template.has_value() || config.chat_template_jinja.has_value(),
                    .decoder = nullptr,
                    .generation_config = std::nullopt,
                    .max_positions = base.decoder.context_length(),
                    .notes = std::move(notes),
                    .stop_ids = {}};
  if (out.chosen_template)
    out.chat_template = text::ChatTemplate::select(config.chat_template.value_or(""), config.chat_template_jinja,
                                                   out.chat_template, special_tokens);
  out.started = config.outside.time;
  if (out.chat_template) out.chat_template->fix_time(out.started);
  if (const auto generation = model::read_generation_config(places.base)) out.generation_config = generation->json;
  if (config.float32) out.output_dtype = model::SavedDtype::computed;
  detail::align_generation_config(out.tokenizer, base, out.generation_config);
  out.stop_ids = stop_ids(places.base, &out.tokenizer);
  return out;
}

[[nodiscard]] inline LanguageModel load_language_model(const RunConfig& config,
                                                       std::optional<model::WeightMemory> memory = {}) {
  const ModelPlaces places = find_model(config);
  LanguageModel out = load_text_half(config, places);
  out.decoder = load_decoder(config, places, memory);
  return out;
}

inline LanguageModel LanguageModel::load(const std::string& name) {
  RunConfig config;
  config.base_model = name;
  return load_language_model(config);
}

}  // namespace rlalgo::config
