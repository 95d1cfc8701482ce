// CUDA kernels as host code: a fiber for each thread, one block at a time. Included before a kernel's header.
//
// What it is for: indices, barriers, masks and numbers, where there is no GPU.
//   order      Blocks of a grid, and threads between two barriers, run in an order drawn from `seed`: what depends on it
//              gives other numbers.
//   memory     The host's: AddressSanitizer and UBSan see every access. What a block shares lies on the heap, one allocation
//              for each variable, filled with the bits of a NaN before a block begins.
//   races      Compiled with -fsanitize=thread and linked with race_detector.cpp instead of libtsan, every access to memory is
//              compared with those of other threads that no barrier orders, whatever the order they ran in.
//   warps      Threads of a warp meet at shuffles, __syncwarp and products of matrices; all 32 must meet at the same one.
//   ends       A block whose threads wait at different places, a shuffle from a lane that is not there, and more than
//              `most_switches` changes of threads end the launch with an exception.
// It cannot show the order of memory between blocks that run at once, mistakes in PTX, or speed.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <support/race_detector.hpp>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

#define RLALGO_CUDA_ON_HOST
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define RLALGO_CUDA_SHARED(Type, name) Type& name = ::rlalgo::support::on_host::shared<Type>(__LINE__)

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}  // NOLINT: CUDA's converts, too
};
using cudaError_t = int;
using cudaStream_t = void*;
inline constexpr cudaError_t cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorInvalidConfiguration = 9;
inline const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorInvalidValue ? "invalid argument" : "invalid configuration argument";
}
inline dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace rlalgo::support::on_host {

inline constexpr unsigned lanes = 32;
inline constexpr unsigned all_lanes = ~0U;

inline unsigned seed = 1;                             // of the order of blocks and threads
inline std::int64_t launches = 0;                     // so far
inline std::uint64_t most_switches = 400'000'000ULL;  // of one launch

enum class Meeting : int { none, block, warp_barrier, shuffle, product };

// What the lanes of a warp hand each other: two rounds, as a fast lane may be at the next one.
struct Warp {
  std::uint64_t given[2][lanes][8];
  float product[2][lanes][4];
  Meeting kind = Meeting::none;
  unsigned arrived = 0, round = 0;
};

class Launch {
 public:
  Launch(dim3 block, std::function<void()> body) : body_(std::move(body)), size_(block), random_(seed) {
    const unsigned n = block.x * block.y * block.z;
    if (n % lanes != 0)
      throw std::runtime_error("a block of " + std::to_string(n) + " threads has a warp that is not whole");
    fibers_.resize(n);
    warps_.resize(n / lanes);
    order_.resize(n);
    for (Fiber& f : fibers_) f.stack = std::make_unique_for_overwrite<char[]>(stack_bytes);
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  static Launch*& now() {
    static Launch* launch = nullptr;
    return launch;
  }

  void run(dim3 grid) {
    const races::Quiet quiet;
    std::vector<dim3> blocks;
    for (unsigned z = 0; z < grid.z; ++z)
      for (unsigned y = 0; y < grid.y; ++y)
        for (unsigned x = 0; x < grid.x; ++x) blocks.emplace_back(x, y, z);
    std::shuffle(blocks.begin(), blocks.end(), random_);
    now() = this;
    getcontext(&empty_);
    races::begin_launch();
    try {
      for (const dim3& block : blocks) run_block(block);
      races::end_launch();
    } catch (...) {
      now() = nullptr;
      throw;
    }
    now() = nullptr;
  }

  // Of one type and line of a kernel.
  void* shared(std::size_t bytes, int line) {
    const races::Quiet quiet;
    auto& memory = shared_[{bytes, line}];
    if (memory == nullptr) {
      memory.reset(static_cast<char*>(std::malloc(bytes)));
      std::memset(memory.get(), 0xFF, bytes);
      races::forget(memory.get(), bytes);
    }
    return memory.get();
  }

  void barrier() {
    const races::Quiet quiet;
    Fiber& f = fibers_[current_];
    ++barrier_arrived_;
    if (barrier_arrived_ == fibers_.size()) {
      barrier_arrived_ = 0;
      ++barrier_round_;
      races::barrier();
      return;
    }
    f.waits = Meeting::block;
    f.round = barrier_round_;
    leave();
  }

  // Waits for all lanes; the last to arrive does `last` for all. Returns the round in which they met.
  template <class Give, class Last>
  unsigned meet(Meeting kind, unsigned mask, Give&& give, Last&& last) {
    const races::Quiet quiet;
    if (mask != all_lanes) throw std::runtime_error("a mask that does not name all lanes of the warp");
    Warp& warp = warps_[current_ / lanes];
    const unsigned round = warp.round;
    if (warp.arrived == 0) warp.kind = kind;
    if (warp.kind != kind) throw std::runtime_error("lanes of a warp meet at different operations");
    give(warp, warp.given[round % 2][current_ % lanes]);
    ++warp.arrived;
    if (warp.arrived == lanes) {
      last(warp, round % 2);
      warp.arrived = 0;
      ++warp.round;
      if (kind == Meeting::warp_barrier) races::warp_barrier(current_ / lanes);
      return round;
    }
    Fiber& f = fibers_[current_];
    f.waits = kind;
    f.round = round;
    leave();
    return round;
  }

  [[nodiscard]] unsigned lane() const { return current_ % lanes; }
  [[nodiscard]] Warp& warp() { return warps_[current_ / lanes]; }

 private:
  static constexpr std::size_t stack_bytes = std::size_t{64} << 10U;

  // Where a fiber, or the scheduler, goes on. A change of contexts asks the kernel for the mask of signals, which takes longer than most
  // threads run between two meetings, so only a fiber that has not begun is entered so. (AddressSanitizer takes a jump for the end of frames.)
  struct Context {
    ucontext_t whole;
    void* place[5];  // of __builtin_setjmp
    bool begun = true;
  };
  struct Fiber {
    Context context;
    std::unique_ptr<char[]> stack;
    void* fake_stack = nullptr;
    bool done = false;
    Meeting waits = Meeting::none;
    unsigned round = 0;
  };
  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };

  static void enter() {
    Launch& self = *now();
    self.arrived(nullptr);
    try {
      const races::Loud loud;
      self.body_();
    } catch (...) {
      self.failure_ = std::current_exception();
    }
    self.fibers_[self.current_].done = true;
    --self.running_;
    self.switch_to(self.scheduler_, nullptr, self.scheduler_stack_, self.scheduler_bytes_,
                   self.fibers_[self.current_].context);
  }

  void run_block(dim3 block) {
    const auto n = static_cast<unsigned>(fibers_.size());
    blockIdx = block;
    shared_.clear();
    for (Warp& w : warps_) w.arrived = 0;
    barrier_arrived_ = 0;
    running_ = n;
    for (unsigned t = 0; t < n; ++t) {
      Fiber& f = fibers_[t];
      f.done = false;
      f.waits = Meeting::none;
      ucontext_t& begin = f.context.whole = empty_;
      begin.uc_stack.ss_sp = f.stack.get();
      begin.uc_stack.ss_size = stack_bytes;
      begin.uc_link = nullptr;
      makecontext(&begin, &Launch::enter, 0);
      f.context.begun = false;
      order_[t] = t;
    }
    races::begin_block();
    while (running_ > 0) {
      std::shuffle(order_.begin(), order_.end(), random_);
      bool moved = false;
      for (const unsigned t : order_) {
        Fiber& f = fibers_[t];
        if (f.done || waits(t)) continue;
        f.waits = Meeting::none;
        moved = true;
        resume(t);
        if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
        if (++switches_ > most_switches) throw std::runtime_error("the threads of a block do not end");
      }
      if (!moved)
        throw std::runtime_error("threads of a block wait at different barriers, or for some that have ended");
    }
  }

  [[nodiscard]] bool waits(unsigned t) const {
    const Fiber& f = fibers_[t];
    if (f.waits == Meeting::none) return false;
    return f.round == (f.waits == Meeting::block ? barrier_round_ : warps_[t / lanes].round);
  }

  void resume(unsigned t) {
    current_ = t;
    threadIdx = {t % size_.x, t / size_.x % size_.y, t / (size_.x * size_.y)};
    races::enter_thread(t, fibers_[t].stack.get(), stack_bytes);
    switch_to(fibers_[t].context, &scheduler_fake_stack_, fibers_[t].stack.get(), stack_bytes, scheduler_);
    arrived(scheduler_fake_stack_);
    races::leave_thread();
  }

  // Back to the scheduler, until it resumes this thread.
  void leave() {
    Fiber& f = fibers_[current_];
    switch_to(scheduler_, &f.fake_stack, scheduler_stack_, scheduler_bytes_, f.context);
    arrived(f.fake_stack);
  }

  // AddressSanitizer is told whose stack comes next, and where it has arrived.
  [[gnu::noinline]] void switch_to(Context& to, [[maybe_unused]] void** fake_stack, [[maybe_unused]] const void* stack,
                                   [[maybe_unused]] std::size_t bytes, Context& from) {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(fake_stack, stack, bytes);
    swapcontext(&from.whole, &to.whole);
#else
    if (__builtin_setjmp(from.place) == 0) go_to(to);
#endif
  }
  [[noreturn, gnu::noinline]] static void go_to(Context& to) {
    if (!std::exchange(to.begun, true)) setcontext(&to.whole);
    __builtin_longjmp(to.place, 1);
  }
  void arrived([[maybe_unused]] void* fake_stack) {
#ifdef __SANITIZE_ADDRESS__
    const void* stack = nullptr;
    std::size_t bytes = 0;
    __sanitizer_finish_switch_fiber(fake_stack, &stack, &bytes);
    if (fake_stack == nullptr && stack != nullptr && scheduler_stack_ == nullptr)
      scheduler_stack_ = stack, scheduler_bytes_ = bytes;
#endif
  }

  std::function<void()> body_;
  dim3 size_;
  std::mt19937 random_;
  std::vector<Fiber> fibers_;
  std::vector<Warp> warps_;
  std::vector<unsigned> order_;
  std::map<std::pair<std::size_t, int>, std::unique_ptr<char, Free>> shared_;
  ucontext_t empty_ = {};  // of which those of fibers are made
  Context scheduler_ = {};
  void* scheduler_fake_stack_ = nullptr;
  const void* scheduler_stack_ = nullptr;
  std::size_t scheduler_bytes_ = 0;
  std::exception_ptr failure_;
  unsigned barrier_arrived_ = 0, barrier_round_ = 0, running_ = 0, current_ = 0;
  std::uint64_t switches_ = 0;
};

template <class T>
T& shared(int line) {
  return *static_cast<T*>(Launch::now()->shared(sizeof(T), line));
}

template <class T>
T from_lane(T value, unsigned lane, unsigned mask) {
  static_assert(sizeof(T) <= 8);
  Launch& launch = *Launch::now();
  if (lane >= lanes) throw std::runtime_error("a shuffle from lane " + std::to_string(lane));
  const unsigned round = launch.meet(
      Meeting::shuffle, mask, [&](Warp&, std::uint64_t(&slot)[8]) { std::memcpy(slot, &value, sizeof(T)); },
      [](Warp&, unsigned) {});
  const races::Quiet quiet;
  T out;
  std::memcpy(&out, launch.warp().given[round % 2][lane], sizeof(T));
  return out;
}

// c[16, 8] += a[16, 16]·b[16, 8] in bfloat16, summed in float32; the elements of a lane as mma.m16n8k16 has them.
inline void product_16x8x16(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  Launch& launch = *Launch::now();
  const unsigned round = launch.meet(
      Meeting::product, all_lanes,
      [&](Warp&, std::uint64_t(&slot)[8]) {
        for (int i = 0; i < 4; ++i) slot[i] = a[i];
        slot[4] = b0;
        slot[5] = b1;
      },
      [](Warp& warp, unsigned parity) {
        float left[16][16], right[16][8];
        const auto half = [](std::uint64_t pair, int k) {
          return std::bit_cast<float>(static_cast<std::uint32_t>(k % 2 == 0 ? pair << 16U : pair & 0xFFFF0000ULL));
        };
        for (int r = 0; r < 16; ++r)
          for (int k = 0; k < 16; ++k)
            left[r][k] = half(warp.given[parity][r % 8 * 4 + k % 8 / 2][(r >= 8 ? 1 : 0) + (k >= 8 ? 2 : 0)], k);
        for (int k = 0; k < 16; ++k)
          for (int n = 0; n < 8; ++n)
            right[k][n] = half(warp.given[parity][n * 4 + k % 8 / 2][4 + (k >= 8 ? 1 : 0)], k);
        for (int lane = 0; lane < 32; ++lane)
          for (int i = 0; i < 4; ++i) {
            const int row = lane / 4 + (i >= 2 ? 8 : 0), column = lane % 4 * 2 + i % 2;
            float sum = 0.0F;
            for (int k = 0; k < 16; ++k) sum += left[row][k] * right[k][column];
            warp.product[parity][lane][i] = sum;
          }
      });
  const races::Quiet quiet;
  for (int i = 0; i < 4; ++i) c[i] += launch.warp().product[round % 2][launch.lane()][i];
}

}  // namespace rlalgo::support::on_host

namespace rlalgo::cuda {

template <class... P, class... A>
inline cudaError_t launch(void (*kernel)(P...), dim3 grid, dim3 block, cudaStream_t, A... arguments) {
  const auto count = [](const dim3& d) { return std::uint64_t{d.x} * d.y * d.z; };
  if (count(grid) == 0 || count(block) == 0 || count(block) > 1024 || grid.y > 65535 || grid.z > 65535)
    return cudaErrorInvalidConfiguration;
  gridDim = grid;
  blockDim = block;
  ++support::on_host::launches;
  support::on_host::Launch running(block, [&] { kernel(static_cast<P>(arguments)...); });
  running.run(grid);
  return cudaSuccess;
}

}  // namespace rlalgo::cuda

inline void __syncthreads() { rlalgo::support::on_host::Launch::now()->barrier(); }
inline void __threadfence() { rlalgo::support::races::fence(); }
inline void __syncwarp(unsigned mask = ~0U) {
  using namespace rlalgo::support::on_host;
  Launch::now()->meet(
      Meeting::warp_barrier, mask, [](Warp&, std::uint64_t(&)[8]) {}, [](Warp&, unsigned) {});
}
template <class T>
T __shfl_sync(unsigned mask, T value, int from) {
  return rlalgo::support::on_host::from_lane(value, static_cast<unsigned>(from), mask);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits) {
  using namespace rlalgo::support::on_host;
  return from_lane(value, Launch::now()->lane() ^ static_cast<unsigned>(bits), mask);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by) {
  using namespace rlalgo::support::on_host;
  const unsigned lane = Launch::now()->lane();
  return from_lane(value, lane + by < lanes ? lane + by : lane, mask);
}
template <class T>
T atomicAdd(T* to, T by) {
  const rlalgo::support::races::Quiet quiet;
  rlalgo::support::races::atomic(to);
  const T before = *to;
  *to = before + by;
  return before;
}
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline int __float2int_rn(float x) { return static_cast<int>(std::nearbyint(x)); }
// Rounded after each operation: never contracted to one with a single rounding.
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
