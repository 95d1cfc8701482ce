// The definitions of text/, compiled once (RlalgoCompiled.cmake).
#include <rlalgo/text/detail/tokenizer_impl.hpp>
#include <rlalgo/text/detail/chat_template_impl.hpp>
#include <rlalgo/text/detail/jinja_interpreter.hpp>

template struct rlalgo::text::detail::JinjaEngine<void>;
