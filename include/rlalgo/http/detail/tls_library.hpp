// TLS by the system's OpenSSL, which is loaded when it is first needed: its declarations are here, so that nothing is needed to
// compile, and the library and the authorities are those that the system keeps up to date.
//
// Errors: [rlalgo.http.11] it does not load, or has no authorities.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/ip/address.hpp>

#include <rlalgo/core/error.hpp>
#include <rlalgo/http/detail/deadline_socket.hpp>

namespace rlalgo::http::detail {

// OpenSSL 1.1.1 and 3 have these functions alike.
struct TlsLibrary {
  const void* (*method)() = nullptr;
  void* (*new_context)(const void*) = nullptr;
  long (*context_ctrl)(void*, int, long, void*) = nullptr;
  void (*verify)(void*, int, void*) = nullptr;
  int (*default_paths)(void*) = nullptr;
  void* (*new_session)(void*) = nullptr;
  void (*free_session)(void*) = nullptr;
  long (*session_ctrl)(void*, int, long, void*) = nullptr;
  int (*set_host)(void*, const char*) = nullptr;
  void* (*parameters)(void*) = nullptr;
  int (*set_ip)(void*, const char*) = nullptr;
  void* (*memory_method)() = nullptr;
  void* (*new_bio)(const void*) = nullptr;
  int (*bio_read)(void*, void*, int) = nullptr;
  int (*bio_write)(void*, const void*, int) = nullptr;
  void (*set_bio)(void*, void*, void*) = nullptr;
  int (*connect)(void*) = nullptr;
  int (*read)(void*, void*, int) = nullptr;
  int (*write)(void*, const void*, int) = nullptr;
  int (*error_of)(const void*, int) = nullptr;
  long (*verify_result)(const void*) = nullptr;
  const char* (*verify_text)(long) = nullptr;
  unsigned long (*last_error)() = nullptr;
  void (*error_text)(unsigned long, char*, std::size_t) = nullptr;
  void (*clear_errors)() = nullptr;

  void* context = nullptr;
  std::string problem;
};

inline const TlsLibrary& tls_library() {
  static const TlsLibrary known = [] {
    TlsLibrary out;
    void* library = nullptr;
    for (const char* name : {"libssl.so.3", "libssl.so.1.1"})
      if (library == nullptr) library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* said = ::dlerror();
      out.problem = said != nullptr ? said : "no libssl.so.3";
      return out;
    }
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
      if (function == nullptr) out.problem = std::string("libssl has no ") + name;
    };
    find(out.method, "TLS_client_method");
    find(out.new_context, "SSL_CTX_new");
    find(out.context_ctrl, "SSL_CTX_ctrl");
    find(out.verify, "SSL_CTX_set_verify");
    find(out.default_paths, "SSL_CTX_set_default_verify_paths");
    find(out.new_session, "SSL_new");
    find(out.free_session, "SSL_free");
    find(out.session_ctrl, "SSL_ctrl");
    find(out.set_host, "SSL_set1_host");
    find(out.parameters, "SSL_get0_param");
    find(out.set_ip, "X509_VERIFY_PARAM_set1_ip_asc");
    find(out.memory_method, "BIO_s_mem");
    find(out.new_bio, "BIO_new");
    find(out.bio_read, "BIO_read");
    find(out.bio_write, "BIO_write");
    find(out.set_bio, "SSL_set_bio");
    find(out.connect, "SSL_connect");
    find(out.read, "SSL_read");
    find(out.write, "SSL_write");
    find(out.error_of, "SSL_get_error");
    find(out.verify_result, "SSL_get_verify_result");
    find(out.verify_text, "X509_verify_cert_error_string");
    find(out.last_error, "ERR_get_error");
    find(out.error_text, "ERR_error_string_n");
    find(out.clear_errors, "ERR_clear_error");
    if (!out.problem.empty()) return out;
    constexpr int verify_peer = 1, set_min_version = 123, tls_1_2 = 0x0303;
    out.context = out.new_context(out.method());
    if (out.context == nullptr || out.default_paths(out.context) != 1)
      out.problem = "OpenSSL has no authorities that certificates could be checked with";
    if (out.context == nullptr) return out;
    out.verify(out.context, verify_peer, nullptr);
    out.context_ctrl(out.context, set_min_version, tls_1_2, nullptr);
    return out;
  }();
  if (!known.problem.empty())
    core::raise("http", 11,
                {.what = "https cannot be spoken here",
                 .found = known.problem,
                 .remedy = "install OpenSSL and the authorities (Debian: libssl3, ca-certificates)"});
  return known;
}

// A TLS session over a socket with deadlines, by two buffers in memory.
class TlsSession {
  using ErrorCode = boost::system::error_code;

 public:
  TlsSession(DeadlineSocket& socket, const std::string& host)
      : library_(tls_library()),
        socket_(socket),
        session_(library_.new_session(library_.context), library_.free_session) {
    constexpr int set_name = 55;
    in_ = library_.new_bio(library_.memory_method());
    out_ = library_.new_bio(library_.memory_method());
    library_.set_bio(session_.get(), in_, out_);  // the session owns them
    ErrorCode no_digits;
    (void)boost::asio::ip::make_address(host, no_digits);
    if (!no_digits) {
      library_.set_ip(library_.parameters(session_.get()), host.c_str());
    } else {
      library_.set_host(session_.get(), host.c_str());
      library_.session_ctrl(session_.get(), set_name, 0, const_cast<char*>(host.c_str()));
    }
  }

  void handshake(ErrorCode& error) {
    (void)repeated([&] { return library_.connect(session_.get()); }, error);
    flush(error);
  }
  std::size_t read_some(char* data, std::size_t size, ErrorCode& error) {
    const int count = repeated(
        [&] { return library_.read(session_.get(), data, static_cast<int>(std::min<std::size_t>(size, 1U << 20))); },
        error);
    return error ? 0 : static_cast<std::size_t>(count);
  }
  void write(std::string_view bytes, ErrorCode& error) {
    while (!bytes.empty() && !error) {
      const int count = repeated(
          [&] {
            return library_.write(session_.get(), bytes.data(),
                                  static_cast<int>(std::min<std::size_t>(bytes.size(), 1U << 14)));
          },
          error);
      if (!error) bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    flush(error);
  }
  // Why a call ended with `refused()`: the certificate, or the protocol.
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }
  static ErrorCode refused() { return boost::asio::error::access_denied; }

 private:
  // A call of OpenSSL until it is done, with what it wants to send and to receive in between.
  template <class Call>
  int repeated(const Call& call, ErrorCode& error) {
    constexpr int want_read = 2, want_write = 3, closed = 6;
    error = {};
    while (true) {
      library_.clear_errors();
      const int result = call();
      if (result > 0) return result;
      const int why = library_.error_of(session_.get(), result);
      if (why == closed) return error = boost::asio::error::eof, 0;
      if (why != want_read && why != want_write) return explain(), error = refused(), 0;
      flush(error);
      if (error) return 0;
      if (why == want_read) {
        char bytes[16384];
        const std::size_t count = socket_.read_some(boost::asio::buffer(bytes), error);
        if (error) return 0;
        library_.bio_write(in_, bytes, static_cast<int>(count));
      }
    }
  }

  void flush(ErrorCode& error) {
    char bytes[16384];
    while (!error) {
      const int count = library_.bio_read(out_, bytes, sizeof bytes);
      if (count <= 0) return;
      for (std::size_t at = 0; at < static_cast<std::size_t>(count) && !error;)
        at += socket_.write_some(boost::asio::buffer(bytes + at, static_cast<std::size_t>(count) - at), error);
    }
  }

  void explain() {
    if (const long code = library_.verify_result(session_.get()); code != 0) {
      reason_ = "its certificate is not accepted: " + std::string(library_.verify_text(code));
      return;
    }
    char text[256] = "no TLS";
    if (const unsigned long code = library_.last_error(); code != 0) library_.error_text(code, text, sizeof text);
    reason_ = "TLS failed: " + std::string(text);
  }

  const TlsLibrary& library_;
  DeadlineSocket& socket_;
  std::unique_ptr<void, void (*)(void*)> session_;
  void* in_ = nullptr;
  void* out_ = nullptr;
  std::string reason_;
};

}  // namespace rlalgo::http::detail
