// One factory per command; each command lives in the file of its name.
#pragma once

#include "cli/command.h"

namespace braid {

CommandPointer MakeServeCommand();
CommandPointer MakeRunCommand();
CommandPointer MakeScoreCommand();
CommandPointer MakeEvalCommand();
CommandPointer MakeBenchOfflineCommand();
CommandPointer MakeBenchServeCommand();
CommandPointer MakeBenchAgenticCommand();
CommandPointer MakeBenchLongPromptCommand();
CommandPointer MakeInspectCommand();
CommandPointer MakeDoctorCommand();
CommandPointer MakeDoctorPrefixCommand();
CommandPointer MakeMakeModelCommand();
CommandPointer MakeVersionCommand();

}  // namespace braid
