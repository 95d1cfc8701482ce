# Settings of our own builds only; a project that adds rlalgo as a subdirectory keeps its own.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

# ccache caches users of a precompiled header only when it is told not to compare what GCC's own .gch check compares
# (macros, time stamps), and when -fpch-preprocess keeps the header's name in the preprocessed text. Paths are hashed
# relative to the source folder, so that any clone finds what another one compiled.
find_program(RLALGO_CCACHE ccache)
if(RLALGO_CCACHE AND (NOT CMAKE_CXX_COMPILER_LAUNCHER OR CMAKE_CXX_COMPILER_LAUNCHER MATCHES "^[^;]*ccache$"))
  set(CMAKE_CXX_COMPILER_LAUNCHER
    /usr/bin/env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${RLALGO_CCACHE})
endif()
# The heap that GCC lets grow before it collects garbage, in KiB: a file that needs 1 GB is collected once instead of ten
# times, which is a tenth of its time.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess> $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1500000>)
endif()

find_program(RLALGO_MOLD mold)
if(RLALGO_MOLD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 12.1)
  add_link_options(-fuse-ld=mold)
endif()

# GCC 12 reports overflows inside std::vector and std::string that do not exist (GCC bugs 105329, 105651, 107852).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overflow> $<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overread>
                      $<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds> $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
