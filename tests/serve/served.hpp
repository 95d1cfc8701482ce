// A tiny model with random weights, a tokenizer and a chat template, as servers are given them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include <rlalgo/model/adapter_files.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/lora.hpp>
#include <rlalgo/serve/served_model.hpp>

#include <support/decoders.hpp>

namespace rlalgo::support {
extern const char* const test_dir;
}

namespace served {

using namespace rlalgo;

inline std::shared_ptr<model::Decoder> decoder(std::uint64_t seed = 4) {
  model::Json config = support::small_config("qwen2");
  config["vocab_size"] = 530;
  return model::random_decoder(model::parse_hf_config(config, "test"), seed);
}

inline serve::ServedModel model(std::uint64_t seed = 4) {
  const auto directory = std::filesystem::path(support::test_dir) / "golden/text/qwen2";
  serve::ServedModel out{.name = "tiny",
                         .root = "/models/tiny",
                         .decoder = decoder(seed),
                         .tokenizer = text::Tokenizer::from_directory(directory)};
  out.chat_template = text::ChatTemplate::from_source(
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}",
      out.tokenizer.special_tokens());
  out.stop_ids = {524};
  out.max_model_len = 200;
  return out;
}

// Writes an adapter that changes the model at once.
inline void write_adapter(const std::filesystem::path& directory, std::uint64_t seed) {
  const auto adapted = decoder();
  model::LoraConfig config;
  config.r = 2;
  config.alpha = 64;
  config.target_modules = {"q_proj", "down_proj"};
  config.init = model::LoraInit::random;
  model::attach_lora(*adapted, config, seed);
  model::save_adapter(*adapted, directory, "tiny");
}

}  // namespace served
