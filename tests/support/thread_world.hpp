// Ranks that are threads of the test: a distributed::World without processes.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/distributed/world.hpp>
#include <rlalgo/os/interruption.hpp>

#include <support/catch.hpp>

// On a rank in the place of CHECK, which is for one thread: what does not hold ends the rank, and the test.
#define RANK_CHECK(...) ((__VA_ARGS__) ? void() : throw std::runtime_error("does not hold: " #__VA_ARGS__))

namespace rlalgo::support {

// The ranks of a team of all.
inline std::vector<int> everybody(const distributed::World& world) {
  std::vector<int> out;
  for (int r = 0; r < world.size(); ++r) out.push_back(r);
  return out;
}

// Raised on the ranks that did not fail themselves.
struct Abandoned : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Where the threads meet.
class Meeting {
 public:
  explicit Meeting(int ranks) : ranks_(static_cast<std::size_t>(ranks)), given_(ranks_), names_(ranks_) {}

  std::vector<std::string> gather(int rank, const std::string& name, std::string bytes,
                                  const std::function<void()>& tick = {}) {
    std::unique_lock lock(mutex_);
    raise_if_over(lock, rank);
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
    while (round_ == round) {
      all_.wait_for(lock, std::chrono::milliseconds(5));
      if (round_ != round) break;
      raise_if_over(lock, rank);
      if (!tick) continue;
      lock.unlock();
      tick();
      lock.lock();
    }
    raise_if_over(lock, rank);
    return result_;
  }
  // A letter from one rank to another, and the next one that has come, of those about one subject.
  using Subject = std::pair<std::string, std::int64_t>;
  void post(const Subject& subject, int from, int to, tensor::Tensor tensor) {
    const std::lock_guard lock(mutex_);
    letters_[{subject, from, to}].push_back(std::move(tensor));
    all_.notify_all();
  }
  tensor::Tensor collect(const Subject& subject, int from, int to) {
    std::unique_lock lock(mutex_);
    std::deque<tensor::Tensor>& box = letters_[{subject, from, to}];
    while (box.empty()) {
      raise_if_over(lock, to);
      all_.wait_for(lock, std::chrono::milliseconds(5));
    }
    tensor::Tensor out = std::move(box.front());
    box.pop_front();
    return out;
  }
  void check(int rank) {
    std::unique_lock lock(mutex_);
    raise_if_over(lock, rank);
  }
  void give_up(int rank) {
    const std::lock_guard lock(mutex_);
    if (given_up_.empty()) here_ = 0;
    given_up_.insert(rank);
    if (given_up_.size() == ranks_) given_up_.clear();
  }
  std::shared_ptr<Meeting> duplicate(const std::string& name) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Meeting>& one = duplicates_[name];
    if (one == nullptr) one = std::make_shared<Meeting>(static_cast<int>(ranks_));
    return one;
  }
  void fail(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = text;
    for (const auto& [name, one] : duplicates_) one->fail(text);
    all_.notify_all();
  }

 private:
  void raise_if_over(const std::unique_lock<std::mutex>&, int rank) const {
    if (!failure_.empty()) throw Abandoned(failure_);
    if (!given_up_.empty() && !given_up_.contains(rank))
      os::raise_interrupted("os", 8, {.what = "another rank has given up"});
  }

  std::mutex mutex_;
  std::condition_variable all_;
  std::size_t ranks_, here_ = 0, round_ = 0;
  std::vector<std::string> given_, names_, result_;
  std::string failure_;
  std::set<int> given_up_;  // ranks, until all have
  std::map<std::string, std::shared_ptr<Meeting>> duplicates_;
  std::map<std::tuple<Subject, int, int>, std::deque<tensor::Tensor>> letters_;
};

// Letters between some of the threads. What takes several rounds is done while it is waited for.
class ThreadTeam final : public distributed::Team {
 public:
  // `name`: of no other team.
  ThreadTeam(std::string name, int rank, std::vector<int> ranks, std::shared_ptr<Meeting> meeting, at::Device device)
      : name_(std::move(name)), own_(rank), ranks_(std::move(ranks)), meeting_(std::move(meeting)), device_(device) {}
  [[nodiscard]] at::Device device() const override { return device_; }
  [[nodiscard]] int rank() const override {
    return static_cast<int>(std::find(ranks_.begin(), ranks_.end(), own_) - ranks_.begin());
  }
  [[nodiscard]] int size() const override { return static_cast<int>(ranks_.size()); }

 private:
  struct Later final : distributed::Pending::Operation {
    explicit Later(std::function<void()> work) : work_(std::move(work)) {}
    void wait() override { work_(); }
    std::function<void()> work_;
  };
  void post(const Meeting::Subject& subject, const std::vector<tensor::Tensor>& sent) {
    for (std::size_t r = 0; r < sent.size(); ++r)
      if (sent[r].defined() && sent[r].numel() > 0) meeting_->post(subject, own_, ranks_[r], sent[r].clone());
  }
  void collect(const Meeting::Subject& subject, const std::vector<tensor::Tensor>& received) {
    for (std::size_t r = 0; r < received.size(); ++r)
      if (received[r].defined() && received[r].numel() > 0)
        received[r].copy_(meeting_->collect(subject, ranks_[r], own_).view(received[r].sizes()));
  }
  distributed::Pending begin(const std::string&, std::vector<tensor::Tensor> sent,
                             std::vector<tensor::Tensor> received) override {
    const Meeting::Subject subject{name_, next_++};
    post(subject, sent);
    return distributed::Pending(
        std::make_shared<Later>([this, subject, received = std::move(received)] { collect(subject, received); }));
  }
  distributed::Pending begin_rounds(const std::string&, const std::vector<tensor::Tensor>&,
                                    std::function<void(const Round&)> work) override {
    const Meeting::Subject subject{name_, next_++};
    return distributed::Pending(std::make_shared<Later>([this, subject, work = std::move(work)] {
      work([&](const std::vector<tensor::Tensor>& sent, const std::vector<tensor::Tensor>& received) {
        post(subject, sent);
        collect(subject, received);
      });
    }));
  }

  std::string name_;
  int own_;
  std::vector<int> ranks_;
  std::shared_ptr<Meeting> meeting_;
  at::Device device_;
  std::int64_t next_ = 0;  // operation
};

class ThreadWorld final : public distributed::World {
 public:
  ThreadWorld(int rank, int size, std::shared_ptr<Meeting> meeting)
      : rank_(rank), size_(size), meeting_(std::move(meeting)) {}
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  std::vector<std::string> gather(const std::string& operation, std::string bytes) override {
    return meeting_->gather(rank_, operation, std::move(bytes), tick_);
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
  [[nodiscard]] std::shared_ptr<distributed::Team> convene(const std::vector<int>& ranks, at::Device device) override {
    std::string name = std::to_string(teams_++);
    for (const int r : ranks) name += "," + std::to_string(r);
    return std::make_shared<ThreadTeam>(name, rank_, ranks, meeting_, device);
  }
  void fail(const std::string& text) noexcept override {
    meeting_->fail(text);
    if (first_ != nullptr) first_->fail(text);
  }
  void give_up(int) override { meeting_->give_up(rank_); }
  void check() override { meeting_->check(rank_); }
  [[nodiscard]] std::shared_ptr<World> duplicate(const std::string& name) override {
    const auto other = std::make_shared<ThreadWorld>(rank_, size_, meeting_->duplicate(name));
    other->first_ = meeting_;
    return other;
  }
  void while_waiting(std::function<void()> tick) override { tick_ = std::move(tick); }

 private:
  int rank_, size_;
  int teams_ = 0;
  std::shared_ptr<Meeting> meeting_, first_;  // null: this is the first
  std::function<void()> tick_;
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
  SUCCEED("every RANK_CHECK holds");
}

}  // namespace rlalgo::support
