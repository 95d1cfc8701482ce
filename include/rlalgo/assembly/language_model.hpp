// A language model as a run has it: decoder, tokenizer, chat template, end tokens; and saving it as it came.
//
//   const LanguageModel model = LanguageModel::load("DIR");              // a Hugging Face directory, or an id in the local cache
//   const LanguageModel adapted = LanguageModel::load({.model = {"DIR"}, .lora = model::LoraConfig{.r = 8}});
//
// The weights are computed with in f32 whatever the file holds, or in bf16 where that is asked for. A whole model is saved in the
// dtype of the base's files, unless `save_as_computed` is set; checkpoints to go on from are always what was computed with, to the
// bit. Tokens that are added or renamed are saved with the tokenizer; a new eos_token ends completions beside the model's ends, and
// comes first in generation_config.json.
//
// Errors (usage): [rlalgo.config.14] a quantised base is to be trained without an adapter, [.37] or sharded; [.21] messages
// without a chat template. Those of assembly/model_places.hpp, model/load.hpp and text/tokenizer.hpp; [.47] a new token for which
// the model has no embedding, or an adapter trains none; [.60] the experts do not divide among the ranks.
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

#include <rlalgo/assembly/detail/new_tokens.hpp>
#include <rlalgo/assembly/model_places.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/located.hpp>
#include <rlalgo/data/dataset.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/data/template_columns.hpp>
#include <rlalgo/model/adapter_files.hpp>
#include <rlalgo/model/hf_config.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/lora.hpp>
#include <rlalgo/model/lora_config.hpp>
#include <rlalgo/model/quantisation.hpp>
#include <rlalgo/model/save.hpp>
#include <rlalgo/os/atomic_file.hpp>
#include <rlalgo/os/regular_file.hpp>
#include <rlalgo/run/model_card.hpp>
#include <rlalgo/text/chat_template.hpp>
#include <rlalgo/text/tokenizer.hpp>

namespace rlalgo::assembly {

struct LanguageModelConfig {
  NamedModel model = {};
  std::optional<NamedModel> tokenizer = {};              // of another directory than the model's
  std::optional<NamedModel> adapter = {};                // that training goes on from
  std::optional<model::LoraConfig> lora = {};            // a new adapter
  std::vector<std::string> unfrozen_parameters = {};     // trained alone; empty: all
  std::optional<model::Quantisation> quantisation = {};  // of a base whose files have it whole
  bool bfloat16 = false;                                 // computed with; else float32
  bool gradient_checkpointing = false;
  model::CheckpointMemory checkpoint_memory = model::CheckpointMemory::device;  // where the inputs that it keeps lie
  bool sharded = false;          // weights or what belongs to them will lie on several ranks
  std::int64_t expert_size = 1;  // ranks that will share the experts of a layer
  std::string expert_size_where = "expert_size";
  at::Device device = at::Device(at::kCPU);
  std::uint64_t seed = 42;                                                  // of a new adapter
  std::optional<std::string> chat_template = {}, chat_template_jinja = {};  // in the place of the tokenizer's
  text::TokenChanges tokens = {};
  std::string tokens_where = {};  // the place that named them, for error texts
  bool save_as_computed = false;  // a whole model in the dtype of the computation
  std::time_t started = 0;        // what templates take for the time; 0: the clock
};

struct LanguageModel {
  std::filesystem::path directory = {};  // of the tokenizer
  std::string base_model = {};           // as it was named; an adapter's files repeat it
  text::Tokenizer tokenizer;
  std::optional<text::ChatTemplate> chat_template = {};  // none: only plain-text prompts can be used
  bool chosen_template = false;                      // chat_template is not the tokenizer's own: saved with the model
  std::shared_ptr<model::Decoder> decoder = {};      // null in what load_text_half() gives
  std::optional<data::Json> generation_config = {};  // as on disk
  std::int64_t max_positions = 0;                    // max_position_embeddings
  std::int64_t files = 1;                            // that save() spreads the weights over
  run::ModelCard card = {};                          // of a training; base and kind are filled in by save()
  model::SavedDtype output_dtype = model::SavedDtype::stored;  // of what others open
  std::vector<std::string> notes = {};                         // for the user, of its files
  std::time_t started = 0;                                     // what templates take for the time; 0: the clock
  std::vector<data::TokenId> stop_ids = {};  // ends of generation_config.json and config.json, and the tokenizer's

  // The model in a Hugging Face directory, or of an id in the local cache. A PEFT directory: its base with the adapter on it.
  // `memory`: of the weights; unset: as a training wants it.
  [[nodiscard]] static LanguageModel load(const LanguageModelConfig& config,
                                          std::optional<model::WeightMemory> memory = {});
  [[nodiscard]] static LanguageModel load(const std::string& name) {
    LanguageModelConfig config;
    config.model.name = name;
    return load(config);
  }

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
  [[nodiscard]] std::shared_ptr<const text::ChatTemplate> template_of(const data::Dataset& entry) const {
    if (!entry.has_template()) return nullptr;
    return core::located(entry.where, [&] {
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

namespace detail {

// Puts the adapter that is asked for, or the one found in the base's place, on the decoder.
inline void adapt(model::Decoder& decoder, const LanguageModelConfig& config,
                  const std::filesystem::path& adapter_directory) {
  if (!config.unfrozen_parameters.empty()) decoder.train_only(config.unfrozen_parameters);
  if (config.adapter) {
    model::load_adapter(decoder, config.adapter->directory(), config.seed);
  } else if (!adapter_directory.empty()) {
    model::load_adapter(decoder, adapter_directory, config.seed);
  } else if (config.lora) {
    model::attach_lora(decoder, *config.lora, config.seed);
  }
}

// Whether the experts of every layer divide into groups of ranks, by the model's config.json alone. [rlalgo.config.60]
inline void check_expert_groups(const LanguageModelConfig& config, const model::HfConfig& hf) {
  if (config.expert_size <= 1) return;
  const auto refuse = [&](const std::string& found, const std::string& remedy) {
    core::raise_usage("config", 60,
                      {.what = "expert_parallel_size does not fit the model",
                       .found = std::to_string(config.expert_size) + ", and " + found,
                       .where = config.expert_size_where,
                       .remedy = remedy});
  };
  bool any = false;
  for (const model::LayerSpec& spec : hf.decoder.specs) {
    const std::int64_t count = spec.experts.count;
    any = any || count > 0;
    if (count % config.expert_size != 0)
      refuse(std::to_string(count) + " experts in a layer", "take a divisor of " + std::to_string(count));
  }
  if (!any)
    refuse("no layer of a " + hf.decoder.model_type + " has experts",
           "remove it: fsdp_config divides the weights of any model among ranks");
}

// Whether the names that an adapter or unfrozen_parameters asks for are in the model, by its config.json alone.
inline void check_parameter_names(const LanguageModelConfig& config, const ModelPlaces& places,
                                  const model::HfConfig& base) {
  const bool fresh_adapter = config.lora && !config.adapter && places.adapter.empty();
  if (config.unfrozen_parameters.empty() && !fresh_adapter) return;
  const std::unique_ptr<model::Decoder> outline = model::outline_decoder(base);
  if (!config.unfrozen_parameters.empty()) outline->train_only(config.unfrozen_parameters);
  if (fresh_adapter) model::check_lora_targets(*outline, *config.lora);
}

}  // namespace detail

// `memory`: of the weights; unset: as a training wants it.
[[nodiscard]] inline std::shared_ptr<model::Decoder> load_decoder(const LanguageModelConfig& config,
                                                                  const ModelPlaces& places,
                                                                  std::optional<model::WeightMemory> memory = {}) {
  std::shared_ptr<model::Decoder> decoder =
      model::load_decoder(places.base, {.dtype = config.bfloat16 ? at::ScalarType::BFloat16 : at::ScalarType::Float,
                                        .memory = memory.value_or(model::memory_of_weights(config.sharded)),
                                        .device = config.device,
                                        .quantisation = config.quantisation});
  decoder->set_checkpointing(config.gradient_checkpointing, {.memory = config.checkpoint_memory});
  detail::adapt(*decoder, config, places.adapter);
  return decoder;
}

// Weights that are to lie on several ranks: how, and the place that says so.
struct ShardedBase {
  std::string layout = {}, where = {}, remedy = "take stage 1 or 2, or no shards";
};

// What a base in 4 or 8 bits takes; "" where there is none. Refuses to train one without an adapter, which would leave all of it that
// matters as it is, and to shard its weights over ranks.
// `where`: the place that named the base.
[[nodiscard]] inline std::string judge_bits(const model::Decoder& decoder, const std::string& where,
                                            const std::optional<ShardedBase>& sharded = {}) {
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
                       .where = where,
                       .remedy = "set adapter: lora, or take the unquantised model"});
  if (sharded)
    core::raise_usage("config", 37,
                      {.what = "a base in 4 or 8 bits is not sharded",
                       .found = sharded->layout,
                       .where = sharded->where,
                       .remedy = "each rank holds its own copy of such a base: " + sharded->remedy});
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

// Everything of the model but its weights: texts become token ids with it. What config.json says of an adapter's or
// unfrozen parameters' names is checked here, too.
[[nodiscard]] inline LanguageModel load_text_half(const LanguageModelConfig& config, const ModelPlaces& places) {
  const model::HfConfig base = model::read_hf_config(places.base);
  detail::check_expert_groups(config, base);
  detail::check_parameter_names(config, places, base);
  text::TokenChanges changes = config.tokens;
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
    notes.push_back(
        "base_model: warning: " + std::to_string(count) + " tensors " + part + "… of " + places.base.string() +
        " are not read and not saved: what is trained is the text model, as " + base.decoder.model_type +
        (part == "model.visual." ? " (for a model that sees images put it back into the whole checkpoint, as "
                                   "docs/models.md, \"Text of models that see images\", shows)"
                                 : ""));
  detail::check_new_tokens(tokenizer, base.decoder.vocab_size, config.lora ? &*config.lora : nullptr,
                           config.tokens_where);
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
  out.started = config.started;
  if (out.chat_template) out.chat_template->fix_time(out.started);
  if (const auto generation = model::read_generation_config(places.base)) out.generation_config = generation->json;
  if (config.save_as_computed) out.output_dtype = model::SavedDtype::computed;
  detail::align_generation_config(out.tokenizer, base, out.generation_config);
  out.stop_ids = stop_ids(places.base, &out.tokenizer);
  return out;
}

inline LanguageModel LanguageModel::load(const LanguageModelConfig& config, std::optional<model::WeightMemory> memory) {
  const ModelPlaces places = find_model(config.model, config.tokenizer);
  LanguageModel out = load_text_half(config, places);
  out.decoder = load_decoder(config, places, memory);
  return out;
}

}  // namespace rlalgo::assembly
