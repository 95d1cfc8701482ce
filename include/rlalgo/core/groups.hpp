// Half-open ranges over a batch: which samples belong to one prompt.
//
// Invariant: groups are contiguous, in order, and cover [0, size) without gaps.
#pragma once

#include <cstddef>
#include <vector>

namespace rlalgo::core {

struct Span {
  std::size_t begin = 0;
  std::size_t end = 0;
  [[nodiscard]] constexpr std::size_t size() const noexcept { return end - begin; }
  friend constexpr bool operator==(const Span&, const Span&) = default;
};

class Groups {
 public:
  Groups() = default;

  // `count` samples in groups of `group_size`; the last group may be shorter.
  static Groups uniform(std::size_t count, std::size_t group_size) {
    Groups groups;
    for (std::size_t begin = 0; begin < count; begin += group_size)
      groups.append(begin + group_size < count ? group_size : count - begin);
    return groups;
  }

  void append(std::size_t group_size) { spans_.push_back({size(), size() + group_size}); }

  [[nodiscard]] std::size_t size() const noexcept { return spans_.empty() ? 0 : spans_.back().end; }  // samples
  [[nodiscard]] std::size_t count() const noexcept { return spans_.size(); }                          // groups
  [[nodiscard]] auto begin() const noexcept { return spans_.begin(); }
  [[nodiscard]] auto end() const noexcept { return spans_.end(); }

 private:
  std::vector<Span> spans_;
};

}  // namespace rlalgo::core
