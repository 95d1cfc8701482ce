// Bytes that Zstandard has packed, through the system's libzstd.so.1, which is loaded when the first such file is opened.
//
// Its streaming interface has not changed since 1.0; the declarations are here, so that nothing is needed to compile.
// Errors: [rlalgo.data.6] there is no such library.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <memory>
#include <string>

#include <rlalgo/core/error.hpp>

namespace rlalgo::data::detail {

struct ZstdLibrary {
  struct Input {
    const void* begin;
    std::size_t size, at;
  };
  struct Output {
    void* begin;
    std::size_t size, at;
  };
  void* (*create)() = nullptr;
  std::size_t (*free)(void*) = nullptr;
  std::size_t (*decompress)(void*, Output*, Input*) = nullptr;
  unsigned (*is_error)(std::size_t) = nullptr;
  const char* (*error_name)(std::size_t) = nullptr;

  [[nodiscard]] bool whole() const { return create && free && decompress && is_error && error_name; }
};

inline const ZstdLibrary& zstd_library(const std::string& where) {
  static const ZstdLibrary known = [] {
    ZstdLibrary out;
    void* const library = ::dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return out;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    };
    find(out.create, "ZSTD_createDStream");
    find(out.free, "ZSTD_freeDStream");
    find(out.decompress, "ZSTD_decompressStream");
    find(out.is_error, "ZSTD_isError");
    find(out.error_name, "ZSTD_getErrorName");
    return out;
  }();
  if (!known.whole())
    core::raise("data", 6,
                {.what = "zstd files cannot be read here",
                 .found = "no libzstd.so.1",
                 .where = where,
                 .remedy = "install it (Debian: libzstd1), or unpack the file: unzstd -k '" + where + "'"});
  return known;
}

class ZstdStream {
 public:
  explicit ZstdStream(const std::string& where)
      : library_(zstd_library(where)), stream_(library_.create(), Free{library_.free}) {}

  // Unpacks some of [begin, begin + size) from `at` on; returns bytes written. `problem`: what is wrong with them.
  std::size_t read(const char* begin, std::size_t size, std::size_t& at, char* out, std::size_t room,
                   std::string& problem) {
    ZstdLibrary::Input input{begin, size, at};
    ZstdLibrary::Output output{out, room, 0};
    const std::size_t code = library_.decompress(stream_.get(), &output, &input);
    at = input.at;
    if (library_.is_error(code) != 0) problem = library_.error_name(code);
    between_frames_ = code == 0;
    return output.at;
  }
  // Whether a frame is whole: the file may end here.
  [[nodiscard]] bool between_frames() const noexcept { return between_frames_; }

 private:
  struct Free {
    std::size_t (*free)(void*);
    void operator()(void* stream) const { free(stream); }
  };
  const ZstdLibrary& library_;
  std::unique_ptr<void, Free> stream_;
  bool between_frames_ = true;
};

}  // namespace rlalgo::data::detail
