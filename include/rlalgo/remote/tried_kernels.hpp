// Which of the program's own kernels are used on a card: each is tried in another process (assembly/kernel_trials.hpp), since what one of them
// breaks cannot be mended in the process that it broke, and what was found is kept in a file, for the card, driver, LibTorch and program
// together that it was found with.
//
// The other process (LineProcess) answers a line of names, "rms_norm,rotate", with {"agrees": bool, "found": "…"}, and with "ends" where it ends
// then. It is started anew after one that a signal ended or that did not answer in time. What says nothing of a kernel (a process that does not start or
// exits, memory that others have: "for_now") ends the trials, and no kernel is used. The kernels that agree are then tried together; where they do not, none is used.
//
// The file: {"format": 1, "cards": [{"of": "…", "used": ["…"], "refused": {"…": "why"}}, …]}, the newest last, sixteen at most. One that
// cannot be read is as none.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/core/compiled.hpp>

namespace rlalgo::remote {

struct TriedKernels {
  std::vector<std::string> used;
  std::map<std::string, std::string> refused;  // why; of all together: "together"
  bool for_now = false;                        // something else was in the way: not to be kept

  bool operator==(const TriedKernels&) const = default;
};

struct KernelTrialLimits {
  double begin_seconds =
      120.0;              // of the first answer of a process: LibTorch's CUDA half is read, the device is made ready
  double seconds = 60.0;  // of another
};

// `command`: starts the other process. `said`: of each what was found, as it comes.
[[nodiscard]] TriedKernels try_kernels(
    const std::vector<std::string>& command, std::span<const std::string> names, KernelTrialLimits limits = {},
    const std::function<void(std::string_view name, bool agrees, std::string_view found)>& said = nullptr);

// What was found with `of`; nothing where it was not tried.
[[nodiscard]] std::optional<TriedKernels> recall_kernels(const std::filesystem::path& file, std::string_view of);
// Not what is `for_now`. Errors: those of os/atomic_file.hpp.
void remember_kernels(const std::filesystem::path& file, std::string_view of, const TriedKernels& tried);

}  // namespace rlalgo::remote

#ifndef RLALGO_COMPILED
#include <rlalgo/remote/detail/tried_kernels_impl.hpp>
#endif
