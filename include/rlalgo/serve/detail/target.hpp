// Path and query of a request's target.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace rlalgo::serve::detail {

class Target {
 public:
  explicit Target(const std::string& target) {
    const std::size_t mark = target.find('?');
    path_ = decoded(std::string_view(target).substr(0, mark));
    if (mark != std::string::npos) query_ = target.substr(mark + 1);
  }

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  // The first value of a name in the query; empty where it is absent.
  [[nodiscard]] std::string query(std::string_view name) const {
    const std::vector<std::string> all = queries(name);
    return all.empty() ? std::string() : all.front();
  }
  [[nodiscard]] std::vector<std::string> queries(std::string_view name) const {
    std::vector<std::string> out;
    std::string_view rest = query_;
    while (!rest.empty()) {
      const std::size_t end = rest.find('&');
      const std::string_view pair = rest.substr(0, end);
      const std::size_t equals = pair.find('=');
      if (decoded(pair.substr(0, equals)) == name)
        out.push_back(equals == std::string_view::npos ? std::string() : decoded(pair.substr(equals + 1)));
      rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    }
    return out;
  }

 private:
  static int digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  }
  static std::string decoded(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0) {
        out += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
        i += 2;
      } else {
        out += text[i];
      }
    }
    return out;
  }

  std::string path_, query_;
};

}  // namespace rlalgo::serve::detail
