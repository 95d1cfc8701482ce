// The team of a process_world.hpp: operations run one after the other on a thread of its own, so that they go on while the
// rank computes.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <rlalgo/distributed/detail/peers.hpp>
#include <rlalgo/distributed/process_group.hpp>
#include <rlalgo/distributed/team.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/tensor/streams.hpp>

namespace rlalgo::distributed::detail {

// What a team asks of its World, which outlives it.
struct TeamWorld {
  // The other ranks of a team: `name` is of no other, rank and size are its own. Waits for all of them.
  std::function<std::shared_ptr<Peers>(const std::string& name, int rank, int size)> join;
  std::function<std::string()> order;                      // a word for the order of operations in force
  std::function<void()> expect;                            // a wait for the other ranks begins
  std::function<void(const std::string& operation)> look;  // about every 50 ms of it: raises what ends the wait
  std::function<void(const std::string& operation, const std::exception& error)>
      broken;  // raises why an operation failed
};

// The thread of one order of operations. One that waits for a rank that will not come is left behind.
class TeamThread {
 public:
  using Work = std::function<void(Peers&)>;
  struct Task final {
    Work work;
    std::exception_ptr error = nullptr;
    bool done = false;
  };

  explicit TeamThread(std::shared_ptr<Peers> peers) : state_(std::make_shared<State>()) {
    state_->peers = std::move(peers);
    std::thread([state = state_] { run(*state); }).detach();
  }
  TeamThread(const TeamThread&) = delete;
  TeamThread& operator=(const TeamThread&) = delete;
  ~TeamThread() {
    std::unique_lock lock(state_->mutex);
    state_->ending = true;
    state_->changed.notify_all();
    // One that is at work waits for a rank that has failed: it ends with the process.
    state_->changed.wait_for(lock, std::chrono::milliseconds(500), [&] { return state_->ended; });
  }

  std::shared_ptr<Task> begin(Work work) {
    auto task = std::make_shared<Task>();
    task->work = std::move(work);
    const std::lock_guard lock(state_->mutex);
    state_->tasks.push_back(task);
    state_->changed.notify_all();
    return task;
  }

  [[nodiscard]] double busy() const {
    const std::lock_guard lock(state_->mutex);
    return state_->busy;
  }

  // Whether it is done, after so long at most.
  bool wait_for(const Task& task, std::chrono::milliseconds most) {
    std::unique_lock lock(state_->mutex);
    return state_->changed.wait_for(lock, most, [&] { return task.done; });
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::shared_ptr<Peers> peers;
    std::deque<std::shared_ptr<Task>> tasks;
    bool ending = false, ended = false;
    double busy = 0.0;  // seconds
  };

  static void run(State& state) {
    std::unique_lock lock(state.mutex);
    std::exception_ptr broken;
    for (;;) {
      state.changed.wait(lock, [&] { return state.ending || !state.tasks.empty(); });
      if (state.ending) break;
      const std::shared_ptr<Task> task = std::move(state.tasks.front());
      state.tasks.pop_front();
      lock.unlock();
      const os::Stopwatch watch;
      if (broken == nullptr) {
        try {
          task->work(*state.peers);
        } catch (const std::exception&) {
          broken = std::current_exception();
        }
      }
      task->work = nullptr;
      lock.lock();
      state.busy += watch.seconds();
      task->error = broken;
      task->done = true;
      state.changed.notify_all();
    }
    state.peers = nullptr;
    state.ended = true;
    state.changed.notify_all();
  }

  std::shared_ptr<State> state_;
};

class ProcessTeam final : public Team {
 public:
  // `name`: of this team in the store, the same on all its ranks and of no other team.
  ProcessTeam(std::string name, int rank, int size, at::Device device, TeamWorld world)
      : name_(std::move(name)), rank_(rank), size_(size), device_(device), world_(std::move(world)) {
    (void)order();
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] at::Device device() const override { return device_; }
  [[nodiscard]] double busy() const override { return before_ + thread_->busy(); }

  std::uint64_t order() override {
    if (std::string now = world_.order(); thread_ == nullptr || now != word_) {
      if (thread_ != nullptr) before_ += thread_->busy();
      thread_ = nullptr;
      thread_ = std::make_shared<TeamThread>(world_.join(name_ + now + "/", rank_, size_));
      word_ = std::move(now);
      ++order_;
    }
    return order_;
  }

 private:
  class Operation final : public Pending::Operation {
   public:
    Operation(std::string name, std::shared_ptr<TeamThread> thread, std::shared_ptr<TeamThread::Task> task,
              const TeamWorld& world)
        : name_(std::move(name)), thread_(std::move(thread)), task_(std::move(task)), world_(world) {}
    void wait() override {
      if (!thread_->wait_for(*task_, std::chrono::milliseconds(50))) {
        world_.expect();
        do {
          world_.look(name_);
        } while (!thread_->wait_for(*task_, std::chrono::milliseconds(50)));
      }
      if (task_->error == nullptr) return;
      try {
        std::rethrow_exception(task_->error);
      } catch (const std::exception& error) {
        world_.broken(name_, error);
      }
    }

   private:
    std::string name_;
    std::shared_ptr<TeamThread> thread_;
    std::shared_ptr<TeamThread::Task> task_;
    const TeamWorld& world_;
  };

  Pending begin(const std::string& operation, std::vector<Tensor> sent, std::vector<Tensor> received) override {
    return start(operation, [sent = std::move(sent), received = std::move(received)](Peers& peers) {
      peers.exchange(sent, received);
    });
  }
  Pending begin(const std::string& operation, std::function<void(const Round&)> work) override {
    return start(operation, [work = std::move(work)](Peers& peers) {
      work([&peers](const std::vector<Tensor>& sent, const std::vector<Tensor>& received) {
        peers.exchange(sent, received);
      });
    });
  }
  Pending start(const std::string& operation, TeamThread::Work work) {
    (void)order();
    // It begins after the kernels that the caller has started, and has ended when those of its own arithmetic have.
    const auto task =
        thread_->begin([before = tensor::StreamMark(device_), device = device_, work = std::move(work)](Peers& peers) {
          before.finish();
          work(peers);
          tensor::finish_stream(device);
        });
    return Pending(std::make_shared<Operation>(operation, thread_, task, world_));
  }

  std::string name_;
  int rank_, size_;
  at::Device device_;
  TeamWorld world_;
  std::string word_;
  std::uint64_t order_ = 0;
  double before_ = 0.0;  // busy in orders before
  std::shared_ptr<TeamThread> thread_;
};

}  // namespace rlalgo::distributed::detail
