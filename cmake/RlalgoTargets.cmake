# Floor targets, each with what it alone needs; the components of find_package(rlalgo) have the same names:
#   rlalgo::host    floors 0-2 and the CPU's kernels: nlohmann/json, range-v3, PCRE2, ICU, zlib; no torch, no HTTP on the include path
#   rlalgo::http    rlalgo::host and the headers of Boost (Asio, Beast)
#   rlalgo::rlalgo  floors 3-8: rlalgo::http, LibTorch and Eigen
#   rlalgo::config  floor 9: rlalgo::rlalgo and yaml-cpp
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12
   OR CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
  message(FATAL_ERROR "rlalgo is C++20 and needs g++ 12 or clang 14, or newer; this is ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}. "
    "Name another compiler with -DCMAKE_CXX_COMPILER=…")
endif()
# RLALGO_FIND_DEPENDENCIES=OFF: names of what is linked, and nothing behind them, which is enough to install headers.
if(NOT RLALGO_FIND_DEPENDENCIES)
  foreach(_name IN ITEMS nlohmann_json::nlohmann_json range-v3::range-v3 PkgConfig::RLALGO_PCRE2 ICU::uc ICU::i18n ICU::data Threads::Threads
      ZLIB::ZLIB Boost::headers rlalgo::libtorch Eigen3::Eigen yaml-cpp)
    add_library(${_name} INTERFACE IMPORTED)
  endforeach()
else()
  find_package(nlohmann_json 3.11 REQUIRED)
  find_package(range-v3 REQUIRED)  # (its version file accepts equal versions only)
  if(range-v3_VERSION VERSION_LESS 0.12)
    message(FATAL_ERROR "range-v3 ${range-v3_VERSION} is too old: 0.12 or newer is needed")
  endif()
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(RLALGO_PCRE2 REQUIRED IMPORTED_TARGET GLOBAL libpcre2-8)
  find_package(ICU REQUIRED COMPONENTS uc i18n data)
  find_package(Threads REQUIRED)
  find_package(ZLIB REQUIRED)
  # With RLALGO_HOST_ONLY Boost is asked for by the tests only.
  if(NOT RLALGO_HOST_ONLY OR RLALGO_BUILD_TESTS)
    find_package(Boost 1.74 REQUIRED)
  endif()
  if(NOT RLALGO_HOST_ONLY)
    include(RlalgoLibTorch)
    find_package(Eigen3 3.4 REQUIRED NO_MODULE)
    find_package(yaml-cpp REQUIRED)
  endif()
endif()

set(_rlalgo_include ${PROJECT_SOURCE_DIR}/include)
set(RLALGO_HOST_ROOMS core cpu os maths advantage aggregation reward data environment text run)
set(RLALGO_HTTP_ROOMS http)
set(RLALGO_CONFIG_ROOMS config)

# Every header belongs to the target of its floor; doors (rlalgo/*.hpp) belong to rlalgo::rlalgo.
file(GLOB_RECURSE RLALGO_HEADERS CONFIGURE_DEPENDS ${_rlalgo_include}/rlalgo/*.hpp)
foreach(_header IN LISTS RLALGO_HEADERS)
  cmake_path(RELATIVE_PATH _header BASE_DIRECTORY ${_rlalgo_include}/rlalgo OUTPUT_VARIABLE _relative)
  string(REGEX REPLACE "/.*" "" _room ${_relative})
  if(_room IN_LIST RLALGO_HTTP_ROOMS)
    list(APPEND _rlalgo_http_headers ${_header})
  elseif(_room IN_LIST RLALGO_HOST_ROOMS)
    list(APPEND _rlalgo_host_headers ${_header})
  elseif(_room IN_LIST RLALGO_CONFIG_ROOMS)
    list(APPEND _rlalgo_config_headers ${_header})
  else()
    list(APPEND _rlalgo_rlalgo_headers ${_header})
  endif()
endforeach()

# A floor target: its headers, visible to the build tree and installed, each checked to be self-contained when
# CMAKE_VERIFY_INTERFACE_HEADER_SETS is on (target all_verify_interface_header_sets).
set(RLALGO_COMPONENTS "")
function(rlalgo_floor name)
  add_library(rlalgo_${name} INTERFACE)
  add_library(rlalgo::${name} ALIAS rlalgo_${name})
  set_target_properties(rlalgo_${name} PROPERTIES EXPORT_NAME ${name})
  target_sources(rlalgo_${name} INTERFACE FILE_SET HEADERS BASE_DIRS ${_rlalgo_include} FILES ${_rlalgo_${name}_headers})
  target_link_libraries(rlalgo_${name} INTERFACE ${ARGN})
  set(RLALGO_COMPONENTS ${RLALGO_COMPONENTS} ${name} PARENT_SCOPE)
endfunction()

rlalgo_floor(host nlohmann_json::nlohmann_json range-v3::range-v3 PkgConfig::RLALGO_PCRE2 ICU::uc ICU::i18n ICU::data Threads::Threads ZLIB::ZLIB)
target_compile_features(rlalgo_host INTERFACE cxx_std_20)

if(NOT RLALGO_HOST_ONLY OR RLALGO_BUILD_TESTS)
  rlalgo_floor(http rlalgo_host Boost::headers)
endif()
if(NOT RLALGO_HOST_ONLY)
  rlalgo_floor(rlalgo rlalgo_http rlalgo::libtorch Eigen3::Eigen)
  rlalgo_floor(config rlalgo_rlalgo yaml-cpp)
endif()

include(RlalgoCuda)
if(RLALGO_HAS_CUDA)
  list(APPEND RLALGO_COMPONENTS cuda)
endif()
