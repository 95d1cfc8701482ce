// What a run depends on that is only named in its settings, as digests (core/digest.hpp): rows by their content, weights by their bytes.
// Compared by a resume like settings.
//
// Errors: [rlalgo.os.1] a file that cannot be read.
#pragma once

#include <algorithm>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <rlalgo/core/digest.hpp>
#include <rlalgo/data/answer_file.hpp>
#include <rlalgo/data/rollout.hpp>

namespace rlalgo::assembly {

// What the weights on disk are: the bytes of the safetensors files of a model's, or an adapter's, directory.
[[nodiscard]] inline std::string weights_identity(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  core::Digest digest;
  data::add_file(digest, directory / "config.json");
  for (const std::filesystem::path& file : files) data::add_file(digest, file);
  return digest.hex();
}

// Token ids, prompts and columns, in their order.
[[nodiscard]] inline std::string rows_identity(std::span<const data::TokenizedPrompt> prompts) {
  const auto text = [](const data::Json& json) {
    return json.dump(-1, ' ', false, data::Json::error_handler_t::replace);
  };
  core::Digest digest;
  for (const data::TokenizedPrompt& prompt : prompts)
    digest.add({reinterpret_cast<const char*>(prompt.ids.data()), prompt.ids.size() * sizeof(data::TokenId)})
        .add(prompt.has_prompt ? text(prompt.prompt) : std::string("no prompt"))
        .add(text(prompt.columns));
  return digest.hex();
}

}  // namespace rlalgo::assembly
