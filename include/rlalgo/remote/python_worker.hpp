// Reward functions from a user's Python file, run in a separate Python process.
//
// A function is called as TRL calls it, with keywords only: prompts, completions, completion_ids, one list per dataset
// column, trainer_state (global_step), log_extra, log_metric; it returns one number or None per completion, plain or
// `async def`. A function without **kwargs gets the arguments it names. None and NaN mean "does not apply".
// One process serves all functions of a run, so modules are imported once. What functions print goes to stderr. The
// process is given `start_seconds` to import a module and `call_seconds` for a call; then it and all it started are
// killed.
//
// Errors: [rlalgo.remote.1] Python cannot be started, [rlalgo.remote.2] module or function not found, or importing it
// failed, [rlalgo.remote.3] the function raised, [rlalgo.remote.4] the wrong number of values, [rlalgo.remote.5] a
// value that is no number, [rlalgo.remote.6] no answer in time, [rlalgo.remote.7] the process died, [rlalgo.remote.8]
// an answer outside the protocol. 2 and 3 carry the Python traceback.
#pragma once

#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/remote/detail/python_host.hpp>
#include <rlalgo/remote/detail/python_process.hpp>
#include <rlalgo/remote/detail/reward_worker_source.hpp>
#include <rlalgo/reward/function.hpp>

namespace rlalgo::remote {

struct PythonConfig {
  std::string python{};                               // program; empty: $RLALGO_PYTHON, else python3 from PATH
  std::vector<std::filesystem::path> search_paths{};  // where modules are found first, in this order; empty: the cwd
  double start_seconds = 120.0;                       // to start Python and import a module
  double call_seconds = 300.0;                        // for one call of one function
};

class PythonWorker {
 public:
  explicit PythonWorker(PythonConfig config)
      : config_(std::move(config)), paths_(detail::module_paths(config_.search_paths)) {}

  struct Loaded {
    std::string name;           // the function's own name, which is its name in metrics
    bool asynchronous = false;  // `async def`
  };

  // Imports `module.function`.
  Loaded load_function(const std::string& function);
  std::string load(const std::string& function) { return load_function(function).name; }

  // A loaded function and the keywords that it gets besides.
  struct Request {
    std::string function{};
    reward::Json keywords = reward::Json::object();
  };
  // What one function of a call came to: values and what it logged, or the error.
  struct Outcome {
    std::vector<double> values;
    reward::RewardLog log;
    std::exception_ptr error;
  };

  // Calls loaded functions on the same arguments; coroutines among them run at once. A function that fails does so in
  // its own outcome; an error of the process is raised. `attempt` is added to where errors say they happened.
  std::vector<Outcome> call(const std::vector<Request>& requests, const reward::RewardCall& call,
                            const std::string& attempt = {});

  // Calls one loaded function.
  std::vector<double> call(const std::string& function, const reward::RewardCall& one_call);

 private:
  using Json = reward::Json;

  void start();

  static Outcome outcome(const Json& answer, const Request& request, const std::string& where);

  static Json arguments(const reward::RewardCall& call);

  Json ask(const Json& question, const std::string& function, double seconds, const std::string& where);

  [[noreturn]] void outside_protocol(const std::string& function, const std::string& found);

  [[noreturn]] static void raise_unreadable(const detail::PythonProcess::Failure& failure, const std::string& function);

  [[noreturn]] static void refuse(const Json& answer, const std::string& function, const std::string& where);

  static std::string seconds_text(double seconds);

  PythonConfig config_;
  std::vector<std::string> paths_;
  detail::PythonProcess process_;
  bool started_ = false;
};

}  // namespace rlalgo::remote

#ifndef RLALGO_COMPILED
#include <rlalgo/remote/detail/python_worker_impl.hpp>
#endif
