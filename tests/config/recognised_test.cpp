#include <support/scratch.hpp>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <rlalgo/config/detail/read_adapter.hpp>
#include <rlalgo/config/detail/read_datasets.hpp>
#include <rlalgo/config/detail/read_generation_kwargs.hpp>
#include <rlalgo/config/detail/read_optimizer.hpp>
#include <rlalgo/config/detail/read_quantisation.hpp>
#include <rlalgo/config/keys.hpp>
#include <rlalgo/config/names_elsewhere.hpp>
#include <rlalgo/config/recognised.hpp>

using namespace rlalgo::config;
namespace fs = std::filesystem;

namespace {

const fs::path headers = fs::path(rlalgo::support::test_dir).parent_path() / "include/rlalgo";

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return lower({std::istreambuf_iterator<char>(in), {}});
}

// The headers of all rooms but config/, in small letters.
const std::map<std::string, std::string>& texts() {
  static const std::map<std::string, std::string> all = [] {
    std::map<std::string, std::string> out;
    for (const auto& entry : fs::recursive_directory_iterator(headers)) {
      const std::string name = fs::relative(entry.path(), headers).string();
      if (entry.path().extension() == ".hpp" && !name.starts_with("config/")) out[name] = read(entry.path());
    }
    return out;
  }();
  return all;
}

bool begins_an_identifier(const std::string& text, const std::string& word) {
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
    if (at == 0 || !(std::isalnum(static_cast<unsigned char>(text[at - 1])) || text[at - 1] == '_')) return true;
  return false;
}

std::vector<std::string> words(std::string_view text) {
  std::istringstream in{std::string(text)};
  return {std::istream_iterator<std::string>(in), {}};
}

std::vector<std::span<const Reason>> tables() {
  return {lacking_keys(),
          lacking_trl_keys(),
          idle_keys(),
          idle_trl_keys(),
          reasons_elsewhere(),
          idle_prefixes(),
          removed_keys(),
          rlalgo::config::detail::lacking_adapter_keys(),
          rlalgo::config::detail::idle_bnb_keys(),
          rlalgo::config::detail::lacking_bnb_keys(),
          rlalgo::config::detail::lacking_adafactor_keys(),
          rlalgo::config::detail::idle_dataset_keys(),
          rlalgo::config::detail::idle_generation_settings()};
}

// Names that a reason may point to: keys, verbs and files of models.
const std::set<std::string>& names() {
  static const std::set<std::string> all = [] {
    std::set<std::string> out = {"rl",
                                 "split",
                                 "type",
                                 "column",
                                 "merge-lora`",
                                 "vllm-serve`",
                                 "preprocess`",
                                 "train`",
                                 "ctrl-c",
                                 "config.json",
                                 "--nproc-per-node",
                                 "shards_idx",
                                 "lora_target_modules",
                                 "optim_args",
                                 "fsdp_config",
                                 "lr_scheduler_kwargs"};
    for (const Key& row : every_key()) {
      out.emplace(row.name);
      out.emplace(row.name.substr(row.name.find('.') + 1));
    }
    for (const auto& table : tables())
      for (const RecognisedKey& key : each_key(table)) out.emplace(key.key);
    return out;
  }();
  return all;
}

bool points_somewhere(std::string_view reason) {
  for (std::string word : words(lower(std::string(reason)))) {
    while (!word.empty() && std::string_view(".,:;").find(word.back()) != std::string_view::npos) word.pop_back();
    if (names().contains(word) || names().contains(word.substr(0, word.find('[')))) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("no key is in two tables, and every key has its reason") {
  std::set<std::string> top, trl;
  const auto once = [](std::span<const Reason> table, std::set<std::string>& seen) {
    for (const RecognisedKey& entry : each_key(table)) {
      INFO(entry.key);
      CHECK_FALSE(entry.key.empty());
      CHECK(seen.insert(std::string(entry.key)).second);
      CHECK_FALSE(entry.reason.empty());
    }
  };
  for (const auto& table : {lacking_keys(), idle_keys(), removed_keys()}) once(table, top);
  for (const auto& table : {lacking_trl_keys(), idle_trl_keys()}) once(table, trl);
}

TEST_CASE("families of keys end in an underscore and hold none of the single keys that mean something else") {
  for (const RecognisedKey& family : each_key(idle_prefixes())) {
    CHECK(family.key.ends_with("_"));
    for (const RecognisedKey& entry : each_key(idle_keys())) CHECK_FALSE(entry.key.starts_with(family.key));
  }
}

TEST_CASE(
    "what a reason says is so: words that nothing begins with, a header that shows it, or a key or verb that is "
    "there") {
  for (const auto& table : tables())
    for (const Reason& reason : table) {
      INFO(reason.because);
      for (const std::string& word : words(reason.nowhere))
        for (const auto& [name, text] : texts()) {
          INFO(word << " in " << name);
          CHECK_FALSE(begins_an_identifier(text, word));
        }
      if (!reason.seen.empty()) {
        const std::size_t blank = reason.seen.find(' ');
        const std::string file(reason.seen.substr(0, blank)), word(reason.seen.substr(blank + 1));
        INFO(file << ": " << word);
        REQUIRE(texts().contains(file));
        CHECK(texts().at(file).find(lower(word)) != std::string::npos);
      }
      const bool own = reason.because.find("it concerns") == 0 || reason.because.find("it has no successor") == 0;
      CHECK((!reason.nowhere.empty() || !reason.seen.empty() || own || points_somewhere(reason.because)));
    }
}

TEST_CASE("no reason denies what this program has") {
  for (const auto& table : tables())
    for (const Reason& reason : table)
      for (const char* wrong : {"no dropout", "whole model", "not traded", "one process", "no TF32", "one attention",
                                "never cut or dropped"}) {
        INFO(reason.because);
        CHECK(reason.because.find(wrong) == std::string_view::npos);
      }
}
