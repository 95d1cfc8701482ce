# Floor targets: rlalgo::host (floors 0-1, no torch on the include path) < rlalgo::rlalgo (floors 2-6) < rlalgo::config.
find_package(Eigen3 3.3 REQUIRED NO_MODULE)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(range-v3 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(RLALGO_PCRE2 REQUIRED IMPORTED_TARGET GLOBAL libpcre2-8)
include(RlalgoHttplib)
find_package(ICU REQUIRED COMPONENTS uc i18n data)
find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)

set(_rlalgo_include ${PROJECT_SOURCE_DIR}/include)
set(RLALGO_HOST_ROOMS core advantage aggregation reward data environment text run)
set(RLALGO_CONFIG_ROOMS config)

# Every header belongs to the target of its floor; doors (rlalgo/*.hpp) belong to rlalgo::rlalgo.
file(GLOB_RECURSE RLALGO_HEADERS CONFIGURE_DEPENDS ${_rlalgo_include}/rlalgo/*.hpp)
set(_rlalgo_host_headers)
set(_rlalgo_torch_headers)
set(_rlalgo_config_headers)
foreach(_header IN LISTS RLALGO_HEADERS)
  cmake_path(RELATIVE_PATH _header BASE_DIRECTORY ${_rlalgo_include}/rlalgo OUTPUT_VARIABLE _relative)
  string(REGEX REPLACE "/.*" "" _room ${_relative})
  if(_room IN_LIST RLALGO_HOST_ROOMS)
    list(APPEND _rlalgo_host_headers ${_header})
  elseif(_room IN_LIST RLALGO_CONFIG_ROOMS)
    list(APPEND _rlalgo_config_headers ${_header})
  else()
    list(APPEND _rlalgo_torch_headers ${_header})
  endif()
endforeach()

# A floor target: its headers, visible to the build tree and installed, each checked to be self-contained when
# CMAKE_VERIFY_INTERFACE_HEADER_SETS is on (target all_verify_interface_header_sets).
function(rlalgo_floor name)
  add_library(rlalgo_${name} INTERFACE)
  add_library(rlalgo::${name} ALIAS rlalgo_${name})
  set_target_properties(rlalgo_${name} PROPERTIES EXPORT_NAME ${name})
  target_sources(rlalgo_${name} INTERFACE FILE_SET HEADERS BASE_DIRS ${_rlalgo_include} FILES ${ARGN})
endfunction()

rlalgo_floor(host ${_rlalgo_host_headers})
target_compile_features(rlalgo_host INTERFACE cxx_std_20)
target_link_libraries(rlalgo_host INTERFACE Eigen3::Eigen nlohmann_json::nlohmann_json range-v3::range-v3
  PkgConfig::RLALGO_PCRE2 httplib::httplib ICU::uc ICU::i18n ICU::data Threads::Threads ZLIB::ZLIB)

if(NOT RLALGO_HOST_ONLY)
  include(RlalgoLibTorch)
  rlalgo_floor(rlalgo ${_rlalgo_torch_headers})
  target_link_libraries(rlalgo_rlalgo INTERFACE rlalgo_host rlalgo::libtorch)

  find_package(yaml-cpp REQUIRED)
  rlalgo_floor(config ${_rlalgo_config_headers})
  target_link_libraries(rlalgo_config INTERFACE rlalgo_rlalgo yaml-cpp)
endif()

if(RLALGO_CUDA)
  include(RlalgoCuda)
endif()
if(RLALGO_NCCL)
  include(RlalgoNccl)
endif()
