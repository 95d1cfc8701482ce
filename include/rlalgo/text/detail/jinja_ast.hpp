// The syntax tree of a chat template.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/text/detail/jinja_value.hpp>

namespace rlalgo::text::detail {

struct Node;
using NodePtr = std::unique_ptr<Node>;

enum class NodeKind {
  // expressions
  literal,       // value
  name,          // name
  list,          // parts
  tuple,         // parts
  dict,          // parts: key, value, key, value …
  attribute,     // parts[0].name
  item,          // parts[0][parts[1]]
  slice,         // parts: start, stop, step; null where absent
  call,          // parts[0](arguments)
  filter,        // parts[0] | name(arguments); parts[0] is null in a filter block
  test,          // parts[0] is name(arguments)
  logical_not,   // parts[0]
  negative,      // parts[0]
  positive,      // parts[0]
  binary,        // parts[0] name parts[1]: + - * / // % ** and or ~
  compare,       // parts[0] operators[0] parts[1] operators[1] …
  conditional,   // parts[0] if parts[1] else parts[2]; parts[2] may be null
  spread,        // *parts[0] among arguments
  spread_named,  // **parts[0] among arguments
  // statements
  data,          // name: the text
  print,         // parts
  branches,      // parts: conditions; bodies: one each, and one more for else
  loop,          // parts: target, iterable, filter (may be null); bodies: body, else
  set,           // parts: target, value
  set_block,     // parts: target, filters (may be null); bodies: body
  macro,         // name, parameters; bodies: body
  call_block,    // parts[0]: the call; parameters; bodies: body
  filter_block,  // parts[0]: filters; bodies: body
  with,          // parts: targets and values in turn; bodies: body
  block,         // bodies: body, rendered as it stands
  loop_break,
  loop_continue,
};

struct Node {
  struct Parameter {
    std::string name;
    NodePtr otherwise;  // default value, may be null
  };

  NodeKind kind;
  int line;
  std::shared_ptr<const std::string> tag;  // source of the tag around it, for messages; null in text
  std::string name;
  Value value;
  std::vector<NodePtr> parts;
  std::vector<NodePtr> arguments;                      // positional, with spreads
  std::vector<std::pair<std::string, NodePtr>> named;  // named arguments
  std::vector<std::string> operators;
  std::vector<std::vector<NodePtr>> bodies;
  std::vector<Parameter> parameters;
  int depth = 1;           // of the expression tree below
  bool recursive = false;  // loop: the variable loop can be called, with items to go through in the same way
  // macro, call_block: the body names the variables that take what no parameter takes
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};

}  // namespace rlalgo::text::detail
