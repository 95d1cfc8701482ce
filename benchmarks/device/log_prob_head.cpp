// Milliseconds and extra memory of the log-prob head with entropy, forward and backward, on a device: 8,192 tokens of bfloat16 in the
// shapes of Qwen2.5-0.5B's head and of one of width 4,096. One JSON line.
//
//   bench_device_log_prob_head cuda|cuda:N|cpu     (on a CPU the shapes are small: that it runs is all that shows)
//
// RLALGO_CUDA_KERNELS says whether the project's kernels are used. "extra MB": the peak of what the allocator held beyond inputs and
// gradients, or null where it keeps no count.
#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/tensor/device.hpp>
#include <rlalgo/tensor/log_prob_head.hpp>
#include <rlalgo/tensor/memory_peaks.hpp>

#include "../median.hpp"

namespace {

using rlalgo::tensor::Tensor;

// Bytes that tensors took at most since the last call; 0: they are not counted.
std::int64_t peak(at::Device device) {
  const auto peaks = rlalgo::tensor::take_memory_peaks(device);
  return peaks ? peaks->allocated : 0;
}

nlohmann::json measure(at::Device device, std::int64_t tokens, std::int64_t width, std::int64_t vocabulary) {
  const auto options = at::TensorOptions().dtype(at::kBFloat16).device(device);
  Tensor hidden = at::randn({tokens, width}, options).requires_grad_();
  Tensor weight = at::randn({vocabulary, width}, options).mul_(0.02).requires_grad_();
  const Tensor targets = at::randint(vocabulary, {tokens}, at::TensorOptions().dtype(at::kLong).device(device));
  std::vector<double> seconds;
  std::int64_t most = 0;
  for (int turn = 0; turn < 6; ++turn) {
    hidden.mutable_grad() = Tensor();
    weight.mutable_grad() = Tensor();
    peak(device);
    const rlalgo::os::Stopwatch watch;
    const auto found = rlalgo::tensor::log_prob_head(hidden, weight, targets, {.entropy = true});
    const double mean = found.entropy.mean().item<double>();
    found.log_prob.mean().backward();
    hidden.grad().sum().item<double>();  // waits for the device
    weight.grad().select(0, 0).sum().item<double>();
    if (turn > 0) seconds.push_back(watch.seconds());  // the first one loads kernels
    if (!(mean > 0.0)) throw std::runtime_error("the entropy is " + std::to_string(mean));
    most = std::max(most, peak(device));
  }
  const std::int64_t known = 2 * (hidden.numel() + weight.numel()) * hidden.element_size() + targets.numel() * 8;
  nlohmann::json out = {{"ms", benchmarks::median(seconds) * 1e3}, {"extra MB", nullptr}};
  if (most > 0) out["extra MB"] = static_cast<double>(most - known) / 1e6;
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: bench_device_log_prob_head DEVICE\n";
    return 2;
  }
  try {
    const at::Device device = rlalgo::tensor::choose_device(argv[1]).device;
    const bool small = device.is_cpu();
    at::manual_seed(1);
    const nlohmann::json out = {
        {"H 896, V 151,936", small ? measure(device, 64, 32, 512) : measure(device, 8192, 896, 151936)},
        {"H 4,096, V 131,072", small ? measure(device, 64, 64, 512) : measure(device, 8192, 4096, 131072)}};
    std::cout << out.dump() << "\n";
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
