# A negative control must be found by random operations, again by its seed and from its file, and be shortened to at
# most MOST operations, which fail alone.
#
# usage: cmake -DSTRESS=PROGRAM -DCONTROL=NAME -DFOLDER=FOLDER -DPATIENCE=MS -P control.cmake
set(MOST 8)
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})

# run(WANTED ARGUMENT...): the program under the control; its exit status must be WANTED.
function(run wanted)
  execute_process(COMMAND ${STRESS} --control ${CONTROL} ${ARGN} WORKING_DIRECTORY ${FOLDER}
                  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE errors)
  if(NOT result EQUAL wanted)
    message(FATAL_ERROR "${CONTROL}: ${ARGN}: ${result}, not ${wanted}\n${output}${errors}")
  endif()
  set(errors "${errors}" PARENT_SCOPE)
  set(output "${output}" PARENT_SCOPE)
endfunction()

# One run in about 25 finds the rarest control.
run(1 --seed 40 --runs 200 --operations 200 --patience ${PATIENCE} --output found.txt)
string(REGEX MATCH "seed ([0-9]+), operation" told "${errors}")
set(seed ${CMAKE_MATCH_1})
run(1 --seed ${seed} --runs 1 --operations 200 --patience ${PATIENCE} --output again.txt)
file(READ ${FOLDER}/found.txt found)
file(READ ${FOLDER}/again.txt again)
if(NOT found STREQUAL again)
  message(FATAL_ERROR "${CONTROL}: seed ${seed} does not give the same operations again")
endif()
run(1 --replay --patience ${PATIENCE} found.txt)
run(0 --minimise --patience ${PATIENCE} found.txt --output shortest.txt)
run(1 --replay --patience ${PATIENCE} shortest.txt)
file(STRINGS ${FOLDER}/shortest.txt lines REGEX "^[a-z]")
list(LENGTH lines count)
if(count EQUAL 0 OR count GREATER MOST)
  message(FATAL_ERROR "${CONTROL}: ${count} operations are left, not 1 to ${MOST}:\n${output}")
endif()
message(STATUS "${CONTROL}: seed ${seed}, ${count} operations left:\n${output}")
