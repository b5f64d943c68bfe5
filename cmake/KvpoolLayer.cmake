# kvpool_add_layer(name [DEPS layer…] [LIBS target…])
#
# A layer is two folders, include/kvpool/<name> (public headers, installed) and src/<name> (sources
# and private headers), and becomes one library: target kvpool_<name>, called kvpool::<name> in and
# outside this build. DEPS names the layers right below it; LIBS other targets that it needs. Files
# are found by folder and looked for again at each build, so a new file needs no edit here.
function(kvpool_add_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 layer "" "" "DEPS;LIBS")
  set(target kvpool_${name})

  file(GLOB headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/kvpool/${name}/*.h")
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${name}/*.cc")

  add_library(${target} STATIC ${sources})
  add_library(kvpool::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_sources(${target} PUBLIC
    FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${headers})
  kvpool_compile_options(${target})

  list(TRANSFORM layer_DEPS PREPEND kvpool::)
  target_link_libraries(${target} PUBLIC ${layer_DEPS} ${layer_LIBS})

  set_property(GLOBAL APPEND PROPERTY KVPOOL_LAYER_TARGETS ${target})
endfunction()
