// What planted code asks: whether its mutant is the one that is switched on ($BRAID_MUTANT). It
// notes that it was asked, so that only tests that reach a mutant have to run for it.
#pragma once

extern "C" {
extern int braid_mutant;
extern unsigned char* braid_mutants_reached;
}

// A macro, so that files for one instruction set leave no function behind. In constant expressions
// no mutant is on.
#define BRAID_MUTANT(number)             \
  (!__builtin_is_constant_evaluated() && \
   (braid_mutants_reached[number] = 1, braid_mutant == (number)))
