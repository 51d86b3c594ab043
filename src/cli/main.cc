// The binary `braid`.
#include "cli/command/command.h"

int main(int argc, char** argv) { return braid::RunCommandLine(argc, argv); }
