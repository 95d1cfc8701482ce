// The template interpreter, compiled once for the programs of this tree (RlalgoJinja.cmake).
#include <rlalgo/text/detail/jinja_interpreter.hpp>

template struct rlalgo::text::detail::JinjaEngine<void>;
