// What -fsanitize=thread calls at each access, in the place of libtsan: it knows the barriers of CUDA, not those of the
// host, and blocks and threads that ran one after the other on one thread of the host. Compiled without the option itself.
#define RLALGO_DETECTS_RACES
#include "race_detector.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rlalgo::support::races {

namespace {

struct Access {
  int block = -1;  // none
  unsigned thread = 0, barriers = 0, warp_barriers = 0;
};

// A byte of memory.
struct Cell {
  Access written, read, read_before;  // the latest; of reads, the latest and the latest of another thread
  int first_reader = -1;              // block
  bool many_readers = false;          // blocks
};

constexpr std::uintptr_t grain = 1, page_cells = 4096;
using Page = std::array<Cell, page_cells>;

struct State {
  bool watching = false;
  int block = -1;
  unsigned thread = 0, barriers = 0;
  std::vector<unsigned> warp_barriers = std::vector<unsigned>(32, 0);
  std::uintptr_t stack = 0, stack_end = 0;
  std::unordered_map<std::uintptr_t, std::unique_ptr<Page>> pages;
  std::uintptr_t last_number = 0;
  Page* last_page = nullptr;
  std::string found;
  using Blocks = std::unordered_map<int, Access>;  // how far a block was at the fence before its atomic operation
  std::unordered_map<const void*, Blocks> given;   // by the memory of that
  Blocks pending, taken;                           // by this block: before and after its own fence
  Access fenced;
};
State state;

Cell& cell_of(std::uintptr_t address) {
  const std::uintptr_t index = address / grain, number = index / page_cells;
  if (state.last_page == nullptr || state.last_number != number) {
    auto& page = state.pages[number];
    if (page == nullptr) page = std::make_unique<Page>();
    state.last_page = page.get();
    state.last_number = number;
  }
  return (*state.last_page)[index % page_cells];
}

bool ordered(const Access& before, const Access& now) {
  if (before.block < 0) return true;
  if (before.block != now.block) {
    const auto given = state.taken.find(before.block);
    return given != state.taken.end() &&
           (before.barriers < given->second.barriers || before.thread == given->second.thread);
  }
  if (before.thread == now.thread || before.barriers != now.barriers) return true;
  return before.thread / 32 == now.thread / 32 && before.warp_barriers != now.warp_barriers;
}

std::string text(const Access& a, const char* what) {
  return "thread " + std::to_string(a.thread) + " of block " + std::to_string(a.block) + " " + what;
}

void access(const void* memory, std::size_t bytes, bool write) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  if (!state.watching || (begin >= state.stack && begin < state.stack_end)) return;
  const Access now{state.block, state.thread, state.barriers, state.warp_barriers[state.thread / 32]};
  for (std::uintptr_t at = begin / grain * grain; at < begin + bytes; at += grain) {
    Cell& cell = cell_of(at);
    const auto race = [&](const Access& before, const char* what) {
      if (state.found.empty() && !ordered(before, now))
        state.found =
            text(now, write ? "writes" : "reads") + " what " + text(before, what) + ", and nothing orders the two";
    };
    race(cell.written, "writes");
    if (!write) {
      if (cell.read.block >= 0 && (cell.read.thread != now.thread || cell.read.block != now.block))
        cell.read_before = cell.read;
      cell.read = now;
      if (cell.first_reader < 0) cell.first_reader = now.block;
      cell.many_readers = cell.many_readers || cell.first_reader != now.block;
      continue;
    }
    race(cell.read, "reads");
    race(cell.read_before, "reads");
    if (cell.many_readers || (cell.first_reader >= 0 && cell.first_reader != now.block))
      race({cell.first_reader == now.block ? now.block + 1 : cell.first_reader, 0, 0, 0}, "reads");
    cell.written = now;
  }
}

}  // namespace

void begin_launch() {
  state.pages.clear();
  state.last_page = nullptr;
  state.block = -1;
  state.found.clear();
  state.given.clear();
}
void end_launch() {
  if (!state.found.empty()) throw std::runtime_error("race: " + state.found);
}
void begin_block() {
  ++state.block;
  state.barriers = 0;
  state.warp_barriers.assign(32, 0);
  state.pending.clear();
  state.taken.clear();
  state.fenced = Access();
}
void fence() {
  state.fenced = {state.block, state.thread, state.barriers, 0};
  for (const auto& [block, access] : std::exchange(state.pending, {})) state.taken.insert_or_assign(block, access);
}
void atomic(const void* memory) {
  auto& given = state.given[memory];
  for (const auto& [block, access] : given) state.pending.insert_or_assign(block, access);
  if (state.fenced.block == state.block && state.fenced.thread == state.thread) given[state.block] = state.fenced;
}
void forget(const void* memory, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  for (std::uintptr_t at = begin / grain * grain; at < begin + bytes; at += grain) cell_of(at) = Cell();
}
void barrier() { ++state.barriers; }
void warp_barrier(unsigned warp) { ++state.warp_barriers[warp]; }
void enter_thread(unsigned thread, const void* stack, std::size_t bytes) {
  state.thread = thread;
  state.stack = reinterpret_cast<std::uintptr_t>(stack);
  state.stack_end = state.stack + bytes;
}
void leave_thread() { state.stack = state.stack_end = 0; }
bool exchange_watching(bool on) { return std::exchange(state.watching, on); }

}  // namespace rlalgo::support::races

using rlalgo::support::races::access;
#define RLALGO_ACCESS(bytes)                                                    \
  void __tsan_read##bytes(void* p) { access(p, bytes, false); }                 \
  void __tsan_write##bytes(void* p) { access(p, bytes, true); }                 \
  void __tsan_unaligned_read##bytes(const void* p) { access(p, bytes, false); } \
  void __tsan_unaligned_write##bytes(void* p) { access(p, bytes, true); }
// The host's own synchronisation: none is needed on one thread.
#define RLALGO_ATOMIC(bits, type)                                             \
  type __tsan_atomic##bits##_load(const volatile type* p, int) { return *p; } \
  void __tsan_atomic##bits##_store(volatile type* p, type x, int) { *p = x; } \
  type __tsan_atomic##bits##_exchange(volatile type* p, type x, int) {        \
    return std::exchange(*const_cast<type*>(p), x);                           \
  }                                                                           \
  type __tsan_atomic##bits##_fetch_add(volatile type* p, type x, int) {       \
    const type before = *p;                                                   \
    *p = static_cast<type>(before + x);                                       \
    return before;                                                            \
  }                                                                           \
  type __tsan_atomic##bits##_fetch_sub(volatile type* p, type x, int) {       \
    const type before = *p;                                                   \
    *p = static_cast<type>(before - x);                                       \
    return before;                                                            \
  }

extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void*, void*) {}
void __tsan_vptr_read(void*) {}
void __tsan_read_range(void* p, unsigned long bytes) { access(p, bytes, false); }
void __tsan_write_range(void* p, unsigned long bytes) { access(p, bytes, true); }
RLALGO_ACCESS(1)
RLALGO_ACCESS(2)
RLALGO_ACCESS(4)
RLALGO_ACCESS(8)
RLALGO_ACCESS(16)
RLALGO_ATOMIC(8, unsigned char)
RLALGO_ATOMIC(32, int)
RLALGO_ATOMIC(64, long)
}
