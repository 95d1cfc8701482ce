// What the harness shows of a kernel that is wrong: tests/support/on_host.hpp.
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <support/catch.hpp>
#include <support/not_run.hpp>
#include <support/on_host.hpp>

#include <rlalgo/cuda/language.cuh>

namespace {

using namespace rlalgo::support;
using rlalgo::cuda::launch;

// How a process of its own ends that does this, and what it says.
struct Ending {
  int status = 0;
  std::string said;
};
Ending apart(const std::function<void()>& work) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 2);
    try {
      work();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "exception: %s\n", error.what());
      _exit(3);
    }
    _exit(0);
  }
  close(ends[1]);
  Ending out;
  char buffer[4096];
  for (ssize_t n = 0; (n = read(ends[0], buffer, sizeof buffer)) > 0;)
    out.said.append(buffer, static_cast<std::size_t>(n));
  close(ends[0]);
  waitpid(child, &out.status, 0);
  return out;
}
bool addresses_checked() {
#ifdef __SANITIZE_ADDRESS__
  return true;
#else
  return false;
#endif
}

enum class Mistake {
  none,
  no_barrier,
  beyond_array,
  beyond_member,
  beyond_shared,
  wrong_lane,
  half_warp,
  divergent_barrier,
  leaves_early,
  ends_never
};

struct Sums {
  float of_thread[64], last[64];
};

// Σ of 64 numbers a block.
__global__ void sum(const float* x, float* out, Mistake mistake) {
  RLALGO_CUDA_SHARED(Sums, shared);
  const int t = static_cast<int>(threadIdx.x);
  if (mistake == Mistake::leaves_early && t == 5) return;
  const int from = mistake == Mistake::beyond_array && t == 63 && blockIdx.x == gridDim.x - 1 ? t + 1 : t;
  if (mistake == Mistake::beyond_shared) shared.last[t + 1] = 0.0F;
  shared.of_thread[mistake == Mistake::beyond_member && t == 63 ? t + 1 : t] =
      x[blockIdx.x * 64 + static_cast<unsigned>(from)];
  if (mistake != Mistake::no_barrier) __syncthreads();
  if (mistake == Mistake::divergent_barrier && t < 32) __syncthreads();
  if (t >= 32) return;
  float sum = shared.of_thread[t] + shared.of_thread[t + 32];
  if (mistake == Mistake::half_warp && t >= 16) return;
  for (int step = 16; step > 0; step /= 2)
    sum += __shfl_xor_sync(~0U, sum, mistake == Mistake::wrong_lane ? step * 4 : step);
  if (t == 0) out[blockIdx.x] = sum;
}

std::vector<float> sums(int blocks, Mistake mistake) {
  std::vector<float> x(static_cast<std::size_t>(blocks) * 64), out(static_cast<std::size_t>(blocks), -1.0F);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 97);
  const cudaError_t error =
      launch(sum, dim3(static_cast<unsigned>(blocks)), dim3(64), nullptr, x.data(), out.data(), mistake);
  REQUIRE(error == cudaSuccess);
  return out;
}
std::vector<float> expected(int blocks) {
  std::vector<float> out(static_cast<std::size_t>(blocks), 0.0F);
  for (std::size_t i = 0; i < static_cast<std::size_t>(blocks) * 64; ++i) out[i / 64] += static_cast<float>(i % 97);
  return out;
}

// Each block adds to what the block before it wrote.
__global__ void chain(float* x) {
  if (threadIdx.x == 0) x[blockIdx.x + 1] = x[blockIdx.x] + 1.0F;
}

// Two lanes of a warp hand each other a number through memory.
__global__ void swap(float* x, bool barrier) {
  RLALGO_CUDA_SHARED(Sums, shared);
  const unsigned t = threadIdx.x;
  shared.of_thread[t] = x[t];
  if (barrier) __syncwarp();
  x[t] = shared.of_thread[t ^ 1U];
}

// The last of the blocks adds what all have written.
__global__ void last_adds(float* x, unsigned* count, bool first_fence, bool second_fence) {
  RLALGO_CUDA_SHARED(Sums, shared);
  x[blockIdx.x * 32 + threadIdx.x] = 1.0F;
  __syncthreads();
  if (threadIdx.x == 0) {
    if (first_fence) __threadfence();
    shared.of_thread[0] = atomicAdd(count, 1U) + 1 == gridDim.x ? 1.0F : 0.0F;
    if (second_fence) __threadfence();
  }
  __syncthreads();
  if (shared.of_thread[0] == 0.0F || threadIdx.x != 3) return;
  for (unsigned i = 0; i < gridDim.x * 32; ++i) x[gridDim.x * 32] += x[i];
}

__global__ void forever(float* x) {
  while (x[0] >= 0.0F) __syncthreads();
}

}  // namespace

TEST_CASE("A kernel that is right gives its numbers whatever the order of its threads") {
  for (on_host::seed = 1; on_host::seed < 20; ++on_host::seed) CHECK(sums(3, Mistake::none) == expected(3));
}

TEST_CASE("A barrier that is missing is a race, or gives other numbers") {
  if (races::detected) {
    CHECK_THROWS_WITH(sums(3, Mistake::no_barrier), Catch::Contains("race: thread"));
    std::vector<float> x(32, 1.0F);
    CHECK_NOTHROW(launch(swap, dim3(1), dim3(32), nullptr, x.data(), true));
    CHECK_THROWS_WITH(launch(swap, dim3(1), dim3(32), nullptr, x.data(), false), Catch::Contains("race: thread"));
    x.assign(9, 0.0F);
    CHECK_THROWS_WITH(launch(chain, dim3(8), dim3(32), nullptr, x.data()), Catch::Contains("of block"));
    for (const auto& [first, second] : {std::pair{true, true}, {false, true}, {true, false}}) {
      x.assign(5 * 32 + 1, 0.0F);
      unsigned count = 0;
      const auto run = [&, first = first, second = second] {
        launch(last_adds, dim3(5), dim3(32), nullptr, x.data(), &count, first, second);
      };
      if (!first || !second) {
        CHECK_THROWS_WITH(run(), Catch::Contains("of block"));
        continue;
      }
      CHECK_NOTHROW(run());
      CHECK(x.back() == 160.0F);
    }
  } else {
    int wrong = 0;
    for (on_host::seed = 1; on_host::seed < 10; ++on_host::seed)
      wrong += sums(3, Mistake::no_barrier) != expected(3) ? 1 : 0;
    CHECK(wrong == 9);
    std::set<std::vector<float>> found;
    for (on_host::seed = 1; on_host::seed < 10; ++on_host::seed) {
      std::vector<float> x(9, 0.0F);
      launch(chain, dim3(8), dim3(32), nullptr, x.data());
      found.insert(x);
    }
    CHECK(found.size() > 1);  // of blocks that wait for each other
  }
}

TEST_CASE("An access beyond an array ends the process") {
  needs(addresses_checked(), "compiled without AddressSanitizer");
  for (const auto& [mistake, words] : {std::pair{Mistake::beyond_array, "AddressSanitizer: heap-buffer-overflow"},
                                       std::pair{Mistake::beyond_shared, "AddressSanitizer: heap-buffer-overflow"},
                                       std::pair{Mistake::beyond_member, "runtime error: index 64 out of bounds"}}) {
    const Ending end = apart([mistake = mistake] { sums(2, mistake); });
    CHECK(end.status != 0);
    CHECK_THAT(end.said, Catch::Contains(words));
  }
  CHECK(apart([] { sums(2, Mistake::none); }).status == 0);
}

TEST_CASE("Threads that do not meet where they must end the launch") {
  CHECK_THROWS_WITH(sums(1, Mistake::wrong_lane), Catch::Contains("a shuffle from lane"));
  CHECK_THROWS_WITH(sums(1, Mistake::half_warp), Catch::Contains("threads of a block wait"));
  CHECK_THROWS_WITH(sums(1, Mistake::divergent_barrier), Catch::Contains("threads of a block wait"));
  CHECK_THROWS_WITH(sums(1, Mistake::leaves_early), Catch::Contains("threads of a block wait"));
  float x = 1.0F;
  CHECK_THROWS_WITH(launch(forever, dim3(1), dim3(33), nullptr, &x), Catch::Contains("not whole"));
  const auto before = std::exchange(on_host::most_switches, 10'000);
  CHECK_THROWS_WITH(launch(forever, dim3(1), dim3(64), nullptr, &x), Catch::Contains("do not end"));
  on_host::most_switches = before;
  CHECK(sums(2, Mistake::none) == expected(2));  // what failed leaves nothing behind
}
