// Definitions of process_world.hpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/distributed/detail/nccl_peers.hpp>
#include <rlalgo/distributed/detail/process_team.hpp>
#include <rlalgo/distributed/nccl_library.hpp>
#include <rlalgo/distributed/process_group.hpp>
#include <rlalgo/distributed/process_world.hpp>
#include <rlalgo/distributed/team.hpp>
#include <rlalgo/distributed/world.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/os/interruption.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::distributed {

namespace detail {

inline constexpr const char* failure_key = "rlalgo/failure";
inline constexpr const char* begun_key = "rlalgo/begun";
inline constexpr std::size_t chunk_bytes = std::size_t{4} << 20U;    // a value of the store holds 8 MiB
inline constexpr std::size_t bucket_bytes = std::size_t{25} << 20U;  // of tensors that are summed in one
inline constexpr double farewell_seconds = 2.0;                      // a store outlives its rank for the others

inline std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

[[noreturn]] inline void raise_environment(const std::string& name, const std::string& found,
                                           const std::string& expected) {
  core::raise_usage(
      "distributed", 7,
      {.what = "the environment does not say where this rank stands",
       .found = name + (found.empty() ? " is not set" : "=" + found),
       .expected = expected,
       .remedy = "start the ranks with `rlalgo train CONFIG --nproc-per-node N` or torchrun, or set RANK, "
                 "WORLD_SIZE, MASTER_ADDR and MASTER_PORT"});
}

inline int number_of(const char* name, int least, int most) {
  const std::string text = variable(name);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
    raise_environment(name, text, std::to_string(least) + " to " + std::to_string(most));
  return value;
}

class ProcessWorld final : public World {
 public:
  ProcessWorld(const Place& place, Store store, double seconds)
      : place_(place),
        store_(std::move(store)),
        seconds_(seconds),
        seen_(static_cast<std::size_t>(place.size)),
        beat_([this](const std::stop_token& stop) { beat(stop); }) {
    (void)gather("rendezvous", {});
    group_ = join_gloo(store_, place_.rank, place_.size, seconds_);
  }
  // A duplicate of `first`, whose thread shows that this rank lives.
  ProcessWorld(const ProcessWorld& first, const std::string& name)
      : place_(first.place_),
        store_(first.store_),
        seconds_(first.seconds_),
        order_("rlalgo/duplicate/" + name + "/"),
        seen_(first.seen_.size()) {}
  ProcessWorld(const ProcessWorld&) = delete;
  ProcessWorld& operator=(const ProcessWorld&) = delete;
  ~ProcessWorld() override {
    if (!beat_.joinable()) return;
    try {
      leave();
    } catch (const std::exception&) {
      // The store is gone, and with it everybody who could be waiting.
    }
  }

  [[nodiscard]] int rank() const override { return place_.rank; }
  [[nodiscard]] int size() const override { return place_.size; }
  void enter(std::int64_t step) override {
    if (step_ == 0) store_.set(detail::begun_key, "");
    step_ = step;
  }

  std::vector<std::string> gather(const std::string& operation, std::string bytes) override {
    if (settle_) settle_();
    const std::int64_t number = next_++;
    put(number, operation, bytes);
    std::vector<std::string> out(static_cast<std::size_t>(place_.size));
    for (int r = 0; r < place_.size; ++r)
      out[static_cast<std::size_t>(r)] = r == place_.rank ? std::move(bytes) : take(number, r, operation);
    for (const std::string& key : std::exchange(old_, std::exchange(given_, {}))) store_.erase(key);
    return out;
  }

  void sum(std::span<Tensor> tensors) override {
    if (group_ == nullptr)
      core::raise("distributed", 9,
                  {.what = "the ranks are not doing the same",
                   .found = "a sum of tensors on another thread than the first",
                   .expected = "host values only",
                   .where = where("sum of tensors")});
    (void)gather("sum of gradients", {});
    for (std::size_t at = 0; at < tensors.size();) {
      const auto type = [&](std::size_t i) {
        return tensors[i].scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
      };
      const at::ScalarType kind = type(at);
      std::size_t end = at, elements = 0;
      for (; end < tensors.size() && type(end) == kind; ++end) {
        const auto more = static_cast<std::size_t>(tensors[end].numel());
        if (end > at && (elements + more) * at::elementSize(kind) > bucket_bytes) break;
        elements += more;
      }
      sum_bucket(tensors.subspan(at, end - at), kind, static_cast<std::int64_t>(elements));
      at = end;
    }
  }

  void fail(const std::string& text) noexcept override {
    failed_ = true;
    try {
      report_failure(store_, {place_.rank, text});
    } catch (const std::exception&) {
      // Nobody can be reached: the others find the store gone, or this rank silent.
    }
  }

  [[nodiscard]] bool first_to_say(const std::string& text) noexcept override {
    try {
      const std::string own = std::to_string(place_.rank);
      return store_.claim("rlalgo/said/" + text.substr(0, 1000), own) == own;
    } catch (const std::exception&) {
      return true;  // the store is gone
    }
  }

  // The others may still read what this rank gave last: those few keys stay.
  void give_up(int signal) override {
    store_.claim(given_up_key(), std::to_string(signal));
    order_ += "+";
    next_ = 0;
    given_.clear();
    old_.clear();
  }
  void check() override {
    raise_if_over("waiting");
    check_teams();
  }
  void check_teams() override {
    std::unique_lock lock(trouble_mutex_);
    if (trouble_ == nullptr || trouble_order_ != given_up_key()) {
      const auto all = on_gpus_;
      lock.unlock();
      for (const auto& one : all) {  // what the watch has not seen yet
        const auto peers = one.lock();
        const std::string why = peers == nullptr ? std::string() : peers->trouble();
        if (!why.empty()) raise_broken("an operation of a team", std::runtime_error(why));
      }
      return;
    }
    const std::exception_ptr error = trouble_;
    const std::string operation = troubled_;
    lock.unlock();
    raise_of_stream(
        {.broken = [this](const std::string& which, const std::exception& found) { raise_broken(which, found); }},
        operation, error);
  }

  [[nodiscard]] std::shared_ptr<World> duplicate(const std::string& name) override {
    return std::make_shared<ProcessWorld>(*this, name);
  }
  void while_waiting(std::function<void()> tick) override { tick_ = std::move(tick); }
  void before_meeting(std::function<void()> settle) override { settle_ = std::move(settle); }

  [[nodiscard]] std::shared_ptr<Team> convene(const std::vector<int>& ranks, at::Device device) override {
    const auto [place, name] = place_in_team(ranks, device.is_cpu() ? "" : " on GPUs");
    if (ranks.size() == 1) return std::make_shared<Team>();
    const auto others = [this, ranks](const auto& ask) {
      for (const int r : ranks)
        if (r != place_.rank) ask(r);
    };
    const std::shared_ptr<const NcclLibrary> library = device.is_cpu() ? nullptr : NcclLibrary::load();
    return std::make_shared<ProcessTeam>(
        order_ + name, place, static_cast<int>(ranks.size()), device, sum_order() == SumOrder::library,
        TeamWorld{.join = [this](const std::string& team, int rank,
                                 int size) { return join_peers(store_, team, rank, size, seconds_); },
                  .join_on_gpu =
                      [this, library, device](const std::string& team, int rank, int size) {
                        auto peers = join_nccl_peers(store_, team, library, std::max<int>(0, device.index()), rank,
                                                     size, seconds_);
                        const std::lock_guard lock(trouble_mutex_);
                        std::erase_if(on_gpus_, [](const auto& one) { return one.expired(); });
                        on_gpus_.push_back(peers);
                        return peers;
                      },
                  .watch = [this, ranks] { return watch_of(ranks); },
                  .order = [this] { return order_; },
                  .expect = [this, others] { others([this](int r) { expect(r); }); },
                  .look =
                      [this, others](const std::string& operation) {
                        raise_if_over(operation);
                        if (tick_) tick_();
                        others([&](int r) { raise_if_silent(r, operation, seen_[static_cast<std::size_t>(r)]); });
                      },
                  .broken = [this](const std::string& operation,
                                   const std::exception& error) { raise_broken(operation, error); }});
  }

 private:
  // All ranks say which team they are of, so that a wrong list is an error before anybody waits.
  [[nodiscard]] std::pair<int, std::string> place_in_team(const std::vector<int>& ranks, const std::string& place) {
    std::string own;
    for (const int r : ranks) own += (own.empty() ? "" : ",") + std::to_string(r);
    own += place;
    const std::vector<std::string> all = gather("teams", own);
    const std::string name = "team/" + std::to_string(teams_++) + "/" + own + "/";
    const auto found = std::find(ranks.begin(), ranks.end(), place_.rank);
    bool agreed = found != ranks.end();
    for (const int r : ranks)
      agreed = agreed && r >= 0 && r < place_.size && std::count(ranks.begin(), ranks.end(), r) == 1 &&
               all[static_cast<std::size_t>(r)] == own;
    if (!agreed)
      core::raise("distributed", 10,
                  {.what = "these ranks cannot form a team",
                   .found = "ranks " + own,
                   .expected = "each once, this one among them, and all of them with the same list and kind of device",
                   .where = where("teams")});
    return {static_cast<int>(found - ranks.begin()), name};
  }

  [[nodiscard]] std::string where(const std::string& operation) const {
    return "rank " + std::to_string(place_.rank) + " of " + std::to_string(place_.size) +
           (step_ > 0 ? ", step " + std::to_string(step_) : std::string()) + ", " + operation;
  }
  [[nodiscard]] std::string given_up_key() const { return order_ + "given up"; }
  [[nodiscard]] std::string key_of(std::int64_t number, int rank, std::size_t chunk = 0) const {
    return order_ + std::to_string(number) + "/" + std::to_string(rank) + "/" + std::to_string(chunk);
  }
  [[nodiscard]] static std::string beat_key(int rank) { return "rlalgo/beat/" + std::to_string(rank); }
  [[nodiscard]] static std::string end_key(int rank) { return "rlalgo/end/" + std::to_string(rank); }

  // Operation, length and the first chunk come last: who finds them finds all.
  void put(std::int64_t number, const std::string& operation, const std::string& bytes) {
    for (std::size_t at = chunk_bytes, chunk = 1; at < bytes.size(); at += chunk_bytes, ++chunk) {
      given_.push_back(key_of(number, place_.rank, chunk));
      store_.set(given_.back(), bytes.substr(at, chunk_bytes));
    }
    given_.push_back(key_of(number, place_.rank));
    store_.set(given_.back(), operation + "\n" + std::to_string(bytes.size()) + "\n" + bytes.substr(0, chunk_bytes));
  }

  std::string take(std::int64_t number, int from, const std::string& operation) {
    wait(key_of(number, from), from, operation);
    const std::string head = store_.get(key_of(number, from));
    const std::size_t name = head.find('\n'), length = head.find('\n', name + 1);
    if (head.compare(0, name, operation) != 0)
      core::raise("distributed", 9,
                  {.what = "the ranks are not doing the same",
                   .found = "rank " + std::to_string(from) + " is at: " + head.substr(0, name),
                   .expected = operation,
                   .where = where(operation)});
    const auto size = static_cast<std::size_t>(std::stoull(head.substr(name + 1, length - name - 1)));
    std::string bytes = head.substr(length + 1);
    for (std::size_t chunk = 1; bytes.size() < size; ++chunk) bytes += store_.get(key_of(number, from, chunk));
    return bytes;
  }

  void wait(const std::string& key, int from, const std::string& operation) {
    using namespace std::chrono_literals;
    auto pause = std::chrono::microseconds(50);
    os::Stopwatch looked;
    expect(from);
    while (!store_.has(key)) {
      std::this_thread::sleep_for(pause);
      pause = std::min<std::chrono::microseconds>(2 * pause, 1ms);
      if (looked.seconds() < 0.05) continue;
      looked = os::Stopwatch();
      raise_if_over(operation);
      if (tick_) tick_();
      raise_if_silent(from, operation, seen_[static_cast<std::size_t>(from)]);
    }
  }

  struct Seen {
    std::string beat;
    os::Stopwatch since;
  };

  // On a thread of the watch's own: nothing that changes is shared.
  [[nodiscard]] StreamWatch watch_of(const std::vector<int>& ranks) {
    auto seen = std::make_shared<std::vector<Seen>>(seen_.size());
    return {.look =
                [this, ranks, seen, key = given_up_key()](const std::string& operation) {
                  raise_if_over(operation, key);
                  for (const int r : ranks)
                    if (r != place_.rank) raise_if_silent(r, operation, (*seen)[static_cast<std::size_t>(r)]);
                },
            .failed =
                [this, key = given_up_key()](const std::string& operation, std::exception_ptr error) {
                  const std::lock_guard lock(trouble_mutex_);
                  if (trouble_ != nullptr && trouble_order_ == key) return;
                  trouble_ = std::move(error);
                  trouble_order_ = key;
                  troubled_ = operation;
                }};
  }

  void expect(int from) { seen_[static_cast<std::size_t>(from)].since = os::Stopwatch(); }
  void raise_if_silent(int from, const std::string& operation, Seen& seen) const {
    if (std::string now = store_.has(beat_key(from)) ? store_.get(beat_key(from)) : ""; now != seen.beat) {
      seen.beat = std::move(now);
      seen.since = os::Stopwatch();
    }
    if (seen.since.seconds() < seconds_) return;
    core::raise("distributed", 6,
                {.what = "rank " + std::to_string(from) + " is silent",
                 .expected = "a sign of life within ddp_timeout = " + std::to_string(seconds_).substr(0, 6) + " s",
                 .where = where(operation),
                 .remedy = "look at that rank's machine and at its messages"});
  }

  void raise_if_over(const std::string& operation) const { raise_if_over(operation, given_up_key()); }
  void raise_if_over(const std::string& operation, const std::string& key) const {
    raise_if_failed(operation);
    if (!store_.has(key)) return;
    os::Interruption::request(std::stoi(store_.get(key)));
    os::raise_interrupted("os", 8, {.what = "another rank has given up", .where = where(operation)});
  }

  void raise_if_failed(const std::string& operation) const {
    if (const auto failure = first_failure(store_); failure && failure->rank != place_.rank)
      core::raise("distributed", 8,
                  {.what = "rank " + std::to_string(failure->rank) + " failed",
                   .found = failure->text,
                   .where = where(operation)});
  }

  // The end of a rank is known to who started it a moment after its connections broke.
  [[noreturn]] void raise_broken(const std::string& operation, const std::exception& error) const {
    for (const os::Stopwatch waited; waited.seconds() < 1.0;) {
      raise_if_over(operation);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    core::raise(
        "distributed", 4,
        {.what = "a collective operation failed", .found = std::string(error.what()), .where = where(operation)});
  }

  void sum_bucket(std::span<Tensor> tensors, at::ScalarType kind, std::int64_t elements) {
    Tensor flat = tensor::empty({elements}, at::TensorOptions().dtype(kind));
    std::int64_t at = 0;
    for (const Tensor& one : tensors) {
      flat.narrow(0, at, one.numel()).copy_(one.detach().reshape({-1}));
      at += one.numel();
    }
    try {
      group_->sum(flat, seconds_);
    } catch (const std::exception& error) {
      raise_broken("sum of gradients", error);
    }
    at = 0;
    for (Tensor& one : tensors) {
      one.detach().copy_(flat.narrow(0, at, one.numel()).view(one.sizes()));
      at += one.numel();
    }
  }

  void beat(const std::stop_token& stop) {
    const auto pause = std::chrono::duration<double>(std::clamp(seconds_ / 8.0, 0.02, 1.0));
    std::mutex mutex;
    std::condition_variable_any wake;
    std::unique_lock lock(mutex);
    try {
      for (std::int64_t count = 0; !stop.stop_requested(); ++count) {
        store_.set(beat_key(place_.rank), std::to_string(count));
        wake.wait_for(lock, stop, pause, [] { return false; });
      }
    } catch (const std::exception&) {
      // The store is gone: the next operation says so.
    }
  }

  // Who has the store stays until the others have read what they wait for.
  void leave() {
    beat_.request_stop();
    beat_.join();
    store_.set(end_key(place_.rank), "");
    if (place_.hosted || place_.rank != 0) return;
    const double patience = failed_ ? farewell_seconds : seconds_;
    for (const os::Stopwatch waited; waited.seconds() < patience;) {
      bool all = true;
      for (int r = 1; r < place_.size; ++r) all = all && store_.has(end_key(r));
      if (all) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  Place place_;
  Store store_;
  double seconds_;
  std::unique_ptr<ProcessGroup> group_;
  std::string order_ = "rlalgo/";  // of operations: before their numbers
  std::int64_t next_ = 0, teams_ = 0;
  std::atomic<std::int64_t> step_ = 0;
  std::vector<std::string> given_, old_;  // keys of the latest operation, and of the one before
  std::vector<Seen> seen_;
  std::function<void()> tick_, settle_;
  bool failed_ = false;
  std::mutex trouble_mutex_;
  std::exception_ptr trouble_;            // what a watch of a team has found
  std::string troubled_, trouble_order_;  // the operation, and of which order it is
  std::vector<std::weak_ptr<StreamPeers>> on_gpus_;
  std::jthread beat_ = {};  // last: it uses the others
};

}  // namespace detail

RLALGO_INLINE std::optional<Place> place_from_environment() {
  if (detail::variable("RANK").empty() && detail::variable("WORLD_SIZE").empty()) return std::nullopt;
  Place out;
  out.size = detail::number_of("WORLD_SIZE", 1, 1 << 20);
  out.rank = detail::number_of("RANK", 0, out.size - 1);
  // Of the GPU that is this rank's (config/device.hpp).
  if (!detail::variable("LOCAL_RANK").empty()) (void)detail::number_of("LOCAL_RANK", 0, out.size - 1);
  if (!detail::variable("LOCAL_WORLD_SIZE").empty()) (void)detail::number_of("LOCAL_WORLD_SIZE", 1, out.size);
  if (out.size == 1) return std::nullopt;
  out.host = detail::variable("MASTER_ADDR");
  if (out.host.empty()) detail::raise_environment("MASTER_ADDR", "", "the address of rank 0's machine");
  out.port = static_cast<std::uint16_t>(detail::number_of("MASTER_PORT", 1, 65535));
  out.hosted = detail::variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
  return out;
}

RLALGO_INLINE std::shared_ptr<World> join_world(const Place& place, double seconds) {
  const bool own = !place.hosted && place.rank == 0;
  Store store =
      own ? Store::listen(place.host, place.port) : Store::connect(place.host, place.port, place.size, seconds);
  return std::make_shared<detail::ProcessWorld>(place, std::move(store), seconds);
}

RLALGO_INLINE void report_failure(const Store& store, const Failure& failure) {
  const std::string text = failure.text.substr(0, 10'000);
  store.claim(detail::failure_key, nlohmann::json({{"rank", failure.rank}, {"text", text}})
                                       .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

RLALGO_INLINE std::optional<Failure> first_failure(const Store& store) {
  if (!store.has(detail::failure_key)) return std::nullopt;
  const auto json = nlohmann::json::parse(store.get(detail::failure_key));
  return Failure{json.at("rank").get<int>(), json.at("text").get<std::string>()};
}

RLALGO_INLINE bool has_begun(const Store& store) { return store.has(detail::begun_key); }

}  // namespace rlalgo::distributed
