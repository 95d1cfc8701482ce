#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/core/home_path.hpp>
#include <rlalgo/run/report.hpp>

#include "verbs.hpp"

namespace rlalgo::cli {

Run report(CLI::App& app) {
  const auto words = std::make_shared<std::vector<std::string>>();
  app.add_option("OUTPUT_DIR", *words, "output_dir of a run, finished or not")->expected(0, -1)->type_name("");
  return [words] {
    if (words->size() != 1)
      core::raise_usage("cli", 3,
                        {.what = "`rlalgo report` takes one argument", .expected = "the output_dir of a run"});
    const std::filesystem::path directory = core::expand_home(words->front(), "OUTPUT_DIR");
    run::write_report(directory);
    std::cout << (directory / "report.html").string() << "\n";
    return 0;
  };
}

}  // namespace rlalgo::cli
