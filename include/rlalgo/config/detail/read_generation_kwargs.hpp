// trl.generation_kwargs: what vLLM's SamplingParams and transformers' GenerationConfig call what draws and what ends a completion.
//
//   temperature top_p top_k min_p repetition_penalty do_sample     win over the keys of trl
//   max_tokens, max_new_tokens     tokens of a completion, or of one message where there are turns
//   min_tokens, min_new_tokens     before so many nothing ends it
//   stop, stop_strings             texts that end it; stop_token_ids: ids that do, beside the model's own
//   eos_token_id                   ids that do, in place of the model's own; ignore_eos: none of those
//
// These mean the same for the engine of this process and for a server. Other names go to a server as they are; without
// one they are refused by name, unless they ask for nothing (num_beams: 1) or change nothing here (use_cache).
//
// Errors (usage): [rlalgo.config.4] a name that neither knows; [.8] two spellings of one that differ; [.10] what the engine of this
// process does not do; [.6] a value out of range.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/config/detail/read_keys.hpp>
#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/inference/generator.hpp>

namespace rlalgo::config::detail {

inline void read_sampling(Reader& reader, TrlConfig& trl) {
  reader.read("temperature", trl.temperature);
  reader.read("top_p", trl.top_p);
  reader.read("top_k", trl.top_k);
  reader.read("min_p", trl.min_p);
  reader.read("repetition_penalty", trl.repetition_penalty);
}

// A name that this build does not honour, and the number with which it asks for nothing.
struct LackingSetting {
  std::string_view name;
  double nothing;
  std::string_view remedy;
};

[[nodiscard]] inline std::span<const LackingSetting> lacking_generation_settings() {
  static constexpr std::string_view count = "trl.num_generations says how many completions a prompt has";
  static constexpr std::string_view sampled = "completions are sampled, one token after the other";
  static constexpr std::string_view server = "a server may know it: trl.use_vllm: true";
  static constexpr LackingSetting names[] = {
      {"n", 1, count},
      {"best_of", 1, count},
      {"num_return_sequences", 1, count},
      {"seed", -1, "draws follow the key seed"},
      {"presence_penalty", 0, server},
      {"frequency_penalty", 0, server},
      {"length_penalty", 1, sampled},
      {"logit_bias", 0, server},
      {"allowed_token_ids", 0, server},
      {"bad_words", 0, server},
      {"bad_words_ids", 0, server},
      {"suppress_tokens", 0, server},
      {"begin_suppress_tokens", 0, server},
      {"force_words_ids", 0, server},
      {"structured_outputs", 0, "trl.vllm_structured_outputs_regex, with a server"},
      {"guided_decoding", 0, "trl.vllm_structured_outputs_regex, with a server"},
      {"logits_processors", 0, sampled},
      {"num_beams", 1, sampled},
      {"num_beam_groups", 1, sampled},
      {"diversity_penalty", 0, sampled},
      {"early_stopping", 0, sampled},
      {"penalty_alpha", 0, sampled},
      {"typical_p", 1, sampled},
      {"epsilon_cutoff", 0, sampled},
      {"eta_cutoff", 0, sampled},
      {"top_h", 0, sampled},
      {"encoder_repetition_penalty", 1, sampled},
      {"no_repeat_ngram_size", 0, sampled},
      {"encoder_no_repeat_ngram_size", 0, sampled},
      {"exponential_decay_length_penalty", 0, sampled},
      {"guidance_scale", 1, sampled},
      {"renormalize_logits", 0, sampled},
      {"remove_invalid_values", 0, sampled},
      {"watermarking_config", 0, sampled},
      {"assistant_model", 0, sampled},
      {"prompt_lookup_num_tokens", 0, sampled},
      {"constraints", 0, sampled},
      {"forced_bos_token_id", 0, sampled},
      {"forced_eos_token_id", 0, sampled},
      {"max_length", -1, "write max_new_tokens, which does not count the prompt"},
      {"min_length", 0, "write min_new_tokens, which does not count the prompt"},
      {"max_time", 0, "trl.max_completion_length ends completions"},
      {"truncate_prompt_tokens", -1, "prompts are never cut"},
  };
  return names;
}

[[nodiscard]] inline std::span<const RecognisedKey> idle_generation_settings() {
  static constexpr std::string_view ids = "completions are token ids, and stay whole";
  static constexpr std::string_view always = "what the trainer needs is always there";
  static constexpr std::string_view padded = "sequences are never padded";
  static constexpr std::string_view cached = "keys and values are always kept";
  static constexpr RecognisedKey names[] = {
      {"include_stop_str_in_output", ids},
      {"skip_special_tokens", ids},
      {"spaces_between_special_tokens", ids},
      {"clean_up_tokenization_spaces", ids},
      {"detokenize", ids},
      {"output_kind", ids},
      {"logprobs", always},
      {"prompt_logprobs", always},
      {"flat_logprobs", always},
      {"return_dict_in_generate", always},
      {"output_scores", always},
      {"output_logits", always},
      {"output_attentions", always},
      {"output_hidden_states", always},
      {"pad_token_id", padded},
      {"bos_token_id", "prompts are encoded by the tokenizer"},
      {"decoder_start_token_id", "prompts are encoded by the tokenizer"},
      {"token_type_ids", padded},
      {"synced_gpus", always},
      {"use_cache", cached},
      {"cache_implementation", cached},
      {"cache_config", cached},
      {"compile_config", "nothing is compiled"},
      {"disable_compile", "nothing is compiled"},
      {"skip_clone", always},
      {"skip_reading_prefix_cache", cached},
  };
  return names;
}

// Of blocks the lengths are fixed.
inline void refuse_ends_of_blocks(const RunConfig& config, Refusals& refusals) {
  if (!is_strided(config)) return;
  for (const char* name : {"stop", "stop_strings", "stop_token_ids", "eos_token_id", "ignore_eos", "max_tokens",
                           "max_new_tokens", "min_tokens", "min_new_tokens"})
    if (const std::string key = std::string("trl.generation_kwargs.") + name; config.was_set(key))
      refusals.add(8, {.what = key + " does not go with ebft.mode: strided, whose blocks have a fixed length",
                       .where = config.place(key),
                       .remedy = "remove it, or set ebft.generate_max_len"});
}

class GenerationKwargsReader {
 public:
  GenerationKwargsReader(Reader& reader, TrlConfig& trl) : reader_(reader), trl_(trl) {}

  void read() {
    reader_.record("generation_kwargs", trl_.generation_kwargs);
    const Node* section = reader_.take("generation_kwargs");
    if (section == nullptr) return;
    Reader nested(*section, reader_.prefix() + "generation_kwargs.", reader_.findings());
    if (section->kind != Kind::mapping) return;
    if (trl_.agents) refuse_for_agents(nested);
    read_sampling(nested, trl_);
    bool draws = true;
    // Without draws every token is the most likely one, and log-probs are those at trl.temperature.
    if (nested.read("do_sample", draws) && !draws) trl_.top_k = 1;
    limits(nested);
    ends(nested);
    if (trl_.generates_elsewhere())
      to_server(*section);
    else
      refuse_others(nested);
  }

 private:
  // They ask with settings of their own, of which two are ours; a server in this process has more where a request says nothing.
  void refuse_for_agents(Reader& nested) const {
    for (const Member& member : nested.section().members) {
      const std::string& name = member.key;
      bool reaches = name == "temperature" || name == "top_p" || !is_on(member.value);
      if (trl_.serves())
        reaches = reaches || name == "top_k" || name == "min_p" || name == "repetition_penalty" || name == "do_sample";
      if (!reaches)
        refuse_lacking(nested, name, name + " with nemo_gym_multi_turn", member.value,
                       "the agents send their own requests; set it in the agent's configuration");
    }
  }

  // A number under either of two names.
  void number(Reader& nested, const char* of_vllm, const char* of_transformers, std::int64_t lowest,
              std::optional<std::int64_t>& out) {
    std::optional<std::int64_t> other;
    nested.read(of_vllm, out);
    nested.read(of_transformers, other);
    if (out && other && *out != *other)
      nested.refuse(8, {.what = nested.prefix() + of_vllm + " and " + of_transformers + " differ",
                        .found = std::to_string(*out) + " and " + std::to_string(*other),
                        .where = nested.section().find(of_transformers)->place.text(),
                        .remedy = "write one of them"});
    if (!out) out = other;
    if (out && *out < lowest)
      nested.judge(of_vllm, [&] {
        raise_range(nested.prefix() + of_vllm,
                    *nested.section().find(nested.given(of_vllm) ? of_vllm : of_transformers),
                    std::to_string(lowest) + " or more");
      });
  }

  void limits(Reader& nested) {
    number(nested, "max_tokens", "max_new_tokens", 1, trl_.max_new_tokens);
    nested.record("min_tokens", trl_.min_new_tokens);
    std::optional<std::int64_t> least;
    number(nested, "min_tokens", "min_new_tokens", 0, least);
    trl_.min_new_tokens = least.value_or(0);
    const std::int64_t most = trl_.max_new_tokens.value_or(trl_.max_completion_length);
    if (trl_.min_new_tokens > most)
      nested.refuse(6, {.what = nested.prefix() + "min_tokens is out of range",
                        .found = std::to_string(trl_.min_new_tokens),
                        .expected = "at most the " + std::to_string(most) + " tokens that a completion may have",
                        .where = nested.section().place.text()});
  }

  // One or a list of them.
  template <class T>
  static bool several(Reader& nested, const std::string& name, std::vector<T>& out) {
    const Node* node = nested.take(name);
    return node != nullptr && nested.judge(name, [&] {
      if (node->kind == Kind::sequence) return convert(*node, nested.prefix() + name, out);
      T one{};
      convert(*node, nested.prefix() + name, one);
      out.push_back(std::move(one));
    });
  }

  void ids(Reader& nested, const std::string& name, std::vector<data::TokenId>& out) {
    std::vector<std::int64_t> values;
    if (!several(nested, name, values)) return;
    nested.judge(name, [&] {
      for (const std::int64_t value : values) {
        if (value < 0 || value > INT32_MAX)
          raise_range(nested.prefix() + name, *nested.section().find(name), "token ids, 0 or more");
        out.push_back(static_cast<data::TokenId>(value));
      }
    });
  }

  void ends(Reader& nested) {
    nested.record("stop", trl_.stop_strings);
    nested.record("stop_token_ids", trl_.stop_token_ids);
    nested.record("ignore_eos", trl_.ignore_eos);
    for (const char* name : {"stop", "stop_strings"}) {
      std::vector<std::string> texts;
      if (!several(nested, name, texts)) continue;
      nested.judge(name, [&] {
        for (const std::string& text : texts) {
          if (text.empty())
            raise_range(nested.prefix() + name, *nested.section().find(name), "texts of at least one character");
          if (std::find(trl_.stop_strings.begin(), trl_.stop_strings.end(), text) == trl_.stop_strings.end())
            trl_.stop_strings.push_back(text);
        }
      });
    }
    ids(nested, "stop_token_ids", trl_.stop_token_ids);
    if (nested.given("eos_token_id") && trl_.generates_elsewhere()) {
      refuse_lacking(nested, "eos_token_id", "eos_token_id with a server", *nested.section().find("eos_token_id"),
                     "a server ends at the model's own; write stop_token_ids, with ignore_eos: true for them alone");
    } else if (nested.given("eos_token_id")) {
      ids(nested, "eos_token_id", trl_.stop_token_ids);
      trl_.ignore_eos = true;
    }
    nested.recognise("eos_token_id");
    bool ignore = false;
    if (nested.read("ignore_eos", ignore)) trl_.ignore_eos = trl_.ignore_eos || ignore;
  }

  // The server knows its own names; those that are read here reach it with every request.
  void to_server(const Node& section) {
    trl_.generation_kwargs = to_json(section);
    for (const char* name : {"do_sample", "max_tokens", "max_new_tokens", "min_tokens", "min_new_tokens", "stop",
                             "stop_strings", "stop_token_ids", "eos_token_id"})
      trl_.generation_kwargs.erase(name);
    if (trl_.generation_kwargs.contains("top_k")) trl_.generation_kwargs["top_k"] = trl_.top_k;
  }

  static void refuse_others(Reader& nested) {
    for (const LackingSetting& one : lacking_generation_settings()) {
      const std::string name(one.name);
      const Node* node = nested.take(name);
      if (node == nullptr || !is_on(*node)) continue;
      if ((node->kind == Kind::integer || node->kind == Kind::number) && node->number == one.nothing) continue;
      if (node->kind == Kind::sequence && node->items.empty()) continue;
      refuse_lacking(nested, name, name, *node, std::string(one.remedy));
    }
    apply_idle(nested, idle_generation_settings());
    nested.finish();
  }

  Reader& reader_;
  TrlConfig& trl_;
};

}  // namespace rlalgo::config::detail
