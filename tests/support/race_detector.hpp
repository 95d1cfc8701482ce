// Whether two threads of a kernel reach the same memory with nothing between them: of on_host.hpp, race_detector.cpp.
//
// Accesses of one block are ordered by __syncthreads, those of one warp by __syncwarp, too (a shuffle orders no memory);
// those of different blocks of a launch by nothing but an atomic operation between two fences of both: what a block wrote before a
// barrier, a fence and an atomic operation is seen by a block that did one on the same memory later, and a fence behind it. Two accesses that nothing orders, one of them a write, are a race. Of
// every two bytes the last write and the last reads of two threads are remembered.
//
// A program that is compiled without -fsanitize=thread finds none, at no cost.
#pragma once

#include <cstddef>

namespace rlalgo::support::races {

#if defined(__SANITIZE_THREAD__) || defined(RLALGO_DETECTS_RACES)
inline constexpr bool detected = true;
void begin_launch();
void end_launch();  // throws std::runtime_error where there was a race
void begin_block();
void forget(const void* memory, std::size_t bytes);  // of memory that is new
void barrier();
void warp_barrier(unsigned warp);
void fence();
void atomic(const void* memory);
// Accesses that follow are those of this thread; the ones to its own stack are nobody else's.
void enter_thread(unsigned thread, const void* stack, std::size_t bytes);
void leave_thread();
bool exchange_watching(bool on);
#else
inline constexpr bool detected = false;
inline void begin_launch() {}
inline void end_launch() {}
inline void begin_block() {}
inline void forget(const void*, std::size_t) {}
inline void barrier() {}
inline void warp_barrier(unsigned) {}
inline void fence() {}
inline void atomic(const void*) {}
inline void enter_thread(unsigned, const void*, std::size_t) {}
inline void leave_thread() {}
inline bool exchange_watching(bool) { return false; }
#endif

// While one lives, accesses are the harness's own (Quiet), or a kernel's (Loud).
template <bool On>
class Watching {
 public:
  Watching() : before_(exchange_watching(On)) {}
  Watching(const Watching&) = delete;
  Watching& operator=(const Watching&) = delete;
  ~Watching() { exchange_watching(before_); }

 private:
  bool before_;
};
using Quiet = Watching<false>;
using Loud = Watching<true>;

}  // namespace rlalgo::support::races
