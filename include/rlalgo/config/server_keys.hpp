// Who makes completions: a server (TRL's vllm-serve protocol), or this process with its own engine; and what corrects for a generator
// whose log-probs are not the trainer's.
//
// vllm_mode: colocate is what this program does by itself: generation with the trainer's own weights in this process. With agents of a
// Gym it is a server in this process, which they ask: host and port are where it listens.
// Departure from axolotl: of completions made asynchronously, of quantized weights or of this process that are trained on again,
// the correction is token_truncate between 1/clip_max and clip_max unless the keys say otherwise.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <rlalgo/config/key.hpp>

namespace rlalgo::config {

struct ServerConfig {
  bool use_vllm = false;
  std::string vllm_mode = "server";
  std::string vllm_server_host = "0.0.0.0";
  std::int64_t vllm_server_port = 8000;
  std::optional<std::string> vllm_server_base_url;
  std::int64_t vllm_group_port = 51216;
  double vllm_server_timeout = 240.0;
  std::optional<double> vllm_gpu_memory_utilization;  // unset: what completions need
  double request_timeout = 600.0;
  bool vllm_lora_sync = true;
  std::optional<std::string> vllm_structured_outputs_regex;
  // Of trl.generation_kwargs: what ends completions, and what else is passed on to the server.
  std::vector<std::string> stop_strings;
  std::vector<data::TokenId> stop_token_ids;   // beside the model's own
  bool ignore_eos = false;                     // without those
  std::optional<std::int64_t> max_new_tokens;  // of a completion, or of one message where there are turns
  std::int64_t min_new_tokens = 0;
  data::Json generation_kwargs = nullptr;
  bool vllm_importance_sampling_correction = true;
  std::string vllm_importance_sampling_mode = "sequence_mask";
  std::optional<double> vllm_importance_sampling_clip_min;
  std::optional<double> vllm_importance_sampling_clip_max = 3.0;
  [[nodiscard]] bool generates_elsewhere() const { return use_vllm && vllm_mode == "server"; }
  std::string generation_quantization = "none";
  std::string generation_kv_cache_dtype = "auto";
  [[nodiscard]] bool quantizes() const {
    return generation_quantization != "none" || generation_kv_cache_dtype != "auto";
  }
  bool generation_invariant = false;
  bool agents = false;  // of a Gym make them (nemo_gym_multi_turn), who ask a server
  // Whether that server is this process.
  [[nodiscard]] bool serves() const { return agents && !generates_elsewhere(); }
};

// clang-format off
// Who makes them; then server_keys(), which hang on that.
[[nodiscard]] inline Keys generator_keys(ServerConfig& s) {
  const auto elsewhere = [&s] { return s.generates_elsewhere(); };
  return {
    key("trl.use_vllm", s.use_vllm, "completions come from a server, or are meant to (`vllm_mode`)"),
    key("trl.vllm_mode", s.vllm_mode, "`server`: `rlalgo vllm-serve` ([serving.md](serving.md#training-against-it)), TRL's, axolotl's or "
        "stock vLLM; which it is is found out. `colocate` is what this program does anyway").one_of({"server", "colocate"})
        .when(where([&s] { return s.use_vllm; }, "completions are generated in this process")),
    key("trl.generation_quantization", s.generation_quantization, "`int8`, and on a GPU `fp8` (ours): this process generates with "
        "copies of its weights in 8 bits, made whenever they change, which is faster ([performance.md](../benchmarks/measurements.md#weights-in-8-bits), "
        "[on a GPU](gpu.md#weights-in-8-bits)); the policy that draws is then a little another one, which the correction makes up for. Training, "
        "log-probs of the policy and of the reference and what is saved are as without it. Not with `rl: rloo` and `ebft.mode: strided`, whose "
        "losses correct for nothing").one_of({"none", "int8", "fp8"})
        .when(where([=] { return !elsewhere(); }, "it concerns completions of this process, and a server makes them")).only_if_written(),
    key("trl.generation_kv_cache_dtype", s.generation_kv_cache_dtype, "on a GPU (ours; vLLM's `kv_cache_dtype`): `fp8`, which is `fp8_e4m3`, keeps "
        "keys and values of this process's generation in one byte a number, so twice as many tokens have room as in bfloat16 "
        "([GPUs](gpu.md#keys-and-values-in-8-bits)). What draws is then another policy, as with `generation_quantization`, and the same methods go with it")
        .one_of({"auto", "fp8", "fp8_e4m3"})
        .when(where([=] { return !elsewhere(); }, "it concerns completions of this process, and a server makes them (--kv-cache-dtype)")).only_if_written(),
    key("trl.generation_invariant", s.generation_invariant, "on a GPU (ours): the numbers of a completion that this process generates do not "
        "depend on which others are computed with it, on their order or on prefixes that are found again; they never do on the CPU. Every "
        "product has a fixed number of rows then, and every row attends by itself, which costs ([GPUs](gpu.md#numbers-that-depend-on-nothing-else)). Not "
        "for models with experts or linear attention")
        .when(where([=] { return !elsewhere(); }, "it concerns completions of this process, and a server makes them (--generation-invariant)")).only_if_written(),
    key("trl.vllm_gpu_memory_utilization", s.vllm_gpu_memory_utilization, "on a GPU: the share of its memory that generation in this process "
        "may take, the weights that it reads counted ([GPUs](gpu.md#memory-of-generation-and-training)). Unset: what the completions need. "
        "TRL's `vllm_mode: colocate` takes 0.3").within(above(0).to(1)).shows("–")
        .when(where([=] { return !elsewhere(); }, "it concerns vllm_mode: colocate; the server's is its own (--gpu-memory-utilization)"))
        .free({"where keys and values lie; the same numbers to rounding"}).only_if_written(),
  };
}

// Its names have a reader of their own (config/detail/read_generation_kwargs.hpp).
[[nodiscard]] inline Key generation_kwargs_key(ServerConfig& s) {
  return key("trl.generation_kwargs", s.generation_kwargs, "names of vLLM and of transformers that mean the same without a server and "
      "with one: the five keys of sampling; `do_sample: false`, the most likely token every time, scored at `temperature`; what ends a "
      "completion ([below](#what-ends-a-completion)). Any other goes to a server as it is; without one it is refused by name, unless it "
      "asks for nothing (`num_beams: 1`) or has no effect here (`use_cache`, with a warning)");
}

// `corrects`: whether the ratio of a row may have to be corrected for the generator that drew it.
[[nodiscard]] inline Keys server_keys(ServerConfig& s, bool corrects) {
  static constexpr std::string_view local =
      "it concerns a generation server, and completions are generated in this process";
  const auto unless = [&s](std::string_view in_this_process) -> Gate {
    return [&s, in_this_process] {
      return s.generates_elsewhere() ? std::string_view() : s.serves() ? in_this_process : local;
    };
  };
  const Gate server = unless("it concerns another server, and the agents ask this process");
  const Gate constrained = unless("the agents' requests say what they want");
  const Gate any_server = where([&s] { return s.generates_elsewhere() || s.serves(); }, local);
  const Gate corrected = where([corrects] { return corrects; }, local);
  // Of vLLM inside the trainer's process.
  const Gate colocated = [&s] {
    return s.generates_elsewhere() ? std::string_view("it concerns vllm_mode: colocate")
           : s.serves()            ? std::string_view("the server in this process takes what the model needs")
                                   : local;
  };
  Keys out = {
    key("trl.vllm_server_host", s.vllm_server_host, "where it is; `http` only. With `nemo_gym_multi_turn` and no server: where this "
        "process answers the agents (127.0.0.1)").when(any_server).free(resume::place),
    key("trl.vllm_server_port", s.vllm_server_port, "its port; its key, if it asks for one, is `VLLM_API_KEY` of the environment. With "
        "agents and no server: one that is free").within(s.serves() ? at_least(0).to(65535).meaning("0 = one that is free") : port)
        .when(any_server).free(resume::place),
    key("trl.vllm_server_base_url", s.vllm_server_base_url, "its address, which wins over host and port").when(server).free(resume::place),
    key("trl.vllm_group_port", s.vllm_group_port, "the port of the store through which weights are broadcast, to servers that take them "
        "so ([serving.md](serving.md#weights-by-broadcast)): on the server with TRL's, here with vLLM").within(port).when(server)
        .free(resume::place),
    key("trl.vllm_server_timeout", s.vllm_server_timeout, "that the first request waits for it to be up").within(seconds).when(server)
        .free(resume::wait),
    key("trl.request_timeout", s.request_timeout, "for one call to it, to the last byte of the answer and with all attempts: a connection "
        "that fails and the statuses 429, 500, 502, 503 and 504 are tried again up to five times, each with a line in the log, after 0.5, "
        "1, 2, 4 and 8 s or as long as `Retry-After` says (TRL's asynchronous trainer has the name)").within(seconds).when(server)
        .free(resume::wait),
    key("trl.vllm_lora_sync", s.vllm_lora_sync, "an adapter travels as files under `output_dir/lora_sync`, which the server must see "
        "under the same path; false, or one that servers cannot load (DoRA, `lora_modules_to_save`, PiSSA, patterns): the merged matrices "
        "over HTTP, or in a file under `output_dir/weight_sync` for rlalgo's server on the same machine").when(server).free(resume::same),
    key("trl.vllm_guided_decoding_regex", s.vllm_structured_outputs_regex, "").when(constrained).same_as(
        "trl.vllm_structured_outputs_regex"),
    key("trl.vllm_structured_outputs_regex", s.vllm_structured_outputs_regex, "a completion must match it").when(constrained),
    key("trl.vllm_importance_sampling_correction", s.vllm_importance_sampling_correction, "correction for the difference between the "
        "generator's log-probs and ours: a server's, or of completions made asynchronously, from quantized weights or replayed with "
        "`replay_recompute_logps: true`, where the mode is token_truncate and clip_min 1/clip_max unless set").when(corrected),
    key("trl.vllm_importance_sampling_mode", s.vllm_importance_sampling_mode, "what the ratio of the two belongs to, and whether one "
        "beyond the bounds is cut or its row masked").one_of({"token_truncate", "token_mask", "sequence_truncate", "sequence_mask"})
        .when(corrected),
    key("trl.vllm_importance_sampling_clip_min", s.vllm_importance_sampling_clip_min, "the least ratio").within(at_least(0))
        .when(corrected),
    key("trl.vllm_importance_sampling_clip_max", s.vllm_importance_sampling_clip_max, "the largest; null = none").within(above(0))
        .when(corrected),
      // It wins, as in TRL.
    key("trl.vllm_importance_sampling_cap", s.vllm_importance_sampling_clip_max, "").when(corrected).same_as(
        "trl.vllm_importance_sampling_clip_max"),
  };
  for (const std::string_view name :
       {"trl.vllm_enable_sleep_mode", "trl.vllm_model_impl", "trl.vllm_max_model_length", "trl.vllm_tensor_parallel_size"})
    out.push_back(key(name, "").when(colocated));
  return out;
}
// clang-format on

}  // namespace rlalgo::config
