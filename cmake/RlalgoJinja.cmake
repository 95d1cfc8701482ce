# rlalgo_jinja_engine and rlalgo_http_engine: the interpreter of chat templates, and HTTP, as object files, for programs of
# this tree. Users of the library need them not: the headers hold everything.
add_library(rlalgo_jinja_engine OBJECT ${CMAKE_CURRENT_LIST_DIR}/jinja_engine.cpp)
target_link_libraries(rlalgo_jinja_engine PUBLIC rlalgo_host)
target_compile_definitions(rlalgo_jinja_engine PUBLIC RLALGO_JINJA_ELSEWHERE)
if(TARGET rlalgo_http)
  add_library(rlalgo_http_engine OBJECT ${CMAKE_CURRENT_LIST_DIR}/http_engine.cpp)
  target_link_libraries(rlalgo_http_engine PUBLIC rlalgo_http)
  target_compile_definitions(rlalgo_http_engine PUBLIC RLALGO_HTTP_ELSEWHERE)
endif()
