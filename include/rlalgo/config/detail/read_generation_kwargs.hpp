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

// Names that this build does not honour, and the number with which they ask for nothing.
struct LackingSetting {
  std::string_view names;
  double nothing;
  std::string_view remedy;
};

// clang-format off
[[nodiscard]] inline std::span<const LackingSetting> lacking_generation_settings() {
  static constexpr std::string_view sampled = "completions are sampled, one token after the other";
  static constexpr LackingSetting settings[] = {
    {"n best_of num_return_sequences", 1, "trl.num_generations says how many completions a prompt has"},
    {"seed", -1, "draws follow the key seed"},
    {"presence_penalty frequency_penalty logit_bias allowed_token_ids bad_words bad_words_ids suppress_tokens begin_suppress_tokens "
        "force_words_ids", 0, "a server may know it: trl.use_vllm: true"},
    {"structured_outputs guided_decoding", 0, "trl.vllm_structured_outputs_regex, with a server"},
    {"length_penalty num_beams num_beam_groups typical_p encoder_repetition_penalty guidance_scale", 1, sampled},
    {"logits_processors diversity_penalty early_stopping penalty_alpha epsilon_cutoff eta_cutoff top_h no_repeat_ngram_size "
        "encoder_no_repeat_ngram_size exponential_decay_length_penalty renormalize_logits remove_invalid_values watermarking_config "
        "assistant_model prompt_lookup_num_tokens constraints forced_bos_token_id forced_eos_token_id", 0, sampled},
    {"max_length", -1, "write max_new_tokens, which does not count the prompt"},
    {"min_length", 0, "write min_new_tokens, which does not count the prompt"},
    {"max_time", 0, "trl.max_completion_length ends completions"},
    {"truncate_prompt_tokens", -1, "prompts are never cut"},
  };
  return settings;
}

[[nodiscard]] inline std::span<const Reason> idle_generation_settings() {
  static constexpr Reason reasons[] = {
    {"include_stop_str_in_output skip_special_tokens spaces_between_special_tokens clean_up_tokenization_spaces detokenize output_kind",
        "completions are token ids, and stay whole", "", "data/rollout.hpp completion_ids"},
    {"logprobs prompt_logprobs flat_logprobs return_dict_in_generate output_scores output_logits output_attentions output_hidden_states "
        "synced_gpus skip_clone", "what the trainer needs is always there", "", "data/rollout.hpp log_prob"},
    {"pad_token_id token_type_ids", "sequences are never padded", "", "model/token_tree.hpp padding"},
    {"bos_token_id decoder_start_token_id", "prompts are encoded by the tokenizer", "decoder_start"},
    {"use_cache cache_implementation cache_config skip_reading_prefix_cache", "keys and values are always kept", "", "inference/kv_cache.hpp keys"},
    {"compile_config disable_compile", "nothing is compiled", "torch_compile dynamo"},
  };
  return reasons;
}
// clang-format on

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
    for (const LackingSetting& setting : lacking_generation_settings()) {
      const Reason names{setting.names, setting.remedy};
      for (const RecognisedKey& one : each_key({&names, 1})) {
        const std::string name(one.key);
        const Node* node = nested.take(name);
        if (node == nullptr || !is_on(*node)) continue;
        const bool number = node->kind == Kind::integer || node->kind == Kind::number;
        if (number && node->number == setting.nothing) continue;
        if (node->kind == Kind::sequence && node->items.empty()) continue;
        refuse_lacking(nested, name, name, *node, std::string(one.reason));
      }
    }
    apply_idle(nested, idle_generation_settings());
    nested.finish();
  }

  Reader& reader_;
  TrlConfig& trl_;
};

}  // namespace rlalgo::config::detail
