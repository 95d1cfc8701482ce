// rlalgo: the command line. `rlalgo VERB …`; see verbs.hpp.
//
// Exit status: 0 done, 1 failed (also when standard output could not take the result), 2 wrong usage, 128 + the number of
// the signal that ended it (run/interrupt.hpp): 130 after Ctrl-C.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/nearest.hpp>
#include <rlalgo/os/brief_waiting.hpp>
#include <rlalgo/os/interruption.hpp>
#include <rlalgo/run/interrupt.hpp>
#include <rlalgo/tensor/threads.hpp>

#include "log.hpp"
#include "ranks.hpp"
#include "verbs.hpp"

namespace {

namespace cli = rlalgo::cli;
using Stage = rlalgo::run::Interrupt::Stage;

// Before LibTorch's OpenMP starts.
[[gnu::section(".preinit_array"), gnu::used]] constexpr auto first = rlalgo::os::wait_briefly;

struct Verb {
  std::string_view name;
  std::string_view usage;
  std::string_view what;
  cli::Run (*add)(CLI::App&);
  bool prints_result = true;  // false: what it prints is progress, and its result is on disk
  Stage stage = Stage::at_once;
};

constexpr std::array<Verb, 17> verbs = {{
    {"init", "init [FILE] [--model DIR --data PATH --method grpo]",
     "writes a configuration with comments that runs; asks on a terminal", cli::init},
    {"train", "train CONFIG.yaml [--dry-run] [--key value …]",
     "trains as the configuration says; any key can be overridden", cli::train, false, Stage::starting},
    {"preprocess", "preprocess CONFIG.yaml [--debug] [--key value …]",
     "tokenizes preference data once, for later runs; --debug prints rows token by token", cli::preprocess, true,
     Stage::starting},
    {"evaluate", "evaluate CONFIG.yaml [--checkpoint DIR] [--output FILE] [--key value …]",
     "evaluates a checkpoint on the held-out rows of a configuration", cli::evaluate, true, Stage::starting},
    {"inference", "inference CONFIG.yaml|MODEL_DIR [--chat] …",
     "reads a prompt from standard input and streams a completion; --chat on a terminal is a conversation",
     cli::inference},
    {"merge-lora", "merge-lora CONFIG.yaml | --model BASE --lora-model-dir DIR --output-dir DIR",
     "writes a model with its adapter added to the weights", cli::merge_lora, true, Stage::starting},
    {"tokenize", "tokenize MODEL …", "JSON lines: texts and conversations to token ids", cli::tokenize},
    {"score", "score MODEL …", "JSON lines: log-probs of given tokens", cli::score},
    {"generate", "generate MODEL …", "JSON lines: completions of many prompts, batched", cli::generate},
    {"vllm-serve", "vllm-serve CONFIG.yaml|MODEL_DIR [--port 8000] …",
     "answers generation requests over HTTP, as OpenAI's, vLLM's and TRL's servers do", cli::vllm_serve, false,
     Stage::starting},
    {"report", "report OUTPUT_DIR… [--serve]",
     "rewrites report.html of a finished or running training, compares several, or serves a page that follows them",
     cli::report},
    {"keys", "keys [WORD …] [--json-schema]",
     "prints keys of a configuration: defaults, values, what they mean; or all of them as a JSON schema", cli::keys},
    {"fetch", "fetch NAME [--repo-type model|dataset] …",
     "downloads a model or a dataset of the Hugging Face Hub into the cache", cli::fetch, true, Stage::starting},
    {"doctor", "doctor", "prints what a report of a bug should say about the machine", cli::doctor},
    {"kernels", "kernels [--device cuda]", "tries the program's own kernels on a GPU beside LibTorch's operators",
     cli::kernels},
    {"completion", "completion bash|zsh|fish", "prints completions of verbs, options and keys for a shell",
     cli::completion},
    {"version", "version", "prints the versions of rlalgo and of what it is built on", cli::version},
}};

void print_usage(std::ostream& out) {
  out << "rlalgo: post-training of language models by reinforcement and preference learning\n\nusage:\n";
  for (const Verb& verb : verbs) out << "  rlalgo " << verb.usage << "\n      " << verb.what << "\n";
  out << "  rlalgo help VERB\n      everything about one verb; so do VERB --help and VERB -h\n  rlalgo -V, --version\n "
         "     as the verb version\n";
}

const Verb& find_verb(std::string_view name) {
  if (name == "--version" || name == "-V") name = "version";
  const auto* verb = std::find_if(verbs.begin(), verbs.end(), [&](const Verb& v) { return v.name == name; });
  if (verb != verbs.end()) return *verb;
  std::vector<std::string> names = {"help"};
  for (const Verb& v : verbs) names.emplace_back(v.name);
  const std::string nearest = rlalgo::core::nearest_name(name, names);
  rlalgo::core::raise_usage(
      "cli", 1,
      {.what = "there is no such verb",
       .found = std::string(name),
       .remedy = (nearest.empty() ? "" : "did you mean `rlalgo " + nearest + "`? ") + "`rlalgo help` lists the verbs"});
}

// --max_new_tokens is --max-new-tokens.
std::string with_dashes(std::string word) {
  if (word.starts_with("--"))
    std::replace(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(std::min(word.find('='), word.size())), '_',
                 '-');
  return word;
}

// What a verb does not know: an option, with the nearest that it has, or a word too many.
[[noreturn]] void refuse(const Verb& verb, const CLI::App& app, const std::string& word) {
  const std::string where = "rlalgo " + std::string(verb.name);
  if (!word.starts_with("-"))
    rlalgo::core::raise_usage("cli", 6, {.what = "`" + where + "` takes no such argument", .found = word});
  std::vector<std::string> names;
  std::string all;
  for (const CLI::Option* option : app.get_options())
    if (!option->get_lnames().empty() && option->get_lnames()[0] != "help") {
      names.push_back("--" + option->get_lnames()[0]);
      all += (all.empty() ? "" : ", ") + names.back();
    }
  const std::string nearest = rlalgo::core::nearest_name(word.substr(0, word.find('=')), names);
  rlalgo::core::raise_usage("cli", 8,
                            {.what = "there is no such option",
                             .found = word,
                             .expected = nearest.empty() ? all : "",
                             .where = where,
                             .remedy = (nearest.empty() ? "" : "did you mean " + nearest + "? ") + "`rlalgo help " +
                                       std::string(verb.name) + "` explains them"});
}

// axolotl starts these through a launcher, too; here each is one process.
void take_launcher(const Verb& verb, std::vector<std::string>& words) {
  if (verb.name != "inference" && verb.name != "merge-lora") return;
  if (cli::take_launched_ranks(words) > 1)
    cli::warning("`rlalgo " + std::string(verb.name) + "` is one process: the number of processes has no effect");
}

int run(const Verb& verb, std::vector<std::string> words) {
  CLI::App app(std::string(verb.what), "rlalgo " + std::string(verb.name));
  app.set_help_flag("-h,--help", "prints this");
  app.get_formatter()->column_width(34);
  app.allow_extras();
  const cli::Run start = verb.add(app);
  if (!app.get_prefix_command()) std::transform(words.begin(), words.end(), words.begin(), with_dashes);
  take_launcher(verb, words);
  std::reverse(words.begin(), words.end());  // as CLI11 takes them
  try {
    app.parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    cli::require_output();
    return 0;
  } catch (const CLI::ArgumentMismatch& error) {
    rlalgo::core::raise_usage("cli", 8,
                              {.what = "an option lacks its value", .found = error.what(), .where = app.get_name()});
  } catch (const CLI::ParseError& error) {
    rlalgo::core::raise_usage("cli", 7,
                              {.what = "an option has no such value", .found = error.what(), .where = app.get_name()});
  }
  const std::vector<std::string> rest = app.remaining();
  if (!rest.empty() && !app.get_prefix_command()) refuse(verb, app, rest.front());
  if (std::any_of(rest.begin(), rest.end(), [](const std::string& word) { return word == "--help" || word == "-h"; })) {
    std::cout << app.help();
    cli::require_output();
    return 0;
  }
  const rlalgo::run::Interrupt interrupt(verb.stage);
  return start();
}

// A standard stream that is closed would become the next file that is opened, and what is printed would be written into it.
// In its place stands one that can be neither read nor written, as a closed one.
void reserve_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0) (void)::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

// A failure without a number gets one.
int numbered(const Verb& verb, std::vector<std::string> words) {
  try {
    return run(verb, std::move(words));
  } catch (const rlalgo::core::Error&) {
    throw;
  } catch (const std::filesystem::filesystem_error& error) {
    rlalgo::core::raise("os", 7,
                        {.what = "a path cannot be used",
                         .found = error.code().message(),
                         .where = error.path1().string(),
                         .remedy = "check the links and permissions on the way to it"});
  } catch (const std::bad_alloc&) {
    rlalgo::core::raise("cli", 2,
                        {.what = "memory ran out",
                         .remedy = "lower micro_batch_size or sequence lengths, or free memory for the program"});
  } catch (const std::exception& error) {
    // LibTorch appends a trace of its own functions to the line that says what is wrong.
    const std::string_view text = error.what();
    rlalgo::core::raise(
        "cli", 2,
        {.what = "unexpected failure",
         .found = rlalgo::core::json_reason(text.substr(0, text.find('\n'))),
         .remedy = "a file or a value has another form than the program knows; with what was given it is "
                   "worth a report"});
  }
}

int command(std::vector<std::string> words) {
  const std::string name = words.empty() ? "" : words.front();
  const auto asking = [](const std::string& word) { return word == "help" || word == "--help" || word == "-h"; };
  const bool asks = asking(name);
  if (name.empty() || (asks && std::all_of(words.begin(), words.end(), asking))) {
    print_usage(name.empty() ? std::cerr : std::cout);
    if (name.empty()) return 2;
    cli::require_output();
    return 0;
  }
  words.erase(words.begin());
  const Verb& verb = find_verb(asks ? words.front() : name);
  const int status = numbered(verb, asks ? std::vector<std::string>{"--help"} : std::move(words));
  if (!verb.prints_result) return status;
  cli::require_output();
  return status;
}

// oneDNN keeps 1,024 compiled products of its shapes, of half a megabyte each, and in bfloat16 every number of tokens makes some
// that are not needed again.
void keep_fewer_compiled_shapes() { ::setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128", /*overwrite=*/0); }

}  // namespace

namespace rlalgo::cli {

std::vector<VerbWords> verb_words() {
  std::vector<VerbWords> out;
  for (const Verb& verb : verbs) {
    CLI::App app;
    app.set_help_flag("-h,--help", "prints this");
    (void)verb.add(app);
    out.push_back({verb.name, verb.what, {}, app.get_prefix_command()});
    for (const CLI::Option* option : app.get_options())
      for (const std::string& name : option->get_lnames())
        out.back().options.push_back({"--" + name, option->get_description(), option->get_items_expected_max() == 0});
  }
  return out;
}

void require_output() {
  std::cout.flush();
  if (std::cout) return;
  errno = 0;
  (void)!::write(STDOUT_FILENO, "\n", 1);  // asks for the reason again: what failed may lie back
  core::raise("cli", 17,
              {.what = "the result cannot be written to standard output",
               .found = errno != 0 ? std::strerror(errno) : "an earlier write failed"});
}

}  // namespace rlalgo::cli

int main(int argc, char** argv) {
  keep_fewer_compiled_shapes();
  reserve_standard_streams();
  const int status = [&] {
    const rlalgo::tensor::ThreadLimit one_a_processor(0.0);
    try {
      return command({argv + 1, argv + argc});
    } catch (const rlalgo::os::Interrupted& stop) {
      std::cerr << "interrupted" << std::endl;
      return stop.exit_code();
    } catch (const rlalgo::core::Error& error) {
      cli::fail(error.what());
      return error.exit_code();
    }
  }();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return status;
#else
  // What libraries do at exit changes nothing any more, and is a quarter of a short command: LibTorch takes back the
  // operators that it has registered.
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
  std::_Exit(status);
#endif
}
