// The device of a run: key `device` (auto, cpu, cuda, cuda:N), chosen when the configuration is read (tensor/device.hpp).
//
// With several ranks on a machine each takes the GPU of its LOCAL_RANK, which torchrun sets. What a device cannot do yet
// is refused by its key and never done elsewhere.
//
// Errors (usage): [rlalgo.config.6] no name of a device; [.8] activation_offloading without gradient_checkpointing; [.44] a key asks for what the device cannot do; those of
// tensor/device.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <rlalgo/config/reader.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/config/supported.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/tensor/device.hpp>

namespace rlalgo::config {

[[nodiscard]] inline at::Device device_of(const RunConfig& config) { return at::Device(config.device); }

// What a user can do when the memory of the device is used up.
inline constexpr std::string_view memory_remedy =
    "lower micro_batch_size (and raise gradient_accumulation_steps), set gradient_checkpointing: true, or shorten "
    "sequence_len or trl.max_completion_length; the last checkpoint resumes the run";

// The number of this process among those of its machine.
[[nodiscard]] inline int local_rank() {
  const char* const text = std::getenv("LOCAL_RANK");
  return text == nullptr ? 0 : std::max(0, std::atoi(text));
}

// Of so many ranks those of this machine.
[[nodiscard]] inline std::int64_t ranks_here(std::int64_t ranks) {
  const char* const text = std::getenv("LOCAL_WORLD_SIZE");
  return text == nullptr ? ranks : std::clamp<std::int64_t>(std::atoll(text), 1, ranks);
}

// The device that a key or an option names, as RunConfig::device; its note, where there is one, goes to `note`.
inline void place_on(RunConfig& config, const std::string& name, int ranks, const std::string& where,
                     std::string& note) {
  // The process that starts the ranks asks for what the last of them will: no rank is started where one lacks a GPU.
  const bool starts = ranks > 1 && std::getenv("RANK") == nullptr;
  tensor::DeviceChoice choice = tensor::choose_device(name, starts ? ranks - 1 : local_rank(), ranks, where);
  config.device = choice.device.str();
  note = std::move(choice.note);
}

inline void read_device(Reader& reader, RunConfig& config, int ranks) {
  std::string name = "auto", note;
  reader.read("device", name);
  const Node* const node = reader.section().find("device");
  reader.judge("device", [&] {
    if (!tensor::is_device_name(name)) detail::raise_range("device", *node, "auto, cpu, cuda or cuda:N");
    place_on(config, name, ranks, node == nullptr ? config.file : node->place.text(), note);
  });
  if (!note.empty()) reader.findings().warnings.push_back(note);
}

// After all keys are read.
inline void check_device(const RunConfig& config) {
  if (config.activation_offloading != "none" && !config.gradient_checkpointing)
    core::raise_usage("config", 8,
                      {.what = "activation_offloading needs gradient_checkpointing",
                       .found = "gradient_checkpointing: false",
                       .where = config.place("activation_offloading"),
                       .remedy = "set gradient_checkpointing: true: what is moved away is what that keeps"});
  if (!device_of(config).is_cpu()) return;
  const auto refuse = [&](const std::string& key, const std::string& value, const std::string& remedy) {
    core::raise_usage("config", 44,
                      {.what = key + " is not computed on this device",
                       .found = key + ": " + value + ", device: " + config.device,
                       .where = config.place(key),
                       .remedy = remedy + ", or set device: cuda"});
  };
  const TrlConfig& t = config.trl;
  if (t.generation_quantization == "fp8")
    refuse("trl.generation_quantization", t.generation_quantization, "set int8, which the CPU multiplies by");
  if (t.generation_kv_cache_dtype != "auto")
    refuse("trl.generation_kv_cache_dtype", t.generation_kv_cache_dtype, "leave it out");
}

}  // namespace rlalgo::config
