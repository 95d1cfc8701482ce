#include <filesystem>
#include <iostream>

#include <rlalgo/core/error.hpp>
#include <rlalgo/run/report.hpp>

#include "verbs.hpp"

namespace rlalgo::cli {

int report(const Arguments& arguments) {
  if (arguments.size() != 1)
    core::raise_usage("cli", 3, {.what = "`rlalgo report` takes one argument", .expected = "the output_dir of a run"});
  const std::filesystem::path directory = arguments[0];
  run::write_report(directory);
  std::cout << (directory / "report.html").string() << "\n";
  return 0;
}

}  // namespace rlalgo::cli
