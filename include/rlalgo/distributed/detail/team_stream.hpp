// The operations of a team on a GPU: one thread gives them to a stream in their order, another one watches them until the GPU has done
// them. The rank waits for neither: what it computes after an operation is ordered behind it on the GPU.
//
// An operation that never ends, as a rank is gone, would keep the GPU, and every later wait of the host for it. So the watch looks at
// the other ranks, and aborts what is under way where they will not come: the GPU goes on, with numbers that nobody may use, and the
// next wait(), begin or check of the World raises why.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <c10/core/impl/VirtualGuardImpl.h>

#include <rlalgo/core/error.hpp>
#include <rlalgo/distributed/detail/group_failure.hpp>
#include <rlalgo/distributed/detail/peers.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/tensor/streams.hpp>

namespace rlalgo::distributed::detail {

// What the watch asks of the World; on a thread of its own.
struct StreamWatch {
  std::function<void(const std::string& operation)> look;  // about every 50 ms: raises what ends the wait
  std::function<void(const std::string& operation, std::exception_ptr error)> failed;
};

class TeamStream {
 public:
  using Work = std::function<void(StreamPeers&, void* stream)>;
  struct Task final {
    std::string operation;
    Work work;
    tensor::StreamMark before;  // of the caller's stream
    std::exception_ptr error = nullptr;
    std::optional<tensor::StreamMark> begun = {}, ended = {};  // of the team's
    bool given = false;
  };

  TeamStream(std::shared_ptr<StreamPeers> peers, at::Device device, StreamWatch of_world)
      : peers_(std::move(peers)), device_(device), watch_(std::move(of_world)) {
    giving_ = std::thread([this] { give(); });
    watching_ = std::thread([this] { watch(); });
  }
  TeamStream(const TeamStream&) = delete;
  TeamStream& operator=(const TeamStream&) = delete;
  ~TeamStream() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = os::Stopwatch();
      changed_.notify_all();
    }
    giving_.join();
    watching_.join();
  }

  std::shared_ptr<Task> begin(std::string operation, Work work) {
    auto task = std::make_shared<Task>(
        Task{.operation = std::move(operation), .work = std::move(work), .before = tensor::StreamMark(device_)});
    const std::lock_guard lock(mutex_);
    tasks_.push_back(task);
    changed_.notify_all();
    return task;
  }

  // Seconds that the GPU has had operations to do, as far as they are over.
  [[nodiscard]] double busy() const {
    const std::lock_guard lock(mutex_);
    return busy_;
  }

  // Whether the stream has it, or never will, after so long at most.
  bool wait_for(const Task& task, std::chrono::milliseconds most) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, most, [&] { return task.given; });
  }
  [[nodiscard]] std::exception_ptr error_of(const Task& task) const {
    const std::lock_guard lock(mutex_);
    return task.error;
  }
  // Its tensors, which the caller's stream may use again from here on.
  void release(Task& task) {
    Work work;
    const std::lock_guard lock(mutex_);
    work.swap(task.work);
  }

 private:
  static constexpr double patience = 3.0;  // with what is under way when the team is left

  static std::exception_ptr left_in(const std::string& operation) {
    try {
      group_failed(operation, "the team was left", patience);
    } catch (const core::Error&) {
      return std::current_exception();
    }
  }

  void give() {
    std::optional<tensor::OwnStream> stream;
    std::exception_ptr none;
    try {
      stream.emplace(device_);
    } catch (const std::exception&) {
      none = std::current_exception();
    }
    std::unique_lock lock(mutex_);
    broken_ = none;
    for (;;) {
      changed_.wait(lock, [&] { return ending_ || !tasks_.empty(); });
      if (ending_) break;
      const std::shared_ptr<Task> task = std::move(tasks_.front());
      tasks_.pop_front();
      at_hand_ = task;
      if (broken_ == nullptr) {
        const Work work = task->work;
        lock.unlock();
        std::exception_ptr error;
        try {
          task->before.precede(device_);
          task->begun.emplace(device_, true);
          work(*peers_, stream->handle());
          task->ended.emplace(device_, true);
        } catch (const std::exception&) {
          error = std::current_exception();
        }
        lock.lock();
        if (error != nullptr && broken_ == nullptr) broken_ = error;
      }
      at_hand_ = nullptr;
      task->error = broken_;
      task->given = true;
      under_way_.push_back(task);
      changed_.notify_all();
    }
    given_all_ = true;
    changed_.notify_all();
  }

  void watch() {
    // A thread's device is the first one, whose memory would be taken, until it is said.
    if (tensor::detail::has_streams(device_)) c10::impl::VirtualGuardImpl(device_.type()).uncheckedSetDevice(device_);
    std::unique_lock lock(mutex_);
    os::Stopwatch looked;
    auto pause = std::chrono::microseconds(50);
    const void* head = nullptr;  // what is watched
    for (;;) {
      changed_.wait(lock, [&] { return given_all_ || ending_ || broken_ || at_hand_ || !under_way_.empty(); });
      if (broken_ != nullptr) break;
      const std::shared_ptr<Task> task = !under_way_.empty() ? under_way_.front() : at_hand_;
      if (task == nullptr) {
        if (given_all_) return;
        changed_.wait_for(lock, std::chrono::milliseconds(1));
        continue;
      }
      if (std::exchange(head, task.get()) != task.get()) {
        looked = os::Stopwatch();
        pause = std::chrono::microseconds(50);
      }
      const bool given = task->given;
      lock.unlock();
      std::exception_ptr error;
      bool over = false;
      try {
        // First: what has ended may have ended by that.
        over = given && task->ended->reached();
        if (const std::string why = peers_->trouble(); !why.empty()) group_failed(task->operation, why, unbounded);
        if (!over && looked.seconds() > 0.05) {
          looked = os::Stopwatch();
          watch_.look(task->operation);
        }
      } catch (const std::exception&) {
        error = std::current_exception();
      }
      over = over && error == nullptr;
      const double seconds = over ? task->begun->seconds_to(*task->ended) : 0.0;
      Work done;  // its tensors are given back without the lock
      lock.lock();
      if (over) {
        under_way_.pop_front();
        busy_ += seconds;
        done.swap(task->work);
        lock.unlock();
        done = nullptr;
        lock.lock();
        continue;
      }
      if (error == nullptr && ending_ && ending_->seconds() > patience) error = left_in(task->operation);
      if (error != nullptr && broken_ == nullptr) {
        broken_ = error;
        break;
      }
      changed_.wait_for(lock, pause, [&] { return broken_ != nullptr; });
      pause = std::min(2 * pause, std::chrono::microseconds(2000));
    }
    const std::string operation =
        head == nullptr || under_way_.empty() ? "an operation" : under_way_.front()->operation;
    // Said before the GPU goes on: who reads what comes then asks the World.
    const bool left = ending_.has_value();
    lock.unlock();
    if (!left) watch_.failed(operation, broken_);
    peers_->abort();
    lock.lock();
    for (const auto& task : under_way_) task->error = broken_;
    under_way_.clear();
    changed_.notify_all();
    changed_.wait(lock, [&] { return given_all_; });
  }

  std::shared_ptr<StreamPeers> peers_;
  at::Device device_;
  StreamWatch watch_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Task>> tasks_, under_way_;  // to be given; given
  std::shared_ptr<Task> at_hand_;                        // that is being given
  std::exception_ptr broken_;
  std::optional<os::Stopwatch> ending_;
  bool given_all_ = false;
  double busy_ = 0.0;
  std::thread giving_, watching_;
};

}  // namespace rlalgo::distributed::detail
