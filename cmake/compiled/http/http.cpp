// The HTTP client and server, compiled once for the programs of this tree (RlalgoCompiled.cmake).
#include <rlalgo/http/detail/attempt_asio.hpp>
#include <rlalgo/http/detail/conversation_asio.hpp>
#include <rlalgo/http/detail/listener_asio.hpp>
#include <rlalgo/http/detail/transfer_impl.hpp>

template struct rlalgo::http::detail::Caller<void>;
template struct rlalgo::http::detail::Conversations<void>;
template struct rlalgo::http::detail::Listener<void>;
