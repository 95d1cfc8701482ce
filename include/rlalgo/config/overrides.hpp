// Command-line overrides: `--key value`, `--key=value`, `--trl.beta 0.1`, `--flag`, `--no-flag`, `--datasets.0.path x`.
//
// Dashes and underscores are the same in a key. An option without a value is `true`, with `--no-` before its name
// `false`. A value beginning with [ or { is read as YAML; any other is one scalar, typed by the key it is for. A
// section that is absent or null is created; a section that is something else is replaced, with a warning. A list item
// is named by its index; the index after the last appends.
//
// Errors (usage): [rlalgo.config.12] an option that is not of this form, or an index beyond a list.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/config/document.hpp>
#include <rlalgo/config/node.hpp>
#include <rlalgo/core/error.hpp>

namespace rlalgo::config {

namespace detail {

[[noreturn]] inline void raise_option(const std::string& what, const std::string& found, const std::string& expected) {
  core::raise_usage("config", 12, {.what = what, .found = found, .expected = expected, .where = "the command line"});
}

// The node that `path` names below `root`, made on the way where it is missing.
inline Node& node_at(Node& root, const std::vector<std::string>& path, const Place& place,
                     std::vector<std::string>& warnings) {
  Node* at = &root;
  std::string walked;
  for (const std::string& part : path) {
    const bool index = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    if (at->scalar()) {
      if (at->kind != Kind::null)
        warnings.push_back(walked + " is " + describe(*at) + " at " + at->place.text() + " and is replaced by " +
                           place.option);
      *at = Node{};
      at->kind = index ? Kind::sequence : Kind::mapping;
      at->place = place;
    }
    if (at->kind == Kind::sequence) {
      const std::size_t position = index && part.size() < 6 ? std::stoul(part) : static_cast<std::size_t>(-1);
      if (position > at->items.size())
        raise_option(walked + " is a list", place.option,
                     "an index from 0 to " + std::to_string(at->items.size()) + " after " + walked);
      if (position == at->items.size()) at->items.emplace_back();
      at = &at->items[position];
    } else {
      Node* child = at->find(part);
      if (child == nullptr) {
        at->members.push_back({part, place, Node{}});
        child = &at->members.back().value;
      }
      at = child;
    }
    walked += (walked.empty() ? "" : ".") + part;
  }
  return *at;
}

inline std::vector<std::string> key_path(std::string_view name, const std::string& option) {
  std::vector<std::string> path(1);
  for (const char c : name) {
    if (c == '.')
      path.emplace_back();
    else
      path.back() += c == '-' ? '_' : c;
  }
  for (const std::string& part : path)
    if (part.empty()) raise_option("the option names no key", option, "--key value");
  if (const std::size_t most = DocumentLimits{}.depth; path.size() > most)
    raise_option("the option names a key of too many sections", std::to_string(path.size()) + " of them",
                 std::to_string(most) + " at most");
  return path;
}

}  // namespace detail

// Applies the arguments that follow the configuration file to its tree.
inline void apply_overrides(Document& document, std::span<const std::string> arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (!argument.starts_with("--") || argument.size() < 3)
      detail::raise_option("the argument is not an option", argument, "--key value");
    std::string_view name = std::string_view(argument).substr(2);
    std::string value = "true";
    if (const std::size_t equals = name.find('='); equals != std::string_view::npos) {
      value = name.substr(equals + 1);
      name = name.substr(0, equals);
    } else if (i + 1 < arguments.size() && !arguments[i + 1].starts_with("--")) {
      value = arguments[++i];
    } else if (name.starts_with("no-")) {
      value = "false";
      name.remove_prefix(3);
    }
    Place place{.option = "--" + std::string(name)};
    // `--trl.no-use-vllm` is not a form; `--no-trl.use-vllm` is.
    Node& node = detail::node_at(document.root, detail::key_path(name, argument), place, document.warnings);
    const std::size_t first = value.find_first_not_of(' ');
    const bool flow = first != std::string::npos && (value[first] == '[' || value[first] == '{');
    node = flow ? parse_value(value, place) : make_scalar(value, false, place);
  }
}

}  // namespace rlalgo::config
