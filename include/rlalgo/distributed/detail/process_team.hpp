// The team of a process_world.hpp: operations go on while the rank computes. Those of tensors of the CPU run one after the other on a thread
// of their own, those of a GPU's on a stream of it (team_stream.hpp).
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/core/error.hpp>
#include <rlalgo/distributed/detail/peers.hpp>
#include <rlalgo/distributed/detail/team_misfit.hpp>
#include <rlalgo/distributed/detail/team_stream.hpp>
#include <rlalgo/distributed/process_group.hpp>
#include <rlalgo/distributed/team.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/tensor/streams.hpp>

namespace rlalgo::distributed::detail {

// What a team asks of its World, which outlives it.
struct TeamWorld {
  // The other ranks of a team: `name` is of no other, rank and size are its own. Waits for all of them.
  std::function<std::shared_ptr<Peers>(const std::string& name, int rank, int size)> join;
  std::function<std::shared_ptr<StreamPeers>(const std::string& name, int rank, int size)> join_on_gpu;
  std::function<StreamWatch()> watch;                      // of the order in force
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

// What the watch found is said as it is; an error of the library by what the World knows of it.
[[noreturn]] inline void raise_of_stream(const TeamWorld& world, const std::string& operation,
                                         const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const core::Error& found) {
    if (found.room() != "distributed" || (found.number() != 4 && found.number() != 18)) throw;
    world.broken(operation, found);
  } catch (const std::exception& found) {
    world.broken(operation, found);
  }
  std::terminate();  // broken() raises
}

class ProcessTeam final : public Team {
 public:
  // `name`: of this team in the store, the same on all its ranks and of no other team. `natively`: sums of a GPU's tensors are in
  // the library's order.
  ProcessTeam(std::string name, int rank, int size, at::Device device, bool natively, TeamWorld world)
      : name_(std::move(name)),
        rank_(rank),
        size_(size),
        device_(device),
        natively_(natively && !device.is_cpu()),
        world_(std::move(world)) {
    (void)order();
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] at::Device device() const override { return device_; }
  [[nodiscard]] double busy() const override { return before_ + busy_now(); }
  [[nodiscard]] bool sums_natively() const override { return natively_; }

  std::uint64_t order() override {
    if (std::string now = world_.order(); order_ == 0 || now != word_) {
      before_ += busy_now();
      thread_ = nullptr;
      stream_ = nullptr;
      word_ = std::move(now);
      ++order_;
      (void)thread();
      if (!device_.is_cpu())
        stream_ = std::make_unique<TeamStream>(world_.join_on_gpu(name_ + word_ + "/", rank_, size_), device_,
                                               world_.watch());
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

  // The host waits until the GPU has been given it; what the caller's stream is given next comes after its end.
  class StreamOperation final : public Pending::Operation {
   public:
    StreamOperation(ProcessTeam& team, std::shared_ptr<TeamStream::Task> task)
        : team_(team), order_(team.order_), task_(std::move(task)) {}
    void wait() override {
      if (order_ != team_.order_) return;  // it was given up
      TeamStream& stream = *team_.stream_;
      if (!stream.wait_for(*task_, std::chrono::milliseconds(50))) {
        team_.world_.expect();
        do {
          team_.world_.look(task_->operation);
        } while (!stream.wait_for(*task_, std::chrono::milliseconds(50)));
      }
      if (const std::exception_ptr error = stream.error_of(*task_); error != nullptr)
        raise_of_stream(team_.world_, task_->operation, error);
      task_->ended->precede(team_.device_);
      stream.release(*task_);
    }

   private:
    ProcessTeam& team_;
    std::uint64_t order_;
    std::shared_ptr<TeamStream::Task> task_;
  };

  Pending begin(const std::string& operation, std::vector<Tensor> sent, std::vector<Tensor> received) override {
    if (on_gpu(operation, {&sent, &received}))
      return give(operation, [sent = std::move(sent), received = std::move(received)](
                                 StreamPeers& peers, void* stream) { peers.exchange(sent, received, stream); });
    return start(operation, [sent = std::move(sent), received = std::move(received)](Peers& peers) {
      peers.exchange(sent, received);
    });
  }
  Pending begin_rounds(const std::string& operation, const std::vector<Tensor>& of,
                       std::function<void(const Round&)> work) override {
    if (on_gpu(operation, {&of}))
      return give(operation, [work = std::move(work)](StreamPeers& peers, void* stream) {
        work([&](const std::vector<Tensor>& sent, const std::vector<Tensor>& received) {
          peers.exchange(sent, received, stream);
        });
      });
    return start(operation, [work = std::move(work)](Peers& peers) {
      work([&peers](const std::vector<Tensor>& sent, const std::vector<Tensor>& received) {
        peers.exchange(sent, received);
      });
    });
  }
  std::optional<Pending> begin_gather(const std::string& operation, const Tensor& whole, const Tensor& part) override {
    if (!on_gpu(operation, {whole, part})) return std::nullopt;
    return give(operation, [whole, part](StreamPeers& peers, void* stream) { peers.gather(whole, part, stream); });
  }
  std::optional<Pending> begin_native_sum(const std::string& operation, const std::vector<Tensor>& tensors) override {
    if (!natively_ || !on_gpu(operation, {&tensors})) return std::nullopt;
    return give(operation, [tensors](StreamPeers& peers, void* stream) {
      const c10::NoGradGuard no_grad;
      std::vector<Tensor> summed;  // others than these are added in float32
      for (const Tensor& one : tensors) {
        const bool as_it_is =
            one.is_contiguous() && (one.scalar_type() == at::kFloat || one.scalar_type() == at::kDouble);
        summed.push_back(as_it_is ? one.detach() : one.detach().to(at::kFloat).contiguous());
      }
      peers.add(summed, stream);
      for (std::size_t i = 0; i < tensors.size(); ++i)
        if (!summed[i].is_alias_of(tensors[i])) tensors[i].detach().copy_(summed[i]);
    });
  }
  Pending begin_native_shards(const std::string& operation, const Tensor& sum, const Tensor& sent) override {
    return give(operation, [sum, sent](StreamPeers& peers, void* stream) { peers.add_shards(sum, sent, stream); });
  }

  // Whether the tensors of an operation are those of the GPU.
  [[nodiscard]] bool on_gpu(const std::string& operation,
                            std::initializer_list<const std::vector<Tensor>*> lists) const {
    bool any_here = false, any_there = false;
    for (const std::vector<Tensor>* list : lists)
      for (const Tensor& one : *list)
        if (one.defined()) (one.is_cpu() ? any_here : any_there) = true;
    if (any_here && any_there)
      raise_misfit(operation, "tensors of the CPU and of another device", "tensors of one device");
    return any_there;
  }
  [[nodiscard]] bool on_gpu(const std::string& operation, const std::vector<Tensor>& tensors) const {
    return on_gpu(operation, {&tensors});
  }

  [[nodiscard]] double busy_now() const {
    return stream_ != nullptr ? stream_->busy() : thread_ != nullptr ? thread_->busy() : 0.0;
  }
  // For tensors of the CPU, of which there are a few in a team of GPUs, too.
  [[nodiscard]] const std::shared_ptr<TeamThread>& thread() {
    if (thread_ == nullptr)
      thread_ = std::make_shared<TeamThread>(
          world_.join(name_ + word_ + (device_.is_cpu() ? "/" : "/of the CPU/"), rank_, size_));
    return thread_;
  }
  Pending start(const std::string& operation, TeamThread::Work work) {
    (void)order();
    return Pending(std::make_shared<Operation>(operation, thread(), thread()->begin(std::move(work)), world_));
  }
  Pending give(const std::string& operation, TeamStream::Work work) {
    (void)order();
    return Pending(std::make_shared<StreamOperation>(*this, stream_->begin(operation, std::move(work))));
  }

  std::string name_;
  int rank_, size_;
  at::Device device_;
  bool natively_;
  TeamWorld world_;
  std::string word_;
  std::uint64_t order_ = 0;
  double before_ = 0.0;  // busy in orders before
  std::shared_ptr<TeamThread> thread_;
  std::unique_ptr<TeamStream> stream_;
};

}  // namespace rlalgo::distributed::detail
