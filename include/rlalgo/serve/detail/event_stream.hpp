// Answers that come piece by piece: the fields that ask for them, and the server-sent events that they are.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include <rlalgo/core/error.hpp>
#include <rlalgo/http/exchange.hpp>
#include <rlalgo/http/message.hpp>
#include <rlalgo/serve/detail/answers.hpp>
#include <rlalgo/serve/detail/service.hpp>

namespace rlalgo::serve::detail {

// "stream", and "stream_options": {"include_usage", "continuous_usage_stats"}.
struct StreamFields {
  bool stream = false, usage_at_end = false, usage_always = false;
};

[[nodiscard]] inline StreamFields read_stream(Service& service, Fields& fields) {
  StreamFields out{.stream = fields.flag("stream", false)};
  const Json* const options = fields.object("stream_options");
  if (options == nullptr) return out;
  if (!out.stream) fields.out_of_range("stream_options", "an object", "nothing without \"stream\": true");
  Fields inner(*options, "stream_options");
  out.usage_at_end = inner.flag("include_usage", false);
  out.usage_always = inner.flag("continuous_usage_stats", false);
  service.check_unread(inner);
  return out;
}

// Numbers of tokens.
[[nodiscard]] inline Json usage_of(std::size_t prompt, std::size_t drawn) {
  return {{"prompt_tokens", prompt}, {"completion_tokens", drawn}, {"total_tokens", prompt + drawn}};
}

class EventStream {
 public:
  explicit EventStream(SharedExchange exchange) : exchange_(std::move(exchange)) {}

  // Sends the header, once.
  void begin() {
    if (!std::exchange(begun_, true))
      exchange_->begin(200, {{"Content-Type", "text/event-stream; charset=utf-8"}, {"Cache-Control", "no-cache"}});
  }
  void write(const Json& event) {
    begin();
    exchange_->write(http::server_sent_event(dumped(event)));
  }
  void end() {
    exchange_->write(http::server_sent_event("[DONE]"));
    exchange_->end();
  }
  // The error is the answer, or where that has begun its last event.
  void fail(const core::Error& error) {
    if (!begun_) return answer_error(*exchange_, error, false);
    const Blame blame = blame_of(error);
    write(error_object(blame.status, blame.message, blame.field, blame.code));
    end();
  }

 private:
  SharedExchange exchange_;
  bool begun_ = false;
};

}  // namespace rlalgo::serve::detail
