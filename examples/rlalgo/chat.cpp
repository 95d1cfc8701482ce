#include "chat.hpp"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include <rlalgo/core/error.hpp>
#include <rlalgo/core/nearest.hpp>
#include <rlalgo/core/printable.hpp>
#include <rlalgo/inference/local_engine.hpp>
#include <rlalgo/os/atomic_file.hpp>
#include <rlalgo/os/home_path.hpp>
#include <rlalgo/os/regular_file.hpp>
#include <rlalgo/run/terminal.hpp>
#include <rlalgo/text/stream_decoder.hpp>

#include "log.hpp"

namespace rlalgo::cli {

namespace {

constexpr std::string_view chat_commands = R"(  /retry          draws the last answer anew
  /undo           takes the last turn back
  /system TEXT    sets the system message; without TEXT shows it, /system - takes it away
  /save FILE      writes the conversation, a line {"messages": […]} as data sets have it
  /clear          begins a new conversation; the system message stays
  /exit           ends, as Ctrl-D does; Ctrl-C stops an answer
  a line that ends in \ goes on in the next one
)";

// Ctrl-C belongs to the conversation while it lives.
class AnswerStop {
 public:
  AnswerStop() {
    struct sigaction action = {};
    action.sa_handler = [](int) { asked().store(true); };
    ::sigemptyset(&action.sa_mask);
    action.sa_flags = 0;  // a read is broken off, too
    ::sigaction(SIGINT, &action, &old_);
  }
  AnswerStop(const AnswerStop&) = delete;
  AnswerStop& operator=(const AnswerStop&) = delete;
  ~AnswerStop() { ::sigaction(SIGINT, &old_, nullptr); }

  [[nodiscard]] static bool take() { return asked().exchange(false); }
  [[nodiscard]] static bool requested() { return asked().load(); }

 private:
  static std::atomic<bool>& asked() {
    static std::atomic<bool> value{false};
    return value;
  }
  struct sigaction old_ = {};
};

class Conversation {
 public:
  Conversation(const assembly::LanguageModel& model, const ChatOptions& options)
      : model_(model),
        options_(options),
        colours_(run::shows_colours(STDOUT_FILENO)),
        engine_(model.decoder->config(), model.decoder->weights(), for_turns(options.engine)) {
    if (!options.system.empty()) system_ = options.system;
  }

  int run() {
    std::cout << painted("/help lists the commands, /exit or Ctrl-D ends, Ctrl-C stops an answer", "90") << std::endl;
    while (std::optional<std::string> line = read_turn()) {
      if (line->find_first_not_of(" \t\r\n") == std::string::npos) continue;
      if (line->front() != '/') {
        say(std::move(*line));
        continue;
      }
      if (!command(*line)) return 0;
    }
    std::cout << std::endl;
    return 0;
  }

 private:
  static inference::EngineConfig for_turns(inference::EngineConfig engine) {
    engine.max_slots = 1;
    engine.keep_prefixes = engine.pack_weights = true;
    return engine;
  }

  // What a user types until the end of the line; none at the end of the input.
  std::optional<std::string> read_turn() {
    std::string turn;
    while (true) {
      std::cout << painted(turn.empty() ? "you> " : "...> ", "1") << std::flush;
      std::optional<std::string> line = read_line();
      if (!line) return turn.empty() ? std::nullopt : std::optional(turn);
      if (AnswerStop::take() && line->empty()) {  // a line that was typed to its end counts
        turn.clear();
        continue;
      }
      const bool goes_on = line->ends_with("\\");
      if (goes_on) line->back() = '\n';
      turn += *line;
      if (!goes_on) return turn;
    }
  }

  std::optional<std::string> read_line() {
    while (true) {
      if (const std::size_t end = typed_.find('\n'); end != std::string::npos) {
        std::string line = typed_.substr(0, end);
        typed_.erase(0, end + 1);
        return line;
      }
      constexpr int patience = 50;  // milliseconds: another thread may have taken the signal
      pollfd input{STDIN_FILENO, POLLIN, 0};
      const int ready = ::poll(&input, 1, patience);
      if (AnswerStop::requested()) {
        typed_.clear();
        std::cout << "\n" << painted("/exit or Ctrl-D ends", "90") << "\n";
        return "";
      }
      if (ready == 0) continue;
      char piece[4096];
      const ssize_t count = ::read(STDIN_FILENO, piece, sizeof piece);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) core::raise("cli", 21, {.what = "standard input cannot be read", .found = std::strerror(errno)});
      if (count == 0) return typed_.empty() ? std::nullopt : std::optional(std::exchange(typed_, ""));
      typed_.append(piece, static_cast<std::size_t>(count));
    }
  }

  void say(std::string text) {
    turns_.push_back({{"role", "user"}, {"content", std::move(text)}});
    attempt_ = 0;
    answer();
  }

  // Draws the answer to the last turn; a turn without one is taken back.
  void answer() {
    const std::string shown = "\n" + painted("model> ", "36");
    std::string text;
    bool stopped = false;
    try {
      const inference::Request request{.prompt = model_.encode(messages())};
      std::cout << shown << std::flush;
      text::StreamDecoder stream(model_.tokenizer);
      const auto print = [&](std::string piece) {
        text += piece;
        std::cout << core::printable(piece, "\n\t") << std::flush;
      };
      inference::GenerateHooks hooks;
      hooks.on_token = [&](const auto& token) { print(stream.push(token.id)); };
      hooks.cancelled = [] { return AnswerStop::requested() || !std::cout; };
      const auto seed = options_.seed + attempt_;
      const auto made = engine_.generate(std::span(&request, 1), options_.sampling,
                                         {.seed = seed, .step = static_cast<std::uint64_t>(turns_.size())}, hooks);
      print(stream.finish());
      stopped = AnswerStop::take();
      const bool cut = made.front().front().finish == data::Finish::length;
      std::cout << painted(stopped ? " [stopped]" : cut ? " [cut at its longest]" : "", "33") << "\n" << std::endl;
    } catch (const core::Error& error) {
      std::cout << std::endl;
      fail(error.what());
      turns_.erase(turns_.size() - 1);
      return;
    }
    turns_.push_back({{"role", "assistant"}, {"content", std::move(text)}});
  }

  [[nodiscard]] data::Json messages() const {
    data::Json out = data::Json::array();
    if (system_) out.push_back({{"role", "system"}, {"content", *system_}});
    for (const data::Json& turn : turns_) out.push_back(turn);
    return out;
  }

  // False: the conversation ends.
  bool command(const std::string& line) {
    const std::size_t end = std::min(line.find(' '), line.size());
    const std::string word = line.substr(0, end);
    const std::size_t from = line.find_first_not_of(' ', end);
    std::string rest = from == std::string::npos ? "" : line.substr(from);
    rest.erase(rest.find_last_not_of(" \t\r") + 1);
    if (word == "/exit" || word == "/quit" || word == "/bye") return false;
    if (word == "/help" || word == "/?")
      std::cout << chat_commands << std::flush;
    else if (word == "/retry")
      retry();
    else if (word == "/undo")
      undo();
    else if (word == "/clear")
      clear();
    else if (word == "/system")
      set_system(rest);
    else if (word == "/save")
      save(rest);
    else
      refuse_command(word);
    return true;
  }

  void retry() {
    if (turns_.empty()) return remark("there is no answer yet");
    if (turns_.back()["role"] == "assistant") turns_.erase(turns_.size() - 1);
    ++attempt_;
    answer();
  }

  void undo() {
    if (turns_.empty()) return remark("there is no turn yet");
    if (turns_.back()["role"] == "assistant") turns_.erase(turns_.size() - 1);
    if (!turns_.empty()) turns_.erase(turns_.size() - 1);
    remark("taken back; " + std::to_string(turns_.size() / 2) + " turns are left");
  }

  void clear() {
    turns_ = data::Json::array();
    remark("a new conversation");
  }

  void set_system(const std::string& text) {
    if (text == "-")
      system_.reset();
    else if (!text.empty())
      system_ = text;
    remark(system_ ? "system: " + *system_ : "no system message");
  }

  void save(const std::string& given) {
    if (given.empty()) return remark("/save needs the name of a file");
    try {
      const std::filesystem::path file = os::expand_home(given, "/save");
      if (os::exists(file) && !saved_.contains(file)) return remark(given + " is there already: name another file");
      const data::Json row = {{"messages", messages()}};
      os::write_file(file, row.dump(-1, ' ', false, data::Json::error_handler_t::replace) + "\n");
      saved_.insert(file);
      remark("saved in " + given);
    } catch (const core::Error& error) {
      fail(error.what());
    }
  }

  void refuse_command(const std::string& word) {
    const std::string nearest =
        core::nearest_name(word, {"/retry", "/undo", "/system", "/save", "/clear", "/exit", "/quit", "/help"});
    remark("there is no " + core::printable(word) + (nearest.empty() ? "" : ", did you mean " + nearest + "?") +
           " /help lists the commands");
  }

  void remark(const std::string& text) const { std::cout << painted(core::printable(text, "\n\t"), "90") << std::endl; }

  [[nodiscard]] std::string painted(std::string_view text, const char* code) const {
    if (!colours_ || text.empty()) return std::string(text);
    return "\033[" + std::string(code) + "m" + std::string(text) + "\033[0m";
  }

  const assembly::LanguageModel& model_;
  const ChatOptions& options_;
  bool colours_;
  inference::LocalEngine engine_;
  AnswerStop stop_;
  std::optional<std::string> system_;
  data::Json turns_ = data::Json::array();
  std::uint64_t attempt_ = 0;  // of the last answer
  std::string typed_;          // and not read yet
  std::set<std::filesystem::path> saved_;
};

}  // namespace

int converse(const assembly::LanguageModel& model, const ChatOptions& options) {
  return Conversation(model, options).run();
}

}  // namespace rlalgo::cli
