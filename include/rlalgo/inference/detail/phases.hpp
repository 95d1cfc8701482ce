// How the work of a phase of a pass is divided among threads: a part for each, in tasks that the others take over from one that is late.
//
// A phase does something to all rows: to `columns` items, each for all rows (a product), or to `each` items of every row (attention, a
// norm). Where rows are few, all of them are everybody's and items are divided: each column of W is read by one thread. Where every thread has
// many, rows are divided instead: what a thread made of its rows is in its caches in the next phase, and threads read all of W, at the same
// time. Results are the same to the bit, since those of a row do not depend on its neighbours.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <rlalgo/os/thread_pool.hpp>

namespace rlalgo::inference::detail {

struct PhaseRows {
  std::int64_t first, count;
};

// Either columns or each; `flops` are those of an item, or of one row of it where items are columns.
struct PhaseWork {
  std::int64_t columns = 0, each = 0;
  std::int64_t flops;
  [[nodiscard]] std::int64_t items(PhaseRows rows) const { return columns > 0 ? columns : each * rows.count; }
  [[nodiscard]] std::int64_t all(PhaseRows rows) const { return flops * (columns > 0 ? columns : each) * rows.count; }
};

class Phases {
 public:
  explicit Phases(os::ThreadPool& pool) : pool_(pool), parts_(static_cast<std::size_t>(pool.threads())) {}

  // From how many rows of a thread on rows are divided, as Kernels has it for the weights of the pass; 0: never.
  void divide_rows_from(std::int64_t rows) { least_ = rows; }

  // Whether m rows are divided. Together threads read W as often as there are threads, in the time that one multiplies its rows: with
  // twelve rows or more for each thread there is, they ask memory for no more than two threads of 24 rows do. Kernels take rows by sixteens, and
  // dividing must not make more of those.
  [[nodiscard]] bool divides_rows(std::int64_t m) const {
    const std::int64_t threads = pool_.threads(), most = (m + threads - 1) / threads;
    const auto sixteens = [](std::int64_t rows) { return (rows + 15) / 16; };
    return threads > 1 && least_ > 0 && most >= std::max(least_, 12 * threads) &&
           threads * sixteens(most) <= sixteens(m);
  }

  // f(rows, begin, end, thread) for items [begin, end) of `rows`, until all items of all m rows are done, in tasks of at least
  // `task_flops`; little work stays on this thread. Items of every row are numbered with the rows innermost: h · rows.count + row − rows.first.
  // A thread goes through its part in the order of memory, which is what prefetching asks for.
  template <class F>
  void run(std::int64_t m, const PhaseWork& work, F&& f) {
    constexpr std::int64_t task_flops = 150'000;  // about 3 µs
    constexpr std::int64_t quantum = 16;          // columns; a multiple of the widest kernel tile
    constexpr std::int64_t tasks_of_a_thread = 12;
    const std::int64_t threads = pool_.threads(), lists = divides_rows(m) ? threads : 1;
    if (const PhaseRows rows{0, m}; threads == 1 || work.all(rows) < 2 * task_flops)
      return f(rows, 0, work.items(rows), 0);
    std::int64_t parts = 0;
    for (std::int64_t list = 0; list < lists; ++list) {
      const std::int64_t first = m * list / lists;
      const PhaseRows rows{first, m * (list + 1) / lists - first};
      const std::int64_t items = work.items(rows);
      const std::int64_t wanted =
          std::clamp<std::int64_t>(work.all(rows) / task_flops, 1, tasks_of_a_thread * threads / lists);
      std::int64_t size = (items + wanted - 1) / wanted;
      if (items >= 8 * quantum) size = (size + quantum - 1) / quantum * quantum;
      const std::int64_t tasks = (items + size - 1) / size, shares = lists > 1 ? 1 : std::min(tasks, threads);
      for (std::int64_t share = 0; share < shares; ++share, ++parts) {
        Part& part = parts_[static_cast<std::size_t>(parts)];
        part.rows = rows, part.items = items, part.size = size, part.end = tasks * (share + 1) / shares;
        part.next.store(tasks * share / shares);
      }
    }
    pool_.run(static_cast<std::uint32_t>(parts), [&](std::uint32_t, int thread) {
      for (std::int64_t k = 0; k < parts; ++k) {
        Part& part = parts_[static_cast<std::size_t>((thread + k) % parts)];
        for (std::int64_t task; (task = part.next.fetch_add(1)) < part.end;)
          f(part.rows, task * part.size, std::min(part.items, (task + 1) * part.size), thread);
      }
    });
  }

 private:
  // Tasks [next, end), each `size` of the items of these rows.
  struct alignas(64) Part {
    std::atomic<std::int64_t> next;
    std::int64_t end, size, items;
    PhaseRows rows;
  };

  os::ThreadPool& pool_;
  std::vector<Part> parts_;
  std::int64_t least_ = 0;
};

}  // namespace rlalgo::inference::detail
