# kvpool::kvpool, the name that users link, is all layers; here it and they are installed and
# exported, so that find_package(kvpool) finds them.
include(CMakePackageConfigHelpers)

get_property(layer_targets GLOBAL PROPERTY KVPOOL_LAYER_TARGETS)
list(TRANSFORM layer_targets REPLACE "^kvpool_" "kvpool::" OUTPUT_VARIABLE layer_names)

add_library(kvpool INTERFACE)
add_library(kvpool::kvpool ALIAS kvpool)
target_link_libraries(kvpool INTERFACE ${layer_names})

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/kvpool")

install(TARGETS kvpool ${layer_targets}
  EXPORT kvpool_targets
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT development
  FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT development)
install(EXPORT kvpool_targets
  FILE kvpool-targets.cmake
  NAMESPACE kvpool::
  DESTINATION "${package_dir}" COMPONENT development)

configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/kvpool-config.cmake.in"
  "${PROJECT_BINARY_DIR}/kvpool-config.cmake"
  INSTALL_DESTINATION "${package_dir}")
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/kvpool-config-version.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/kvpool-config.cmake"
  "${PROJECT_BINARY_DIR}/kvpool-config-version.cmake"
  DESTINATION "${package_dir}" COMPONENT development)
