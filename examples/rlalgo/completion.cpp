// Completions for shells: words of the verbs, their options, and keys with the words that they take.
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/config/key_page.hpp>
#include <rlalgo/core/error.hpp>

#include "verbs.hpp"

namespace rlalgo::cli {

namespace {

struct Word {
  std::string text;                  // --trl.beta
  std::string says;                  // up to the end of its first sentence
  std::vector<std::string> choices;  // what may follow it; empty: anything
  bool flag = false;                 // nothing follows
};

// What `verb` offers after its name.
struct Words {
  VerbWords verb;
  std::vector<Word> options;
};

std::string brief(std::string_view text) {
  std::string out(text.substr(0, std::min(text.find_first_of(":;."), text.size())));
  std::erase_if(out, [](char c) { return c == '`' || c == '\'' || c == '"' || c == '\n'; });
  return out;
}

// Every key of a configuration that can be written on the command line by its name.
std::vector<Word> keys_as_options() {
  std::vector<Word> out;
  for (const config::KeySection& section : config::key_sections())
    for (const config::Key& row : section.rows) {
      const std::string name = "--" + std::string(row.name);
      const auto known = std::find_if(out.begin(), out.end(), [&](const Word& word) { return word.text == name; });
      if (known != out.end() || row.name.find('[') != std::string_view::npos || !config::is_documented(row)) continue;
      out.push_back({name, brief(row.says), row.words.supported, false});
      if (row.target.form == "true, false" && row.form.empty()) out.back().choices = {"true", "false"};
    }
  return out;
}

std::vector<Words> all_words() {
  std::vector<Words> out;
  for (const VerbWords& verb : verb_words()) {
    out.push_back({verb, {}});
    for (const VerbOption& option : verb.options)
      out.back().options.push_back({option.name, brief(option.says), {}, option.flag});
  }
  return out;
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

std::string names_of(const std::vector<Word>& words) {
  std::vector<std::string> out;
  for (const Word& word : words) out.push_back(word.text);
  return joined(out);
}

std::string key_names(const std::vector<Word>& keys) {
  std::vector<std::string> out;
  for (const Word& key : keys) out.push_back(key.text.substr(2));
  return joined(out);
}

void print_bash(const std::vector<Words>& verbs, const std::vector<Word>& keys) {
  std::vector<std::string> names = {"help"};
  for (const Words& verb : verbs) names.emplace_back(verb.verb.name);
  std::cout << R"(# Completions of rlalgo for bash: source this file, or put it into
# ~/.local/share/bash-completion/completions/rlalgo.
_rlalgo() {
  local word=${COMP_WORDS[COMP_CWORD]} last=${COMP_WORDS[COMP_CWORD - 1]} words=
  COMPREPLY=()
  if [[ $word == = ]]; then word=; elif [[ $last == = ]]; then last=${COMP_WORDS[COMP_CWORD - 2]}; fi
  if ((COMP_CWORD == 1)) || [[ ${COMP_WORDS[1]} == help ]]; then
    COMPREPLY=($(compgen -W ")"
            << joined(names) << R"(" -- "$word"))
    return
  fi
  local keys=")"
            << names_of(keys) << R"("
  case $last in
)";
  for (const Word& key : keys)
    if (!key.choices.empty()) std::cout << "    " << key.text << ") words=\"" << joined(key.choices) << "\" ;;\n";
  std::cout << R"(  esac
  if [[ -z $words && $word == -* ]]; then
    case ${COMP_WORDS[1]} in
)";
  for (const Words& verb : verbs)
    std::cout << "      " << verb.verb.name << ") words=\"" << names_of(verb.options)
              << (verb.verb.takes_keys ? " $keys" : "") << "\" ;;\n";
  std::cout << R"(    esac
  elif [[ -z $words && ${COMP_WORDS[1]} == keys ]]; then
    words=${keys//--/}
  elif [[ -z $words && ${COMP_WORDS[1]} == completion ]]; then
    words="bash zsh fish"
  fi
  if [[ -n $words ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$word"))
  else
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen -f -- "$word"))
  fi
}
complete -F _rlalgo rlalgo
)";
}

// A word with what it says, as zsh's _describe takes it.
std::string described(std::string_view name, const std::string& says) {
  std::string out = "'" + std::string(name);
  for (const char c : ":" + says) out += c == '\'' ? std::string() : std::string(1, c);
  return out + "'";
}

void print_zsh(const std::vector<Words>& verbs, const std::vector<Word>& keys) {
  std::cout << "#compdef rlalgo\n# Completions of rlalgo for zsh: put this file as _rlalgo into a folder of fpath, or "
               "source it after compinit.\n"
               "_rlalgo() {\n  local -a verbs=(\n    'help:everything about one verb'\n";
  for (const Words& verb : verbs) std::cout << "    " << described(verb.verb.name, brief(verb.verb.what)) << "\n";
  std::cout << "  )\n  local -a keys=(\n";
  for (const Word& key : keys) std::cout << "    " << described(key.text, key.says) << "\n";
  std::cout << R"(  )
  local -a own=()
  if ((CURRENT == 2)) || [[ $words[2] == help ]]; then
    _describe verb verbs
    return
  fi
  case $words[CURRENT-1] in
)";
  for (const Word& key : keys)
    if (!key.choices.empty())
      std::cout << "    " << key.text << ") compadd -- " << joined(key.choices) << "; return ;;\n";
  std::cout << "  esac\n  case $words[2] in\n";
  for (const Words& verb : verbs) {
    std::cout << "    " << verb.verb.name << ") own=(";
    for (const Word& option : verb.options) std::cout << " " << described(option.text, option.says);
    std::cout << (verb.verb.takes_keys ? " $keys" : "") << " ) ;;\n";
  }
  std::cout << R"(  esac
  if [[ $words[CURRENT] == -* ]]; then
    _describe option own
  elif [[ $words[2] == keys ]]; then
    compadd -- ${keys/%:*/}
    compadd -- ${${keys#--}/%:*/}
  elif [[ $words[2] == completion ]]; then
    compadd -- bash zsh fish
  else
    _files
  fi
}
if [[ $funcstack[1] == _rlalgo ]]; then _rlalgo "$@"; else compdef _rlalgo rlalgo; fi
)";
}

void print_fish(const std::vector<Words>& verbs, const std::vector<Word>& keys) {
  const auto line = [](const std::string& condition, const std::string& rest) {
    std::cout << "complete -c rlalgo -n '" << condition << "' " << rest << "\n";
  };
  const auto option = [&](const std::string& condition, const Word& word) {
    std::string rest = "-l '" + word.text.substr(2) + "' -d '" + word.says + "'";
    if (!word.choices.empty())
      rest += " -x -a '" + joined(word.choices) + "'";
    else if (!word.flag)
      rest += " -r";
    line(condition, rest);
  };
  std::cout << "# Completions of rlalgo for fish: put this file as rlalgo.fish into ~/.config/fish/completions.\n";
  line("__fish_use_subcommand", "-f -a help -d 'everything about one verb'");
  std::string taking;
  for (const Words& verb : verbs) {
    const std::string name(verb.verb.name);
    line("__fish_use_subcommand", "-f -a " + name + " -d '" + brief(verb.verb.what) + "'");
    line("__fish_seen_subcommand_from help", "-f -a " + name);
    if (verb.verb.takes_keys) taking += " " + name;
    for (const Word& word : verb.options) option("__fish_seen_subcommand_from " + name, word);
  }
  for (const Word& key : keys) option("__fish_seen_subcommand_from" + taking, key);
  line("__fish_seen_subcommand_from keys", "-f -a '" + key_names(keys) + "'");
  line("__fish_seen_subcommand_from completion", "-f -a 'bash zsh fish'");
}

}  // namespace

Run completion(CLI::App& app) {
  const auto shell = std::make_shared<std::string>();
  app.add_option("SHELL", *shell, "bash, zsh or fish")->type_name("");
  app.footer(R"(
  source <(rlalgo completion bash)                                     # bash, this session
  rlalgo completion bash > ~/.local/share/bash-completion/completions/rlalgo
  rlalgo completion zsh > "${fpath[1]}/_rlalgo"
  rlalgo completion fish > ~/.config/fish/completions/rlalgo.fish)");
  return [shell] {
    const std::vector<Words> verbs = all_words();
    const std::vector<Word> keys = keys_as_options();
    if (*shell == "bash")
      print_bash(verbs, keys);
    else if (*shell == "zsh")
      print_zsh(verbs, keys);
    else if (*shell == "fish")
      print_fish(verbs, keys);
    else
      core::raise_usage("cli", 7,
                        {.what = shell->empty() ? "`rlalgo completion` needs the name of a shell"
                                                : "there are no completions for that shell",
                         .found = *shell,
                         .expected = "bash, zsh or fish"});
    return 0;
  };
}

}  // namespace rlalgo::cli
