// The `vllm:` section of a configuration: how `rlalgo vllm-serve CONFIG.yaml` serves its base_model. A training reads
// none of it.
//
//   host (127.0.0.1), port (8000), dtype (auto), device (auto), max_model_len (the model's), gpu_memory_utilization (0.9, of a GPU)
//
// What concerns GPUs or vLLM's own parts is named in a warning (enable_prefix_caching: false too: prefixes are always
// shared, which changes no bit of an answer; several processes), and what changes what the server would do (a
// reasoning parser, another server module) is refused.
// Departure: axolotl's host is 0.0.0.0; where that address is this section's alone and there is no key, the server listens on
// 127.0.0.1 and says so (`rlalgo vllm-serve`).
//
// Errors (usage): [rlalgo.config.10] what this build lacks; those of reader.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <rlalgo/config/detail/read_keys.hpp>
#include <rlalgo/config/document.hpp>
#include <rlalgo/config/reader.hpp>
#include <rlalgo/config/recognised.hpp>
#include <rlalgo/tensor/device.hpp>

namespace rlalgo::config {

struct ServeSection {
  std::optional<std::string> host, dtype, device;
  std::optional<std::int64_t> port, max_model_len;
  std::optional<double> gpu_memory_utilization;
  std::vector<std::string> warnings = {};
};

[[nodiscard]] inline ServeSection read_serve_section(const Document& document) {
  ServeSection out;
  const Node* const node = document.root.find("vllm");
  if (node == nullptr || node->kind == Kind::null) return out;
  Findings findings;
  findings.refusals = Refusals(document.file);
  Reader reader(*node, "vllm.", findings);
  reader.read("host", out.host);
  reader.read("port", out.port);
  if (out.port && (*out.port < 0 || *out.port > 65535))
    reader.judge("port", [&] { detail::raise_range("vllm.port", *node->find("port"), "0 to 65535"); });
  reader.read_choice("dtype", out.dtype, {"auto", "float32", "float", "bfloat16"});
  if (out.dtype == "float") out.dtype = "float32";
  reader.read("max_model_len", out.max_model_len);
  if (out.max_model_len && *out.max_model_len < 1)
    reader.judge("max_model_len",
                 [&] { detail::raise_range("vllm.max_model_len", *node->find("max_model_len"), "at least 1"); });
  reader.read("gpu_memory_utilization", out.gpu_memory_utilization);
  if (const auto& share = out.gpu_memory_utilization; share && !(*share > 0.0 && *share <= 1.0))
    reader.judge("gpu_memory_utilization", [&] {
      detail::raise_range("vllm.gpu_memory_utilization", *node->find("gpu_memory_utilization"),
                          "more than 0, at most 1");
    });
  bool prefixes = true;
  if (reader.read("enable_prefix_caching", prefixes) && !prefixes)
    findings.warnings.push_back("vllm.enable_prefix_caching (" + node->find("enable_prefix_caching")->place.text() +
                                ") has no effect: prefixes are always shared, which changes no answer");

  reader.read("device", out.device);
  reader.judge("device", [&] {
    if (out.device && !tensor::is_device_name(*out.device))
      detail::raise_range("vllm.device", *node->find("device"), "auto, cpu, cuda or cuda:N");
  });
  static constexpr Reason lacking[] = {
      {"enable_reasoning reasoning_parser", "reasoning stays in the text: leave it out"}};
  detail::apply_lacking(reader, lacking);
  std::string module;
  if (reader.read("serve_module", module) && module != "axolotl.scripts.vllm_serve_lora" &&
      module != "trl.scripts.vllm_serve")
    detail::refuse_lacking(reader, "serve_module", "serve_module", *node->find("serve_module"),
                           "the server is this program");
  static constexpr std::string_view one_process =
      "the server is one process with one copy of the model, which answers the same";
  for (const char* key : {"tensor_parallel_size", "data_parallel_size"})
    if (std::int64_t size = 1; reader.read(key, size) && size > 1)
      findings.warnings.push_back("vllm." + std::string(key) + " (" + node->find(key)->place.text() +
                                  ") has no effect: " + std::string(one_process));
  static constexpr Reason idle[] = {
      {"enforce_eager", "nothing is compiled or captured"},
      {"worker_extension_cls", "every way of changing weights is there"},
  };
  detail::apply_idle(reader, idle);
  reader.finish();
  findings.refusals.raise();
  out.warnings = findings.warnings;
  return out;
}

}  // namespace rlalgo::config
