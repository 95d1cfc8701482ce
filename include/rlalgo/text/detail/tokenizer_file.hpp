// Reads the JSON files of a tokenizer. tokenizer.json is parsed as a stream: its vocabulary and merges, 150,000 entries
// and more, go to flat lists and never become JSON objects.
//
// Errors: [rlalgo.text.1] a file cannot be read, is no regular file, or larger than largest_tokenizer_file.
// [rlalgo.text.2] it is not valid JSON, beyond the limits of core/bounded_json.hpp, or a field has the wrong form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/os/regular_file.hpp>

namespace rlalgo::text::detail {

using Json = nlohmann::ordered_json;

[[noreturn]] inline void raise_bad_json(const std::string& where, const std::string& found) {
  core::raise("text", 2,
              {.what = "a tokenizer file is damaged or has an unknown form",
               .found = found,
               .where = where,
               .remedy = "copy the model directory again; a file of a few hundred bytes may be a Git LFS pointer"});
}

inline constexpr std::uint64_t largest_tokenizer_file = std::uint64_t{256}
                                                        << 20U;  // bytes; the largest known has 35 MB

// Nothing if the file does not exist.
[[nodiscard]] inline std::optional<std::string> read_if_present(const std::filesystem::path& path) {
  os::FileText file = os::read_regular_file(path, largest_tokenizer_file);
  if (file.absent) return std::nullopt;
  if (!file.problem.empty()) {
    core::raise("text", 1,
                {.what = "cannot read a tokenizer file",
                 .found = file.problem,
                 .where = path.string(),
                 .remedy = "check the file and its permissions"});
  }
  return std::move(file.text);
}

[[nodiscard]] inline Json parse_json(const std::string& text, const std::string& where) {
  auto [json, problem] = core::read_json<Json>(text);
  if (!problem.text.empty()) raise_bad_json(where, problem.text);
  return std::move(json);
}

// Null if the file does not exist.
[[nodiscard]] inline Json read_json_if_present(const std::filesystem::path& path) {
  const std::optional<std::string> text = read_if_present(path);
  return text ? parse_json(*text, path.string()) : Json();
}

struct TokenizerFile {
  Json rest;  // tokenizer.json without model.vocab and model.merges
  std::vector<std::pair<std::string, std::int64_t>> vocabulary;
  std::vector<double> scores;  // of a vocabulary that is a list of [token, score]; ids are positions
  std::vector<std::pair<std::string, std::string>> merges;
  bool has_merges = false;
};

// The SAX side of TokenizerFile.
class TokenizerFileReader : public nlohmann::json_sax<Json> {
 public:
  explicit TokenizerFileReader(TokenizerFile& file) : file_(file) {}
  [[nodiscard]] const std::string& problem() const noexcept { return problem_; }

  bool null() override { return value(nullptr); }
  bool boolean(bool v) override { return value(v); }
  bool number_integer(number_integer_t v) override { return number(v, v); }
  bool number_unsigned(number_unsigned_t v) override { return number(static_cast<std::int64_t>(v), v); }
  bool number_float(number_float_t v, const string_t&) override { return score(v) || value(v); }
  bool binary(binary_t&) override { return false; }
  bool string(string_t& v) override {
    if (mode_ == Mode::merges) return merge_part(v);
    if (mode_ == Mode::scored && depth_ == 2 && pair_.empty()) {
      pair_.push_back(std::move(v));
      return true;
    }
    return value(v);
  }

  bool key(string_t& v) override {
    if (mode_ == Mode::tree) {
      keys_.back() = v;
    } else {
      entry_ = std::move(v);
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (mode_ == Mode::tree && at("vocab")) return enter(Mode::vocabulary);
    if (mode_ != Mode::tree) return enter(Mode::skipped);
    return open(Json::object());
  }
  bool end_object() override { return end(); }

  bool start_array(std::size_t) override {
    if (mode_ == Mode::tree && at("vocab")) return enter(Mode::scored);
    if (mode_ == Mode::scored && depth_ == 1) {
      pair_.clear();
      ++depth_;
      return true;
    }
    if (mode_ == Mode::scored) return value(nullptr);
    if (mode_ == Mode::tree && at("merges")) {
      file_.has_merges = true;
      return enter(Mode::merges);
    }
    if (mode_ == Mode::merges && depth_ == 1) {
      pair_.clear();
      ++depth_;
      return true;
    }
    if (mode_ != Mode::tree) return enter(Mode::skipped);
    return open(Json::array());
  }
  bool end_array() override {
    if (mode_ == Mode::merges && depth_ == 2) {
      --depth_;
      if (pair_.size() != 2) return fail("merge " + std::to_string(file_.merges.size()) + " is not a pair of tokens");
      file_.merges.emplace_back(std::move(pair_[0]), std::move(pair_[1]));
      return true;
    }
    if (mode_ == Mode::scored && depth_ == 2) {
      --depth_;
      return file_.scores.size() == file_.vocabulary.size() && pair_.empty() ? true : value(nullptr);
    }
    return end();
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    problem_ = core::json_reason(error.what());
    return false;
  }

 private:
  static constexpr std::size_t depth_limit = 64;  // real files have about ten levels
  enum class Mode { tree, vocabulary, scored, merges, skipped };

  bool fail(std::string what) {
    problem_ = std::move(what);
    return false;
  }

  // Whether the value about to start is root["model"][name].
  [[nodiscard]] bool at(std::string_view name) const {
    return keys_.size() == 2 && keys_[0] == "model" && keys_[1] == name;
  }

  bool enter(Mode mode) {
    if (mode_ == Mode::tree) outer_ = mode;
    mode_ = mode;
    ++depth_;
    return true;
  }
  bool end() {
    if (mode_ == Mode::tree) {
      stack_.pop_back();
      keys_.pop_back();
      return true;
    }
    --depth_;
    mode_ = depth_ == 0 ? Mode::tree : mode_ == Mode::skipped && depth_ == 1 ? outer_ : mode_;
    return true;
  }

  template <class T>
  bool number(std::int64_t integer, T v) {
    if (mode_ == Mode::vocabulary) {
      file_.vocabulary.emplace_back(std::move(entry_), integer);
      return true;
    }
    return score(static_cast<double>(v)) || value(v);
  }
  bool score(double v) {
    if (mode_ != Mode::scored || depth_ != 2 || pair_.size() != 1) return false;
    file_.vocabulary.emplace_back(std::move(pair_[0]), static_cast<std::int64_t>(file_.vocabulary.size()));
    file_.scores.push_back(v);
    pair_.clear();
    return true;
  }
  template <class T>
  bool value(T&& v) {
    if (mode_ == Mode::scored)
      return fail("entry " + std::to_string(file_.vocabulary.size()) + " of the vocabulary is not [token, score]");
    if (mode_ == Mode::vocabulary) return fail("the id of token '" + entry_ + "' is not an integer");
    if (mode_ == Mode::merges)
      return fail("merge " + std::to_string(file_.merges.size()) + " is not a string or a pair");
    if (mode_ == Mode::tree) place(Json(std::forward<T>(v)));
    return true;
  }

  bool merge_part(std::string& v) {
    if (depth_ == 2) {
      pair_.push_back(std::move(v));
      return true;
    }
    const std::size_t gap = v.find(' ');
    if (gap == std::string::npos || v.find(' ', gap + 1) != std::string::npos) {
      return fail("merge " + std::to_string(file_.merges.size()) + " ('" + v +
                  "') is not two tokens with one space between");
    }
    file_.merges.emplace_back(v.substr(0, gap), v.substr(gap + 1));
    return true;
  }

  Json* place(Json v) {
    if (stack_.empty()) {
      file_.rest = std::move(v);
      return &file_.rest;
    }
    Json& parent = *stack_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(v));
      return &parent.back();
    }
    Json& slot = parent[keys_.back()];
    slot = std::move(v);
    return &slot;
  }
  bool open(Json container) {
    if (stack_.size() >= depth_limit) return fail("it is nested more than " + std::to_string(depth_limit) + " deep");
    stack_.push_back(place(std::move(container)));
    keys_.emplace_back();
    return true;
  }

  TokenizerFile& file_;
  Mode mode_ = Mode::tree, outer_ = Mode::tree;
  std::size_t depth_ = 0;          // of containers inside a streamed value
  std::vector<Json*> stack_;       // open containers of the tree
  std::vector<std::string> keys_;  // the current key in each of them
  std::string entry_, problem_;
  std::vector<std::string> pair_;
};

[[nodiscard]] inline TokenizerFile parse_tokenizer_file(const std::string& text, const std::string& where) {
  TokenizerFile file;
  TokenizerFileReader reader(file);
  if (!Json::sax_parse(text, &reader)) raise_bad_json(where, reader.problem());
  if (!file.rest.is_object()) raise_bad_json(where, "no JSON object");
  return file;
}

}  // namespace rlalgo::text::detail
