// JSON and errors on the wire.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <utility>

#include <rlalgo/data/rollout.hpp>
#include <rlalgo/http/exchange.hpp>
#include <rlalgo/serve/refusal.hpp>

namespace rlalgo::serve::detail {

using data::Json;

inline std::string dumped(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

inline void answer_json(http::Exchange& exchange, const Json& json, int status = 200, http::Headers headers = {}) {
  headers.push_back({"Content-Type", "application/json"});
  exchange.respond({.status = status, .headers = std::move(headers), .body = dumped(json)});
}

inline const char* error_type(int status) {
  switch (status) {
    case 401:
      return "AuthenticationError";
    case 403:
      return "PermissionDeniedError";
    case 404:
      return "NotFoundError";
    case 405:
      return "MethodNotAllowedError";
    case 429:
      return "RateLimitError";
    case 503:
      return "ServiceUnavailableError";
    default:
      return status < 500 ? "BadRequestError" : "InternalServerError";
  }
}

inline Json error_object(int status, const std::string& message, const std::string& field, const std::string& code) {
  return {{"error",
           {{"message", message},
            {"type", error_type(status)},
            {"param", field.empty() ? Json(nullptr) : Json(field)},
            {"code", code.empty() ? Json(status) : Json(code)}}}};
}

struct Blame {
  int status;
  std::string message, field, code = {};
};

// Errors of other rooms (texts, templates, sampling) come of what was asked.
inline Blame blame_of(const std::exception& error) {
  if (const auto* refusal = dynamic_cast<const Refusal*>(&error))
    return {refusal->status(), refusal->what(), refusal->field(), refusal->code()};
  if (const auto* own = dynamic_cast<const core::Error*>(&error))
    return {400, error.what(), {}, own->room() == "inference" && own->number() == 1 ? context_exceeded : ""};
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
    return {500,
            core::Error::render("serve", 15,
                                {.what = "the request could not be answered",
                                 .found = "no memory is left for it",
                                 .remedy = "ask for less at once"}),
            {}};
  return {
      500, core::Error::render("serve", 15, {.what = "the request could not be answered", .found = error.what()}), {}};
}

inline const char* reason_of(data::Finish finish) {
  return finish == data::Finish::stop ? "stop" : finish == data::Finish::length ? "length" : "abort";
}

// `detail`: FastAPI's form, which the routes of TRL have.
inline http::Response error_response(const std::exception& error, bool detail) {
  const Blame blame = blame_of(error);
  http::Headers headers;
  if (blame.status == 429 || blame.status == 503) headers.push_back({"Retry-After", "1"});
  if (blame.status == 401) headers.push_back({"WWW-Authenticate", "Bearer"});
  headers.push_back({"Content-Type", "application/json"});
  return {.status = blame.status,
          .headers = std::move(headers),
          .body = dumped(detail ? Json{{"detail", blame.message}}
                                : error_object(blame.status, blame.message, blame.field, blame.code))};
}

inline void answer_error(http::Exchange& exchange, const std::exception& error, bool detail) {
  exchange.respond(error_response(error, detail));
}

}  // namespace rlalgo::serve::detail
