// Command-line options of the verbs that take a model: --name value, --name=value, and flags; dashes or underscores.
#pragma once

#include <charconv>
#include <map>
#include <set>
#include <string>

#include <rlalgo/core/error.hpp>

#include "verbs.hpp"

namespace rlalgo::cli {

class Options {
 public:
  // `values`: options with their defaults; `flags`: options without a value; `positional`: how many other words may
  // come.
  Options(const std::string& verb, const Arguments& arguments, std::map<std::string, std::string> values,
          const std::set<std::string>& flags = {}, std::size_t positional = 0)
      : values_(std::move(values)) {
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      std::string name = arguments[i];
      if (!name.starts_with("--")) {
        if (words_.size() == positional)
          core::raise_usage("cli", 6, {.what = "`rlalgo " + verb + "` takes no such argument", .found = name});
        words_.push_back(name);
        continue;
      }
      name.erase(0, 2);
      std::string value;
      const std::size_t equals = name.find('=');
      if (equals != std::string::npos) {
        value = name.substr(equals + 1);
        name.resize(equals);
      }
      for (char& c : name) c = c == '_' ? '-' : c;
      if (flags.contains(name)) {
        given_.insert(name);
        continue;
      }
      const bool known = values_.contains(name);
      if (!known || (equals == std::string::npos && i + 1 == arguments.size())) {
        std::string expected;
        for (const std::string& flag : flags) expected += (expected.empty() ? "--" : ", --") + flag;
        for (const auto& [key, unused] : values_) expected += (expected.empty() ? "--" : ", --") + key;
        core::raise_usage("cli", 8,
                          {.what = known ? "an option lacks its value" : "there is no such option",
                           .found = arguments[i],
                           .expected = expected,
                           .where = "rlalgo " + verb});
      }
      values_[name] = equals == std::string::npos ? arguments[++i] : value;
    }
  }

  [[nodiscard]] bool flag(const std::string& name) const { return given_.contains(name); }
  [[nodiscard]] const std::string& text(const std::string& name) const { return values_.at(name); }
  [[nodiscard]] const Arguments& words() const { return words_; }
  [[nodiscard]] double number(const std::string& name) const {
    const std::string& text = values_.at(name);
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
      core::raise_usage("cli", 7, {.what = "an option is not a number", .found = text, .where = "--" + name});
    return value;
  }

 private:
  std::map<std::string, std::string> values_;
  std::set<std::string> given_;
  Arguments words_;
};

}  // namespace rlalgo::cli
