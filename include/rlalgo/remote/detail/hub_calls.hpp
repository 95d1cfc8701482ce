// Calls of the Hub's API: addresses, the token, redirects, repeated attempts, and what its refusals mean for a user.
#pragma once

#include <algorithm>
#include <cctype>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/data/hub_cache.hpp>
#include <rlalgo/http/reply_message.hpp>
#include <rlalgo/http/retry.hpp>
#include <rlalgo/http/transfer.hpp>
#include <rlalgo/os/interruption.hpp>

namespace rlalgo::remote::detail {

namespace fs = std::filesystem;
using HubJson = nlohmann::ordered_json;

inline std::string hub_variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

inline bool hub_switch(const char* name) {
  std::string value = hub_variable(name);
  std::transform(value.begin(), value.end(), value.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

// As in a URL: everything but letters, digits and -._~ (and `kept`) by its bytes.
inline std::string quoted_url(std::string_view text, std::string_view kept = {}) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-._~").find(c) != std::string_view::npos ||
                       kept.find(c) != std::string_view::npos;
    if (plain) {
      out += c;
      continue;
    }
    out += '%';
    out += "0123456789ABCDEF"[static_cast<unsigned char>(c) >> 4U];
    out += "0123456789ABCDEF"[static_cast<unsigned char>(c) & 15U];
  }
  return out;
}

// False when the token was used before the seconds were over.
inline bool wait_a_while(double seconds, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any changed;
  std::unique_lock lock(mutex);
  changed.wait_for(lock, stop, std::chrono::duration<double>(seconds), [] { return false; });
  return !stop.stop_requested();
}

inline bool is_hexadecimal(const std::string& text, std::size_t size) {
  return text.size() == size && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// Whom is asked for what, and for how long; of HubDownload.
struct HubAccess {
  std::string id, revision, endpoint, token;
  std::optional<data::HubKind> kind;
  double idle_seconds = 0.0, window_seconds = 0.0;
  std::uint64_t window_bytes = 0;
  int attempts = 1;
  double first_wait = 0.0;
  std::function<void(const std::string&)> tell;
  std::stop_token stop;
};

class HubCalls {
 protected:
  explicit HubCalls(HubAccess access) : access_(std::move(access)) {
    if (hub_switch("HF_HUB_OFFLINE"))
      core::raise_usage("remote", 91,
                        {.what = "fetching is switched off",
                         .found = "HF_HUB_OFFLINE is set",
                         .remedy = "unset it for this command"});
    if (!data::is_hub_id(access_.id))
      core::raise_usage("remote", 91,
                        {.what = "this is no name of a repository", .found = access_.id, .expected = "OWNER/NAME"});
    if (access_.revision.empty() || access_.revision.front() == '/' || access_.revision.find("..") != std::string::npos)
      core::raise_usage(
          "remote", 91,
          {.what = "this is no revision", .found = access_.revision, .expected = "a branch, a tag or a commit"});
    endpoint_ = !access_.endpoint.empty() ? access_.endpoint : hub_variable("HF_ENDPOINT");
    if (endpoint_.empty()) endpoint_ = "https://huggingface.co";
    while (endpoint_.ends_with('/')) endpoint_.pop_back();
    origin_ = http::origin_of(endpoint_);
    token_ = access_.token;
    if (const std::string seconds = hub_variable("HF_HUB_DOWNLOAD_TIMEOUT"); !seconds.empty()) {
      char* end = nullptr;
      idle_seconds_ = std::strtod(seconds.c_str(), &end);
      if (*end != '\0' || !(idle_seconds_ > 0))
        core::raise_usage("remote", 91,
                          {.what = "HF_HUB_DOWNLOAD_TIMEOUT is no time", .found = seconds, .expected = "seconds"});
    } else {
      idle_seconds_ = access_.idle_seconds;
    }
  }

  [[nodiscard]] std::string kind_name() const { return kind_ == data::HubKind::models ? "model" : "dataset"; }
  [[nodiscard]] std::string api(const std::string& rest) const {
    return endpoint_ + "/api/" + kind_name() + "s/" + access_.id + rest;
  }
  [[nodiscard]] std::string page() const {
    return endpoint_ + (kind_ == data::HubKind::datasets ? "/datasets/" : "/") + access_.id;
  }

  [[nodiscard]] http::TransferRequest request(const std::string& url) const {
    http::TransferRequest out{.url = url,
                              .idle_seconds = idle_seconds_,
                              .window_seconds = access_.window_seconds,
                              .window_bytes = access_.window_bytes,
                              .stop = access_.stop};
    if (!token_.empty() && http::origin_of(url) == origin_)
      out.headers.push_back({"Authorization", "Bearer " + token_});
    return out;
  }

  // Follows redirects; `prepare` completes each request. The last answer, and its address.
  template <class Prepare>
  std::pair<http::Result, std::string> follow(std::string url, const Prepare& prepare) const {
    for (int hops = 0;; ++hops) {
      http::TransferRequest one = request(url);
      prepare(one);
      http::Result result = http::transfer(one);
      if (!result.answered() || result.response().status / 100 != 3) return {std::move(result), url};
      const std::string* location = http::find_header(result.response().headers, "Location");
      if (location == nullptr || location->empty()) return {std::move(result), url};
      const std::string next = http::resolve_location(url, *location);
      if (hops == 10 || (url.starts_with("https://") && !next.starts_with("https://")))
        core::raise("remote", 87,
                    {.what = hops == 10 ? "the Hub redirects without end" : "the Hub redirects from https to http",
                     .found = next.substr(0, next.find('?')),
                     .where = url.substr(0, url.find('?'))});
      url = next;
    }
  }

  [[nodiscard]] std::optional<double> wait_after(const http::Result& result, int attempt) const {
    if (attempt >= access_.attempts) return std::nullopt;
    double wait = access_.first_wait * static_cast<double>(1LL << std::min(attempt - 1, 30));
    if (result.answered()) {
      const int status = result.response().status;
      if (status != 408 && status != 429 && status / 100 != 5) return std::nullopt;
      wait = std::max(wait, http::retry_after(result.response(), std::chrono::system_clock::now()).value_or(0.0));
    } else if (result.failure().kind == http::Failure::Kind::cancelled ||
               result.failure().kind == http::Failure::Kind::malformed ||
               result.failure().kind == http::Failure::Kind::too_large) {
      return std::nullopt;
    }
    return std::min(wait, 60.0);
  }
  void pause(double seconds, const std::string& what, const std::string& why) const {
    if (access_.tell) {
      char text[32];
      std::snprintf(text, sizeof text, "%.1f", seconds);
      access_.tell(what + ": " + why + "; again in " + text + " s");
    }
    if (!wait_a_while(seconds, access_.stop)) raise_given_up();
  }
  [[noreturn]] void raise_given_up() const {
    os::stop_if_interrupted();
    core::raise("remote", 87,
                {.what = "fetching was given up", .where = access_.id, .remedy = "the same command goes on from here"});
  }

  // An answer of the API, and its headers; with a status that is not 2xx only where `absent` is one.
  http::Response call(const std::string& url) const {
    for (int attempt = 1;; ++attempt) {
      auto [result, last] = follow(url, [](http::TransferRequest&) {});
      const auto wait = wait_after(result, attempt);
      if (!wait) {
        if (!result.answered()) raise_failure(result.failure(), last);
        return std::move(result.response());
      }
      pause(*wait, endpoint_, result.text());
    }
  }
  static HubJson parsed(const http::Response& response, const std::string& url) {
    auto [value, problem] = core::read_json<HubJson>(response.body, {.depth = 200, .members = 100'000});
    if (!problem.text.empty()) raise_answer("no JSON: " + problem.text, url);
    return std::move(value);
  }

  [[noreturn]] static void raise_answer(const std::string& found, const std::string& url) {
    core::raise("remote", 90,
                {.what = "the Hub's answer is not understood",
                 .found = found,
                 .where = url.substr(0, url.find('?')),
                 .remedy = "check HF_ENDPOINT"});
  }
  [[noreturn]] void raise_failure(const http::Failure& failure, const std::string& url) const {
    if (failure.kind == http::Failure::Kind::cancelled) raise_given_up();
    core::raise(
        "remote", 87,
        {.what = "the Hub cannot be reached, or breaks off",
         .found = failure.text(),
         .where = url.substr(0, url.find('?')),
         .remedy =
             failure.reason.find("certificate") != std::string::npos
                 ? "install the authorities (Debian: ca-certificates), or name the one of a proxy in SSL_CERT_FILE"
                 : "check the network, HTTPS_PROXY and HF_ENDPOINT; the same command goes on from here"});
  }
  [[noreturn]] void raise_status(const http::Response& response, const std::string& url) const {
    const std::string* code = http::find_header(response.headers, "X-Error-Code");
    const std::string* said = http::find_header(response.headers, "X-Error-Message");
    const std::string kind = code != nullptr ? *code : "";
    const std::string message = said != nullptr ? *said : http::reply_message(response.body).substr(0, 300);
    const std::string found = "HTTP " + std::to_string(response.status) + (kind.empty() ? "" : " " + kind) +
                              (message.empty() ? "" : ": " + message);
    const std::string token = token_.empty() ? "give a token: HF_TOKEN, --token, or `hf auth login`"
                                             : "give a token that may read it (HF_TOKEN, --token)";
    core::ErrorText text{.what = "the Hub refuses", .found = found, .where = url.substr(0, url.find('?'))};
    if (kind == "GatedRepo") {
      text.what = "the " + kind_name() + " is gated";
      text.remedy = "ask for access at " + page() + ", and " + token;
    } else if (kind == "RevisionNotFound") {
      text.what = "there is no such revision";
      text.remedy = "check --revision " + access_.revision;
    } else if (kind == "EntryNotFound") {
      text.what = "the file is not there any more";
    } else if (message.find("Invalid credentials") != std::string::npos) {
      text.what = "the Hub does not accept the token";
      text.remedy = "check HF_TOKEN, --token or the file of `hf auth login`";
    } else if (response.status == 401 || response.status == 404 || kind == "RepoNotFound") {
      text.what = "there is no such " + kind_name() + ", or it is private";
      text.remedy = "check the name and --repo-type; if it is private, " + token;
    } else if (response.status == 403) {
      text.what = "the token may not read the " + kind_name();
      text.remedy = token;
    } else if (response.status == 429) {
      text.what = "the Hub has had too many requests from here";
      text.remedy = "wait some minutes" + std::string(token_.empty() ? ", or " + token : "");
    } else if (response.status / 100 == 5) {
      text.what = "the Hub has a failure of its own";
      text.remedy = "try later; the same command goes on from here";
    }
    core::raise("remote", 86, text);
  }

  const HubAccess access_;
  std::string endpoint_, origin_, token_;
  double idle_seconds_ = 0.0;
  data::HubKind kind_ = data::HubKind::models;
};

}  // namespace rlalgo::remote::detail
