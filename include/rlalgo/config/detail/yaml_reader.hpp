// A tree of values (node.hpp) out of the events of yaml-cpp's parser: one document, its limits kept while it is read.
//
// The parser is asked for one document, and then only whether there is more: where a document ends before its text
// does (a comma, a bracket or a brace too many), the parser may give empty documents for ever at the same place.
#pragma once

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <rlalgo/config/node.hpp>
#include <rlalgo/core/error.hpp>

namespace rlalgo::config {

// What a configuration may hold at most. An alias counts as what it stands for.
struct DocumentLimits {
  std::uint64_t file = std::uint64_t{1} << 20U;  // bytes
  std::size_t depth = 64;                        // levels of lists and sections
  std::size_t values = 100'000;
  std::size_t text = std::size_t{16} << 20U;  // bytes of all values
  std::size_t keys = 10'000;                  // of one section
};

namespace detail {

// What the parser found, in our words; its own texts name its functions' views of the text.
[[nodiscard]] inline std::string yaml_reason(const std::string& message) {
  namespace E = YAML::ErrorMsg;
  const auto starts = [&](const char* begin) { return message.starts_with(begin); };
  const auto is_one_of = [&](std::initializer_list<const char*> known) {
    return std::any_of(known.begin(), known.end(), [&](const char* one) { return message == one; });
  };
  if (message == E::END_OF_MAP) return "a line that does not belong to the section above it";
  if (message == E::END_OF_SEQ) return "a line that does not belong to the list above it";
  if (message == E::END_OF_MAP_FLOW) return "a { that is not closed, or no comma between two keys";
  if (message == E::END_OF_SEQ_FLOW) return "a [ that is not closed, or no comma between two values";
  if (message == E::FLOW_END) return "a ] or } that closes nothing";
  if (message == E::MAP_VALUE) return "a colon where no key stands before it (a second one in a line?)";
  if (message == E::MAP_KEY) return "a ? where no key may begin";
  if (message == E::BLOCK_ENTRY) return "a list item (-) where none may stand";
  if (message == E::TAB_IN_INDENTATION) return "a tab in the indentation";
  if (message == E::UNKNOWN_TOKEN) return "a character that begins no value";
  if (message == E::EOF_IN_SCALAR) return "a quote that is never closed";
  if (message == E::DOC_IN_SCALAR) return "--- or ... inside a quoted text";
  if (message == E::CHAR_IN_SCALAR || message == E::CHAR_IN_BLOCK) return "a character that may not stand there";
  if (starts(E::INVALID_ESCAPE)) return "an escape that YAML does not have, or a zero byte";
  if (message == E::INVALID_HEX) return "an escape whose digits are not hexadecimal";
  if (starts(E::INVALID_UNICODE)) return "an escape for no character of Unicode";
  if (is_one_of({E::UNKNOWN_ANCHOR, E::ALIAS_NOT_FOUND, E::CHAR_IN_ALIAS}) || starts(E::UNKNOWN_ANCHOR))
    return "an alias (*name) of an anchor that is not there";
  if (is_one_of({E::ANCHOR_NOT_FOUND, E::CHAR_IN_ANCHOR})) return "an anchor (&) without a name";
  if (is_one_of({E::MULTIPLE_TAGS, E::MULTIPLE_ANCHORS, E::MULTIPLE_ALIASES, E::ALIAS_CONTENT}))
    return "two tags, anchors or aliases before one value";
  if (message == E::ZERO_INDENT_IN_BLOCK) return "a block of text (| or >) with indentation 0";
  if (starts(E::YAML_VERSION) || is_one_of({E::YAML_DIRECTIVE_ARGS, E::YAML_MAJOR_VERSION, E::REPEATED_YAML_DIRECTIVE,
                                            E::TAG_DIRECTIVE_ARGS, E::REPEATED_TAG_DIRECTIVE}))
    return "a line that begins with % and is no directive";
  if (is_one_of({E::CHAR_IN_TAG_HANDLE, E::TAG_WITH_NO_SUFFIX, E::END_OF_VERBATIM_TAG})) return "a ! that is no tag";
  return "text that is not YAML, or is nested too deeply";
}

// A line of a section that lacks its colon.
struct LineWithoutColon {
  int line = 0;  // from 0
  std::string text;
};

[[nodiscard]] inline std::string_view line_at(std::string_view text, std::size_t begin) {
  return text.substr(begin, text.find_first_of("\r\n", begin) - begin);
}

// Whether quoted scalars are closed: yaml-cpp reads an unclosed one up to the end of the file without a word. Scalars
// are asked for in the order of the text, which is walked through once.
class Quotes {
 public:
  explicit Quotes(std::string_view text) : text_(text) {}

  // Of the scalar that begins at (line, column), both 0-based, column in characters.
  [[nodiscard]] bool closed(int line, int column) {
    go_to(line, column);
    std::size_t at = at_;
    if (at >= text_.size() || (text_[at] != '"' && text_[at] != '\''))
      return true;  // the mark is on a tag or an anchor
    const char quote = text_[at];
    for (++at; at < text_.size(); ++at) {
      if (quote == '"' && text_[at] == '\\')
        ++at;
      else if (text_[at] == quote && quote == '\'' && at + 1 < text_.size() && text_[at + 1] == quote)
        ++at;
      else if (text_[at] == quote)
        return true;
    }
    return false;
  }

 private:
  void go_to(int line, int column) {
    if (line < line_ || (line == line_ && column < column_)) at_ = 0, line_ = 0, column_ = 0;
    for (; line_ < line; ++line_, column_ = 0) {
      const std::size_t end = text_.find('\n', at_);
      at_ = end == std::string_view::npos ? text_.size() : end + 1;
    }
    for (; column_ < column && at_ < text_.size(); ++column_) do
        ++at_;
      while (at_ < text_.size() && (static_cast<unsigned char>(text_[at_]) & 0xC0U) == 0x80U);
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 0, column_ = 0;
};

class YamlReader final : public YAML::EventHandler {
 public:
  // `text`: of the document, which must live as long.
  YamlReader(std::string file, std::string_view text, std::vector<std::string>& warnings)
      : file_(std::move(file)), text_(text), quotes_(text), warnings_(warnings) {}

  // The only document of the text; null where there is none.
  [[nodiscard]] Node read() {
    if (text_.size() > limits_.file)
      too_much({.file = file_}, std::to_string(text_.size()) + " bytes, more than " + std::to_string(limits_.file));
    try {
      std::istringstream in{std::string(text_)};
      YAML::Parser parser(in);
      if (!parser.HandleNextDocument(*this)) return root_;
      over_ = true;
      (void)parser.HandleNextDocument(*this);  // OnDocumentStart fails where there is more
      return std::move(root_);
    } catch (const YAML::Exception& error) {
      const bool map = error.msg == YAML::ErrorMsg::MAP_VALUE || error.msg == YAML::ErrorMsg::END_OF_MAP;
      if (const auto line = map ? above(error.mark) : std::nullopt) fail_without_colon(*line);
      fail(place(error.mark), yaml_reason(error.msg),
           "check the indentation (spaces, never tabs), colons and quotes around that place");
    }
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (!over_) return;
    const std::string_view rest = rest_at(mark);
    if (rest.starts_with("---")) fail(place(mark), "a second document after ---", "keep one document in the file");
    fail(place(mark), "more text behind the end of the configuration: " + core::shortened(std::string(rest), 40),
         "a comma, a bracket or a brace too many before it?");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    // yaml-cpp takes a line for a key whose value is nothing, and then gives the key's place.
    if (!open_.empty() && open_.back().key && !open_.back().in_brackets) {
      const Key& key = *open_.back().key;
      if (key.place.line == mark.line + 1 && key.place.column == mark.column + 1)
        fail_without_colon({mark.line, key.text});
    }
    Value out;
    out.node.place = place(mark);
    count(1, 0, 0, out.node.place);
    take(std::move(out), anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto at = anchors_.find(anchor);
    if (at == anchors_.end()) fail(place(mark), "an alias inside itself");
    const Value& value = at->second;
    if (open_.size() + value.height > limits_.depth) too_deep(place(mark));
    count(value.values, value.bytes, value.height, place(mark));
    take(value, 0);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    check_tag(mark, tag);
    count(1, text.size(), 0, place(mark));
    if (tag == "!" && !quotes_.closed(mark.line, mark.column)) fail(place(mark), "a quote that is never closed");
    Value out;
    out.bytes = text.size();
    out.word = true;
    out.merges = text == "<<" && tag != "!";
    out.node = make_scalar(text, tag == "!" || tag == "tag:yaml.org,2002:str", place(mark));
    take(std::move(out), anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value style) override {
    begin(mark, tag, anchor, Kind::sequence, style);
  }
  void OnSequenceEnd() override { end(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value style) override {
    begin(mark, tag, anchor, Kind::mapping, style);
  }
  void OnMapEnd() override {
    Open& section = open_.back();
    for (Node& base : section.merged) {
      if (base.kind != Kind::mapping) fail(base.place, "<< with something else than a mapping");
      for (Member& member : base.members) {
        if (section.keys.contains(member.key)) continue;
        if (section.value.node.members.size() == limits_.keys) too_many_keys(base.place);
        section.keys.emplace(member.key, section.value.node.members.size());
        section.value.node.members.push_back(std::move(member));
      }
    }
    end();
  }

 private:
  // A finished value, with what it counts for.
  struct Value {
    Node node;
    std::size_t values = 1, bytes = 0, height = 0;  // height: levels below it
    bool word = false, merges = false;              // a scalar; the plain key <<
  };
  struct Key {
    std::string text;
    Place place;
    bool merges;
  };
  // A list or section that is being read.
  struct Open {
    Value value;
    YAML::anchor_t anchor = 0;
    bool in_brackets = false;                           // [ ] or { }, or within
    std::optional<Key> key;                             // of a section, whose value comes next
    std::unordered_map<std::string, std::size_t> keys;  // of a section: its members
    std::vector<Node> merged;                           // what << names
  };

  [[nodiscard]] Place place(const YAML::Mark& mark) const {
    if (mark.is_null()) return {.file = file_};
    return {.file = file_, .line = mark.line + 1, .column = mark.column + 1};
  }
  [[noreturn]] void fail(const Place& place, const std::string& found, const std::string& remedy = {}) const {
    core::raise_usage(
        "config", 2,
        {.what = "the configuration is not valid YAML",
         .found = found,
         .where =
             place.file + (place.line > 0 ? ":" + std::to_string(place.line) + ":" + std::to_string(place.column) : ""),
         .remedy = remedy});
  }
  [[noreturn]] void fail_without_colon(const LineWithoutColon& line) const {
    const std::size_t word = std::min(line.text.find_first_of(" \t"), line.text.size());
    fail({.file = file_, .line = line.line + 1, .column = 1},
         "a line without a colon: " + core::shortened(line.text, 60),
         word < line.text.size()
             ? "write " + line.text.substr(0, word) + ":" + core::shortened(line.text.substr(word), 60)
             : "a key ends in a colon");
  }
  // Above or at the place where the parser failed: the first of the lines that are neither keys, items nor comments, and stand where
  // a key would.
  [[nodiscard]] std::optional<LineWithoutColon> above(const YAML::Mark& mark) const {
    if (mark.is_null() || (!open_.empty() && open_.back().in_brackets)) return std::nullopt;
    std::vector<std::string_view> lines;
    for (std::size_t begin = 0; begin < text_.size() && lines.size() <= static_cast<std::size_t>(mark.line);) {
      lines.push_back(line_at(text_, begin));
      const std::size_t end = text_.find('\n', begin);
      begin = end == std::string_view::npos ? text_.size() : end + 1;
    }
    const auto begins = [&](std::size_t i) { return lines[i].find_first_not_of(" \t"); };
    const auto has_key = [&](std::size_t i) {
      return lines[i].find(": ") != std::string_view::npos || lines[i].ends_with(':');
    };
    std::vector<std::size_t> bare;
    for (std::size_t i = lines.size(); i-- > 0;) {
      const std::size_t at = begins(i);
      if (at == std::string_view::npos || lines[i][at] == '#' || (i + 1 == lines.size() && has_key(i))) continue;
      const std::size_t key = lines[i].substr(at).starts_with("- ") ? lines[i].find_first_not_of("- ", at) : at;
      if (key != at || has_key(i)) {
        std::erase_if(bare,
                      [&](std::size_t one) { return begins(one) > key && begins(one) != begins(lines.size() - 1); });
        break;
      }
      const char first = lines[i][at];
      if ((first | 32) < 'a' || (first | 32) > 'z') return std::nullopt;  // no key begins so
      bare.push_back(i);
    }
    if (bare.empty()) return std::nullopt;
    return LineWithoutColon{static_cast<int>(bare.back()), std::string(lines[bare.back()].substr(begins(bare.back())))};
  }
  [[noreturn]] void too_much(const Place& place, const std::string& found) const {
    core::raise_usage("config", 28,
                      {.what = "the configuration is larger than what is read",
                       .found = found,
                       .where = place.text(),
                       .remedy = "anchors count wherever they are used (*name, <<); keep data in files of its own"});
  }
  [[noreturn]] void too_many_keys(const Place& at) const {
    too_much(at, "a section of more than " + std::to_string(limits_.keys) + " keys");
  }
  [[noreturn]] void too_deep(const Place& at) const {
    fail(at, "values nested more than " + std::to_string(limits_.depth) + " deep, or an alias inside itself");
  }

  void check_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (tag.empty() || tag == "?" || tag == "!") return;
    for (const char* known : {"str", "int", "float", "bool", "null", "seq", "map"})
      if (tag == std::string("tag:yaml.org,2002:") + known) return;
    fail(place(mark), "the tag " + tag, "remove the tag: only plain YAML values are read");
  }

  void count(std::size_t values, std::size_t bytes, std::size_t height, const Place& at) {
    if (open_.size() + height > limits_.depth) too_deep(at);
    values_ += values;
    if (values_ > limits_.values) too_much(at, "more than " + std::to_string(limits_.values) + " values");
    bytes_ += bytes;
    if (bytes_ > limits_.text) too_much(at, "values of more than " + std::to_string(limits_.text) + " bytes in all");
  }

  void begin(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, Kind kind,
             YAML::EmitterStyle::value style) {
    check_tag(mark, tag);
    Open opened;
    opened.value.node.kind = kind;
    opened.value.node.place = place(mark);
    opened.anchor = anchor;
    opened.in_brackets = style == YAML::EmitterStyle::Flow || (!open_.empty() && open_.back().in_brackets);
    count(1, 0, 0, opened.value.node.place);
    open_.push_back(std::move(opened));
  }
  void end() {
    Open closed = std::move(open_.back());
    open_.pop_back();
    take(std::move(closed.value), closed.anchor);
  }

  // Puts a finished value where it belongs.
  void take(Value value, YAML::anchor_t anchor) {
    if (anchor != 0) anchors_.insert_or_assign(anchor, value);
    if (open_.empty()) {
      root_ = std::move(value.node);
      return;
    }
    Open& into = open_.back();
    into.value.values += value.values;
    into.value.bytes += value.bytes;
    into.value.height = std::max(into.value.height, value.height + 1);
    if (into.value.node.kind == Kind::sequence)
      into.value.node.items.push_back(std::move(value.node));
    else if (!into.key)
      take_key(into, value);
    else
      take_member(into, std::move(value.node));
  }
  void take_key(Open& into, const Value& key) const {
    if (!key.word) fail(key.node.place, "a key that is not a word");
    if (into.value.node.members.size() == limits_.keys || into.merged.size() == limits_.keys)
      too_many_keys(key.node.place);
    into.key = Key{key.node.text, key.node.place, key.merges};
  }
  void take_member(Open& into, Node value) {
    const Key key = std::move(*into.key);
    into.key.reset();
    if (value.place.line == 0) value.place = key.place;
    if (key.merges) {
      if (value.kind == Kind::sequence)
        std::move(value.items.begin(), value.items.end(), std::back_inserter(into.merged));
      else
        into.merged.push_back(std::move(value));
      return;
    }
    std::vector<Member>& members = into.value.node.members;
    const auto [at, added] = into.keys.emplace(key.text, members.size());
    if (added) {
      members.push_back({key.text, key.place, std::move(value)});
      return;
    }
    Member& twin = members[at->second];
    warnings_.push_back("the key " + key.text + " is written twice, at " + twin.place.text() + " and at " +
                        key.place.text() + "; the last one counts");
    twin = {key.text, key.place, std::move(value)};
  }

  // What stands at a mark, up to the end of its line.
  [[nodiscard]] std::string_view rest_at(const YAML::Mark& mark) const {
    std::size_t at = 0;
    for (int line = 0; line < mark.line; ++line) {
      const std::size_t end = text_.find('\n', at);
      if (end == std::string_view::npos) return {};
      at = end + 1;
    }
    for (int column = 0; column < mark.column && at < text_.size(); ++column) do
        ++at;
      while (at < text_.size() && (static_cast<unsigned char>(text_[at]) & 0xC0U) == 0x80U);
    return text_.substr(at, text_.find('\n', at) - at);
  }

  std::string file_;
  std::string_view text_;
  Quotes quotes_;
  std::vector<std::string>& warnings_;
  DocumentLimits limits_;
  std::size_t values_ = 0, bytes_ = 0;  // read so far, aliases as what they stand for
  bool over_ = false;                   // the document has been read
  Node root_;
  std::vector<Open> open_;
  std::unordered_map<YAML::anchor_t, Value> anchors_;  // of finished values
};

}  // namespace detail
}  // namespace rlalgo::config
