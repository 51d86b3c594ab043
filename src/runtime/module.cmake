# Builds that look for mistakes make freed cache pages unusable.
target_compile_definitions(braid_runtime PUBLIC BRAID_POISON_FREED=$<IF:$<OR:$<CONFIG:Debug>,$<BOOL:${BRAID_SANITIZE}>>,true,false>)
