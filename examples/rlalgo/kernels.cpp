// Tries the program's own kernels on a GPU and prints what was found. With --answer it is the process in which they are tried.
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/assembly/kernel_trials.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/tensor/cuda_kernels.hpp>
#include <rlalgo/tensor/device.hpp>

#include "own_kernels.hpp"
#include "verbs.hpp"

namespace rlalgo::cli {

namespace {

constexpr int channel = 3;

// A line of the process that started this one; empty: it has ended, or asks no more.
std::string read_line() {
  std::string out;
  for (char letter = 0;;) {
    const ssize_t n = ::read(channel, &letter, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return "";
    if (letter == '\n') return out;
    out += letter;
  }
}

bool write_line(const std::string& line) {
  const std::string text = line + "\n";
  for (std::size_t sent = 0; sent < text.size();) {
    const ssize_t n = ::write(channel, text.data() + sent, text.size() - sent);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    sent += static_cast<std::size_t>(n);
  }
  return true;
}

std::vector<cuda::Kernel> kernels_named(std::string_view list) {
  (void)tensor::own_kernels();  // reads RLALGO_CUDA_KERNELS, as which the list is taken then
  (void)tensor::choose_kernels(list);
  std::vector<cuda::Kernel> out;
  for (std::size_t i = 0; i < cuda::kernel_names.size(); ++i)
    if (const auto kernel = static_cast<cuda::Kernel>(i); cuda::in_use(kernel)) out.push_back(kernel);
  return out;
}

class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "rlalgo-kernels-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      core::raise("cli", 33,
                  {.what = "no directory can be made for the model of a trial",
                   .found = std::strerror(errno),
                   .where = name,
                   .remedy = "set TMPDIR to a directory that can be written to"});
    path_ = name;
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder() {
    std::error_code none;
    std::filesystem::remove_all(path_, none);
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

int answer(at::Device device) {
  const ScratchFolder folder;
  // Another device than a GPU is a stand-in for one.
  assembly::KernelTrials trials(device, folder.path(),
                                device.is_cuda() ? assembly::KernelTrialSizes{} : assembly::smallest_kernel_trial);
  for (std::string asked = read_line(); !asked.empty(); asked = read_line()) {
    nlohmann::json said;
    try {
      const assembly::KernelTrial found = tensor::with_memory_errors(device, "end what else is on the device",
                                                                     [&] { return trials(kernels_named(asked)); });
      said = {{"agrees", found.agrees}, {"found", found.found}};
    } catch (const std::exception& error) {
      const auto* const known = dynamic_cast<const core::Error*>(&error);
      said = {{"agrees", false}, {"found", error.what()}, {"ends", true}};
      if (known != nullptr && known->room() == "tensor" && known->number() == 14)
        said["for_now"] = true;  // others have it
    }
    if (!write_line(said.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)) || said.contains("ends"))
      return 0;
  }
  return 0;
}

int print(at::Device device) {
  const auto line = [](std::string_view name, bool agrees, std::string_view found) {
    std::cout << std::left << std::setw(18) << name << (agrees ? "agrees    " : "NOT USED  ") << found << std::endl;
  };
  const remote::TriedKernels tried = try_kernels_on(device, line);
  return tried.refused.empty() ? 0 : 1;
}

}  // namespace

Run kernels(CLI::App& app) {
  const auto name = std::make_shared<std::string>("cuda");
  const auto answers = std::make_shared<bool>(false);
  app.add_option("--device", *name, "cuda, or cuda:N")->capture_default_str();
  app.add_flag("--answer", *answers, "answers the process that started this one, on descriptor 3")->group("");
  app.footer(R"(
Each kernel computes beside LibTorch's operators in a process of its own, then all that agree together. What is found is kept
for this card, driver, LibTorch and program, and decides what `train`, `generate` and the others use; they try the kernels
themselves where that was not done. RLALGO_CUDA_KERNELS=none (or names, or all) decides in its place.
Exit status 1: one does not agree.)");
  return [=] {
    const at::Device device = tensor::choose_device(*name, 0, 1, "--device").device;
    if (device.is_cpu())
      core::raise_usage("cli", 34,
                        {.what = "the program's CUDA kernels compute on a GPU",
                         .found = "--device " + *name,
                         .expected = "cuda, or cuda:N"});
    return *answers ? answer(device) : print(device);
  };
}

}  // namespace rlalgo::cli
