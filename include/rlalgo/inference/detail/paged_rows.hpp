// The rows of a pass on a device, as the embedding, the rotation and the attention over pages need them: laid out on the host and copied
// there at once.
//
// The rows fall into runs of one sequence. Runs of one row (decoding) are one batch [B, P] of pages, P of the longest; a longer run is
// one by itself. What lies behind the end of a sequence is some page of it, hidden. Where the numbers of a row are to depend on itself alone,
// every row is a sequence of such a batch, or a run by itself. A pass may have more rows than are given: those write nothing and are
// attended to by nobody.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <rlalgo/cpu/kernels.hpp>
#include <rlalgo/inference/detail/prompt_rows.hpp>
#include <rlalgo/inference/detail/tensor_pages.hpp>
#include <rlalgo/inference/forward.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/host_copies.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::inference::detail {

struct PagedRows {
  struct Run {
    tensor::Tensor rows;       // [B·M] of the pass; undefined: all of it
    tensor::Tensor pages;      // [B·P] numbers
    tensor::Tensor positions;  // [B, M]
    std::int64_t sequences = 0, rows_each = 0, pages_each = 0;
  };
  std::vector<Run> runs;
  std::vector<PromptRows>
      prompts;  // the runs of several rows once more, where they may be attended to by calls for several
  tensor::Tensor ids, positions;  // [T], or more
  tensor::Tensor page, place;     // [T]: page of a row, and place in it
};

// What is a run: rows of a sequence that follow each other; each row, all of them one batch; each row, by itself.
enum class RowRuns { sequences, rows, rows_apart };

// Whether each row is of a sequence of its own: a pass that decodes.
[[nodiscard]] inline bool decodes(std::span<const Row> rows) {
  for (std::size_t i = 1; i < rows.size(); ++i)
    if (rows[i].pages == rows[i - 1].pages) return false;
  return !rows.empty();
}

[[nodiscard]] inline std::int64_t pages_of(const Row& row) { return row.position / cpu::page_positions + 1; }

class RowLayout {
 public:
  // A pass of `padded` rows, if those are more. `places`: of prompts that may be attended to by calls for several; none: they are not.
  [[nodiscard]] PagedRows operator()(std::span<const Row> rows, at::Device device, RowRuns kind = RowRuns::sequences,
                                     std::int64_t padded = 0, const PromptPlaces* places = nullptr) {
    numbers_.clear();
    prompts_.clear();
    const std::size_t all_rows = std::max(rows.size(), static_cast<std::size_t>(padded));
    std::vector<Parts> runs;
    Builder single;
    const Part ids = each(rows, all_rows, [](const Row&row) { return static_cast<std::int64_t>(row.token); }),
               positions = each(rows, all_rows, [](const Row&row) { return row.position; }),
               page = each(
                   rows, rows.size(),
                   [](const Row&row) { return TensorPages::number(row.pages[row.position / cpu::page_positions]); }),
               place = each(rows, rows.size(), [](const Row&row) { return row.position % cpu::page_positions; });
    for (std::size_t begin = 0; begin < rows.size();) {
      std::size_t end = begin + 1;
      while (kind == RowRuns::sequences && end < rows.size() && rows[end].pages == rows[begin].pages) ++end;
      Builder longer;
      Builder& to = end == begin + 1 && kind != RowRuns::rows_apart ? single : longer;
      for (std::size_t i = begin; i < end; ++i) {
        to.rows.push_back(static_cast<std::int64_t>(i));
        to.positions.push_back(rows[i].position);
      }
      to.pages.emplace_back(rows[begin].pages, static_cast<std::size_t>(pages_of(rows[end - 1])));
      if (&to == &longer) runs.push_back(put(longer, static_cast<std::int64_t>(end - begin), rows.size()));
      if (places != nullptr && end > begin + 1) prompts_.add(rows, begin, end, *places);
      begin = end;
    }
    if (!single.rows.empty()) runs.push_back(put(single, 1, rows.size()));
    prompts_.put(numbers_);

    const tensor::Tensor all = tensor::on_device(std::span<const std::int64_t>(numbers_), device);
    const auto of = [&](const Part& part) { return all.narrow(0, part.first, part.count); };
    PagedRows out{.ids = of(ids), .positions = of(positions), .page = of(page), .place = of(place)};
    for (Parts& parts : runs) {
      PagedRows::Run& run = parts.run;
      if (parts.rows.count > 0) run.rows = of(parts.rows);
      run.pages = of(parts.pages);
      run.positions = of(parts.positions).view({run.sequences, run.rows_each});
      out.runs.push_back(std::move(run));
    }
    out.prompts = prompts_.calls(all);
    return out;
  }

 private:
  struct Part {
    std::int64_t first = 0, count = 0;
  };
  struct Parts {
    PagedRows::Run run;
    Part rows, pages, positions;
  };
  struct Builder {
    std::vector<std::int64_t> rows, positions;
    std::vector<std::span<std::byte* const>> pages;  // of each sequence
  };

  // `count` numbers, those behind the rows 0.
  template <class F>
  Part each(std::span<const Row> rows, std::size_t count, const F& f) {
    const std::size_t first = numbers_.size();
    for (const Row& row : rows) numbers_.push_back(f(row));
    numbers_.resize(first + count, 0);
    return {static_cast<std::int64_t>(first), static_cast<std::int64_t>(count)};
  }
  Part append(const std::vector<std::int64_t>& values) {
    const auto first = static_cast<std::int64_t>(numbers_.size());
    numbers_.insert(numbers_.end(), values.begin(), values.end());
    return {first, static_cast<std::int64_t>(values.size())};
  }

  Parts put(const Builder& b, std::int64_t rows_each, std::size_t all_rows) {
    Parts out{.run = {.sequences = static_cast<std::int64_t>(b.pages.size()), .rows_each = rows_each}};
    std::int64_t& longest = out.run.pages_each;
    for (const auto& pages : b.pages) longest = std::max(longest, static_cast<std::int64_t>(pages.size()));
    out.pages.first = static_cast<std::int64_t>(numbers_.size());
    for (const auto& pages : b.pages) {
      for (const std::byte* one : pages) numbers_.push_back(TensorPages::number(one));
      numbers_.resize(numbers_.size() + static_cast<std::size_t>(longest) - pages.size(), numbers_.back());
    }
    out.pages.count = static_cast<std::int64_t>(numbers_.size()) - out.pages.first;
    if (b.rows.size() < all_rows) out.rows = append(b.rows);
    out.positions = append(b.positions);
    return out;
  }

  std::vector<std::int64_t> numbers_;
  PromptLayout prompts_;
};

}  // namespace rlalgo::inference::detail
