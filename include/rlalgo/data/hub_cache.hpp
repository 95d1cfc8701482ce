// Finds a model or dataset in the local Hugging Face cache. Nothing is ever downloaded.
//
// Layout: <cache>/{models,datasets}--<owner>--<name>/{refs/<revision>, snapshots/<commit>/…}, where <cache> is
// $HF_HUB_CACHE, else $HF_HOME/hub, else ~/.cache/huggingface/hub. `refs/<revision>` holds the commit; a revision may
// also be a commit itself. Without a revision: `main`, or the only snapshot there is.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace rlalgo::data {

[[nodiscard]] std::filesystem::path hub_cache_directory();

enum class HubKind { models, datasets };

// `owner/name` (or a bare `name`): at most one slash, and nothing that a path has.
[[nodiscard]] bool is_hub_id(std::string_view id);

// The snapshot directory of `id`, or nothing when it is not in the cache.
[[nodiscard]] std::optional<std::filesystem::path> find_in_hub_cache(HubKind kind, std::string_view id,
                                                                     const std::string& revision = {});

}  // namespace rlalgo::data

#ifndef RLALGO_COMPILED
#include <rlalgo/data/detail/hub_cache_impl.hpp>
#endif
