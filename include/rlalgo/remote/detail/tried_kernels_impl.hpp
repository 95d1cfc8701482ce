// Definitions of tried_kernels.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/core/compiled.hpp>
#include <rlalgo/os/atomic_file.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/os/regular_file.hpp>
#include <rlalgo/remote/detail/line_process.hpp>
#include <rlalgo/remote/tried_kernels.hpp>

namespace rlalgo::remote {

namespace detail {

struct KernelAnswer {
  bool agrees = false;
  std::string found;
  bool for_now = false;
};

class KernelTrialProcess {
 public:
  KernelTrialProcess(const std::vector<std::string>& command, KernelTrialLimits limits)
      : command_(command), limits_(limits) {}

  KernelAnswer ask(const std::string& names) {
    double seconds = limits_.seconds;
    if (process_ == nullptr) {
      process_ = std::make_unique<LineProcess>();
      seconds = limits_.begin_seconds;
      if (const int error = process_->start(command_); error != 0) {
        process_ = nullptr;
        return {.agrees = false,
                .found = "the process that tries it could not be started: " + std::string(std::strerror(error)),
                .for_now = true};
      }
    }
    std::string answer;
    const auto outcome = process_->exchange(names, answer, os::Deadline(seconds));
    if (outcome == LineProcess::Outcome::answered) {
      const auto value = core::read_json<nlohmann::json>(answer).value;
      if (value.is_object() && value.contains("agrees") && value["agrees"].is_boolean() && value.contains("found") &&
          value["found"].is_string()) {
        if (value.contains("ends")) process_ = nullptr;  // after an error of the device it trusts itself no more
        return {.agrees = value["agrees"], .found = value["found"], .for_now = value.contains("for_now")};
      }
    }
    const std::string ended = process_->stop(0.0);
    process_ = nullptr;
    if (outcome == LineProcess::Outcome::gone)
      return {.agrees = false,
              .found = "the process that tried it ended: " + ended,
              .for_now = !ended.starts_with("signal")};  // it says why on standard error
    if (outcome == LineProcess::Outcome::late)
      return {.agrees = false, .found = "no answer within " + std::to_string(static_cast<int>(seconds)) + " seconds"};
    return {.agrees = false, .found = "an answer of another form"};
  }

 private:
  const std::vector<std::string>& command_;
  KernelTrialLimits limits_;
  std::unique_ptr<LineProcess> process_;
};

inline constexpr std::size_t most_kernel_cards = 16;

// The entries of the file; empty where it is not one of ours.
inline nlohmann::json kernel_cards(const std::filesystem::path& file) {
  const os::FileText text = os::read_regular_file(file, std::uint64_t{1} << 20U);
  const auto all = core::read_json<nlohmann::json>(text.text).value;
  const bool ours = text.problem.empty() && all.is_object() && all.contains("format") && all["format"] == 1 &&
                    all.contains("cards") && all["cards"].is_array();
  return ours ? all["cards"] : nlohmann::json::array();
}

inline bool is_kernel_card(const nlohmann::json& card, std::string_view of) {
  return card.is_object() && card.contains("of") && card["of"].is_string() &&
         card["of"].get_ref<const std::string&>() == of;
}

}  // namespace detail

RLALGO_INLINE TriedKernels try_kernels(const std::vector<std::string>& command, std::span<const std::string> names,
                                       KernelTrialLimits limits,
                                       const std::function<void(std::string_view, bool, std::string_view)>& said) {
  detail::KernelTrialProcess process(command, limits);
  TriedKernels out;
  const auto ask = [&](const std::string& name, const std::string& question) {
    const detail::KernelAnswer answer = process.ask(question);
    if (said) said(name, answer.agrees, answer.found);
    if (!answer.agrees) out.refused[name] = answer.found;
    if (answer.for_now) {
      out.used.clear();
      out.for_now = true;
    }
    return answer.agrees;
  };
  for (const std::string& name : names) {
    if (ask(name, name)) out.used.push_back(name);
    if (out.for_now) return out;
  }
  if (out.used.size() < 2) return out;
  std::string all;
  for (const std::string& name : out.used) all += (all.empty() ? "" : ",") + name;
  if (!ask("together", all)) out.used.clear();
  return out;
}

RLALGO_INLINE std::optional<TriedKernels> recall_kernels(const std::filesystem::path& file, std::string_view of) {
  const nlohmann::json cards = detail::kernel_cards(file);
  const auto found =
      std::find_if(cards.begin(), cards.end(), [&](const auto& card) { return detail::is_kernel_card(card, of); });
  if (found == cards.end()) return std::nullopt;
  try {
    return TriedKernels{.used = found->at("used"), .refused = found->at("refused")};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

RLALGO_INLINE void remember_kernels(const std::filesystem::path& file, std::string_view of, const TriedKernels& tried) {
  if (tried.for_now) return;
  nlohmann::json cards = nlohmann::json::array();
  for (const nlohmann::json& card : detail::kernel_cards(file))
    if (!detail::is_kernel_card(card, of)) cards.push_back(card);
  cards.push_back({{"of", of}, {"used", tried.used}, {"refused", tried.refused}});
  while (cards.size() > detail::most_kernel_cards) cards.erase(cards.begin());
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  if (error) os::raise_file_error("cannot make the directory", file.parent_path(), error.value());
  os::AtomicFile out(file);
  out.write(nlohmann::json{{"format", 1}, {"cards", cards}}.dump(1) + "\n");
  out.commit();
}

}  // namespace rlalgo::remote
