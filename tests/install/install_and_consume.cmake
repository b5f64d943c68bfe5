# Run by ctest with -P; see CMakeLists.txt beside this file for the variables.
function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${what} failed: ${result}")
  endif()
endfunction()

file(REMOVE_RECURSE "${SCRATCH_DIR}")

run("install" "${CMAKE_COMMAND}" --install "${BUILD_DIR}" --config "${CONFIG}"
  --prefix "${SCRATCH_DIR}/installed" --component development)

# What was installed must not lean on where it was: the consumer sees it only after it moved.
file(RENAME "${SCRATCH_DIR}/installed" "${SCRATCH_DIR}/moved")

run("configuring the consumer" "${CMAKE_COMMAND}" -S "${CONSUMER_DIR}" -B "${SCRATCH_DIR}/build" -G "${GENERATOR}"
  "-DCMAKE_PREFIX_PATH=${SCRATCH_DIR}/moved"
  "-DCMAKE_BUILD_TYPE=${CONFIG}"
  "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}"
  "-DCMAKE_CXX_FLAGS=${CXX_FLAGS}"
  "-DKVPOOL_EXPECTED_VERSION=${VERSION}")
run("building the consumer" "${CMAKE_COMMAND}" --build "${SCRATCH_DIR}/build" --config "${CONFIG}")
run("running the consumer" "${SCRATCH_DIR}/build/consumer")
