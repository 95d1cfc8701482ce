# rlalgo_jinja_engine: the interpreter of chat templates as an object file, for programs of this tree. Users of the library
# need it not: the headers hold everything.
add_library(rlalgo_jinja_engine OBJECT ${CMAKE_CURRENT_LIST_DIR}/jinja_engine.cpp)
target_link_libraries(rlalgo_jinja_engine PUBLIC rlalgo_host)
target_compile_definitions(rlalgo_jinja_engine PUBLIC RLALGO_JINJA_ELSEWHERE)
