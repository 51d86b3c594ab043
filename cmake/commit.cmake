# A script: cmake -DBRAID_OUTPUT=FILE -DBRAID_COMMIT=NAME -P commit.cmake writes FILE, which defines
# kCommit (src/cli/command/build_facts.h), when it would change. Without a NAME git is asked; where
# there is no repository, as in an image's build, the commit is empty.
if(NOT BRAID_COMMIT)
  execute_process(
    COMMAND git describe --always --abbrev=12 --exclude=* --dirty
    WORKING_DIRECTORY ${CMAKE_CURRENT_LIST_DIR}
    OUTPUT_VARIABLE BRAID_COMMIT
    OUTPUT_STRIP_TRAILING_WHITESPACE
    ERROR_QUIET)
endif()
string(CONCAT text
  "#include <string_view>\n\nnamespace braid {\nextern const std::string_view kCommit;\n"
  "constinit const std::string_view kCommit{\"${BRAID_COMMIT}\"};\n}  // namespace braid\n")
# It keeps the time of a file that is equal.
file(CONFIGURE OUTPUT ${BRAID_OUTPUT} CONTENT "${text}" @ONLY)
