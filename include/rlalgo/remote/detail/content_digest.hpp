// SHA-256 of a file, and Git's name of it as a blob (SHA-1), by the system's libcrypto, which is loaded when the first is asked
// for; the declarations are here, so that nothing is needed to compile.
//
// Errors: [rlalgo.remote.88] libcrypto does not load; [rlalgo.os.1] the file cannot be read.
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/os/regular_file.hpp>

namespace rlalgo::remote::detail {

struct CryptoLibrary {
  void* (*create)() = nullptr;
  void (*free)(void*) = nullptr;
  int (*begin)(void*, const void*, void*) = nullptr;
  int (*update)(void*, const void*, std::size_t) = nullptr;
  int (*end)(void*, unsigned char*, unsigned*) = nullptr;
  const void* (*sha256)() = nullptr;
  const void* (*sha1)() = nullptr;

  [[nodiscard]] bool whole() const { return create && free && begin && update && end && sha256 && sha1; }
};

inline const CryptoLibrary& crypto_library() {
  static const CryptoLibrary known = [] {
    CryptoLibrary out;
    void* library = nullptr;
    for (const char* name : {"libcrypto.so.3", "libcrypto.so.1.1"})
      if (library == nullptr) library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return out;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    };
    find(out.create, "EVP_MD_CTX_new");
    find(out.free, "EVP_MD_CTX_free");
    find(out.begin, "EVP_DigestInit_ex");
    find(out.update, "EVP_DigestUpdate");
    find(out.end, "EVP_DigestFinal_ex");
    find(out.sha256, "EVP_sha256");
    find(out.sha1, "EVP_sha1");
    return out;
  }();
  if (!known.whole())
    core::raise("remote", 88,
                {.what = "files cannot be verified here",
                 .found = "no libcrypto.so.3",
                 .remedy = "install OpenSSL (Debian: libssl3)"});
  return known;
}

// In hexadecimal digits; `prefix` comes before the bytes of the file.
inline std::string digest_of_file(const std::filesystem::path& path, bool sha256, std::string_view prefix = {}) {
  const CryptoLibrary& library = crypto_library();
  const std::unique_ptr<void, void (*)(void*)> context(library.create(), library.free);
  library.begin(context.get(), sha256 ? library.sha256() : library.sha1(), nullptr);
  library.update(context.get(), prefix.data(), prefix.size());
  const os::RegularFile file(path);
  os::require_open(file, path);
  std::vector<char> buffer(std::size_t{1} << 20);
  for (ssize_t n = 0; (n = ::read(file.descriptor(), buffer.data(), buffer.size())) != 0;) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      core::raise("os", 1,
                  {.what = "cannot read a fetched file", .found = std::strerror(errno), .where = path.string()});
    library.update(context.get(), buffer.data(), static_cast<std::size_t>(n));
  }
  std::array<unsigned char, 64> bytes{};
  unsigned size = 0;
  library.end(context.get(), bytes.data(), &size);
  std::string out;
  for (unsigned i = 0; i < size; ++i) {
    out += "0123456789abcdef"[bytes[i] >> 4U];
    out += "0123456789abcdef"[bytes[i] & 15U];
  }
  return out;
}

}  // namespace rlalgo::remote::detail
