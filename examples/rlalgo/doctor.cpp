// What a report of a bug should say about the machine: versions, kernels, devices, Python, libraries, caches, disk, memory. Nothing
// that is secret: variables whose names speak of keys or tokens are said to be set, and no more.
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <rlalgo/assembly/overview.hpp>
#include <rlalgo/core/printable.hpp>
#include <rlalgo/data/hub_cache.hpp>
#include <rlalgo/distributed/process_group.hpp>
#include <rlalgo/os/memory_limit.hpp>
#include <rlalgo/os/processors.hpp>
#include <rlalgo/tensor/threads.hpp>

#include "verbs.hpp"

extern char** environ;

namespace rlalgo::cli {

namespace {

void row(const std::string& name, const std::string& value) {
  std::cout << "  " << name << std::string(name.size() < 18 ? 18 - name.size() : 1, ' ')
            << core::printable(core::shortened(value, 2000)) << "\n";
}

// Of a file "name : value"; empty where there is none.
std::string field_of(const char* file, const std::string& name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(name)) continue;
    const std::size_t colon = line.find_first_of(":=");
    if (colon == std::string::npos) continue;
    const std::size_t from = line.find_first_not_of(" \t\"", colon + 1);
    if (from == std::string::npos) return "";
    return line.substr(from, line.find_last_not_of(" \t\"") - from + 1);
  }
  return "";
}

std::string output_of(const std::string& command) {
  std::string out;
  FILE* const pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return "";
  std::array<char, 4096> piece;
  while (std::fgets(piece.data(), static_cast<int>(piece.size()), pipe) != nullptr) out += piece.data();
  ::pclose(pipe);
  return out;
}

std::string in_shell_quotes(const std::string& word) {
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

void print_machine() {
  std::cout << "machine\n";
  utsname name{};
  if (::uname(&name) == 0) row("system", std::string(name.sysname) + " " + name.release + " " + name.machine);
  row("distribution", field_of("/etc/os-release", "PRETTY_NAME"));
  row("processor", field_of("/proc/cpuinfo", "model name"));
  std::string flags;
  const std::string all = " " + field_of("/proc/cpuinfo", "flags") + " ";
  for (const char* flag : {"avx2", "fma", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8"})
    if (all.find(" " + std::string(flag) + " ") != std::string::npos)
      flags += (flags.empty() ? "" : " ") + std::string(flag);
  row("instructions", flags);
  row("threads",
      std::to_string(tensor::available_threads()) + " used of " + std::to_string(::sysconf(_SC_NPROCESSORS_ONLN)));
  row("memory", assembly::bytes_text(static_cast<double>(os::memory_limit())) + " at most, " +
                    field_of("/proc/meminfo", "MemAvailable") + " available");
}

void print_disk() {
  std::cout << "disk\n";
  const auto space = [](const std::string& name, const std::filesystem::path& path) {
    std::error_code error;
    std::filesystem::path there = path;
    while (!there.empty() && !std::filesystem::exists(there, error) && there.has_parent_path() &&
           there != there.parent_path())
      there = there.parent_path();
    const auto info = std::filesystem::space(there.empty() ? "." : there, error);
    row(name, path.string() + (error ? ": " + error.message()
                                     : ", " + assembly::bytes_text(static_cast<double>(info.available)) + " free"));
  };
  std::error_code error;
  space("working directory", std::filesystem::current_path(error));
  space("temporary files", std::filesystem::temp_directory_path(error));
  const std::filesystem::path cache = data::hub_cache_directory();
  space("hub cache", cache);
  std::size_t models = 0, datasets = 0;
  for (const auto& entry : std::filesystem::directory_iterator(cache, error)) {
    const std::string name = entry.path().filename().string();
    models += name.starts_with("models--") ? 1U : 0U;
    datasets += name.starts_with("datasets--") ? 1U : 0U;
  }
  row("", std::to_string(models) + " models, " + std::to_string(datasets) + " data sets in it");
}

// The Python that rewards, environments and transforms run in, and what it can import.
void print_python() {
  std::cout << "Python\n";
  const char* const chosen = std::getenv("RLALGO_PYTHON");
  const std::string program = chosen != nullptr && *chosen != '\0' ? chosen : "python3";
  constexpr std::string_view source =
      "import importlib.metadata as m, sys\n"
      "print(sys.version.split()[0], 'at', sys.executable)\n"
      "for n in ('torch', 'transformers', 'tokenizers', 'datasets', 'pyarrow', 'trl', 'peft', 'axolotl', 'vllm', "
      "'wandb', 'mlflow', "
      "'trackio', 'comet_ml', 'tensorboard'):\n"
      "    try: print(n, m.version(n))\n"
      "    except Exception: pass\n";
  const std::string told = output_of("timeout 20 " + in_shell_quotes(program) + " -c " +
                                     in_shell_quotes(std::string(source)) + " 2>/dev/null");
  if (told.empty()) return row("program", program + " does not run: rewards in Python need one (RLALGO_PYTHON)");
  const std::size_t end = told.find('\n');
  row("program", told.substr(0, end));
  std::string packages = told.substr(end + 1);
  for (char& c : packages) c = c == '\n' ? ',' : c;
  while (!packages.empty() && packages.back() == ',') packages.pop_back();
  for (std::size_t at = 0; (at = packages.find(',', at)) != std::string::npos; at += 2) packages.insert(at + 1, " ");
  row("packages", packages.empty() ? "none of those that it may use" : packages);
}

void print_libraries() {
  std::cout << "libraries\n";
  row("Gloo", distributed::gloo_built() ? "built in" : "not built in: several ranks need it (libgloo-dev)");
}

bool is_secret(const std::string& name) {
  for (const char* word : {"TOKEN", "KEY", "SECRET", "PASS", "CREDENTIAL", "AUTH"})
    if (name.find(word) != std::string::npos) return true;
  return false;
}

void print_environment() {
  std::cout << "environment\n";
  constexpr std::array<std::string_view, 18> told = {
      "RLALGO_", "HF_",   "HUGGING", "TRANSFORMERS_", "TORCH",      "OMP_",       "MKL_",    "GOMP_",  "CUDA_",
      "NVIDIA_", "NCCL_", "GLOO_",   "RANK",          "WORLD_SIZE", "LOCAL_RANK", "MASTER_", "WANDB_", "VLLM_"};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('='));
    for (const std::string_view prefix : told)
      if (name.starts_with(prefix)) {
        row(name, is_secret(name) ? "is set" : text.substr(std::min(text.size(), name.size() + 1)));
        break;
      }
  }
}

}  // namespace

Run doctor(CLI::App& app) {
  app.footer(
      "\nFor a report of a bug: the command, what it printed, and this. Keys and tokens of the environment are not "
      "shown.");
  return [print_version = version(app)] {
    const int status = print_version();
    print_machine();
    print_libraries();
    print_python();
    print_disk();
    print_environment();
    return status;
  };
}

}  // namespace rlalgo::cli
