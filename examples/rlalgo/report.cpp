// The report of a run as a file, or served while it trains; several runs beside each other.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/http/server.hpp>
#include <rlalgo/os/atomic_file.hpp>
#include <rlalgo/os/home_path.hpp>
#include <rlalgo/run/interrupt.hpp>
#include <rlalgo/run/report.hpp>

#include "json_lines.hpp"
#include "log.hpp"
#include "verbs.hpp"

namespace rlalgo::cli {

namespace {

struct ReportOptions {
  std::vector<std::string> words;
  std::string output, host = "127.0.0.1";
  std::int64_t port = 8090;
  bool serve = false;
};

using Directories = std::vector<std::filesystem::path>;

http::Response page_of(const Directories& directories) {
  try {
    return {.headers = {{"Content-Type", "text/html; charset=utf-8"}, {"Cache-Control", "no-store"}},
            .body = run::report_html(directories, run::report_stamp(directories))};
  } catch (const core::Error& error) {  // of a line that is being written
    return {.status = 503, .headers = {{"Content-Type", "text/plain; charset=utf-8"}}, .body = error.what()};
  }
}

// Samples of the training are on the page: a web page of others, whose name has come to mean this machine, does not get it.
bool names_this_machine(const http::Request& request) {
  const std::string* const host = http::find_header(request.headers, "Host");
  if (host == nullptr) return false;
  const std::string name = host->substr(0, host->starts_with("[") ? host->find(']') + 1 : host->find(':'));
  return name == "localhost" || name == "[::1]" || name.starts_with("127.");
}

void answer(http::Exchange& exchange, const Directories& directories, bool to_all) {
  const http::Request& request = exchange.request();
  if (!to_all && !names_this_machine(request)) return exchange.respond({.status = 403});
  if (request.method != "GET" && request.method != "HEAD") return exchange.respond({.status = 405});
  if (request.target == "/") return exchange.respond(page_of(directories));
  if (request.target == "/stamp")
    return exchange.respond({.headers = {{"Content-Type", "text/plain"}, {"Cache-Control", "no-store"}},
                             .body = run::report_stamp(directories)});
  exchange.respond({.status = 404});
}

int serve_report(const ReportOptions& options, const Directories& directories) {
  (void)run::report_html(directories, "-");  // what cannot be shown is said here
  const bool to_all = !options.host.starts_with("127.") && options.host != "localhost" && options.host != "::1";
  if (to_all) warning("--host " + options.host + ": everybody who reaches this machine can read the report");
  const run::Interrupt interrupt(run::Interrupt::Stage::running, "the report is no longer served");
  http::Server server({.host = options.host == "localhost" ? "127.0.0.1" : options.host,
                       .port = static_cast<std::uint16_t>(options.port)},
                      [&](const std::shared_ptr<http::Exchange>& exchange) { answer(*exchange, directories, to_all); });
  note("report at " + server.url() + "/; Ctrl-C ends it");
  while (!run::Interrupt::requested()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  server.stop(1.0);
  return run::Interrupt::exit_code();
}

int make_report(const ReportOptions& options) {
  if (options.words.empty())
    core::raise_usage("cli", 3,
                      {.what = "`rlalgo report` needs the output_dir of a run",
                       .expected = "rlalgo report OUTPUT_DIR… [--serve] [--output FILE]"});
  Directories directories;
  for (const std::string& word : options.words) directories.emplace_back(os::expand_home(word, "OUTPUT_DIR"));
  if (options.serve) return serve_report(options, directories);
  if (directories.size() == 1 && options.output.empty()) {
    std::cout << run::write_report(directories.front()).string() << "\n";
    return 0;
  }
  const std::filesystem::path file =
      options.output.empty() ? "comparison.html" : os::expand_home(options.output, "--output");
  os::write_file(file, run::report_html(directories));
  std::cout << file.string() << "\n";
  return 0;
}

}  // namespace

Run report(CLI::App& app) {
  const auto o = std::make_shared<ReportOptions>();
  app.add_option("OUTPUT_DIR", o->words, "output_dir of a run, finished or not; of several: they are compared")
      ->expected(0, -1)
      ->type_name("");
  app.add_flag("--serve", o->serve, "serves the page, which follows a run while it trains");
  app.add_option("--host", o->host, "address to listen on")->capture_default_str();
  add_whole_option(app, "--port", o->port, 0, 65535, "0: one that is free");
  app.add_option("--output", o->output,
                 "the file that is written; default: report.html in OUTPUT_DIR, of several comparison.html here")
      ->type_name("FILE");
  return [o] { return make_report(*o); };
}

}  // namespace rlalgo::cli
