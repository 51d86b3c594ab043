// One factory per command; each command lives in the file of its name.
#pragma once

#include "cli/command/command.h"

namespace braid {

CommandPointer MakeServeCommand();
CommandPointer MakeRouterCommand();
CommandPointer MakeRunCommand();
CommandPointer MakeScoreCommand();
CommandPointer MakeEvalCommand();
CommandPointer MakeBenchOfflineCommand();
CommandPointer MakeBenchLoadCommand();
CommandPointer MakeBenchOpsCommand();
CommandPointer MakeBenchBalanceCommand();
CommandPointer MakeBenchDispatchCommand();
CommandPointer MakeBenchRebalanceCommand();
CommandPointer MakeBenchAgenticCommand();
CommandPointer MakeBenchDraftsCommand();
CommandPointer MakeBenchHandoffCommand();
CommandPointer MakeSimulateCommand();
CommandPointer MakeSimulateClusterCommand();
CommandPointer MakeReplayCommand();
CommandPointer MakeInspectCommand();
CommandPointer MakePlanCommand();
CommandPointer MakeExpertsPlanCommand();
CommandPointer MakeConvertCommand();
CommandPointer MakeDoctorCommand();
CommandPointer MakeDoctorPrefixCommand();
CommandPointer MakeCacheLsCommand();
CommandPointer MakeCacheStatCommand();
CommandPointer MakeCacheVerifyCommand();
CommandPointer MakeCacheClearCommand();
CommandPointer MakeCacheExportCommand();
CommandPointer MakeCacheImportCommand();
CommandPointer MakeMakeModelCommand();
CommandPointer MakeVersionCommand();
CommandPointer MakeLicencesCommand();

}  // namespace braid
