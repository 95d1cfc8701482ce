// A model or a dataset of the Hugging Face Hub, into the cache where the other verbs look for it.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/remote/hub_download.hpp>
#include <rlalgo/run/interrupt.hpp>

#include "verbs.hpp"

namespace rlalgo::cli {

namespace {

std::string size_text(double bytes) {
  static constexpr const char* units[] = {"B", "kB", "MB", "GB", "TB"};
  int unit = 0;
  for (; bytes >= 1000 && unit < 4; ++unit) bytes /= 1000;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
  return text;
}

// On a terminal one line that counts; else a line for each file, and one every ten seconds of a long one.
class TransferLine {
 public:
  void show(const remote::HubProgress& p) {
    if (p.file_done && !terminal_) {
      std::cerr << text(p) << "\n";
      since_ = {};
    } else if (since_.seconds() >= (terminal_ ? 0.1 : 10.0) || (terminal_ && p.file_done)) {
      since_ = {};
      std::cerr << (terminal_ ? "\r\033[K" : "") << text(p) << (terminal_ ? "" : "\n") << std::flush;
      drawn_ = terminal_;
    }
  }
  void say(const std::string& line) {
    end();
    std::cerr << line << "\n";
  }
  void end() {
    if (drawn_) std::cerr << "\r\033[K" << std::flush;
    drawn_ = false;
  }

 private:
  static std::string text(const remote::HubProgress& p) {
    const double rate = p.seconds > 0 ? static_cast<double>(p.bytes) / p.seconds : 0.0;
    std::string out = std::to_string(p.number) + " of " + std::to_string(p.files) + "  " +
                      size_text(static_cast<double>(p.bytes)) + " of " + size_text(static_cast<double>(p.of_bytes)) +
                      "  " + size_text(rate) + "/s";
    if (rate > 0 && p.of_bytes > p.bytes)
      out += "  " + std::to_string(static_cast<std::int64_t>(static_cast<double>(p.of_bytes - p.bytes) / rate) + 1) +
             " s left";
    return out + "  " + p.file;
  }

  const bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  bool drawn_ = false;
  os::Stopwatch since_;
};

struct FetchOptions {
  std::vector<std::string> names;
  std::string kind;
  remote::HubDownload download;
};

int fetch_repository(FetchOptions& options) {
  if (options.names.size() != 1)
    core::raise_usage("cli", 3,
                      {.what = "`rlalgo fetch` takes one argument", .expected = "OWNER/NAME of a model or a dataset"});
  remote::HubDownload& download = options.download;
  download.id = options.names.front();
  if (!options.kind.empty()) download.kind = options.kind == "model" ? data::HubKind::models : data::HubKind::datasets;
  TransferLine line;
  download.progress = [&](const remote::HubProgress& progress) { line.show(progress); };
  download.tell = [&](const std::string& text) { line.say(text); };
  download.stop = run::Interrupt::token();
  const remote::HubSnapshot snapshot = remote::fetch_snapshot(download);
  line.end();
  std::cerr << (snapshot.kind == data::HubKind::models ? "model " : "dataset ") << download.id << " at "
            << snapshot.commit << ": " << snapshot.files << " files, " << snapshot.fetched << " of them fetched ("
            << size_text(static_cast<double>(snapshot.bytes)) << ")\n";
  std::cout << snapshot.directory.string() << "\n";
  return 0;
}

}  // namespace

Run fetch(CLI::App& app) {
  const auto options = std::make_shared<FetchOptions>();
  app.add_option("NAME", options->names, "OWNER/NAME of a model or a dataset of the Hub")
      ->expected(0, -1)
      ->type_name("");
  app.add_option("--revision", options->download.revision, "branch, tag or commit (main)")->type_name("REVISION");
  app.add_option("--repo-type", options->kind, "model or dataset (whichever of the two there is)")
      ->check(CLI::IsMember({"model", "dataset"}))
      ->type_name("TYPE");
  app.add_option("--include", options->download.include, "only files whose path fits; may be given again")
      ->expected(1)
      ->take_all()
      ->type_name("PATTERN");
  app.add_option("--exclude", options->download.exclude, "no files whose path fits; may be given again")
      ->expected(1)
      ->take_all()
      ->type_name("PATTERN");
  app.add_option("--token", options->download.token, "access token; better: HF_TOKEN, or the file of `hf auth login`")
      ->type_name("TOKEN");
  app.footer(R"(
Into the cache of huggingface_hub (HF_HUB_CACHE, else HF_HOME/hub, else ~/.cache/huggingface/hub), where `base_model` and
`datasets[].path` are looked for by this name. Prints the folder. What breaks off goes on where it was when the same command
is given again. HF_ENDPOINT names another Hub, HTTPS_PROXY a proxy, SSL_CERT_FILE other authorities.
No other verb downloads anything.)");
  return [options] { return fetch_repository(*options); };
}

}  // namespace rlalgo::cli
