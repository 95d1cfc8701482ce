// Keeps the items of lists apart in a text that grows: what an expression cannot remember (uniqueItems of texts and numbers).
//
//   UniqueItems unique({{"tags"}, {"rows", "*", "ids"}});      lists by their path: names of properties, * for an index or any name
//   const auto at = unique.read(text);                         where the text has come to
//   unique.repeats(at, "ed\"")                                 true: with these bytes an item would be there twice
//
// Items are scalars: texts are compared as they are written, numbers by their value (1 = 1.0). The text is the beginning of
// JSON that an expression allows, so nothing else of its syntax is checked.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlalgo::serve {

class UniqueItems {
 public:
  using Path = std::vector<std::string>;

  // Where a text has come to.
  struct Place {
    struct Open {
      bool list = false, unique = false, expects_name = false;
      std::string name;                // of an object: the property at hand
      std::vector<std::string> items;  // of a list that is unique
    };
    std::vector<Open> open;
    std::string scalar;  // the text or number at hand, as far as it is written
    bool in_text = false, escape = false;
  };

  explicit UniqueItems(std::vector<Path> paths) : paths_(std::move(paths)) {}

  [[nodiscard]] bool empty() const noexcept { return paths_.empty(); }

  [[nodiscard]] Place read(std::string_view text) const {
    Place out;
    (void)go_on(out, text);
    return out;
  }

  // Whether the place is in a list that is to be unique.
  [[nodiscard]] static bool watched(const Place& place) { return !place.open.empty() && place.open.back().unique; }

  // Whether an item comes twice with these bytes.
  [[nodiscard]] bool repeats(Place place, std::string_view bytes) const { return !go_on(place, bytes); }

  // Whether an item that was begins as the scalar at hand does.
  [[nodiscard]] static bool begins_used(const Place& place) {
    if (!watched(place)) return false;
    const auto& items = place.open.back().items;
    const bool text = place.scalar.starts_with('"');
    return std::any_of(items.begin(), items.end(),
                       [&](const std::string& one) { return !text || one.starts_with(place.scalar); });
  }

  // Whether the scalar at hand is an item that was: it must go on then.
  [[nodiscard]] static bool is_used(const Place& place, std::string_view bytes) {
    if (!watched(place)) return false;
    std::string text = place.scalar + std::string(bytes);
    if (text.starts_with('"')) text += '"';
    return used(place.open.back(), text);
  }

 private:
  [[nodiscard]] static bool used(const Place::Open& list, const std::string& item) {
    return std::any_of(list.items.begin(), list.items.end(), [&](const std::string& one) { return same(one, item); });
  }
  [[nodiscard]] static bool same(const std::string& a, const std::string& b) {
    if (a == b) return true;
    const auto number = [](const std::string& text) {
      return !text.empty() && (text.front() == '-' || (text.front() >= '0' && text.front() <= '9'));
    };
    return number(a) && number(b) && std::strtod(a.c_str(), nullptr) == std::strtod(b.c_str(), nullptr);
  }

  // False: an item came twice.
  [[nodiscard]] bool go_on(Place& place, std::string_view text) const {
    for (const char c : text) {
      if (place.in_text) {
        place.scalar += c;
        if (std::exchange(place.escape, !place.escape && c == '\\')) continue;
        if (c != '"') continue;
        place.in_text = false;
        if (place.open.empty()) continue;
        Place::Open& inner = place.open.back();
        if (inner.list) {
          if (!end_item(place)) return false;
        } else if (inner.expects_name) {
          inner.name = place.scalar.substr(1, place.scalar.size() - 2);
          place.scalar.clear();
        }
        continue;
      }
      switch (c) {
        case '"':
          place.in_text = true;
          place.scalar = "\"";
          break;
        case '[':
        case '{': {
          Place::Open one;
          one.list = c == '[';
          one.unique = one.list && is_unique(place.open);
          one.expects_name = c == '{';
          place.open.push_back(std::move(one));
          place.scalar.clear();
          break;
        }
        case ']':
        case '}':
          if (!end_item(place)) return false;
          if (!place.open.empty()) place.open.pop_back();
          break;
        case ',':
          if (!end_item(place)) return false;
          if (!place.open.empty() && !place.open.back().list) place.open.back().expects_name = true;
          break;
        case ':':
          if (!place.open.empty()) place.open.back().expects_name = false;
          place.scalar.clear();
          break;
        case ' ':
          break;
        default:
          place.scalar += c;
      }
    }
    return true;
  }

  [[nodiscard]] static bool end_item(Place& place) {
    const std::string item = std::exchange(place.scalar, {});
    if (!watched(place) || item.empty()) return true;
    if (used(place.open.back(), item)) return false;
    place.open.back().items.push_back(item);
    return true;
  }

  // Whether the list that begins in what is open is one of the paths.
  [[nodiscard]] bool is_unique(const std::vector<Place::Open>& open) const {
    return std::any_of(paths_.begin(), paths_.end(), [&](const Path& path) {
      if (path.size() != open.size()) return false;
      for (std::size_t i = 0; i < path.size(); ++i)
        if (path[i] != "*" && (open[i].list || open[i].name != path[i])) return false;
      return true;
    });
  }

  std::vector<Path> paths_;
};

}  // namespace rlalgo::serve
