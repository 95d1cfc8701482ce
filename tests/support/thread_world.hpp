// Ranks that are threads of the test: a distributed::World without processes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <rlalgo/distributed/world.hpp>

// On a rank in the place of CHECK, which is for one thread: what does not hold ends the rank, and the test.
#define RANK_CHECK(...) ((__VA_ARGS__) ? void() : throw std::runtime_error("does not hold: " #__VA_ARGS__))

namespace rlalgo::support {

// Raised on the ranks that did not fail themselves.
struct Abandoned : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Where the threads meet.
class Meeting {
 public:
  explicit Meeting(int ranks) : ranks_(static_cast<std::size_t>(ranks)), given_(ranks_), names_(ranks_) {}

  std::vector<std::string> gather(int rank, const std::string& name, std::string bytes) {
    std::unique_lock lock(mutex_);
    given_[static_cast<std::size_t>(rank)] = std::move(bytes);
    names_[static_cast<std::size_t>(rank)] = name;
    const std::size_t round = round_;
    if (++here_ == ranks_) {
      here_ = 0;
      ++round_;
      result_ = given_;
      for (const std::string& other : names_)
        if (other != name) failure_ = "different operations: " + name + " and " + other;
      all_.notify_all();
    }
    all_.wait(lock, [&] { return round_ != round || !failure_.empty(); });
    if (!failure_.empty()) throw Abandoned(failure_);
    return result_;
  }
  void fail(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = text;
    all_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_;
  std::size_t ranks_, here_ = 0, round_ = 0;
  std::vector<std::string> given_, names_, result_;
  std::string failure_;
};

class ThreadWorld final : public distributed::World {
 public:
  ThreadWorld(int rank, int size, std::shared_ptr<Meeting> meeting)
      : rank_(rank), size_(size), meeting_(std::move(meeting)) {}
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  std::vector<std::string> gather(const std::string& operation, std::string bytes) override {
    return meeting_->gather(rank_, operation, std::move(bytes));
  }
  void sum(std::span<tensor::Tensor> tensors) override {
    for (tensor::Tensor& one : tensors) {
      const tensor::Tensor flat = one.detach().to(at::kDouble).contiguous();
      const double* const data = flat.const_data_ptr<double>();
      std::vector<double> values(data, data + flat.numel());
      World::sum(std::span<double>(values));
      one.detach().copy_(at::tensor(values, at::kDouble).view(one.sizes()));
    }
  }
  void fail(const std::string& text) noexcept override { meeting_->fail(text); }

 private:
  int rank_, size_;
  std::shared_ptr<Meeting> meeting_;
};

// Runs `body(world)` on so many ranks, and raises what the first of them raised.
inline void on_ranks(int ranks, const std::function<void(const std::shared_ptr<distributed::World>&)>& body) {
  const auto meeting = std::make_shared<Meeting>(ranks);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
  std::atomic<bool> abandoned{false};
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      try {
        body(std::make_shared<ThreadWorld>(r, ranks, meeting));
      } catch (const Abandoned&) {
        abandoned = true;
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(r)] = std::current_exception();
        meeting->fail(error.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  if (abandoned) throw std::runtime_error("the ranks did not meet");
}

}  // namespace rlalgo::support
